"""`subprocess.Popen`, on which the rest of `subprocess` is built; see `processes` and, for its pipes, `channels`."""

import io
import os
import subprocess
import sys
import time
import types

from _cellar_prelude.platform.sandbox import CellStopped, SandboxError
from _cellar_prelude.processes import channels, processes

PIPE, STDOUT, DEVNULL = subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL
# How long a process mostly takes to end once its output has, in seconds.
_ENDS_WITHIN = 0.05


class Popen:
    """A process that was started, or is about to be."""

    def __init__(
        self, args, bufsize=-1, executable=None, stdin=None, stdout=None, stderr=None, preexec_fn=None, close_fds=True,
        shell=False, cwd=None, env=None, universal_newlines=None, startupinfo=None, creationflags=0, restore_signals=True,
        start_new_session=False, pass_fds=(), *, user=None, group=None, extra_groups=None, encoding=None, errors=None,
        text=None, umask=-1, pipesize=-1, process_group=None,
    ):
        self._running = self._kept = self._left = self._raw_out = self._raw_err = self.returncode = None
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
        pipes, data = self._open_pipes(bufsize, stdin), b""
        if stdin != PIPE:
            lent = _lent_pipe(stdin)
            if lent is None:
                data = _all_of(stdin)
            else:
                pipes["input"] = lent
        self._running = processes.start(
            arguments, shell=shell, folder=self._folder, environment=environment, data=data, pipes=pipes
        )

    __class_getitem__ = classmethod(types.GenericAlias)

    def _open_pipes(self, bufsize, stdin):
        """Makes the streams that are pipes; returns the ends that are the process's."""
        wanted = [("input", stdin == PIPE), ("out", self._out == PIPE), ("err", self._err == PIPE)]
        names = [name for name, is_wanted in wanted if is_wanted]
        pipes = dict(zip(names, channels.make_pipes(len(names)))) if names else {}
        if "input" in pipes:
            raw = channels.PipeWriter(pipes["input"])
            self.stdin = raw if bufsize == 0 else io.BufferedWriter(raw, bufsize if bufsize > 1 else io.DEFAULT_BUFFER_SIZE)
            if self.text_mode:
                is_by_line = bufsize == 1
                self.stdin = io.TextIOWrapper(
                    self.stdin, self._encoding(), self.errors, write_through=True, line_buffering=is_by_line
                )
        if "out" in pipes:
            self._raw_out = channels.PipeReader(pipes["out"], at_end=self._look)
            self.stdout = self._reader(self._raw_out)
        if "err" in pipes:
            self._raw_err = channels.PipeReader(pipes["err"], at_end=self._look)
            self.stderr = self._reader(self._raw_err)
        if self._err == STDOUT and "out" in pipes:
            pipes["err"] = pipes["out"]
        return pipes

    def _look(self):
        """A pipe has ended, and mostly the process as well: it is known to have before somebody asks."""
        self._running.wait(time.monotonic() + _ENDS_WITHIN)

    def _encoding(self):
        return self.encoding or "utf-8"

    def _reader(self, raw):
        buffered = io.BufferedReader(raw)
        return io.TextIOWrapper(buffered, self._encoding(), self.errors) if self.text_mode else buffered

    @property
    def pid(self):
        """Its number."""
        return self._running.pid

    def _settle(self, until=None):
        """Waits for its end, and hands out what it has printed; whether it has ended."""
        if self.returncode is None and self._running.wait(until):
            self._deliver()
        return self.returncode is not None

    def _deliver(self):
        try:
            self.returncode, output, _ = self._running.result()
        except OSError:
            self.returncode = -9
            raise
        if self._err == STDOUT:
            output = [[1, text] for _, text in output]
        if self._out is None and self._err is None:
            processes.show(output)
            return
        for number, target in ((1, self._out), (2, self._err)):
            data = b"".join(channels.bytes_of(text) for to, text in output if to == number)
            if target is None:
                processes.show([piece for piece in output if piece[0] == number])
            elif target not in (PIPE, DEVNULL, STDOUT) and data:
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
        until = None if timeout is None else time.monotonic() + timeout
        try:
            self._exchange(input, until, timeout)
        except CellStopped:
            self._running.kill(9)
            raise
        if not self._settle(until):
            raise subprocess.TimeoutExpired(self.args, timeout, self._said_by("_raw_out"), self._said_by("_raw_err"))
        said = [None if stream is None else b"" if stream.closed else stream.read() for stream in (self.stdout, self.stderr)]
        for stream in (self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self._kept = said
        return tuple(said)

    def _exchange(self, given, until, timeout):
        """Writes what is given to its pipe while it takes in all that comes out of the others."""
        data = self._left
        if self.stdin is not None and not self.stdin.closed and data is None:
            data = b""
            if given:
                data = given.encode(self._encoding(), self.errors or "strict") if self.text_mode else bytes(given)
            try:
                self.stdin.flush()
            except BrokenPipeError:
                pass
        raws = {raw.pipe: raw for raw in (self._raw_out, self._raw_err) if raw is not None and not raw.closed}
        while True:
            open_pipes = [pipe for pipe, raw in raws.items() if not raw.has_ended()]
            if data == b"":
                data = None
                self._close_input()
            if data is None and not open_pipes:
                break
            found = []
            try:
                pipe = None if data is None else _raw_of(self.stdin).pipe
                left, found = channels.transfer(data, pipe, open_pipes, until)
                data = None if data is None else left
            except BrokenPipeError:
                data = b""
            self._left = data
            for pipe, piece, has_ended in found:
                raws[pipe].take_in(piece, has_ended)
            if until is not None and time.monotonic() >= until:
                raise subprocess.TimeoutExpired(self.args, timeout, self._said_by("_raw_out"), self._said_by("_raw_err"))
        self._left = None

    def _close_input(self):
        try:
            self.stdin.close()
        except BrokenPipeError:
            pass

    def _said_by(self, name):
        raw = getattr(self, name)
        return None if raw is None else raw.kept() or None

    def send_signal(self, sig):
        """Ends it, whatever the signal is; 0 does nothing."""
        if self.returncode is None and sig:
            self._running.kill(int(sig))

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
        try:
            if self.stdin is not None:
                self._close_input()
        finally:
            self.wait()

    def __repr__(self):
        text = f"<{type(self).__name__}: returncode: {self.returncode} args: {self.args!r}>"
        return text[:76] + "...>" if len(text) > 80 else text


def _raw_of(stream):
    """What is below the layers of a stream."""
    for name in ("buffer", "raw"):
        stream = getattr(stream, name, stream)
    return stream


def _lent_pipe(source):
    """The pipe of another process's output that nobody has read yet; None when it is something else."""
    if isinstance(source, (io.TextIOWrapper, io.BufferedReader)) and isinstance(_raw_of(source), channels.PipeReader):
        return _raw_of(source).lend()
    return None


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
        target.flush()
        target.buffer.write(data)
        return
    if isinstance(_raw_of(target), channels.PipeWriter):
        target.flush()
        _raw_of(target).write(data)
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
