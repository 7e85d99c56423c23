"""`fcntl` and `resource`: locks of open files, and what is used and may be used. See `absent`.

Locks hold between the open files and the threads of one kernel. Nothing is known here of files that are open in processes,
so that none are given where a process of `multiprocessing` could want the same.
"""

import collections
import errno
import os
import time
import types
import warnings

import _cellar
from _cellar_prelude.platform import absent
from _cellar_prelude.processes import pooling

# How often somebody who waits for a lock looks whether it is free, in seconds.
_LOOK = 0.002
_FILES_MAX = 10_000

_LOCK_SH, _LOCK_EX, _LOCK_NB, _LOCK_UN = 1, 2, 4, 8
_F_GETFD, _F_SETFD, _F_GETFL, _F_SETFL, _F_SETLK, _F_SETLKW = 1, 2, 3, 4, 6, 7
_FCNTL_NUMBERS = {
    "LOCK_SH": _LOCK_SH, "LOCK_EX": _LOCK_EX, "LOCK_NB": _LOCK_NB, "LOCK_UN": _LOCK_UN,
    "F_DUPFD": 0, "F_GETFD": _F_GETFD, "F_SETFD": _F_SETFD, "F_GETFL": _F_GETFL, "F_SETFL": _F_SETFL, "F_GETLK": 5, "F_SETLK": _F_SETLK,
    "F_SETLKW": _F_SETLKW, "F_RDLCK": 0, "F_WRLCK": 1, "F_UNLCK": 2, "F_DUPFD_CLOEXEC": 1030, "F_SETPIPE_SZ": 1031,
    "F_GETPIPE_SZ": 1032, "FD_CLOEXEC": 1,
}  # fmt: skip

# What is locked: by device and inode, the descriptors that hold it, and whether they share it.
_locks = {}


def _error(number, more=""):
    return OSError(number, f"{os.strerror(number)}{more}")


def _descriptor(file):
    number = file if isinstance(file, int) else file.fileno()
    if not isinstance(number, int):
        raise TypeError("argument must be an int, or have a fileno() method.")
    if number < 0:
        raise ValueError(f"file descriptor cannot be a negative integer ({number})")
    return number


def _identity(descriptor):
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _is_held(descriptor, identity):
    """Whether a descriptor is still that of the file that it has locked; closing it gives the lock back."""
    try:
        return _identity(descriptor) == identity
    except OSError:
        return False


def _try(descriptor, identity, is_shared):
    holders = _locks.setdefault(identity, {})
    for each in [each for each in holders if not _is_held(each, identity)]:
        del holders[each]
    others = [shares for each, shares in holders.items() if each != descriptor]
    if all(shares and is_shared for shares in others):
        holders[descriptor] = is_shared
        return True
    return False


def _refuse_among_processes():
    if pooling.is_process() or pooling.has_processes():
        raise _error(errno.ENOLCK, " (processes do not see each other's locks of files here: multiprocessing.Lock is one of all)")


def flock(fd, operation, /):
    """Locks an open file, or gives the lock back."""
    descriptor, kind = _descriptor(fd), operation & ~_LOCK_NB
    identity = _identity(descriptor)
    if kind == _LOCK_UN:
        _locks.get(identity, {}).pop(descriptor, None)
        if not _locks.get(identity):
            _locks.pop(identity, None)
        return
    if kind not in (_LOCK_SH, _LOCK_EX):
        raise _error(errno.EINVAL)
    _refuse_among_processes()
    if len(_locks) >= _FILES_MAX:
        raise _error(errno.ENOLCK)
    while not _try(descriptor, identity, kind == _LOCK_SH):
        if operation & _LOCK_NB:
            raise _error(errno.EAGAIN)
        time.sleep(_LOOK)


def lockf(fd, cmd, len=0, start=0, whence=0, /):  # noqa: A002 - the library's name
    """Locks a part of an open file. A kernel never waits for such a lock of its own."""
    descriptor, kind = _descriptor(fd), cmd & ~_LOCK_NB
    os.fstat(descriptor)
    if kind not in (_LOCK_SH, _LOCK_EX, _LOCK_UN):
        raise ValueError("unrecognized lockf argument")
    if kind != _LOCK_UN:
        _refuse_among_processes()


def fcntl(fd, cmd, arg=0, /):
    """Asks for, or changes, how a file is open."""
    descriptor = _descriptor(fd)
    os.fstat(descriptor)
    if cmd == _F_GETFD:
        return 1
    if cmd == _F_GETFL:
        return _cellar.file_flags(descriptor)
    if cmd in (_F_SETFD, _F_SETFL):
        return 0
    if cmd in (_F_SETLK, _F_SETLKW):
        return arg
    if cmd in (0, _FCNTL_NUMBERS["F_DUPFD_CLOEXEC"]):
        return os.dup(descriptor)
    raise _error(errno.EINVAL)


def ioctl(fd, request, arg=0, mutate_flag=True, /):
    """There are no devices."""
    os.fstat(_descriptor(fd))
    raise _error(errno.ENOTTY)


def fcntl_module(name, _refuse):
    """The module `fcntl`."""
    made = types.ModuleType(name, "Locks of files, and how they are open.")
    for function in (flock, lockf, fcntl, ioctl):
        function.__module__ = "fcntl"
    vars(made).update(_FCNTL_NUMBERS, flock=flock, lockf=lockf, fcntl=fcntl, ioctl=ioctl)
    return made


# --- What is used, and may be used

_INFINITY = -1
_LIMITS = {name: number for number, name in enumerate("CPU FSIZE DATA STACK CORE RSS NPROC NOFILE MEMLOCK AS".split())}
_Usage = collections.namedtuple(
    "struct_rusage",
    """ru_utime ru_stime ru_maxrss ru_ixrss ru_idrss ru_isrss ru_minflt ru_majflt ru_nswap ru_inblock ru_oublock ru_msgsnd
    ru_msgrcv ru_nsignals ru_nvcsw ru_nivcsw""",
)
_Usage.__module__ = "resource"
# The limits that are known here, and those that cells have set.
_OPEN_FILES_MAX = 256
_limits = {_LIMITS["NOFILE"]: (_OPEN_FILES_MAX, _OPEN_FILES_MAX)}


def getrusage(who, /):
    """Processor time in seconds, and the memory of the kernel in KiB."""
    if who not in (0, -1, 1):
        raise ValueError("invalid who parameter")
    if who == -1:
        return _Usage(*[0.0] * 2, *[0] * 14)
    return _Usage(time.process_time(), 0.0, _cellar.memory_size() >> 10, *[0] * 13)


def getrlimit(resource, /):
    """The limits that were set, and that of open files; the host has others, of which nothing is known here."""
    if resource not in range(16):
        raise ValueError("invalid resource specified")
    return _limits.get(resource, (_INFINITY, _INFINITY))


def setrlimit(resource, limits, /):
    """Keeps a limit, and warns that nothing enforces it."""
    try:
        soft, hard = (int(each) for each in limits)
    except (TypeError, ValueError):
        raise ValueError("expected a tuple of 2 integers") from None
    most = getrlimit(resource)[1]
    if hard != _INFINITY and (soft == _INFINITY or soft > hard):
        raise ValueError("current limit exceeds maximum limit")
    if most != _INFINITY and (hard == _INFINITY or hard > most):
        raise ValueError("not allowed to raise maximum limit")
    _limits[resource] = soft, hard
    warnings.warn("limits of this sandbox are set by its host: this one is kept, and nothing enforces it", RuntimeWarning, stacklevel=2)


def resource_module(name, _refuse):
    """The module `resource`."""
    made = types.ModuleType(name, "What is used, and what may be used.")
    for function in (getrusage, getrlimit, setrlimit):
        function.__module__ = "resource"
    vars(made).update({f"RLIMIT_{limit}": number for limit, number in _LIMITS.items()}, RLIMIT_OFILE=7)
    vars(made).update(RLIM_INFINITY=_INFINITY, RUSAGE_SELF=0, RUSAGE_CHILDREN=-1, RUSAGE_THREAD=1, error=OSError)
    vars(made).update(struct_rusage=_Usage, getrusage=getrusage, getrlimit=getrlimit, setrlimit=setrlimit, getpagesize=lambda: 4096)
    return made


absent.offer("fcntl", fcntl_module)
absent.offer("resource", resource_module)
