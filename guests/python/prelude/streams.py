"""Standard streams: text goes straight to the host, marked with the cell that wrote it."""

import codecs
import io
import sys

import _cellar


class _BytesOut(io.BufferedIOBase):
    """The `.buffer` of an output stream. A character may arrive in two writes."""

    def __init__(self, number, name):
        self._number = number
        self.name = name
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self):
        return True

    def write(self, data):
        text = self._decoder.decode(data)
        if text:
            _cellar.write(self._number, text)
        return memoryview(data).nbytes

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

    def reconfigure(self, **_options):
        """Everything is UTF-8 and written at once."""


class _Out(TextOut):
    """`sys.stdout`."""

    number, title = 0, "<stdout>"


class _Err(TextOut):
    """`sys.stderr`."""

    number, title = 1, "<stderr>"


for each in (_Out, _Err):
    each.__name__ = each.__qualname__ = "TextOut"

OUT, ERR = (each(each.number, each.title) for each in (_Out, _Err))


class TextIn(io.TextIOBase):
    """`sys.stdin`: every line is a request for input."""

    encoding = "utf-8"
    errors = "strict"
    name = "<stdin>"
    mode = "r"

    def __init__(self, ask):
        self._ask = ask

    def readable(self):
        return True

    def isatty(self):
        return False

    def fileno(self):
        return 0

    def readline(self, size=-1):
        try:
            line = self._ask("") + "\n"
        except EOFError:
            return ""
        return line if size is None or size < 0 else line[:size]

    def read(self, size=-1):
        return self.readline(size)

    def __next__(self):
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    def close(self):
        """Cells share the stream: it stays open."""


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
