"""Channels between this kernel, its processes and theirs: pipes that are read while they are written, and boxes of messages.

The host keeps them; see `session/spawned/channels.rs`. Bytes cross as texts, which `text_of` and `bytes_of` make of each other:
those that are no UTF-8 as characters of private use.
"""

import io
import time

import _cellar
from _cellar_prelude.calls import bridges
from _cellar_prelude.platform.sandbox import CallError

# Bytes that are written to a pipe by one call.
_PIECE = 1 << 19

def bytes_of(text):
    """The bytes that a text from a process stands for."""
    return _cellar.unescape_text(text)


def text_of(data):
    """A text that stands for these bytes."""
    return _cellar.escape_bytes(data)


def _refused(error):
    kind, message = error.args
    if kind == "unknown":
        return OSError(9, f"Bad file descriptor ({message})")
    return OSError(11, f"Resource temporarily unavailable ({message})")


def ask(function, /, *arguments):
    """Calls a function of the host that has to do with channels, and waits for it.

    Raises OSError when there is no such channel, or no room for another.
    """
    try:
        return function(*arguments)
    except CallError as error:
        failure = _refused(error)
    # A call that was cancelled because the cell must stop is no failure of the call.
    _cellar.raise_if_stopped()
    raise failure


def within(until):
    """Nanoseconds until a moment of `time.monotonic`; None for one that never comes."""
    return None if until is None else max(0, int((until - time.monotonic()) * 1_000_000_000))


def transfer(data=None, into=None, out_of=(), until=None):
    """Writes to one pipe what it has room for, and takes what others have, once either is possible.

    Returns (bytes that were not written, [(pipe, bytes, whether it has ended), ...]). Raises BrokenPipeError when nobody
    reads what was to be written.
    """
    return _transferred(ask(_cellar.call, *_transfer(data, into, out_of, within(until))), data)


async def transfer_aio(data=None, into=None, out_of=()):
    """The awaitable form."""
    try:
        answer = await bridges._start(*_transfer(data, into, out_of, None))
    except CallError as error:
        failure = _refused(error)
    else:
        return _transferred(answer, data)
    raise failure


def _transfer(data, into, out_of, timeout):
    text = None if into is None else text_of(data[:_PIECE])
    return _cellar.PROCESSES_TRANSFER, into, text, list(out_of), timeout


def _transferred(answer, data):
    _tag, (rest, is_broken, read) = answer
    if is_broken:
        raise BrokenPipeError(32, "Broken pipe")
    rest = b"" if data is None else bytes_of(rest) + data[_PIECE:]
    return rest, [(pipe, bytes_of(text), ended) for pipe, text, ended in read]


def make_pipes(count):
    """The numbers of so many new pipes."""
    return ask(_cellar.make_pipes, count)


def put(box, message, until=None):
    """Puts a text into a box; whether there was room for it in time."""
    _tag, is_put = ask(_cellar.call, _cellar.PROCESSES_PUT, box, message, within(until))
    return is_put


def take(box, keep=False, until=None):
    """The first text of a box, which stays there with `keep`; None when there was none in time."""
    _tag, message = ask(_cellar.call, _cellar.PROCESSES_TAKE, box, keep, within(until))
    return message


def close_all(pipes):
    """Closes the ends of pipes that were a process's."""
    for name, pipe in pipes.items():
        try:
            ask(_cellar.close_pipe, pipe, name == "input")
        except OSError:
            continue


class PipeReader(io.RawIOBase):
    """The end of a pipe that is read from."""

    def __init__(self, pipe, name=None, at_end=None):
        self.pipe = pipe
        self._at_end = at_end
        self._kept = bytearray()
        self._has_ended = self._was_read = False
        if name is not None:
            self.name = name

    def readable(self):
        return True

    def lend(self):
        """The pipe, for whoever reads it from now on; None when some of it was read here."""
        if self._was_read or self._kept or self._has_ended:
            return None
        self._has_ended = True
        return self.pipe

    def take_in(self, data, has_ended):
        """Takes in what was taken out of the pipe already."""
        self._kept += data
        self._has_ended = self._has_ended or has_ended

    def has_ended(self):
        """Whether nothing more comes out of the pipe."""
        return self._has_ended

    def kept(self):
        """What was taken in and not read."""
        return bytes(self._kept)

    def readinto(self, buffer):
        self._was_read = True
        if not self._kept and not self._has_ended:
            _, found = transfer(out_of=[self.pipe])
            for _, data, has_ended in found:
                self.take_in(data, has_ended)
            if self._has_ended and self._at_end is not None:
                self._at_end()
        piece = self._kept[: len(buffer)]
        buffer[: len(piece)] = piece
        del self._kept[: len(piece)]
        return len(piece)

    def close(self):
        if not self.closed:
            super().close()
            if not self._has_ended:
                ask(_cellar.close_pipe, self.pipe, True)


class PipeWriter(io.RawIOBase):
    """The end of a pipe that is written to."""

    def __init__(self, pipe):
        self.pipe = pipe

    def writable(self):
        return True

    def write(self, data):
        rest = data = bytes(data)
        while rest:
            rest, _ = transfer(rest, self.pipe)
        return len(data)

    def close(self):
        if not self.closed:
            super().close()
            ask(_cellar.close_pipe, self.pipe, False)
