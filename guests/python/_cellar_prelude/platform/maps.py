"""`mmap`: the content of a file in memory, which goes back into the file when it is flushed or closed.

There are no pages to share: two maps of a file, and other readers of it, see each other's changes when those were flushed.
"""

import os
import types

ACCESS_DEFAULT, ACCESS_READ, ACCESS_WRITE, ACCESS_COPY = range(4)
_PAGE = 4096
_MAP_PRIVATE, _PROT_WRITE = 2, 2
_NUMBERS = {
    "MAP_SHARED": 1, "MAP_PRIVATE": _MAP_PRIVATE, "MAP_ANON": 32, "MAP_ANONYMOUS": 32, "PROT_READ": 1, "PROT_WRITE": _PROT_WRITE, "PROT_EXEC": 4,
    "MADV_NORMAL": 0, "MADV_RANDOM": 1, "MADV_SEQUENTIAL": 2, "MADV_WILLNEED": 3, "MADV_DONTNEED": 4, "PAGESIZE": _PAGE,
    "ALLOCATIONGRANULARITY": _PAGE, "ACCESS_DEFAULT": ACCESS_DEFAULT, "ACCESS_READ": ACCESS_READ, "ACCESS_WRITE": ACCESS_WRITE,
    "ACCESS_COPY": ACCESS_COPY,
}  # fmt: skip


class mmap(bytearray):
    """The content of a file, or of nothing when its number is -1."""

    def __new__(cls, *_args, **_options):
        return super().__new__(cls)

    def __init__(self, fileno, length, flags=1, prot=3, access=ACCESS_DEFAULT, offset=0, *, trackfd=True):
        if length < 0 or offset < 0:
            raise OverflowError("memory mapped length and offset must be positive")
        if offset % _PAGE:
            raise OSError(22, "Invalid argument")
        self._fd, self._start, self._at, self._closed, self._writes = -1, offset, 0, False, False
        is_own = fileno == -1 or access == ACCESS_COPY or bool(flags & _MAP_PRIVATE)
        self._is_read_only = access == ACCESS_READ or (access == ACCESS_DEFAULT and not prot & _PROT_WRITE)
        content = b""
        if fileno != -1:
            size = os.fstat(fileno).st_size
            if size == 0 and length == 0:
                raise ValueError("cannot mmap an empty file")
            if offset + length > size or offset >= size:
                raise ValueError("mmap length is greater than file size")
            length = length or size - offset
            content = os.pread(fileno, length, offset)
            self._fd = os.dup(fileno)
        super().__init__(content.ljust(length, b"\0"))
        self._writes = not is_own and not self._is_read_only

    def _check(self, writes=False):
        if self._closed:
            raise ValueError("mmap closed or invalid")
        if writes and self._is_read_only:
            raise TypeError("mmap can't modify a readonly memory map.")

    @property
    def closed(self):
        return self._closed

    def __getitem__(self, key):
        self._check()
        found = super().__getitem__(key)
        return bytes(found) if isinstance(key, slice) else found

    def __setitem__(self, key, value):
        self._check(writes=True)
        if isinstance(key, slice) and len(value) != len(range(*key.indices(len(self)))):
            raise IndexError("mmap slice assignment is wrong size")
        super().__setitem__(key, value)

    def __iter__(self):
        return (self[number : number + 1] for number in range(len(self)))

    def __repr__(self):
        return f"<mmap.mmap closed={self._closed}, access=ACCESS_DEFAULT, length={len(self)}, pos={self._at}, offset={self._start}>"

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self is other

    def __enter__(self):
        self._check()
        return self

    def __exit__(self, *_error):
        self.close()

    def __del__(self):
        self.close()

    def __reduce__(self):
        raise TypeError("cannot pickle 'mmap.mmap' object")

    def flush(self, offset=0, size=0):
        """Writes what has changed back into the file."""
        self._check()
        if self._writes:
            part = memoryview(self)[offset : offset + size if size else None]
            done = 0
            while done < len(part):
                done += os.pwrite(self._fd, part[done:], self._start + offset + done)

    def close(self):
        """Flushes it and gives back the file; it cannot be used afterwards."""
        if getattr(self, "_closed", True):
            return
        self.flush()
        self._closed = True
        if self._fd != -1:
            os.close(self._fd)

    def find(self, sub, start=None, end=None):
        """Where bytes begin at or after the position; -1 when they do not."""
        self._check()
        return super().find(sub, self._at if start is None else start, len(self) if end is None else end)

    def rfind(self, sub, start=None, end=None):
        """The last place where bytes begin; -1 when they do not."""
        self._check()
        return super().rfind(sub, self._at if start is None else start, len(self) if end is None else end)

    def move(self, dest, src, count):
        """Copies bytes within the map."""
        self[dest : dest + count] = self[src : src + count]

    def read(self, n=None):
        """Bytes from the position on, which moves."""
        end = len(self) if n is None or n < 0 else min(self._at + n, len(self))
        found = self[self._at : end]
        self._at = end
        return found

    def read_byte(self):
        """One byte, as a number."""
        if self._at >= len(self):
            raise ValueError("read byte out of range")
        self._at += 1
        return self[self._at - 1]

    def readline(self):
        """Bytes up to the end of a line."""
        end = self.find(b"\n")
        return self.read() if end < 0 else self.read(end + 1 - self._at)

    def write(self, data):
        """Puts bytes at the position, which moves; how many."""
        self._check(writes=True)
        if self._at + len(data) > len(self):
            raise ValueError("data out of range")
        self[self._at : self._at + len(data)] = data
        self._at += len(data)
        return len(data)

    def write_byte(self, byte):
        """Puts one byte, given as a number."""
        self.write(bytes((byte,)))

    def seek(self, pos, whence=0):
        """Moves the position."""
        at = pos + (0, self._at, len(self))[whence]
        if not 0 <= at <= len(self):
            raise ValueError("seek out of range")
        self._at = at
        return at

    def tell(self):
        """The position."""
        self._check()
        return self._at

    def size(self):
        """Bytes of the file."""
        self._check()
        return os.fstat(self._fd).st_size if self._fd != -1 else len(self)

    def seekable(self):
        """Whether the position can be moved."""
        return True

    def madvise(self, *_advice):
        """There is nothing to advise of."""

    def resize(self, newsize):
        """Makes the file, and the map of it, of another size."""
        self._check(writes=True)
        if self._fd != -1:
            os.ftruncate(self._fd, self._start + newsize)
        if newsize < len(self):
            super().__delitem__(slice(newsize, None))
        else:
            super().extend(bytes(newsize - len(self)))


mmap.__module__ = "mmap"


def module(name, _refuse):
    """The module `mmap`."""
    made = types.ModuleType(name, "Memory-mapped file objects.")
    vars(made).update(_NUMBERS, mmap=mmap, error=OSError)
    return made
