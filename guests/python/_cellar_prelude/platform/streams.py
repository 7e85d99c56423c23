"""Standard streams: text goes straight to the host, marked with the cell that wrote it."""

import io
import sys

import _cellar


class _BytesOut(io.BufferedIOBase):
    """The `.buffer` of an output stream. A character may arrive in two writes."""

    def __init__(self, number, name):
        self._number = number
        self.name = name

    @property
    def raw(self):
        """Nothing lies below."""
        return self

    def writable(self):
        return True

    def write(self, data):
        return _cellar.write_bytes(self._number, data)

    def flush(self):
        _cellar.flush()

    def fileno(self):
        return self._number + 1


class TextOut(io.TextIOBase):
    """`sys.stdout` or `sys.stderr`."""

    encoding = "utf-8"
    errors = "replace"
    newlines = None
    line_buffering = False
    write_through = True
    mode = "w"
    closed = False
    def __init__(self, number, name):
        self._number = number
        self.name = name
        self.buffer = _BytesOut(number, name)

    def write(self, text, _write=_cellar.write):
        return _write(self._number, text)

    def writelines(self, lines):
        for line in lines:
            _cellar.write(self._number, line)

    def writable(self):
        return True

    def isatty(self):
        return False

    def fileno(self):
        return self._number + 1

    def flush(self):
        _cellar.flush()

    def close(self):
        """Cells share the stream: it stays open."""

    def detach(self):
        """The bytes below; cells share the stream, which stays as it is."""
        return self.buffer

    def reconfigure(self, *, encoding=None, errors=None, **_options):
        """Everything is written at once, and is UTF-8 unless a process asks for another encoding."""
        self.__dict__.pop("write", None)
        if getattr(self, "is_exact", False) and encoding is not None:
            self.write = lambda text: self.buffer.write(text.encode(encoding, errors or "strict")) and len(text)


class _Out(TextOut):
    """`sys.stdout`."""

    number, title = 0, "<stdout>"


class _Err(TextOut):
    """`sys.stderr`."""

    number, title = 1, "<stderr>"


for each in (_Out, _Err):
    each.__name__ = each.__qualname__ = "TextOut"

OUT, ERR = (each(each.number, each.title) for each in (_Out, _Err))


class _BytesIn(io.BufferedIOBase):
    """`sys.stdin.buffer`: the lines of whoever watches the run. The end of input ends one reading, as on a terminal."""

    name = "<stdin>"
    mode = "rb"

    def __init__(self, ask):
        self._ask = ask
        self._rest = b""

    def readable(self):
        return True

    def fileno(self):
        return 0

    def isatty(self):
        return False

    def _fill(self):
        """Asks for a line when nothing is left of the one before; whether there is anything."""
        if not self._rest:
            try:
                self._rest = f"{self._ask('')}\n".encode("utf-8", "surrogateescape")
            except EOFError:
                return False
        return True

    def _take(self, count):
        taken, self._rest = self._rest[:count], self._rest[count:]
        return taken

    def put_back(self, data):
        """Gives back what was read too much."""
        self._rest = data + self._rest

    def peek(self, _size=0):
        return self._rest if self._fill() else b""

    def readline(self, size=-1):
        if not self._fill():
            return b""
        line = self._rest.find(b"\n") + 1
        return self._take(line if size is None or size < 0 else min(line, size))

    def read1(self, size=-1):
        return self._take(len(self._rest) if size is None or size < 0 else size) if self._fill() else b""

    def read(self, size=-1):
        pieces, left = [], -1 if size is None else size
        while left != 0 and (piece := self.read1(left)):
            pieces.append(piece)
            left -= len(piece) if left > 0 else 0
        return b"".join(pieces)

    def readinto(self, buffer):
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def readinto1(self, buffer):
        data = self.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self):
        """Cells share the stream: it stays open."""


class TextIn(io.TextIOBase):
    """`sys.stdin`: what is read beyond what was typed is a request for input."""

    encoding = "utf-8"
    errors = "strict"
    newlines = None
    line_buffering = False
    name = "<stdin>"
    mode = "r"
    closed = False

    def __init__(self, ask):
        self.buffer = _BytesIn(ask)

    def readable(self):
        return True

    def isatty(self):
        return False

    def fileno(self):
        return 0

    def readline(self, size=-1):
        line = self.buffer.readline().decode("utf-8", "replace")
        if size is not None and 0 <= size < len(line):
            self.buffer.put_back(line[size:].encode("utf-8"))
            line = line[:size]
        return line

    def read(self, size=-1):
        pieces, left = [], -1 if size is None else size
        while left != 0 and (piece := self.readline(left)):
            pieces.append(piece)
            left -= len(piece) if left > 0 else 0
        return "".join(pieces)

    def __next__(self):
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def close(self):
        """Cells share the stream: it stays open."""

    def reconfigure(self, **_options):
        """Everything is UTF-8."""


def install(ask):
    """Replaces the streams of the interpreter. `ask(prompt)` answers requests for input."""
    sys.stdout = sys.__stdout__ = OUT
    sys.stderr = sys.__stderr__ = ERR
    sys.stdin = sys.__stdin__ = TextIn(ask)


def tell(text):
    """Writes a text and a line end to standard error, which cells may have replaced, and broken."""
    text += "\n"
    try:
        sys.stderr.write(text)
    except Exception:  # noqa: BLE001 - what must be told is told anyhow
        ERR.write(text)


def keep_ground():
    """Takes back what no code could write with."""
    for stream in (OUT, ERR):
        state = stream.__dict__
        if state.get("_number") is not stream.number or not callable(state.get("write", tell)):
            state.clear()
            stream.__init__(stream.number, stream.title)
