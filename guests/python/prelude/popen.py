"""`subprocess.Popen`, on which the rest of `subprocess` is built; see `processes`.

Pipes are not live: what is written to `stdin` is read when it is closed, and what a process prints is there when it has
ended. A process whose `stdin` is a pipe begins when that is closed, or when somebody waits for what it says.
"""

import io
import locale
import os
import subprocess
import sys
import time
import types

from _cellar_prelude import processes
from _cellar_prelude.sandbox import SandboxError

PIPE, STDOUT, DEVNULL = subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL


class _Input(io.BytesIO):
    """What is written to a process. It begins when this is closed."""

    def __init__(self, begin):
        super().__init__()
        self._begin = begin

    def close(self):
        if not self.closed:
            data = self.getvalue()
            super().close()
            self._begin(data)


class _Output(io.RawIOBase):
    """What a process has printed, once it has ended."""

    def __init__(self, settle):
        self._settle, self._data, self._at = settle, None, 0

    def fill(self, data):
        """Takes in all of it."""
        self._data = data

    def readable(self):
        return True

    def readinto(self, buffer):
        if self._data is None:
            self._settle()
        piece = (self._data or b"")[self._at : self._at + len(buffer)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


class Popen:
    """A process that was started, or is about to be."""

    def __init__(
        self, args, bufsize=-1, executable=None, stdin=None, stdout=None, stderr=None, preexec_fn=None, close_fds=True,
        shell=False, cwd=None, env=None, universal_newlines=None, startupinfo=None, creationflags=0, restore_signals=True,
        start_new_session=False, pass_fds=(), *, user=None, group=None, extra_groups=None, encoding=None, errors=None,
        text=None, umask=-1, pipesize=-1, process_group=None,
    ):
        self._running = self._kept = self.returncode = None
        self.stdin = self.stdout = self.stderr = None
        if preexec_fn is not None:
            raise SandboxError("preexec_fn cannot be used: a process is a kernel of its own, and no copy of this one")
        if not isinstance(bufsize, int):
            raise TypeError("bufsize must be an integer")
        if text is not None and universal_newlines is not None and bool(universal_newlines) != bool(text):
            raise subprocess.SubprocessError("Cannot disambiguate when both text and universal_newlines are supplied")
        self.args, self.encoding, self.errors = args, encoding, errors
        self.text_mode = self.universal_newlines = bool(encoding or errors or text or universal_newlines)
        arguments = [os.fsdecode(each) for each in ([args] if isinstance(args, (str, bytes, os.PathLike)) else args)]
        if not arguments:
            raise IndexError("list index out of range")
        if executable is not None and not shell:
            arguments[0] = os.fsdecode(executable)
        self._folder = os.getcwd() if cwd is None else os.path.abspath(os.fsdecode(cwd))
        environment = dict(os.environ if env is None else ((os.fsdecode(name), os.fsdecode(env[name])) for name in env))
        self._out, self._err = stdout, stderr
        if not os.path.isdir(self._folder):
            raise FileNotFoundError(2, "No such file or directory", os.fsdecode(cwd))
        # What cannot be run is told at once.
        processes.order_of(arguments, shell, self._folder)
        self._begin_with = lambda data: processes.start(
            arguments, shell=shell, folder=self._folder, environment=environment, data=data
        )
        if stdout == PIPE:
            self._raw_out = _Output(self._settle)
            self.stdout = self._reader(self._raw_out)
        if stderr == PIPE:
            self._raw_err = _Output(self._settle)
            self.stderr = self._reader(self._raw_err)
        if stdin == PIPE:
            self.stdin = _Input(self._begin)
            if self.text_mode:
                self.stdin = io.TextIOWrapper(self.stdin, self._encoding(), errors, write_through=True)
        else:
            self._begin(_all_of(stdin))

    __class_getitem__ = classmethod(types.GenericAlias)

    def _encoding(self):
        return self.encoding or locale.getencoding()

    def _reader(self, raw):
        buffered = io.BufferedReader(raw)
        return io.TextIOWrapper(buffered, self._encoding(), self.errors) if self.text_mode else buffered

    def _begin(self, data):
        if self._running is None:
            self._running = self._begin_with(data)

    def _started(self):
        """The running process, which gets what was written to it so far when it has not begun."""
        if self._running is None:
            self.stdin.close()
        return self._running

    @property
    def pid(self):
        """Its number."""
        return self._started().pid

    def _settle(self, until=None):
        """Waits for its end, and hands out what it has printed; whether it has ended."""
        if self.returncode is None and self._started().wait(until):
            self._deliver()
        return self.returncode is not None

    def _deliver(self):
        try:
            self.returncode, output, _ = self._running.result()
        except OSError:
            self.returncode = -9
            self._hand_out(b"", b"")
            raise
        if self._err == STDOUT:
            output = [[1, text] for _, text in output]
        if PIPE in (self._out, self._err) or self._out is not None or self._err is not None:
            self._hand_out(*(b"".join(processes.bytes_of(text) for to, text in output if to == each) for each in (1, 2)))
        else:
            for to, text in output:
                (sys.stdout if to == 1 else sys.stderr).write(processes.bytes_of(text).decode("utf-8", "replace"))

    def _hand_out(self, out, err):
        for target, data, raw, own in (
            (self._out, out, getattr(self, "_raw_out", None), sys.stdout),
            (self._err, err, getattr(self, "_raw_err", None), sys.stderr),
        ):
            if raw is not None:
                raw.fill(data)
            elif target is None:
                own.write(data.decode("utf-8", "replace"))
            elif target not in (DEVNULL, STDOUT) and data:
                _write_all(target, data)

    def poll(self):
        """Its exit status, or None while it runs."""
        if self.returncode is None and self._running is not None and self._running.poll():
            self._deliver()
        return self.returncode

    def wait(self, timeout=None):
        """Waits for its end, and returns its exit status."""
        if not self._settle(None if timeout is None else time.monotonic() + timeout):
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def communicate(self, input=None, timeout=None):
        """Gives it its input, waits for its end, and returns what it has printed."""
        if self._kept is not None:
            return tuple(self._kept)
        if self.stdin is not None and not self.stdin.closed:
            if input:
                self.stdin.write(input)
            self.stdin.close()
        if not self._settle(None if timeout is None else time.monotonic() + timeout):
            raise subprocess.TimeoutExpired(self.args, timeout)
        said = [None if stream is None else b"" if stream.closed else stream.read() for stream in (self.stdout, self.stderr)]
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self._kept = said
        return tuple(said)

    def send_signal(self, sig):
        """Ends it, whatever the signal is; 0 does nothing."""
        if self.returncode is None and sig:
            self._started().kill(int(sig))

    def terminate(self):
        """Ends it."""
        self.send_signal(15)

    def kill(self):
        """Ends it."""
        self.send_signal(9)

    def __enter__(self):
        return self

    def __exit__(self, _type, _value, _trace):
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        if self.stdin is not None:
            self.stdin.close()
        self.wait()

    def __repr__(self):
        text = f"<{type(self).__name__}: returncode: {self.returncode} args: {self.args!r}>"
        return text[:76] + "...>" if len(text) > 80 else text


def _all_of(source):
    """All that a process reads that is given a file."""
    if source is None or source == DEVNULL:
        return b""
    if hasattr(source, "fileno") and not hasattr(source, "read"):
        source = source.fileno()
    if isinstance(source, int):
        pieces = []
        while piece := os.read(source, 1 << 20):
            pieces.append(piece)
        return b"".join(pieces)
    if source is sys.stdin:
        return b""
    data = source.read()
    return data.encode() if isinstance(data, str) else data


def _write_all(target, data):
    """Writes to a file that a process was given, by its number or as an object."""
    if target is sys.stdout or target is sys.stderr:
        target.write(data.decode("utf-8", "replace"))
        return
    if not isinstance(target, int):
        target.flush()
        target = target.fileno()
    while data:
        data = data[os.write(target, data) :]


def install():
    """Puts the class in the place of the library's."""
    Popen.__module__ = "subprocess"
    subprocess.Popen = Popen
