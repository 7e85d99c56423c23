"""`asyncio.create_subprocess_exec` and `create_subprocess_shell`; see `processes`."""

import asyncio

from _cellar_prelude.loop import ReactorLoop
from _cellar_prelude.popen import Popen


class _Writer:
    """`Process.stdin`. The process begins when it is closed, or when somebody waits for what it says."""

    def __init__(self, process):
        self._process, self._pipe = process, process._popen.stdin

    def write(self, data):
        """Adds to the input."""
        self._pipe.write(data)

    def writelines(self, lines):
        """Adds to the input."""
        for line in lines:
            self._pipe.write(line)

    def can_write_eof(self):
        """Whether the input can be ended."""
        return True

    def write_eof(self):
        """Ends the input."""
        self.close()

    def close(self):
        """Ends the input."""
        if not self._pipe.closed:
            self._pipe.close()
            self._process._begin()

    def is_closing(self):
        """Whether the input has ended."""
        return self._pipe.closed

    async def drain(self):
        """There is room for all."""

    async def wait_closed(self):
        """It is closed at once."""


class _Reader(asyncio.StreamReader):
    """`Process.stdout` or `stderr`. Whoever reads has the process begin."""

    def __init__(self, process, loop):
        super().__init__(loop=loop)
        self._begin = process._begin

    async def _wait_for_data(self, name):
        self._begin()
        await super()._wait_for_data(name)

    async def read(self, n=-1):
        self._begin()
        return await super().read(n)


class Process:
    """A process that was started for asyncio."""

    def __init__(self, popen, loop):
        self._popen, self._loop = popen, loop
        self._ended = loop.create_future()
        self._is_heard = False
        self.stdin = None if popen.stdin is None else _Writer(self)
        self.stdout, self.stderr = (None if pipe is None else _Reader(self, loop) for pipe in (popen.stdout, popen.stderr))
        if self.stdin is None:
            self._begin()

    def _begin(self):
        """Starts it, and has its end told to the loop."""
        if self._is_heard:
            return
        self._is_heard = True
        running = self._popen._started()
        running.when_done(lambda: self._loop.call_soon_threadsafe(self._finish))
        if not isinstance(self._loop, ReactorLoop) or self._loop.__dict__.get("nested"):
            # The host tells the main thread of ends, which may be waiting for this very one.
            self._loop.run_in_executor(None, running.wait)

    def _finish(self):
        if self._ended.done():
            return
        try:
            self._popen._settle()
        except OSError as error:
            self._ended.set_exception(error)
            self._ended.exception()
        else:
            self._ended.set_result(self._popen.returncode)
        for reader, pipe in ((self.stdout, self._popen.stdout), (self.stderr, self._popen.stderr)):
            if reader is not None:
                reader.feed_data(pipe.read() or b"")
                reader.feed_eof()

    @property
    def pid(self):
        """Its number."""
        return self._popen.pid

    @property
    def returncode(self):
        """Its exit status, or None while it runs."""
        return self._popen.returncode

    async def wait(self):
        """Waits for its end; its exit status."""
        if self.stdin is not None:
            self.stdin.close()
        self._begin()
        return await asyncio.shield(self._ended)

    async def communicate(self, input=None):
        """Gives it its input, waits for its end, and returns what it has printed."""
        if self.stdin is not None and not self.stdin.is_closing():
            if input:
                self.stdin.write(input)
            self.stdin.close()
        await self.wait()
        return tuple([None if reader is None else await reader.read() for reader in (self.stdout, self.stderr)])

    def send_signal(self, signal):
        """Ends it, whatever the signal is."""
        if self.returncode is not None:
            raise ProcessLookupError
        self._popen.send_signal(signal)

    def terminate(self):
        """Ends it."""
        self.send_signal(15)

    def kill(self):
        """Ends it."""
        self.send_signal(9)

    def __repr__(self):
        return f"<Process {self.pid}>"


def _check(options):
    for name in ("universal_newlines", "text", "encoding", "errors"):
        if options.pop(name, None):
            raise ValueError(f"{name} must be {'None' if name in ('encoding', 'errors') else False}")


async def _shell(cmd, stdin=None, stdout=None, stderr=None, limit=2**16, **kwds):
    """Starts a line of shell commands."""
    _check(kwds)
    kwds.pop("shell", None)
    return Process(Popen(cmd, shell=True, stdin=stdin, stdout=stdout, stderr=stderr, **kwds), asyncio.get_running_loop())


async def _exec(program, *args, stdin=None, stdout=None, stderr=None, limit=2**16, **kwds):
    """Starts a program."""
    _check(kwds)
    return Process(Popen([program, *args], stdin=stdin, stdout=stdout, stderr=stderr, **kwds), asyncio.get_running_loop())


def install():
    """Puts them in the place of the library's."""
    Process.__module__ = "asyncio.subprocess"
    for function, name in ((_exec, "create_subprocess_exec"), (_shell, "create_subprocess_shell")):
        function.__name__ = function.__qualname__ = name
        function.__module__ = "asyncio.subprocess"
        setattr(asyncio, name, function)
        setattr(asyncio.subprocess, name, function)
    asyncio.subprocess.Process = Process
