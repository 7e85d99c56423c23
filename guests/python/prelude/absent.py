"""What Python has elsewhere and a sandbox cannot have: threads, processes, sockets, terminals, C libraries.

As much as can be is there to be imported, because programs import more than they use; the use says why it fails and what
to do instead.
"""

import asyncio
import importlib.machinery
import importlib.util
import os
import signal
import sys
import threading
import types
import _thread

from _cellar_prelude import hollow
from _cellar_prelude.sandbox import SandboxError

_TOOLS = "call a tool that the host offers (tool.<name>(...); dir(tool) lists them)"
_PROCESSES = f"processes cannot be started in this sandbox: use Python itself, or {_TOOLS}"
_SOCKETS = (
    "sockets do not exist in this sandbox: use urllib.request when the session was granted network access, "
    f"or {_TOOLS}"
)
_THREADS = (
    "threads cannot be started in this sandbox: use asyncio (await, asyncio.gather, asyncio.create_task) "
    "or parallel([...])"
)
_SIGNALS = (
    "no signal reaches this sandbox: for a time limit use asyncio.wait_for or asyncio.timeout, or give the cell a timeout"
)
_NATIVE = f"C libraries cannot be loaded in this sandbox: use pure Python, or {_TOOLS}"
_TLS = f"TLS is not built in, for there are no sockets in this sandbox: urllib.request sends https requests, or {_TOOLS}"
_TERMINAL = "there is no terminal in this sandbox: print(...) and display(...) show output, input(...) asks for it"
_SCREEN = "there is no screen in this sandbox: display(...) shows images, SVG and HTML"
_MAPS = "files cannot be mapped into memory in this sandbox: use open(...), seek and readinto"
_USERS = "there are no users and groups in this sandbox"
_PACKAGES = (
    "packages cannot be installed from inside this sandbox: the host grants folders of pure Python packages "
    "(pip install --target DIR, then --packages DIR)"
)
_DATA = "the guest `python-data` has it built in; the host chooses the guest of a session (--guest python-data)"

# Modules that cannot be imported. Programs have learnt to do without most of them, because Windows lacks them too.
_ABSENT = {
    "_curses": _TERMINAL,
    "_multiprocessing": _PROCESSES,
    "_posixshmem": _PROCESSES,
    "_posixsubprocess": _PROCESSES,
    "_tkinter": _SCREEN,
    "curses": _TERMINAL,
    "ensurepip": _PACKAGES,
    "fcntl": "nothing else locks the files of this sandbox, or changes how they are open",
    "grp": _USERS,
    "idlelib": _SCREEN,
    "numpy": _DATA,
    "pandas": _DATA,
    "pip": _PACKAGES,
    "pwd": _USERS,
    "readline": _TERMINAL,
    "resource": "limits of this sandbox are set by its host",
    "syslog": "there is no system log in this sandbox: use logging",
    "termios": _TERMINAL,
    "tkinter": _SCREEN,
    "turtle": _SCREEN,
    "venv": _PACKAGES,
}


def _refusal(message):
    def refuse(*_args, **_kwargs):
        raise SandboxError(message)

    return refuse


def _refuse(owner, message, *names):
    refuse = _refusal(message)
    for name in names:
        setattr(owner, name, refuse)


# What asks the finders when a module is imported.
_IMPORT = importlib._bootstrap._find_and_load_unlocked.__code__


class _Absent:
    """The finder that is asked when no other knows a module."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        """A hollow module, or the reason why there is none; whoever only asks whether it is there gets no reason."""
        if fullname in _ABSENT and sys._getframe(2).f_code is _IMPORT:
            raise ModuleNotFoundError(f"No module named '{fullname}': {_ABSENT[fullname]}", name=fullname)
        if fullname in _HOLLOW:
            return importlib.machinery.ModuleSpec(fullname, _HollowLoader, is_package=fullname == "ctypes")
        return None


class _HollowLoader:
    @staticmethod
    def create_module(spec):
        """Makes the module as a type that makes its attributes."""
        make, why = _HOLLOW[spec.name]
        return make(spec.name, _refusal(why))

    @staticmethod
    def exec_module(module):
        """It is made as it is."""


# Modules that can be imported and not used: what makes them, and why.
_HOLLOW = {
    "_ssl": (hollow.Tls, _TLS),
    "ctypes": (hollow.Native, _NATIVE),
    "ctypes.util": (hollow.NativeSearch, _NATIVE),
    "ctypes.wintypes": (hollow.Native, _NATIVE),
    "mmap": (hollow.Maps, _MAPS),
    "ssl": (hollow.Tls, _TLS),
}


# --- Modules of the library of which a part cannot work: changed when they are imported


def _change_context(module):
    _refuse(
        module.BaseContext, _PROCESSES, "Array", "Barrier", "BoundedSemaphore", "Condition", "Event", "JoinableQueue", "Lock",
        "Manager", "Pipe", "Pool", "Queue", "RLock", "RawArray", "RawValue", "Semaphore", "SimpleQueue", "Value",
    )


def _change_pool(module):
    module.Pool.__init__ = _refusal(_PROCESSES)
    # It is left half-made.
    module.Pool.__del__ = lambda _self: None
    module.ThreadPool.__init__ = _refusal(_THREADS)


def _change_executor(module):
    module.ProcessPoolExecutor.__init__ = _refusal(_PROCESSES)


def _change_process(module):
    module.BaseProcess.start = _refusal(_PROCESSES)


# The changes by the names of modules.
CHANGED = {
    "concurrent.futures.process": _change_executor,
    "multiprocessing.context": _change_context,
    "multiprocessing.pool": _change_pool,
    "multiprocessing.process": _change_process,
}


class _Changing:
    """The finder that is asked first: adds the change to the loading of such a module."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        """The spec that others find, with a loader that changes the module."""
        if fullname not in CHANGED:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None:
            spec.loader = _ChangingLoader(spec.loader)
        return spec


class _ChangingLoader:
    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def exec_module(self, module):
        self._loader.exec_module(module)
        CHANGED[module.__name__](module)


# --- Modules that are there from the start


def _install_threads():
    refuse = _refusal(_THREADS)
    _thread.start_new_thread = _thread.start_new = _thread.start_joinable_thread = refuse
    threading._start_joinable_thread = refuse


def _install_processes():
    import subprocess

    subprocess.Popen.__init__ = _refusal(_PROCESSES)
    _refuse(
        os, _PROCESSES, "system", "popen", "fork", "forkpty", "kill", "killpg", "execv", "execve", "execvp", "posix_spawn",
        "posix_spawnp", "spawnl", "spawnv",
    )
    for owner in (asyncio, asyncio.subprocess):
        _refuse(owner, _PROCESSES, "create_subprocess_exec", "create_subprocess_shell")


def _install_sockets():
    import socket

    socket.socket.__init__ = _refusal(_SOCKETS)
    # A socket that was never made has nothing to close.
    socket.socket.__del__ = lambda _self: None
    socket.gethostname = lambda: "localhost"
    _refuse(
        socket, _SOCKETS, "create_connection", "create_server", "getaddrinfo", "gethostbyname", "gethostbyname_ex",
        "gethostbyaddr", "getnameinfo", "socketpair",
    )


def _install_signals():
    """Names that are not there, so that programs which ask for them find out, with a message that says why."""

    def lookup(name):
        why = f": {_SIGNALS}" if name in ("alarm", "setitimer", "getitimer", "pause", "sigwait", "ITIMER_REAL") else ""
        raise AttributeError(f"module 'signal' has no attribute {name!r}{why}", name=name, obj=signal)

    signal.__getattr__ = lookup


def install_changes():
    """Comes before the baked modules, some of which are changed."""
    sys.meta_path.insert(0, _Changing)


def install():
    """Makes the rest so. Comes after the baked modules, which must see what is there as it is."""
    _install_threads()
    _install_processes()
    _install_sockets()
    _install_signals()
    for name in _HOLLOW:
        # Those that could not be imported while the guest was baked left parts behind.
        sys.modules.pop(name, None)
    sys.meta_path.append(_Absent)
