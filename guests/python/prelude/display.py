"""Showing values: IPython's rules, with JSON for plain data."""

import json
import types
import uuid

import _cellar

# In the order in which a reader would choose.
_METHODS = (
    ("text/html", "_repr_html_"),
    ("text/markdown", "_repr_markdown_"),
    ("image/svg+xml", "_repr_svg_"),
    ("image/png", "_repr_png_"),
    ("image/jpeg", "_repr_jpeg_"),
    ("application/pdf", "_repr_pdf_"),
    ("text/latex", "_repr_latex_"),
    ("application/json", "_repr_json_"),
)
# A display of more than this is not worth making; the host refuses it anyway.
LIMIT = 16 * 1024 * 1024
_SCALARS = frozenset({int, float, bool, complex, bytes, type(None)})

# Formatters that users registered: type -> function that returns a bundle, a (mime, data) pair or a text.
_registered = {}


def _plain(value):
    """The text form: `repr`, over several lines when it is long."""
    text = repr(value)
    if 80 < len(text) < 20_000 and type(value) in (dict, list, tuple, set, frozenset):
        import pprint

        text = pprint.pformat(value, sort_dicts=False)
    return text


def _json_text(value):
    """The value as JSON, or None when it has no faithful JSON form."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return None
    return text if len(text) <= LIMIT else None


def _data(mime, data):
    """What a `_repr_*_` returned, as str or bytes; None when there is nothing. Metadata is dropped."""
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[1], dict):
        data = data[0]
    if data is None:
        return None
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, str):
        if mime.startswith("image/") and mime != "image/svg+xml":
            import base64

            return base64.b64decode(data)
        return data
    if mime == "application/json" or mime.endswith("+json"):
        return _json_text(data)
    return str(data)


def _from_mapping(mapping):
    """A mapping of MIME types as a list of pairs."""
    pairs = []
    for mime, data in mapping.items():
        data = _data(mime, data)
        if data is not None:
            pairs.append((str(mime), data))
    return pairs


def _with_markdown(pairs):
    """HTML is also given as basic Markdown."""
    mimes = {mime for mime, _ in pairs}
    if "text/html" in mimes and "text/markdown" not in mimes:
        from _cellar_prelude.markdown import html_to_markdown

        html = next(data for mime, data in pairs if mime == "text/html")
        text = html_to_markdown(html)
        if text:
            pairs.append(("text/markdown", text))
    return pairs


def _from_registered(value):
    for kind in type(value).__mro__:
        formatter = _registered.get(kind)
        if formatter is None:
            continue
        made = formatter(value)
        if isinstance(made, dict):
            return _from_mapping(made)
        if isinstance(made, tuple):
            return [(made[0], _data(*made))]
        if made is not None:
            return [("text/plain", str(made))]
    return None


def _from_methods(value):
    """What the `_repr_*_` methods of the value give. A method that raises counts as absent, as in IPython."""
    pairs = []
    whole = getattr(value, "_repr_mimebundle_", None)
    if callable(whole):
        try:
            made = whole(include=None, exclude=None)
        except Exception:  # noqa: BLE001 - a broken representation is no representation
            made = None
        if isinstance(made, tuple):
            made = made[0]
        if made:
            pairs = _from_mapping(made)
    known = {mime for mime, _ in pairs}
    for mime, name in _METHODS:
        if mime in known:
            continue
        method = getattr(value, name, None)
        if not callable(method):
            continue
        try:
            data = _data(mime, method())
        except Exception:  # noqa: BLE001 - as above
            data = None
        if data is not None:
            pairs.append((mime, data))
    return pairs


def bundle(value):
    """All representations of a value, as (mime, data) pairs, richest first."""
    kind = type(value)
    if kind in _SCALARS or kind is str:
        return [("text/plain", repr(value))]
    if _registered:
        pairs = _from_registered(value)
        if pairs is not None:
            return _with_plain(value, _with_markdown(pairs))
    if isinstance(value, type) or kind is types.ModuleType:
        return [("text/plain", repr(value))]
    if kind in (dict, list):
        text = _json_text(value)
        pairs = [("application/json", text)] if text is not None else []
    else:
        pairs = _with_markdown(_from_methods(value))
    return _with_plain(value, pairs)


def _with_plain(value, pairs):
    if not any(mime == "text/plain" for mime, _ in pairs):
        pairs.append(("text/plain", _plain(value)))
    return pairs


def show_result(value):
    """Shows the value of a cell's last expression."""
    kind = type(value)
    if kind in _SCALARS or kind is str:
        _cellar.display([("text/plain", repr(value))], None, False)
    else:
        _cellar.display(bundle(value), None, False)


class DisplayHandle:
    """Names a display so that it can be replaced."""

    def __init__(self, display_id=None):
        self.display_id = display_id if display_id is not None else uuid.uuid4().hex

    def display(self, value, **options):
        """Shows a value under this name."""
        display(value, display_id=self.display_id, **options)

    def update(self, value, **options):
        """Replaces what was shown under this name."""
        update_display(value, display_id=self.display_id, **options)

    def __repr__(self):
        return f"<DisplayHandle display_id={self.display_id}>"


class _Display:
    """`display`: a function that also has `register`."""

    __name__ = __qualname__ = "display"

    def __call__(self, *values, display_id=None, update=False, raw=False, **_options):
        """Shows values, each in its richest form.

        `display_id` names the display: True for a new name. `raw` takes a mapping of MIME types as it is. Returns a
        handle when a name was asked for.
        """
        handle = None
        if display_id is not None and display_id is not False:
            handle = DisplayHandle(None if display_id is True else str(display_id))
        elif update:
            raise TypeError("display_id required for update_display")
        name = handle.display_id if handle is not None else None
        for value in values:
            if raw:
                pairs = _from_mapping(value)
            elif type(value) is str:
                pairs = [("text/plain", value)]
            else:
                pairs = bundle(value)
            _cellar.display(pairs, name, bool(update))
        return handle

    def register(self, kind, formatter):
        """Shows values of a type with `formatter(value)`: a mapping of MIME types, a (mime, data) pair, or a text."""
        if not isinstance(kind, type):
            raise TypeError("display.register takes a type and a function")
        _registered[kind] = formatter
        return formatter

    def __repr__(self):
        return "<function display>"


display = _Display()


def update_display(value, *, display_id, **options):
    """Replaces what was shown under a name."""
    display(value, display_id=display_id, update=True, **options)


def clear_output(wait=False):
    """Clears what the cell has shown; with `wait`, when the next output comes."""
    _cellar.clear(wait)


class _Data:
    """A piece of data of one MIME type."""

    _mime = "text/plain"
    _binary = False

    def __init__(self, data=None, url=None, filename=None, metadata=None):
        if url is not None:
            raise ValueError("fetching a URL to display it is not supported: pass the data")
        if filename is None and isinstance(data, (str, bytes)) and self._looks_like_path(data):
            data, filename = None, data
        if filename is not None:
            with open(filename, "rb" if self._binary else "r") as file:
                data = file.read()
        self.data = data
        self.metadata = metadata or {}

    @staticmethod
    def _looks_like_path(_data):
        return False

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self._mime: self.data}

    def __repr__(self):
        return f"<IPython.core.display.{type(self).__name__} object>"


class HTML(_Data):
    """HTML."""

    _mime = "text/html"

    def _repr_html_(self):
        return self.data


class Markdown(_Data):
    """Markdown."""

    _mime = "text/markdown"

    def _repr_markdown_(self):
        return self.data


class Latex(_Data):
    """LaTeX."""

    _mime = "text/latex"


class Math(Latex):
    """LaTeX of one formula."""

    def __init__(self, data=None, **options):
        super().__init__(data, **options)
        self.data = f"$\\displaystyle {str(self.data).strip('$')}$"


class SVG(_Data):
    """An SVG image."""

    _mime = "image/svg+xml"

    @staticmethod
    def _looks_like_path(data):
        return isinstance(data, str) and data.endswith(".svg") and "<" not in data


class JSON(_Data):
    """Plain data, or its JSON text."""

    _mime = "application/json"

    def __init__(self, data=None, *, expanded=False, root="root", **options):
        super().__init__(data, **options)
        if isinstance(self.data, str):
            self.data = json.loads(self.data)

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"application/json": self.data, "text/plain": _plain(self.data)}


class Javascript(_Data):
    """JavaScript source; shown, never run."""

    _mime = "application/javascript"


class Pretty(_Data):
    """Plain text."""


class Image(_Data):
    """A PNG, JPEG, GIF, WebP or SVG image, from bytes, a path or base64 text."""

    _binary = True
    _SIGNATURES = (
        (b"\x89PNG", "image/png"),
        (b"\xff\xd8", "image/jpeg"),
        (b"GIF8", "image/gif"),
        (b"RIFF", "image/webp"),
    )

    def __init__(self, data=None, url=None, filename=None, format=None, embed=None, width=None, height=None, **options):
        super().__init__(data, url=url, filename=filename)
        if isinstance(self.data, str):
            import base64

            self.data = base64.b64decode(self.data)
        if self.data is None:
            raise ValueError("Image needs data or a file name")
        self.format = format
        self._mime = self._kind(format)

    def _kind(self, format):
        if format is not None:
            name = format.lower()
            return {"svg": "image/svg+xml", "jpg": "image/jpeg"}.get(name, f"image/{name}")
        for signature, mime in self._SIGNATURES:
            if bytes(self.data[:4]).startswith(signature):
                return mime
        return "image/png"

    @staticmethod
    def _looks_like_path(data):
        return isinstance(data, str) and len(data) < 4096 and data.lower().rsplit(".", 1)[-1] in {
            "png", "jpg", "jpeg", "gif", "webp", "svg",
        }

    def _repr_mimebundle_(self, include=None, exclude=None):
        data = self.data.decode() if self._mime == "image/svg+xml" else self.data
        return {self._mime: data, "text/plain": repr(self)}


def _module(name, members, path=None):
    module = types.ModuleType(name, "A small part of IPython, for code that displays things.")
    for member in members:
        setattr(module, getattr(member, "__name__", None), member)
    if path is not None:
        module.__path__ = path
    return module


def install(modules):
    """Makes `from IPython.display import …` work."""
    members = [
        display, update_display, clear_output, DisplayHandle, HTML, Markdown, Latex, Math, SVG, JSON, Javascript,
        Pretty, Image,
    ]
    package = _module("IPython", [], [])
    package.display = _module("IPython.display", members)
    package.core = _module("IPython.core", [], [])
    package.core.display = _module("IPython.core.display", members)
    # Libraries ask for the shell to find out whether they run in a notebook.
    package.get_ipython = lambda: None
    package.version_info = (8, 0, 0)
    modules["IPython"] = package
    modules["IPython.display"] = package.display
    modules["IPython.core"] = package.core
    modules["IPython.core.display"] = package.core.display
