"""What Python has elsewhere and a sandbox cannot have: processes, terminals, C libraries.

As much as can be is there to be imported, because programs import more than they use; the use says why it fails and what
to do instead.
"""

import asyncio
import importlib.machinery
import importlib.util
import os
import signal
import sys
import types

import _cellar
from _cellar_prelude.platform import hollow, lacks, maps, packages
from _cellar_prelude.platform.sandbox import SandboxError

_SIGNALS = (
    "no signal reaches this sandbox: for a time limit use asyncio.wait_for or asyncio.timeout, or give the cell a timeout"
)


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
        if fullname not in _HOLLOW and sys._getframe(2).f_code is _IMPORT:
            remedy = lacks.remedy(fullname) if path is None else packages.gone(fullname, path)
            if remedy is not None:
                raise ModuleNotFoundError(f"No module named '{fullname}': {remedy}", name=fullname)
        if fullname in _HOLLOW:
            return importlib.machinery.ModuleSpec(fullname, _HollowLoader, is_package=any(name.startswith(f"{fullname}.") for name in _HOLLOW))
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
    "_ssl": (hollow.Tls, lacks.TLS),
    "nest_asyncio": (hollow.Nesting, ""),
    "micropip": (packages.micropip, ""),
    "ctypes": (hollow.Native, lacks.NATIVE),
    "ctypes.util": (hollow.NativeSearch, lacks.NATIVE),
    "ctypes.wintypes": (hollow.Native, lacks.NATIVE),
    "mmap": (maps.module, ""),
    "ssl": (hollow.Tls, lacks.TLS),
}


def offer(name, make):
    """Has a module made in this way when it is imported: `make(name, refuse)`."""
    _HOLLOW[name] = make, ""


# --- Modules of the library of which a part cannot work: changed when they are imported


def _change_nesting(module):
    """`nest_asyncio`: what it does to other loops, this one does by itself when it is told to."""
    module.apply = hollow.nest


def _change_progress(module):
    # A thread that looks after bars that stand still would outlive every cell that shows one.
    module.tqdm.monitor_interval = 0


def _change_notebook_progress(module):
    """Bars for notebooks are drawn as text where there are no widgets, as `tqdm.auto` has it."""
    if module.IProgress is not None:
        return
    bars = sys.modules["tqdm.std"].tqdm

    class tqdm_notebook(bars):  # noqa: N801 - tqdm's own name
        """A bar of text, which takes what one for notebooks takes."""

        def __init__(self, *args, display=True, **options):
            self.displayed, self.container = display, None
            super().__init__(*args, **options)

        def reset(self, total=None):
            """Begins again."""
            super().reset(total=total)

    module.tqdm = module.tqdm_notebook = tqdm_notebook
    module.trange = module.tnrange = lambda *args, **options: tqdm_notebook(range(*args), **options)


# The changes by the names of modules.
CHANGED = {
    "nest_asyncio": _change_nesting,
    "tqdm.notebook": _change_notebook_progress,
    "tqdm.std": _change_progress,
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


def _install_processes():
    _refuse(os, lacks.COPIES, "fork", "forkpty", "killpg", "execv", "execve", "execvp", "posix_spawn", "posix_spawnp", "spawnl", "spawnv")


def _install_signals():
    """Alarms go off by the kernel's own clock; other signals only come from the cells themselves."""
    if not hasattr(signal, "SIGALRM"):
        return

    def setitimer(which, seconds, interval=0.0, /):
        """Has SIGALRM raised in some seconds, and again after each interval; 0 ends it. Returns what was set before."""
        if which not in (0, 1, 2):
            raise ValueError("invalid timer")
        if seconds < 0 or interval < 0:
            raise ValueError("Invalid argument")
        left, before = _cellar.set_alarm(int(seconds * 1e9), int(interval * 1e9))
        return left / 1e9, before / 1e9

    def getitimer(_which, /):
        """What is left of the timer, and its interval."""
        left, interval = _cellar.alarm()
        return left / 1e9, interval / 1e9

    def alarm(seconds, /):
        """Has SIGALRM raised in some seconds; 0 ends it. Returns what was left of the one before."""
        return -int(-setitimer(0, seconds)[0] // 1)

    signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF = range(3)
    signal.ItimerError = OSError
    for function in (setitimer, getitimer, alarm):
        function.__module__ = "signal"
        function.__qualname__ = function.__name__
        setattr(signal, function.__name__, function)

    def lookup(name):
        why = f": {_SIGNALS}" if name in ("pause", "sigwait", "pthread_kill", "sigtimedwait") else ""
        raise AttributeError(f"module 'signal' has no attribute {name!r}{why}", name=name, obj=signal)

    signal.__getattr__ = lookup


# --- Functions of the library that OpenSSL would bring


def _pbkdf2_hmac(hash_name, password, salt, iterations, dklen=None):
    """Password based key derivation function 2 (PKCS #5 v2.0) with HMAC as pseudorandom function."""
    import hashlib
    import hmac

    if iterations < 1:
        raise ValueError("iteration value must be greater than 0.")
    inner = hmac.new(bytes(password), digestmod=hash_name)
    length = inner.digest_size
    dklen = length if dklen is None else dklen
    if dklen < 1:
        raise ValueError("key length must be greater than 0.")
    block_size = inner.block_size
    key = bytes(password)
    key = hashlib.new(hash_name, key).digest() if len(key) > block_size else key
    key = key.ljust(block_size, b"\0")
    first = hashlib.new(hash_name, key.translate(hmac.trans_36))
    second = hashlib.new(hash_name, key.translate(hmac.trans_5C))

    def keyed(data):
        one, two = first.copy(), second.copy()
        one.update(data)
        two.update(one.digest())
        return two.digest()

    made = b""
    for number in range(1, -(-dklen // length) + 1):
        block = keyed(bytes(salt) + number.to_bytes(4))
        total = int.from_bytes(block)
        for _ in range(iterations - 1):
            block = keyed(block)
            total ^= int.from_bytes(block)
        made += total.to_bytes(length)
    return made[:dklen]


def _scrypt(password, *, salt, n, r, p, maxmem=0, dklen=64):
    """scrypt password-based key derivation function."""
    if n < 2 or n & (n - 1):
        raise ValueError("n must be a power of 2.")
    for name, value, least in (("maxmem", maxmem, 0), ("dklen", dklen, 1)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}")
    if 128 * n * r > (maxmem or 32 << 20) + (32 << 20 if not maxmem else 0):
        raise ValueError("memory limit exceeded")
    blocks = _pbkdf2_hmac("sha256", password, salt, 1, 128 * r * p)
    mixed = b"".join(_cellar.scrypt_mix(blocks[at : at + 128 * r], n) for at in range(0, len(blocks), 128 * r))
    return _pbkdf2_hmac("sha256", password, mixed, 1, dklen)


def _install_hashes():
    import hashlib

    for name, function in (("pbkdf2_hmac", _pbkdf2_hmac), ("scrypt", _scrypt)):
        if not hasattr(hashlib, name):
            function.__name__ = function.__qualname__ = name
            function.__module__ = "hashlib"
            setattr(hashlib, name, function)


def install_changes():
    """Comes before the baked modules, some of which are changed."""
    sys.meta_path.insert(0, _Changing)


def install():
    """Makes the rest so. Comes after the baked modules, which must see what is there as it is."""
    _install_processes()
    _install_signals()
    _install_hashes()
    for name in _HOLLOW:
        # Those that could not be imported while the guest was baked left parts behind.
        sys.modules.pop(name, None)
    sys.meta_path.append(_Absent)
