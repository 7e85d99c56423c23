"""`IPython.display`: IPython's own classes and functions, on a shell that is the kernel.

The parts of IPython that show things are in the image, as they are; what they ask of IPython's shell is answered here.
"""

import base64
import errno
import html
import importlib
import io
import os
import re
import sys
import types

import _cellar
from _cellar_prelude.notebook import display as showing
from _cellar_prelude.platform.sandbox import VENDORED_FOLDER


class _Formatter:
    """What IPython's `display` takes for its formatter."""

    formatters = showing.formatters

    def format(self, value, include=None, exclude=None):
        return showing.represent(value, include, exclude), {}


# What takes what is displayed instead of who looks on, where a cell wants that.
captures = [None]
# What cells can choose of IPython's shell.
FIRST_SETTINGS = {"ast_node_interactivity": "last_expr"}
settings = dict(FIRST_SETTINGS)
_INTERACTIVITIES = ("all", "last", "last_expr", "none", "last_expr_or_assign")


class _Settings(type):
    """The class of the shell's class, which cells set choices on."""

    def __setattr__(cls, name, value):
        if name == "ast_node_interactivity" and value not in _INTERACTIVITIES:
            raise ValueError(f"ast_node_interactivity is one of {', '.join(_INTERACTIVITIES)}, not {value!r}")
        settings[name] = value

    def __getattr__(cls, name):
        if name in settings:
            return settings[name]
        raise AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'")


class _Publisher:
    """What IPython's `display` takes for the connection to a notebook."""

    def publish(self, data, metadata=None, *, transient=None, update=False, **_options):
        if captures[0] is not None:
            captures[0](data)
            return
        pairs = showing.from_mapping(data)
        name = (transient or {}).get("display_id")
        _cellar.display(pairs, None if name is None else str(name), bool(update))

    def clear_output(self, wait=False):
        _cellar.clear(bool(wait))


class InteractiveShell(metaclass=_Settings):
    """The little that is asked of IPython's shell."""

    display_formatter = _Formatter()
    display_pub = _Publisher()

    @classmethod
    def initialized(cls):
        """There always is one."""
        return True

    @classmethod
    def instance(cls):
        """The only one."""
        return cls


def _module(name, **members):
    module = types.ModuleType(name, "A part of IPython, for code that displays things.")
    vars(module).update(members)
    sys.modules[name] = module
    return module


def _import_parts():
    """Imports what is there of IPython and returns its package."""
    package = _module("IPython", __path__=[f"{VENDORED_FOLDER}/IPython"], version_info=(9, 18, 1), __version__="9.18.1")
    package.get_ipython = lambda: sys.modules["builtins"].get_ipython()
    _module("IPython.core.interactiveshell", InteractiveShell=InteractiveShell)
    _module("IPython.core.getipython", get_ipython=package.get_ipython)
    # By it libraries tell that they are not in a terminal.
    package.terminal = _module("IPython.terminal", __path__=[])
    package.terminal.interactiveshell = _module(
        "IPython.terminal.interactiveshell", TerminalInteractiveShell=type("TerminalInteractiveShell", (InteractiveShell,), {})
    )
    for name in ("core", "core.display", "core.display_functions", "lib", "lib.display", "lib.pretty", "utils.dir2", "display"):
        importlib.import_module(f"IPython.{name}")
    return package


IPython = _import_parts()
# Formulas are texts and LaTeX here; pictures of them would be no news.
_module("IPython.lib.latextools", latex_to_png=lambda *_arguments, **_options: None)


class _Printer(IPython.lib.pretty.RepresentationPrinter):
    """IPython's printer, which says as well how many items it leaves out."""

    def _enumerate(self, items):
        for place, item in enumerate(items):
            if self.max_seq_length and place >= self.max_seq_length:
                self.text(",")
                self.breakable()
                try:
                    self.text(f"... {len(items) - place} more items")
                except Exception:  # noqa: BLE001 - one that does not know its length
                    self.text("...")
                return
            yield place, item


def _pretty(value):
    """A value as a text over several lines."""
    stream = io.StringIO()
    printer = _Printer(stream)
    printer.pretty(value)
    printer.flush()
    return stream.getvalue()


showing.pretty = _pretty
showing.get_real_method = IPython.utils.dir2.get_real_method

_BASE64 = re.compile(r"[A-Za-z0-9+/\s]{16,}={0,2}\s*")


class Image(IPython.core.display.Image):
    __doc__ = IPython.core.display.Image.__doc__

    def __init__(self, data=None, *args, **options):
        if isinstance(data, str) and not data.startswith("http") and not os.path.exists(data):
            if _looks_like_path(data) or not _BASE64.fullmatch(data):
                raise FileNotFoundError(errno.ENOENT, "No such image file", data)
            data = base64.b64decode(data)
        super().__init__(data, *args, **options)


def _looks_like_path(text):
    return len(text) < 256 and "." in text


class Code(IPython.lib.display.Code):
    __doc__ = IPython.lib.display.Code.__doc__

    def _repr_html_(self):
        """Without colours, which need a library that may not be there."""
        return f'<pre><code class="language-{html.escape(self.language or "text")}">{html.escape(self.data)}</code></pre>'

    def _repr_latex_(self):
        return None

    def _repr_markdown_(self):
        return f"```{self.language or ''}\n{self.data}\n```"


for each in (Image, Code):
    each.__module__ = "IPython.core.display"
    for name in ("IPython.core.display", "IPython.lib.display", "IPython.display"):
        if hasattr(sys.modules[name], each.__name__):
            setattr(sys.modules[name], each.__name__, each)

display = IPython.display.display
# A function like any other, with one more ability.
display.register = showing.register
