"""Modules of the session's own folders, which are read again when they change, and those that cannot be imported."""

import importlib
import os
import sys
import time
import zlib
from importlib.machinery import FileFinder, PathFinder, SourceFileLoader, SourcelessFileLoader

from _cellar_prelude.platform.packages import PACKAGES_FOLDER
from _cellar_prelude.platform.sandbox import LIBRARY_FOLDER

_FIXED_FOLDERS = (LIBRARY_FOLDER, PACKAGES_FOLDER)

# A file that was written this short a time before it was read may be written again without its time changing: clocks
# of file systems are coarse. Such a file is compared by content.
_COARSE_NS = 2_000_000_000

# Modules of the session's folders, by name.
_modules = {}
# What their files looked like when they were read: (time, size, checksum or None), by path.
_looks = {}


def _stamp(path):
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


class _LocalLoader(SourceFileLoader):
    """Always reads the source, writes no bytecode into the session's folders, and remembers what it read."""

    def get_code(self, fullname):
        path = self.get_filename(fullname)
        stamp = _stamp(path)
        source = self.get_data(path)
        recent = stamp is not None and time.time_ns() - stamp[0] < _COARSE_NS
        _looks[path] = (stamp, zlib.crc32(source) if recent else None)
        return self.source_to_code(source, path)

    def exec_module(self, module):
        _modules[module.__name__] = module
        super().exec_module(module)


def _is_fixed(folder):
    return f"{folder}/".startswith(_FIXED_FOLDERS)


def _local_finder(folder):
    """A path hook for all folders but those that never change."""
    folder = folder or os.getcwd()
    if _is_fixed(folder) or not os.path.isdir(folder):
        raise ImportError(f"`{folder}` is not a folder of the session's own", path=folder)
    return FileFinder(folder, (_LocalLoader, [".py"]), (SourcelessFileLoader, [".pyc"]))


def _has_changed(path):
    stamp, checksum = _looks[path]
    now = _stamp(path)
    if now != stamp or now is None:
        return True
    if checksum is None:
        return False
    try:
        with open(path, "rb") as file:
            return zlib.crc32(file.read()) != checksum
    except OSError:
        return True


def refresh():
    """Forgets the modules of the session's folders when a file of theirs has changed, so that `import` reads it again.

    All of them: one that imported a changed one holds the old.
    """
    for folder, finder in sys.path_importer_cache.items():
        if finder is not None and not _is_fixed(folder):
            finder.invalidate_caches()
    if any(_has_changed(path) for path in _looks):
        for name, module in _modules.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]
            _forget_namespaces(name)
        _looks.clear()


def _forget_namespaces(name):
    """Forgets the packages without a file of their own that a module is in: they hold it as an attribute."""
    while name := name.rpartition(".")[0]:
        package = sys.modules.get(name)
        if package is not None and getattr(package, "__file__", None) is None and hasattr(package, "__path__"):
            del sys.modules[name]


def forget():
    """Forgets that there were any."""
    _modules.clear()
    _looks.clear()


def _reload(module):
    """Like `importlib.reload`, also for a module that `refresh` forgot because its file has changed."""
    if isinstance(getattr(getattr(module, "__spec__", None), "loader", None), _LocalLoader):
        sys.modules[module.__name__] = module
    return _original_reload(module)


class _NativeModules:
    """The last to be asked for a module: explains why one that is there in machine code cannot be imported."""

    _SUFFIXES = (".so", ".pyd", ".dylib")

    @classmethod
    def find_spec(cls, fullname, path=None, target=None):
        """Always fails, with an explanation when there is something to explain."""
        stem = fullname.rpartition(".")[2] + "."
        for folder in sys.path if path is None else path:
            if not isinstance(folder, str) or f"{folder}/".startswith(LIBRARY_FOLDER):
                continue
            try:
                names = os.listdir(folder)
            except OSError:
                continue
            for name in names:
                if name.startswith(stem) and name.endswith(cls._SUFFIXES):
                    raise ImportError(cls._explain(fullname, os.path.join(folder, name)), name=fullname, path=folder)

    @staticmethod
    def _explain(name, file):
        return (
            f"cannot import `{name}`: `{file}` is machine code, and this sandbox runs WebAssembly. Pure Python packages "
            "can be imported, and what is built in (sys.builtin_module_names). Install a pure Python version "
            "(pip install --no-binary, or a `py3-none-any` wheel), or let the host do the work as a tool"
        )


class _Stubs:
    """The first to be asked: a folder of type stubs beside a module in machine code is not that module."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        """Always None, or an explanation; asks only for what is named as compiled parts of packages are."""
        if path is not None and fullname.rpartition(".")[2].startswith("_"):
            spec = PathFinder.find_spec(fullname, path)
            if spec is not None and spec.loader is None:
                _NativeModules.find_spec(fullname, path)
        return None


_original_reload = importlib.reload


def install():
    """Makes `import` know the session's folders."""
    importlib.reload = _reload
    _reload.__doc__ = _original_reload.__doc__
    sys.path_hooks.insert(0, _local_finder)
    sys.path_importer_cache.clear()
    sys.meta_path.insert(0, _Stubs)
    # Before the finder that says what there is instead of packages that are nowhere.
    sys.meta_path.insert(-1, _NativeModules)
