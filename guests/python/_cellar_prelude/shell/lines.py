"""The streams of commands, what they read, and lines as programs count them.

Commands read and write bytes. Where they work on texts, bytes that are no UTF-8 stand in these as surrogates, as in names of
files, so that a text becomes the same bytes again.
"""

import codecs
import io
import re

# Names of standard input among the files of a command.
_STANDARD = ("-", "/dev/stdin")


def decoded(data):
    """The text of bytes."""
    return data.decode("utf-8", "surrogateescape")


def encoded(text):
    """The bytes of a text. A surrogate that stands for no byte becomes U+FFFD."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udc7f\udd00-\udfff]", "\ufffd", text).encode("utf-8", "surrogateescape")


def units(text):
    """The bytes of a text as a text, with a sign for each: for commands that count bytes."""
    return encoded(text).decode("latin-1")


class Stream:
    """A stream of a command: text, on top of the bytes of `buffer`. It reads no more than it gives."""

    def __init__(self, source=b"", is_file=False):
        self.buffer = io.BytesIO(source) if isinstance(source, bytes) else source
        self.is_file = is_file

    def read(self, size=-1):
        """All the text that is left, or so many characters."""
        if size < 0:
            return decoded(self.buffer.read())
        decoder, text = codecs.getincrementaldecoder("utf-8")("surrogateescape"), ""
        while len(text) < size:
            byte = self.buffer.read(1)
            text += decoder.decode(byte, final=not byte)
            if not byte:
                break
        return text

    def readline(self):
        """The next line, with its end."""
        return decoded(self.buffer.readline())

    def write(self, text):
        """Writes text."""
        self.buffer.write(encoded(text))
        return len(text)

    def flush(self):
        """Hands on what was written."""
        self.buffer.flush()

    def close(self):
        """Closes what is below."""
        self.buffer.close()

    def getvalue(self):
        """The text that was written, where it is kept."""
        return decoded(self.buffer.getvalue())


class Unread(Exception):
    """Some files of a command could not be read: the errors."""


def blobs(operands, stdin):
    """(name, bytes) of each file, or of standard input. Raises `Unread` when all others have been read."""
    errors = []
    for name in operands or ["-"]:
        try:
            data = stdin.buffer.read() if name in _STANDARD else contents(name)
        except OSError as error:
            errors.append(error)
            continue
        yield name, data
    if errors:
        raise Unread(*errors)


def texts(operands, stdin):
    """(name, text) of each file, or of standard input."""
    return ((name, decoded(data)) for name, data in blobs(operands, stdin))


def contents(name):
    """The bytes of a file."""
    with open(name, "rb") as file:
        return file.read()


def lines_with_ends(text):
    """The lines of a text, each with the end that it has: `str.splitlines` also ends lines at carriage returns and the like."""
    return io.StringIO(text, newline="\n").readlines()


def lines_of(text, end="\n"):
    """The lines of a text without their ends."""
    lines = text.split(end)
    return lines if lines[-1] else lines[:-1]
