"""What editors ask: completions, help at the cursor, a list of names, one value.

Answers may run the user's code, a `__repr__` or a property. It gets little time, for nobody waits for a cell here.
"""

import builtins
import contextlib
import inspect as _inspect
import keyword
import re
import sys
import time
import types

import _cellar
from _cellar_prelude import cells, display
from _cellar_prelude.sandbox import CellStopped

_WORD = re.compile(r"[\w.]*$")
_NAME_BEFORE = re.compile(r"[\w.]*$")
_NAME_AFTER = re.compile(r"\w*")
_IMPORT = re.compile(
    r"^\s*(?:from\s+([\w.]*)$|from\s+([\w.]+)\s+import\s+(?:.*,\s*)?(\w*)$|import\s+(?:.*,\s*)?([\w.]*)$)"
)

ITEMS_MAX = 500
PREVIEW_MAX = 120
# How long the user's code may run for one answer, for the preview of one name, and for all previews, in nanoseconds.
ANSWER_TIME = 2_000_000_000
PREVIEW_TIME = 50_000_000
PREVIEWS_TIME = 500_000_000


@contextlib.contextmanager
def _limited(nanoseconds):
    """Code in this block is stopped after a time, by a `CellStopped`."""
    _cellar.limit_time(nanoseconds)
    _cellar.enable_stop(True)
    try:
        yield
    finally:
        _cellar.enable_stop(False)
        _cellar.limit_time(0)


def _kind(value):
    if isinstance(value, type):
        return "class"
    if isinstance(value, types.ModuleType):
        return "module"
    return "function" if callable(value) else "variable"


def _module_names(prefix):
    """Names of modules that begin with a dotted prefix."""
    import pkgutil

    package, _, start = prefix.rpartition(".")
    if package:
        path = getattr(sys.modules.get(package), "__path__", None)
        found = {each.name for each in pkgutil.iter_modules(path)} if path else set()
    else:
        found = {each.name for each in pkgutil.iter_modules()} | {n for n in sys.modules if "." not in n}
    return [(name, "module") for name in sorted(found) if name.startswith(start) and not name.startswith("_cellar")]


def _import_items(match):
    source, package, name, module = match.groups()
    if package is not None:
        target = sys.modules.get(package)
        items = [(each, _kind(getattr(target, each, None))) for each in dir(target) if each.startswith(name)]
        return len(name), items or [each for each in _module_names(f"{package}.{name}")]
    prefix = source if source is not None else module
    return len(prefix.rpartition(".")[2]), _module_names(prefix)


def _value_of(expression):
    """The value of a dotted name, found without calling anything of the user's but properties."""
    first, *rest = expression.split(".")
    if first in cells.names:
        value = cells.names[first]
    else:
        value = getattr(builtins, first)
    for name in rest:
        value = getattr(value, name)
    return value


def _attribute_items(expression, prefix):
    try:
        value = _value_of(expression)
    except Exception:  # noqa: BLE001 - nothing to offer
        return []
    items = []
    for name in dir(value):
        if not name.startswith(prefix) or (name.startswith("_") and not prefix.startswith("_")):
            continue
        try:
            static = _inspect.getattr_static(value, name)
        except AttributeError:
            static = None
        kind = _kind(static)
        items.append((name, "property" if kind == "variable" else kind))
    return items


def _name_items(prefix):
    items = {}
    for name in keyword.kwlist:
        items[name] = "keyword"
    for name, value in vars(builtins).items():
        if not name.startswith("__cellar"):
            items[name] = _kind(value)
    for name, value in cells.names.items():
        items[name] = _kind(value)
    return [
        (name, kind)
        for name, kind in sorted(items.items())
        if name.startswith(prefix) and (not name.startswith("_") or prefix.startswith("_"))
    ]


def complete(code, cursor):
    """(start, end, [(text, kind)]) at a cursor."""
    try:
        with _limited(ANSWER_TIME):
            return _complete(code, cursor)
    except CellStopped:
        return cursor, cursor, []


def _complete(code, cursor):
    before = code[:cursor]
    line = before.rsplit("\n", 1)[-1]
    match = _IMPORT.match(line)
    if match is not None:
        width, items = _import_items(match)
    else:
        word = _WORD.search(line).group()
        expression, dot, prefix = word.rpartition(".")
        width = len(prefix)
        items = _attribute_items(expression, prefix) if dot else (_name_items(prefix) if prefix else [])
    return cursor - width, cursor, items[:ITEMS_MAX]


def inspect(code, cursor):
    """Help on the name at a cursor, as (mime, data) pairs, or None."""
    try:
        with _limited(ANSWER_TIME):
            return _inspect_at(code, cursor)
    except CellStopped:
        return None


def _inspect_at(code, cursor):
    name = _NAME_BEFORE.search(code[:cursor]).group() + _NAME_AFTER.match(code[cursor:]).group()
    if not name:
        # Between the parentheses of a call, help is about the function.
        name = _NAME_BEFORE.search(code[:cursor].rsplit("(", 1)[0]).group()
    name = name.strip(".")
    try:
        value = _value_of(name)
    except Exception:  # noqa: BLE001 - nothing to say
        return None
    described = callable(value) or isinstance(value, types.ModuleType)
    try:
        head = f"{name}{_inspect.signature(value)}" if callable(value) else f"{name}: {_type_name(value)}"
    except (TypeError, ValueError):
        head = name
    parts = [head]
    if not described:
        parts.append(_preview(value))
    text = _inspect.getdoc(value) if described else None
    if text:
        parts.append(text)
    return [
        ("text/plain", "\n\n".join(parts)),
        ("text/markdown", "\n\n".join([f"```python\n{head}\n```", *parts[1:]])),
    ]


def _type_name(value):
    kind = type(value)
    return kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"


def _shape(value):
    """What arrays and tables say of themselves without being written out, or None."""
    shape = getattr(value, "shape", None)
    if not isinstance(shape, tuple) or not all(isinstance(length, int) for length in shape):
        return None
    text = f"shape {shape}"
    kind = getattr(value, "dtype", None)
    if kind is not None:
        return f"{text}, dtype {kind}"
    columns = getattr(value, "columns", None)
    if columns is None:
        return text
    return f"{text}, columns {', '.join(str(name) for name, _ in zip(columns, range(20)))}"


def _preview(value):
    """The beginning of a representation, without building all of a long one."""
    import reprlib

    short = reprlib.Repr()
    short.maxlist = short.maxtuple = short.maxdict = short.maxset = short.maxfrozenset = short.maxdeque = 8
    short.maxstring = short.maxother = short.maxlong = PREVIEW_MAX
    try:
        text = _shape(value) or short.repr(value)
    except Exception as error:  # noqa: BLE001 - a broken repr must not hide the name
        text = f"<repr failed: {type(error).__name__}>"
    text = " ".join(text.split("\n"))
    return text if len(text) <= PREVIEW_MAX else text[: PREVIEW_MAX - 1] + "…"


def _size(value):
    """Bytes of an array, or the length, or None."""
    try:
        size = getattr(value, "nbytes", None)
        if not isinstance(size, int):
            size = len(value)
        return size if 0 <= size < 2**63 else None
    except Exception:  # noqa: BLE001 - no size
        return None


def variables(hidden):
    """(name, type, size or None, preview) of what cells bound."""
    found = []
    began = time.monotonic_ns()
    for name, value in list(cells.names.items()):
        if name.startswith("_") or hidden.get(name, hidden) is value or isinstance(value, types.ModuleType):
            continue
        size, preview = None, ""
        if time.monotonic_ns() - began < PREVIEWS_TIME:
            try:
                with _limited(PREVIEW_TIME):
                    size, preview = _size(value), _preview(value)
            except CellStopped:
                preview = "<repr takes too long>"
        found.append((name, type(value).__name__, size, preview))
    return found


def value(name):
    """One value as (mime, data) pairs, or None when there is no such name."""
    if name not in cells.names:
        return None
    found = cells.names[name]
    try:
        with _limited(ANSWER_TIME):
            return display.bundle(found) or [("text/plain", _preview(found))]
    except CellStopped:
        return [("text/plain", f"<{type(found).__name__} whose representation takes too long>")]
