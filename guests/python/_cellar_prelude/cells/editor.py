"""What editors ask: completions, help at the cursor, a list of names, one value.

Answers may run the user's code, a `__repr__` or a property. It gets little time, for nobody waits for a cell here.
"""

import ast
import contextlib
import inspect as _inspect
import json
import math
import re
import time
import types
import warnings

import _cellar
from _cellar_prelude.cells import cells, offers
from _cellar_prelude.notebook import display
from _cellar_prelude.platform.sandbox import CellStopped

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


def complete(code, cursor):
    """(start, end, [(text, kind)]) at a cursor."""
    try:
        with _limited(ANSWER_TIME):
            return offers.complete(code, cursor)
    except (CellStopped, Exception):  # noqa: BLE001 - the user's attributes may raise anything
        return cursor, cursor, []


# What `is_complete` answers, as the kernel world numbers it.
_COMPLETE, _INCOMPLETE, _INVALID = range(3)
_ALLOW_INCOMPLETE = 0x4000
_INDENT = "    "
_LEAVES = re.compile(r"(?:return|pass|raise|break|continue)\b")
_SHELL = re.compile(r"^(\s*)(?:[%!].*|.*\?\s*)$")


def is_complete(code):
    """Whether a text is a whole cell: (0, "") if it is, (1, indentation of the next line) if it goes on, (2, "") if
    nothing makes a cell of it. A block ends with a blank line, as at any prompt."""
    lines = code.split("\n")
    if code.lstrip().startswith("%%"):
        return (_INCOMPLETE, "") if lines[-1].strip() else (_COMPLETE, "")
    source = "\n".join(_SHELL.sub(r"\1pass", line) for line in lines)
    flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | _ALLOW_INCOMPLETE
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source + "\n", "<input>", "exec", flags)
    except SyntaxError as error:
        if type(error) is SyntaxError or isinstance(error, (IndentationError, TabError)):
            is_open = isinstance(error, IndentationError) and "expected an indented block" in str(error)
            return (_INCOMPLETE, _next_indent(lines)) if is_open and error.lineno >= len(lines) else (_INVALID, "")
        return _INCOMPLETE, _next_indent(lines)
    except Exception:  # noqa: BLE001 - too deep, or with a NUL
        return _INVALID, ""
    last = lines[-1]
    if last[:1] in (" ", "\t") and last.strip():
        return _INCOMPLETE, _next_indent(lines)
    return _COMPLETE, ""


def _next_indent(lines):
    last = next((line for line in reversed(lines) if line.strip()), "")
    indent = last[: len(last) - len(last.lstrip())]
    if last.split("#")[0].rstrip().endswith(":"):
        return indent + _INDENT
    return indent[: -len(_INDENT)] if _LEAVES.match(last.lstrip()) else indent


def inspect(code, cursor):
    """Help on the name at a cursor, as (mime, data) pairs, or None."""
    try:
        with _limited(ANSWER_TIME):
            return _inspect_at(code, cursor)
    except CellStopped:
        return None


def _inspect_at(code, cursor):
    try:
        name, value = offers.subject(code, cursor)
    except Exception:  # noqa: BLE001 - nothing to say
        return None
    if isinstance(value, offers.Made):
        text = f"{name}: {_class_name(value.kind)}"
        return [("text/plain", text), ("text/markdown", f"```python\n{text}\n```")]
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
    return _class_name(type(value))


def _class_name(kind):
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
            pairs = display.bundle(found) or [("text/plain", _preview(found))]
            # A program that asks learns of a plain value what it is, and need not read Python's print of it.
            if type(found) in (str, int, bool, type(None)) or (type(found) is float and math.isfinite(found)):
                pairs.insert(0, ("application/json", json.dumps(found)))
            return pairs
    except CellStopped:
        return [("text/plain", f"<{type(found).__name__} whose representation takes too long>")]
