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
    sys.stdout = sys.__stdout__ = TextOut(0, "<stdout>")
    sys.stderr = sys.__stderr__ = TextOut(1, "<stderr>")
    sys.stdin = sys.__stdin__ = TextIn(ask)
