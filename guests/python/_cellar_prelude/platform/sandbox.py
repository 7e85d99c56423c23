"""Exceptions of the sandbox, its bounds, and the names that interactive Python has."""

import builtins
import errno
import functools
import pathlib
import re
import sys

import _cellar

# Prelude and library frames are not the user's.
LIBRARY_FOLDER = "/usr/lib/python3.13/"
PRELUDE_FOLDER = "/cellar/prelude/"
# As it stands on `sys.path`.
LIBRARY = LIBRARY_FOLDER.rstrip("/")
# Packages that the prelude uses.
VENDORED_FOLDER = LIBRARY_FOLDER + "cellar-vendored"


class CellStopped(KeyboardInterrupt):
    """The cell must stop. Only raised as one of the subclasses."""

    reason = 1

    def __str__(self):
        return super().__str__() or self.default


class CellTimeout(CellStopped):
    """The cell has run for longer than it may."""

    reason = 0
    default = "the cell ran past its time limit"


class CellInterrupted(CellStopped):
    """The cell's run was cancelled."""

    reason = 1
    default = "the cell was interrupted"


class CellOutOfFuel(CellStopped):
    """The cell has used up its instruction budget."""

    reason = 2
    default = "the cell used up its fuel"


class CellOutputExceeded(CellStopped):
    """The cell has printed more than it may."""

    reason = 3
    default = "the cell printed more than it may"


# In the order of the host's reasons.
STOP_CLASSES = (CellTimeout, CellInterrupted, CellOutOfFuel, CellOutputExceeded)


class StdinNotImplementedError(RuntimeError):
    """The session answers no requests for input."""


class SandboxError(RuntimeError, OSError):
    """Something that does not exist in the sandbox. The message names an alternative."""


class BridgeError(RuntimeError):
    """A call of a tool, a model, an agent or the network failed. `kind` says how."""

    def __init__(self, message, kind="failed", name=None):
        super().__init__(message)
        self.kind = kind
        self.name = name


class ToolError(BridgeError):
    """A tool call failed; `name` is the tool's."""


class NetworkError(BridgeError, ConnectionError):
    """A request could not be made; `kind` is "denied" when the session was not granted its host."""


class CallError(Exception):
    """What the native module raises: (kind, message). Bridges turn it into their own."""


for each in (*STOP_CLASSES, SandboxError, BridgeError, ToolError, NetworkError, StdinNotImplementedError):
    # As seen by users: in messages and in `except` clauses.
    each.__module__ = "builtins"
    setattr(builtins, each.__name__, each)

_cellar.set_stop_classes(STOP_CLASSES)
_cellar.set_error_class(CallError)


# Python frames live in linear memory: more of them than this would fill it before they are counted.
_RECURSION_LIMIT_MAX = 150_000


def install_recursion_limit():
    """Bounds what `sys.setrecursionlimit` can be told."""
    original = sys.setrecursionlimit

    def setrecursionlimit(limit, /):
        original(min(limit, _RECURSION_LIMIT_MAX) if isinstance(limit, int) else limit)

    setrecursionlimit.__doc__ = original.__doc__
    sys.setrecursionlimit = setrecursionlimit


# What is on `sys.path` of the session, in order; the finders and hooks that import modules.
_places = []
_finders = []
_hooks = []


def set_places(places):
    """Says where modules are imported from."""
    if sys.path != places:
        sys.path[:] = places
    if _places != places:
        _places[:] = places


def note_finders():
    """Remembers what imports modules, when all of it is there."""
    _finders[:] = sys.meta_path
    _hooks[:] = sys.path_hooks


def _keep_all(found, wanted):
    """Puts back what is missing of a list, in front."""
    missing = [each for each in wanted if each not in found]
    if missing:
        found[:0] = missing


def keep_ground(names):
    """Puts back what no cell could run without, given the namespace of cells."""
    if names.get("__builtins__") is not builtins:
        names["__builtins__"] = builtins
        names.setdefault("__name__", "__main__")
    if type(sys.path) is not list:
        sys.path = []
    if LIBRARY not in sys.path:
        sys.path[:] = _places
    if type(sys.meta_path) is not list or type(sys.path_hooks) is not list:
        sys.meta_path, sys.path_hooks = [], []
    if len(sys.meta_path) < len(_finders) or len(sys.path_hooks) < len(_hooks):
        _keep_all(sys.meta_path, _finders)
        _keep_all(sys.path_hooks, _hooks)


class ProcessEnded(SystemExit):
    """The end of a program that a kernel was started for. Its code is the exit status of the process."""


class _Exit:
    """`exit` and `quit`, which `site` would make."""

    def __init__(self, name):
        self._name = name

    def __call__(self, code=None):
        raise SystemExit(code)

    def __repr__(self):
        return f"Use {self._name}() to end the cell"


class _Help:
    """`help`, which `site` would make."""

    def __call__(self, *subjects):
        """Prints what is known about a value or a name."""
        import pydoc

        if not subjects:
            print("Type help(object) for help about object.")
        for subject in subjects:
            print(pydoc.render_doc(subject, "Help on %s:", renderer=pydoc.plaintext))

    def __repr__(self):
        return "Type help(object) for help about object."


def install_paths():
    """Lets `Path.exists` and its kin answer no outside of what is granted, as `os.path.exists` does."""
    pathlib._abc._IGNORED_ERRNOS += (errno.EACCES,)


def install_builtins():
    """Makes the names that interactive Python has."""
    for name in ("exit", "quit"):
        setattr(builtins, name, _Exit(name))
    builtins.help = _Help()


def _class_file(kind, sources):
    """The file name of the cell that defined a class of `__main__`, or None."""
    for member in vars(kind).values():
        code = getattr(member, "__code__", None)
        if code is not None and code.co_qualname.startswith(kind.__qualname__ + ".") and is_user_file(code.co_filename):
            return code.co_filename
    pattern = re.compile(rf"^\s*class\s+{re.escape(kind.__name__)}\b", re.MULTILINE)
    for filename, source in sources():
        if pattern.search(source):
            return filename
    return None


def install_inspect(sources):
    """Lets `inspect.getsource` find classes of cells: `__main__` has no file.

    `sources()` gives the file names and sources of cells, the latest first.
    """
    import inspect

    original = inspect.getfile

    @functools.wraps(original)
    def getfile(value):
        if isinstance(value, type) and getattr(value, "__module__", None) == "__main__":
            found = _class_file(value, sources)
            if found is not None:
                return found
        return original(value)

    inspect.getfile = getfile


def is_user_file(filename):
    """Whether code of this file is the user's: not the prelude's, not the library's, and not compiled by Cython."""
    if filename.endswith((".pyx", ".pxi")):
        return False
    return not filename.startswith((LIBRARY_FOLDER, PRELUDE_FOLDER, "<frozen ")) or "/site-packages/" in filename
