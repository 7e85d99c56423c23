"""Showing values: IPython's rules, with JSON for plain data and Markdown for HTML.

A value becomes a bundle, a list of (MIME type, str or bytes) pairs, richest first. What the value's own methods raise is
told on standard error and does not fail the cell, as in IPython.
"""

import base64
import binascii
import io
import json
import math
import numbers
import re
import sys
import types

import _cellar
from _cellar_prelude.notebook.markdown import html_to_markdown
from _cellar_prelude.platform import faults, streams

# IPython's own, which `ipython` puts in place: text over several lines, and methods that are really there.
pretty = repr
get_real_method = getattr

# In the order in which a reader would choose, with what each may return.
_METHODS = (
    ("text/html", "_repr_html_", str),
    ("text/markdown", "_repr_markdown_", str),
    ("image/svg+xml", "_repr_svg_", str),
    ("image/png", "_repr_png_", (bytes, str)),
    ("image/jpeg", "_repr_jpeg_", (bytes, str)),
    ("application/pdf", "_repr_pdf_", (bytes, str)),
    ("text/latex", "_repr_latex_", str),
    ("application/json", "_repr_json_", (dict, list, str, int, float, bool)),
    ("application/javascript", "_repr_javascript_", str),
)
_BINARY = re.compile(r"(?:image|audio|video)/(?!svg\+xml)|application/(?:pdf|octet-stream|zip)")
_SCALARS = frozenset({int, float, bool, complex, bytes, str, type(None)})
# A display of more than this, in bytes, is not worth making; the host refuses it anyway.
LIMIT = 16 * 1024 * 1024
# What was done, as JSON: the host makes a status event of it.
STATUS = "application/x-omp-status"
# The columns of a table, which the host makes a file of, and how large they may be.
TABLE = "application/vnd.cellar.table"
TABLE_LIMIT = 63 * 1024 * 1024
# Plain text of more characters than this loses its middle.
TEXT_LIMIT = 1024 * 1024
# IPython breaks lines that are longer.
LINE_WIDTH = 79

# Whether values are written over several lines.
is_pretty = [True]
# Formatters that users registered, by type or by the qualified name of one.
_registered = {}
# What the image has for types of its own: a function of a value that returns further representations.
additions = {}


class Formatter:
    """How cells want values of types to be shown as one MIME type, as IPython's formatters are told."""

    def __init__(self):
        self.enabled = True
        # Functions by type, and by module and name of types that need not be imported yet.
        self.type_printers, self.deferred_printers = {}, {}

    def is_used(self):
        """Whether it changes anything."""
        return bool(self.type_printers or self.deferred_printers) or not self.enabled

    def for_type(self, kind, function=None):
        """Shows values of a type, which may be given by its full name, with a function; returns the one before."""
        if isinstance(kind, str):
            module, _, name = kind.rpartition(".")
            return self.for_type_by_name(module, name, function)
        before = self.type_printers.get(kind)
        if function is not None:
            self.type_printers[kind] = function
        return before

    def for_type_by_name(self, module, name, function=None):
        """The same for a type that need not be imported."""
        before = self.deferred_printers.get((module, name))
        if function is not None:
            self.deferred_printers[module, name] = function
        return before

    def lookup_by_type(self, kind):
        """The function for a type or the nearest of its bases; a `KeyError` when there is none."""
        for each in kind.__mro__:
            function = self.type_printers.get(each) or self.deferred_printers.get((each.__module__, each.__name__))
            if function is not None:
                return function
        raise KeyError(kind)

    def pop(self, kind, default=None):
        """Forgets the function for a type."""
        return self.type_printers.pop(kind, default)

    def forget(self):
        """Makes it as it was."""
        self.__init__()


formatters = {mime: Formatter() for mime in ("text/plain", *(mime for mime, _, _ in _METHODS))}
_plain_formatter = formatters["text/plain"]
_formatters = tuple(formatters.values())


def _is_any_used():
    """Whether a formatter changes anything."""
    for each in _formatters:
        if each.type_printers or each.deferred_printers or not each.enabled:
            return True
    return False


def _pretty(value):
    """The text form, by what cells have said of types."""
    module, stream = sys.modules["IPython.lib.pretty"], io.StringIO()
    printer = module.RepresentationPrinter(
        stream, False, LINE_WIDTH, "\n", module.MAX_SEQ_LENGTH,
        type_pprinters={**module._type_pprinters, **_plain_formatter.type_printers},
        deferred_pprinters={**module._deferred_type_pprinters, **_plain_formatter.deferred_printers},
    )
    printer.pretty(value)
    printer.flush()
    return stream.getvalue()


def _from_formatters(value):
    """What the functions of cells for its type give, by MIME type; None for those that are not wanted at all."""
    found = {}
    for mime, formatter in formatters.items():
        if formatter is _plain_formatter or not formatter.is_used():
            continue
        if not formatter.enabled:
            found[mime] = None
            continue
        try:
            made = formatter.lookup_by_type(type(value))(value)
        except KeyError:
            continue
        except Exception as error:  # noqa: BLE001 - told, and the other representations are used
            _tell(value, error)
            continue
        if made is not None:
            found[mime] = made
    return found


def _plain(value, form=None):
    """The text form, in several lines when it is long; None when it cannot be made."""
    try:
        text = (form or (_pretty if _plain_formatter.is_used() else pretty if is_pretty[0] else repr))(value)
    except Exception as error:  # noqa: BLE001 - told, as in IPython
        _tell(value, error)
        return None
    return _shorten(text)


def _shorten(text):
    if len(text) <= TEXT_LIMIT:
        return text
    half = TEXT_LIMIT // 2
    return f"{text[:half]}\n… {len(text) - TEXT_LIMIT} characters left out …\n{text[-half:]}"


def _tell(value, error):
    streams.tell(f"a value of type {type(value).__name__} cannot be shown:\n{faults.format_exception(error)}")


# In the place of representations that there are none of.
_NONE = object()


class _JsonText(str):
    """A JSON text, as against a text that is to become JSON."""


# Of these JSON says what they are; their subclasses may be something else.
_PLAIN = frozenset({str, int, bool, type(None)})
# Integers beyond this are read as other numbers.
_EXACT_MAX = 2**53


def _is_faithful(value):
    """Whether JSON says the same as the value."""
    waiting, seen = [value], 0
    while waiting:
        each = waiting.pop()
        kind = type(each)
        seen += 1
        if kind is int and not -_EXACT_MAX <= each <= _EXACT_MAX:
            return False
        if kind is float:
            if not math.isfinite(each):
                return False
        elif kind is dict:
            if not all(type(key) is str for key in each):
                return False
            waiting.extend(each.values())
        elif kind is list:
            waiting.extend(each)
        elif kind not in _PLAIN:
            return False
        if seen > LIMIT:
            return False
    return True


def _json_text(value):
    """The value as JSON, or None when it has no faithful JSON form. A `RecursionError` when it is nested too deeply."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        # A text that is none fails here.
        text.isascii() or text.encode()
    except (TypeError, ValueError):
        return None
    return text if len(text) <= LIMIT and _is_faithful(value) else None


def _document(mime, data):
    """The JSON of a representation; None when it cannot be made, which is told."""
    try:
        try:
            return json.dumps(data, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError):
            return json.dumps(_simple(data), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        streams.tell(f"{mime} was left out of a display: {error}")
        return None


def _simple(value):
    """A copy with words of JSON for what has some: numbers that are none become null, as in JavaScript, days texts."""
    if isinstance(value, dict):
        return {key: _simple(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_simple(each) for each in value]
    if isinstance(value, numbers.Integral):
        return value if isinstance(value, int) else int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else None
    return value.isoformat() if hasattr(value, "isoformat") else value


def _data(mime, data):
    """What a representation returned, as str or bytes; None when there is nothing. Metadata is dropped."""
    if isinstance(data, tuple) and len(data) == 2:
        data = data[0]
    if data is None or type(data) is _JsonText:
        return data
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if mime in ("application/json", STATUS) or mime.endswith("+json"):
        return _document(mime, data)
    if isinstance(data, str):
        if _BINARY.match(mime):
            try:
                return base64.b64decode(data)
            except binascii.Error:
                return None
        return data
    return str(data)


def from_mapping(mapping):
    """A mapping of MIME types as a bundle."""
    pairs = []
    for mime, data in mapping.items():
        mime = str(mime)
        data = _data(mime, data)
        if data is None:
            continue
        # The host makes images smaller that are too large to be shown.
        limit = TABLE_LIMIT if mime == TABLE or isinstance(data, bytes) and mime.startswith("image/") else LIMIT
        if len(data) > limit:
            streams.tell(f"{mime} of {len(data)} was left out of a display; at most {limit} are allowed")
            continue
        pairs.append((mime, data))
    return with_markdown(pairs)


def with_markdown(pairs):
    """HTML is also given as basic Markdown."""
    mimes = dict(pairs)
    html = mimes.get("text/html")
    if isinstance(html, str) and "text/markdown" not in mimes:
        try:
            text = html_to_markdown(html)
        except Exception:  # noqa: BLE001 - HTML that is too odd for the converter is still HTML
            text = None
        if text:
            at = 1 + list(mimes).index("text/html")
            pairs.insert(at, ("text/markdown", text))
        elif text == "" and str(mimes.get("text/plain")).startswith("<IPython.core.display."):
            # A page without a text: the name of its class says nothing of it.
            pairs.remove(("text/plain", mimes["text/plain"]))
    return pairs


def _formatter(value):
    """The function that was registered for the value's type or the nearest of its bases."""
    for kind in type(value).__mro__:
        formatter = _registered.get(kind)
        if formatter is None:
            formatter = _registered.get(f"{kind.__module__}.{kind.__qualname__}")
        if formatter is not None:
            return formatter
    return None


def _from_registered(value):
    """What the formatter that users registered gives, or None when that showed itself. `_NONE` when there is no formatter, or when
    it fails, which is told."""
    formatter = _formatter(value)
    if formatter is None:
        return _NONE
    try:
        made = formatter(value)
    except Exception as error:  # noqa: BLE001 - told, and the value is shown without it
        _tell(value, error)
        return _NONE
    if isinstance(made, dict) and _chart_type(made) is None:
        return {str(mime): data for mime, data in made.items()}
    if isinstance(made, tuple):
        return {made[0]: made[1]}
    if made is None or isinstance(made, str):
        return {} if made is None else {"text/plain": made}
    # A value in the place of the other, such as a table.
    try:
        found = _by_itself(made, None, None)
    except Exception as error:  # noqa: BLE001 - told, and its text is shown
        _tell(value, error)
        found = {}
    if found is not None and "text/plain" not in found:
        found["text/plain"] = _plain(made, None if found else str)
    return found


def _ask(value, name, *arguments, **options):
    """What a method of the value returns; None when there is none, or it raises."""
    method = get_real_method(value, name)
    if method is None:
        return None
    try:
        return method(*arguments, **options)
    except NotImplementedError:
        return None
    except Exception as error:  # noqa: BLE001 - told, and the other representations are used
        _tell(value, error)
        return None


def _added(value):
    """What the image has for the value's type or the nearest of its bases."""
    for kind in type(value).__mro__:
        if kind in additions:
            try:
                return additions[kind](value)
            except Exception as error:  # noqa: BLE001 - told, and the other representations are used
                _tell(value, error)
                break
    return {}


def _complain(value, name, data):
    kind = type(value).__name__
    streams.tell(f"{kind}.{name}() returned {type(data).__name__}, which cannot be shown")


def _from_methods(value, include, exclude):
    """What the `_repr_*_` methods of the value give, by MIME type."""
    found = {}
    made = _ask(value, "_repr_mimebundle_", include=include, exclude=exclude)
    if isinstance(made, tuple) and made:
        made = made[0]
    if isinstance(made, dict):
        found.update((str(mime), data) for mime, data in made.items())
    for mime, name, kinds in _METHODS:
        if mime in found or not _wanted(mime, include, exclude):
            continue
        data = _ask(value, name)
        bare = data[0] if isinstance(data, tuple) and len(data) == 2 else data
        if bare is None:
            continue
        if isinstance(bare, kinds):
            found[mime] = bare
        else:
            _complain(value, name, bare)
    return found


def _wanted(mime, include, exclude):
    return not (include and mime not in include) and not (exclude and mime in exclude)


# The grammar that a chart's specification says it is in.
_CHART = re.compile(r"https?://vega\.github\.io/schema/(vega|vega-lite)/v(\d+)(?:\.\d+)*\.json#?")


def _chart_type(value):
    """The MIME type of a dict that is the specification of a chart, or None."""
    schema = value.get("$schema") if type(value) is dict else None
    match = _CHART.fullmatch(schema) if isinstance(schema, str) else None
    return None if match is None else f"application/vnd.{match[1].replace('-', '')}.v{match[2]}+json"


def _plain_data(value):
    """A dict or list: JSON where it has a JSON form, and text."""
    text, is_too_deep = None, False
    try:
        text = _json_text(value)
    except RecursionError:
        is_too_deep = True
    if is_too_deep:
        # To break something so deep into lines would take for ever.
        plain = _plain(value, repr)
        return {"text/plain": plain if plain is not None else f"<{type(value).__name__} that is nested too deeply>"}
    chart = _chart_type(value)
    if chart is not None:
        # What JSON has no word for becomes one, as in a notebook.
        return {chart: value if text is None else _JsonText(text)}
    found = {} if text is None else {"application/json": _JsonText(text)}
    if text is not None and len(text) < 2 * LINE_WIDTH and not _plain_formatter.is_used():
        # What is JSON and fits into a line looks the same pretty; a parenthesis may be the name of a subclass.
        plain = repr(value)
        if len(plain) <= LINE_WIDTH and "(" not in plain:
            found["text/plain"] = plain
    return found


def _by_itself(value, include, exclude):
    """The representations that come with a value; None when it showed itself."""
    if type(value) in (dict, list):
        return _plain_data(value)
    if isinstance(value, type) or type(value) in (types.ModuleType, types.FunctionType):
        return {}
    if get_real_method(value, "_ipython_display_") is not None:
        _ask(value, "_ipython_display_")
        return None
    found = _from_methods(value, include, exclude)
    if additions:
        found.update(_added(value))
    return found


def represent(value, include=None, exclude=None):
    """All representations of a value by MIME type; empty when the value showed itself."""
    found = _from_registered(value) if _registered else _NONE
    if found is _NONE:
        found = _by_itself(value, include, exclude)
    if found is None:
        return {}
    if _is_any_used():
        found = {**found, **_from_formatters(value)}
    found = {mime: data for mime, data in found.items() if data is not None}
    if "text/plain" not in found and _wanted("text/plain", include, exclude):
        plain = _plain(value)
        if plain is not None:
            found["text/plain"] = plain
    return {mime: data for mime, data in found.items() if _wanted(mime, include, exclude)}


def bundle(value):
    """All representations of a value, as (MIME type, data) pairs."""
    return from_mapping(represent(value))


def show_result(value):
    """Shows the value of a cell's last expression. Never fails: what cannot be shown is told."""
    if type(value) in _SCALARS and not _registered and not _is_any_used():
        plain = _plain(value, repr)
        pairs = [] if plain is None else [("text/plain", plain)]
    else:
        pairs = _bundle_safely(value)
    if pairs:
        _cellar.display(pairs, None, False, True)


def _bundle_safely(value):
    """As `bundle`. When that fails because cells have broken what it needs of Python's library, that is mended."""
    try:
        return bundle(value)
    except Exception:  # noqa: BLE001 - tried again, and then told
        _cellar.mend()
    try:
        return bundle(value)
    except Exception as error:  # noqa: BLE001 - told
        _tell(value, error)
        return []


def register(kind, formatter):
    """Shows values of a type, and of its subclasses, with `formatter(value)`.

    It returns a mapping of MIME types, a (MIME type, data) pair, a text, or another value that is shown in its place, such
    as a DataFrame. A type that is not imported yet can be given
    by its name, as in "pandas.core.frame.DataFrame".
    """
    if not isinstance(kind, (type, str)):
        raise TypeError(f"display.register() takes a type or its full name, not {type(kind).__name__}")
    if not callable(formatter):
        raise TypeError("display.register() takes a function of the value as its second argument")
    _registered[kind] = formatter
    return formatter


def format_floats(form):
    """Has floats shown by a format such as `%.3f`; with None as they are."""
    if form is None:
        _plain_formatter.pop(float)
    else:
        _plain_formatter.for_type(float, lambda value, printer, _cycle: printer.text(form % value))


def forget_formatters():
    """Forgets how users have said that values are shown."""
    _registered.clear()
    for each in formatters.values():
        each.forget()
