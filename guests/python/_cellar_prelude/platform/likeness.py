"""What programs can tell of the machine, as it is on 64-bit Linux; see `likeness.c` for the rest."""

import builtins
import collections
import errno
import importlib.machinery
import os
import stat
import sys
import types

import _cellar

# Error numbers of Linux, and its texts.
_ERRORS = """
EPERM 1 Operation not permitted|ENOENT 2 No such file or directory|ESRCH 3 No such process|EINTR 4 Interrupted system call
EIO 5 Input/output error|ENXIO 6 No such device or address|E2BIG 7 Argument list too long|ENOEXEC 8 Exec format error
EBADF 9 Bad file descriptor|ECHILD 10 No child processes|EAGAIN 11 Resource temporarily unavailable
ENOMEM 12 Cannot allocate memory|EACCES 13 Permission denied|EFAULT 14 Bad address|EBUSY 16 Device or resource busy
EEXIST 17 File exists|EXDEV 18 Invalid cross-device link|ENODEV 19 No such device|ENOTDIR 20 Not a directory
EISDIR 21 Is a directory|EINVAL 22 Invalid argument|ENFILE 23 Too many open files in system|EMFILE 24 Too many open files
ENOTTY 25 Inappropriate ioctl for device|ETXTBSY 26 Text file busy|EFBIG 27 File too large|ENOSPC 28 No space left on device
ESPIPE 29 Illegal seek|EROFS 30 Read-only file system|EMLINK 31 Too many links|EPIPE 32 Broken pipe
EDOM 33 Numerical argument out of domain|ERANGE 34 Numerical result out of range|EDEADLK 35 Resource deadlock avoided
ENAMETOOLONG 36 File name too long|ENOLCK 37 No locks available|ENOSYS 38 Function not implemented
ENOTEMPTY 39 Directory not empty|ELOOP 40 Too many levels of symbolic links|ENOMSG 42 No message of desired type
EIDRM 43 Identifier removed|ENOSTR 60 Device not a stream|ENODATA 61 No data available|ETIME 62 Timer expired
ENOLINK 67 Link has been severed|EPROTO 71 Protocol error|EMULTIHOP 72 Multihop attempted|EBADMSG 74 Bad message
EOVERFLOW 75 Value too large for defined data type|EILSEQ 84 Invalid or incomplete multibyte or wide character
ENOTSOCK 88 Socket operation on non-socket|EDESTADDRREQ 89 Destination address required|EMSGSIZE 90 Message too long
EPROTOTYPE 91 Protocol wrong type for socket|ENOPROTOOPT 92 Protocol not available
EPROTONOSUPPORT 93 Protocol not supported|ENOTSUP 95 Operation not supported|EAFNOSUPPORT 97 Address family not supported by protocol
EADDRINUSE 98 Address already in use|EADDRNOTAVAIL 99 Cannot assign requested address|ENETDOWN 100 Network is down
ENETUNREACH 101 Network is unreachable|ENETRESET 102 Network dropped connection on reset
ECONNABORTED 103 Software caused connection abort|ECONNRESET 104 Connection reset by peer|ENOBUFS 105 No buffer space available
EISCONN 106 Transport endpoint is already connected|ENOTCONN 107 Transport endpoint is not connected
ESHUTDOWN 108 Cannot send after transport endpoint shutdown|ETIMEDOUT 110 Connection timed out|ECONNREFUSED 111 Connection refused
EHOSTDOWN 112 Host is down|EHOSTUNREACH 113 No route to host|EALREADY 114 Operation already in progress
EINPROGRESS 115 Operation now in progress|ESTALE 116 Stale file handle|EDQUOT 122 Disk quota exceeded
ECANCELED 125 Operation canceled|EOWNERDEAD 130 Owner died|ENOTRECOVERABLE 131 State not recoverable
"""
# Other names of the same numbers.
_ALIASES = {"EWOULDBLOCK": "EAGAIN", "EDEADLOCK": "EDEADLK", "EOPNOTSUPP": "ENOTSUP"}
# Folders that are looked at to tell which were granted, and how many of those are named.
_LOOKED_AT = 100
_NAMED = 8

_texts = {}


def _install_errors():
    linux = {}
    for each in _ERRORS.strip().replace("\n", "|").split("|"):
        name, number, text = each.split(" ", 2)
        linux[name] = int(number)
        _texts[int(number)] = text
    theirs = {name: number for name, number in vars(errno).items() if name.startswith("E")}
    table = {os.strerror(number): (number, linux[name], _texts[linux[name]]) for name, number in theirs.items() if name in linux}
    table[os.strerror(theirs["ENOTCAPABLE"])] = theirs["ENOTCAPABLE"], linux["EACCES"], _not_granted
    by_number = {number: name for name, number in theirs.items() if name in linux}
    classes = {linux[by_number[number]]: kind for number, kind in _cellar.error_classes().items() if number in by_number}
    classes[linux["EACCES"]] = PermissionError
    for name in theirs:
        if name not in linux and name not in _ALIASES:
            delattr(errno, name)
    vars(errno).update(linux)
    vars(errno).update((alias, linux[name]) for alias, name in _ALIASES.items())
    errno.errorcode.clear()
    errno.errorcode.update((number, name) for name, number in linux.items())
    _cellar.set_errors(table, classes)
    os.strerror = _strerror


def _not_granted():
    """What the host's answer means for paths outside of the granted folders. Linux has no number of its own for it."""
    return f"Permission denied: outside of the session's folders, which are {', '.join(_granted())}"


def _granted():
    """The granted folders, each by the first of its names. Folders that lead to them and to nothing else have no device."""
    home = os.environ.get("HOME", "/workspace")
    found, known, unseen = [home], {_identity(home)}, ["/"]
    for _ in range(_LOOKED_AT):
        if not unseen or len(found) > _NAMED:
            break
        folder = unseen.pop(0)
        for name in _posix_listdir(folder):
            path = f"{folder.rstrip('/')}/{name}"
            device, inode = identity = _identity(path)
            if device == 0:
                unseen.append(path)
            elif identity not in known and not path.startswith(_NOT_TOLD):
                known.add(identity)
                found.append(path)
    return [*found[:_NAMED], "…"] if len(found) > _NAMED else found


def _identity(path):
    status = _posix_stat(path)
    return status.st_dev, status.st_ino


_posix_listdir, _posix_stat = os.listdir, os.stat
# The library's folder, those of packages, and what tells of the machine are no places to put files.
_NOT_TOLD = ("/usr/lib/python", "/packages/", "/etc")


def _strerror(code, /):
    """Translate an error code to a message string."""
    return _texts.get(code) or f"Unknown error {code}"


# --- Users, modes, access

_USER = 1000
# The permission bits that cells have set, by device and inode, of no more files than this.
_modes = {}
_MODES_MAX = 10_000
_umask = [0o022]


def _chmod(path, mode, *, dir_fd=None, follow_symlinks=True):
    """Changes the permission bits of a file, which the kernel keeps while the session lives."""
    found = os.stat(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)
    if not isinstance(path, int):
        # Nothing changes by this but where nothing may be changed: there it fails, as this must.
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=dir_fd, follow_symlinks=follow_symlinks)
    _keep_mode(found, mode)


def _fchmod(fd, mode):
    """Changes the permission bits of an open file."""
    _keep_mode(os.fstat(fd), mode)


def _lchmod(path, mode):
    """Changes the permission bits of a file, not of what a link leads to."""
    _chmod(path, mode, follow_symlinks=False)


def _keep_mode(found, mode):
    if not isinstance(mode, int):
        raise TypeError(f"an integer is required (got type {type(mode).__name__})")
    if len(_modes) >= _MODES_MAX:
        del _modes[next(iter(_modes))]
    _modes[found.st_dev, found.st_ino] = mode & 0o7777


def _make_open(posix_open):
    def own_open(path, flags, mode=0o777, *, dir_fd=None):
        """Opens a file. One that is created has these permission bits, as far as the umask leaves them."""
        is_new = bool(flags & os.O_CREAT) and (bool(flags & os.O_EXCL) or not _is_there(path, dir_fd))
        fd = posix_open(path, flags, mode, dir_fd=dir_fd)
        if is_new:
            _fchmod(fd, mode & ~_umask[0])
        return fd

    own_open.__name__ = own_open.__qualname__ = "open"
    return own_open


def _make_mkdir(posix_mkdir):
    def own_mkdir(path, mode=0o777, *, dir_fd=None):
        """Creates a folder with these permission bits, as far as the umask leaves them."""
        posix_mkdir(path, mode, dir_fd=dir_fd)
        if mode & ~_umask[0] != 0o755:
            _keep_mode(os.stat(path, dir_fd=dir_fd), mode & ~_umask[0])

    own_mkdir.__name__ = own_mkdir.__qualname__ = "mkdir"
    return own_mkdir


def _is_there(path, dir_fd):
    try:
        os.lstat(path, dir_fd=dir_fd)
    except OSError:
        return False
    return True


def _set_umask(mask, /):
    before, _umask[0] = _umask[0], mask & 0o777
    return before


def _chown(_path, uid, gid, *, dir_fd=None, follow_symlinks=True):
    """There is one user, who owns all files."""
    if uid not in (-1, _USER) or gid not in (-1, _USER):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), _path)


def _make_chdir(chdir):
    def own_chdir(path):
        """Changes the working folder, and knows it by a path without `..`."""
        is_text = isinstance(path, (str, os.PathLike)) and os.fspath(path) != ""
        chdir(os.path.normpath(os.path.join(os.getcwd(), path)) if is_text else path)

    own_chdir.__name__ = own_chdir.__qualname__ = "chdir"
    return own_chdir


def _make_symlink(symlink):
    def own_symlink(src, dst, target_is_directory=False, *, dir_fd=None):
        """Create a symbolic link pointing to src named dst.

        A link holds no absolute path: one in the session's folders is written as the way from the link's folder.
        """
        target = os.fsdecode(src)
        if target.startswith("/") and dir_fd is None and _is_granted(target):
            folder = os.path.dirname(os.path.abspath(os.fsdecode(dst)))
            target = os.path.relpath(target, os.path.realpath(folder))
            src = os.fsencode(target) if isinstance(src, bytes) else target
        symlink(src, dst, target_is_directory, dir_fd=dir_fd)

    own_symlink.__name__ = own_symlink.__qualname__ = "symlink"
    return own_symlink


def _is_granted(path):
    path = os.path.normpath(path)
    return any(path == folder or path.startswith(f"{folder}/") for folder in _granted())


def _terminal_size(fd=1, /):
    """Return the size of the terminal window as (columns, lines): there is none."""
    raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))


def _disk_usage(path):
    """Disk usage statistics: what the session may write, and has written, in all of its folders."""
    os.stat(path)
    total, used = _ask_session(_cellar.disk)
    return _Usage(total, used, max(0, total - used))


_Usage = collections.namedtuple("usage", "total used free")


def _make_access(access):
    def own_access(path, mode, *, dir_fd=None, effective_ids=False, follow_symlinks=True):
        """Whether the user may do something with a file."""
        if path == "" or path == b"":
            return False
        if not access(path, mode & ~os.X_OK, dir_fd=dir_fd):
            return False
        return not mode & os.X_OK or bool(os.stat(path, dir_fd=dir_fd).st_mode & 0o111)

    own_access.__name__ = own_access.__qualname__ = "access"
    return own_access


def _uname():
    """What this machine is called, as far as it is one."""
    return os.uname_result(("Linux", "cellar", "0.0.0", "#1", "wasm32"))


def _account():
    """The modules `pwd` and `grp`: the one user and the group of that, and root's, to whom archives give what is in them."""
    home = os.environ.get("HOME", "/workspace")
    passwd = collections.namedtuple("struct_passwd", "pw_name pw_passwd pw_uid pw_gid pw_gecos pw_dir pw_shell")
    group = collections.namedtuple("struct_group", "gr_name gr_passwd gr_gid gr_mem")
    user = passwd("user", "x", _USER, _USER, "", home, "/bin/sh")
    root = passwd("root", "x", 0, 0, "root", "/root", "/bin/sh")
    groups = [group("root", "x", 0, []), group("user", "x", _USER, [])]

    def module(name, kind, entries, prefix, key):
        def by_number(number, /):
            for entry in entries():
                if entry[2] == number:
                    return entry
            raise KeyError(f"{prefix}{key}(): {key} not found: {number}")

        def by_name(wanted, /):
            for entry in entries():
                if entry[0] == wanted:
                    return entry
            raise KeyError(f"{prefix}nam(): name not found: {wanted!r}")

        made = types.ModuleType(name, "The users and the groups that there are.")
        made.__spec__ = importlib.machinery.ModuleSpec(name, None, origin="built-in")
        vars(made).update({kind.__name__: kind, f"{prefix}{key}": by_number, f"{prefix}nam": by_name, f"{prefix}all": entries})
        sys.modules[name] = made

    module("pwd", passwd, lambda: [root, user._replace(pw_dir=os.environ.get("HOME", home))], "getpw", "uid")
    module("grp", group, lambda: list(groups), "getgr", "gid")


def _install_users():
    import shutil

    _account()
    os.uname = _uname
    for name in ("getuid", "geteuid", "getgid", "getegid"):
        setattr(os, name, lambda: _USER)
    os.getgroups = lambda: [_USER]
    os.getlogin = lambda: "user"
    os.getppid = lambda: 1
    os.umask = _set_umask
    os.chmod, os.fchmod, os.lchmod, os.chown, os.lchown = _chmod, _fchmod, _lchmod, _chown, _chown
    os.fchown = lambda fd, uid, gid: _chown(fd, uid, gid)
    os.access = _make_access(os.access)
    os.chdir = _make_chdir(os.chdir)
    os.symlink = _make_symlink(os.symlink)
    os.get_terminal_size = _terminal_size
    os.open, os.mkdir = _make_open(os.open), _make_mkdir(os.mkdir)
    shutil.disk_usage = _disk_usage
    _cellar.set_modes(_modes)
    for each in (_chmod, _fchmod, _lchmod, _chown, _set_umask):
        each.__name__ = each.__qualname__ = each.__name__.lstrip("_").replace("set_", "")
    os.supports_follow_symlinks |= {os.chmod, os.stat}


# --- Numbers


def _long_length(value):
    """The length of a range, or of what says its own, where C cannot hold it."""
    if isinstance(value, range):
        length = max(0, (value.stop - value.start + value.step - (1 if value.step > 0 else -1)) // value.step)
    else:
        length = type(value).__len__(value)
    if not isinstance(length, int) or not 0 <= length <= sys.maxsize:
        raise OverflowError("cannot fit 'int' into an index-sized integer")
    return length


def _install_numbers():
    import _csv
    import csv

    _cellar.set_long_length(_long_length)
    own = _csv.field_size_limit

    def field_size_limit(*limit):
        """Sets the largest field, and returns what it was."""
        return own(*(min(each, 2**31 - 1) if isinstance(each, int) else each for each in limit))

    field_size_limit.__module__ = "_csv"
    csv.field_size_limit = _csv.field_size_limit = field_size_limit


def install_last():
    """Comes when all of the image is imported: some modules find out by it how large what they hand to C may be."""
    import _compression
    import platform
    import sysconfig

    # There is no file of the interpreter to look for the C library's version in.
    platform.libc_ver = lambda executable=None, lib="", version="", chunksize=16384: (lib, version)
    _compression.sys = types.SimpleNamespace(maxsize=sys.maxsize)
    sys.maxsize = 2**63 - 1
    # The file that the build has left is named after the machine that this is.
    named = sysconfig._get_sysconfigdata_name()
    sysconfig._get_sysconfigdata_name = lambda: named
    sys.platform = "linux"


# --- Sizes

# By how much more a value takes on a 64-bit machine, where most of it are numbers, texts or bytes; of ASCII texts, and of others.
_more = {}
_more_ascii, _more_text = [0], [0]
# A dictionary's keys here and there: the header, and an entry of keys that are all texts, or of others.
_KEYS_HEADER, _ENTRIES = (20, 32), ((8, 16), (12, 24))
# Those of a larger dictionary than this are not looked for.
_KEYS_MAX = 40


def add_sizes(samples):
    """Takes types with a value of each, and what `__sizeof__` says of that on a 64-bit machine."""
    _more.update((kind, natively - kind.__sizeof__(value)) for kind, value, natively in samples)


def _keys_size(size):
    """What a dictionary's keys take on a 64-bit machine that take so much here; None when they are shared."""
    for power in range(3, _KEYS_MAX):
        indices = (1 << power) * (1 if power < 8 else 2 if power < 16 else 4)
        if indices > size:
            return None
        for here, there in _ENTRIES:
            if size == _KEYS_HEADER[0] + indices + (2 << power) // 3 * here:
                return _KEYS_HEADER[1] + indices + (2 << power) // 3 * there
    return None


def size_of(value):
    """What `__sizeof__` of a value says on a 64-bit machine."""
    kind = type(value)
    size = kind.__sizeof__(value)
    if isinstance(kind.__sizeof__, types.FunctionType):
        # Whoever wrote it counts what the value holds.
        return size
    if kind is str:
        return size + (_more_ascii if value.isascii() else _more_text)[0]
    if kind is dict:
        own = dict.__basicsize__
        keys = _keys_size(size - own) if size > own else 0
        return 48 + (2 * (size - own) if keys is None else keys)
    more = next((_more[each] for each in kind.__mro__ if each in _more), None)
    # Everything else is pointers, by far.
    return 2 * size if more is None else size + more


def _install_sizes():
    import array

    samples = [(int, 1, 28), (float, 1.0, 24), (complex, 1j, 32), (bytes, b"", 33), (bytearray, bytearray(), 56)]
    add_sizes([*samples, (array.array, array.array("b"), 64)])
    _more_ascii[0], _more_text[0] = 41 - "".__sizeof__(), 60 - b"\xe2\x98\x83".decode().__sizeof__()
    own = sys.getsizeof

    def getsizeof(object, *default):  # noqa: A002 - the library's name
        """Return the size of object in bytes, as it is on a 64-bit machine."""
        found = own(object, *default)
        try:
            before = found - type(object).__sizeof__(object)
        except TypeError:
            # It does not say: this is what was given for that case.
            return found
        # What lies before an object: words of the collector, and of its names.
        return size_of(object) + 2 * before

    sys.getsizeof = getsizeof


# --- Locales


def _install_locales():
    import _locale
    import locale

    own = _locale.setlocale

    def setlocale(category, name=None, /):
        """Sets one of the locales that are there: C, POSIX and C.UTF-8."""
        if name is not None and name not in ("", "C", "POSIX", "C.UTF-8", "C.utf8") and not name.startswith("LC_"):
            raise locale.Error("unsupported locale setting")
        return own(category, name)

    locale._setlocale = _locale.setlocale = setlocale


def install_first():
    """Comes before the library's modules, which look numbers of errors up when they are imported."""
    _install_errors()


def install(ask_session):
    """Comes after them; the session answers what only it knows."""
    global _ask_session
    _ask_session = ask_session
    _install_users()
    _install_numbers()
    _install_sizes()
    _install_locales()


install_first()
