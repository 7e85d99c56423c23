"""`asyncio.create_subprocess_exec` and `create_subprocess_shell`; see `processes`."""

import asyncio

from _cellar_prelude.platform.loop import ReactorLoop
from _cellar_prelude.processes import channels
from _cellar_prelude.processes.popen import Popen, _raw_of


class _Writer:
    """`Process.stdin`. What is written goes into the pipe as soon as the loop gets round to it."""

    def __init__(self, process):
        self._process, self._raw = process, _raw_of(process._popen.stdin)
        self._rest, self._task, self._closing, self._broken = b"", None, False, None

    def write(self, data):
        """Adds to the input."""
        self._rest += bytes(data)
        self._begin()

    def writelines(self, lines):
        """Adds to the input."""
        self.write(b"".join(lines))

    def _begin(self):
        if self._task is None or self._task.done():
            self._task = self._process._loop.create_task(self._flush())

    async def _flush(self):
        try:
            while self._rest:
                piece, self._rest = self._rest, b""
                left, _ = await channels.transfer_aio(piece, self._raw.pipe)
                self._rest = left + self._rest
        except OSError as error:
            self._rest, self._broken = b"", error
        if self._closing:
            self._raw.close()

    def can_write_eof(self):
        """Whether the input can be ended."""
        return True

    def write_eof(self):
        """Ends the input."""
        self.close()

    def close(self):
        """Ends the input, once all of it is written."""
        self._closing = True
        if self._rest or (self._task is not None and not self._task.done()):
            self._begin()
        else:
            self._raw.close()

    def is_closing(self):
        """Whether the input has ended, or is about to."""
        return self._closing

    async def drain(self):
        """Waits until all of it is written."""
        if self._task is not None:
            await asyncio.shield(self._task)
        if self._broken is not None:
            raise self._broken

    async def wait_closed(self):
        """Waits until all of it is written."""
        if self._task is not None:
            await asyncio.shield(self._task)


class _Reader(asyncio.StreamReader):
    """`Process.stdout` or `stderr`."""

    def __init__(self, limit, loop):
        super().__init__(limit=limit, loop=loop)
        self._most, self._room = 2 * limit, asyncio.Event()
        self._room.set()

    def feed_data(self, data):
        super().feed_data(data)
        if len(self._buffer) > self._most:
            self._room.clear()

    def _maybe_resume_transport(self):
        if len(self._buffer) <= self._most:
            self._room.set()


class Process:
    """A process that was started for asyncio."""

    def __init__(self, popen, loop, limit):
        self._popen, self._loop = popen, loop
        self._ended = loop.create_future()
        self.stdin = None if popen.stdin is None else _Writer(self)
        self.stdout, self.stderr = (None if pipe is None else _Reader(limit, loop) for pipe in (popen.stdout, popen.stderr))
        self._pumps = [
            loop.create_task(self._pump(reader, _raw_of(pipe)))
            for reader, pipe in ((self.stdout, popen.stdout), (self.stderr, popen.stderr))
            if reader is not None
        ]
        running = popen._running
        running.when_done(lambda: loop.call_soon_threadsafe(self._finish))
        if not isinstance(loop, ReactorLoop) or loop.__dict__.get("nested"):
            # The host tells the main thread of ends, which may be waiting for this very one.
            loop.run_in_executor(None, running.wait)

    async def _pump(self, reader, raw):
        """Hands on what comes out of a pipe."""
        try:
            while not raw.has_ended():
                await reader._room.wait()
                _, found = await channels.transfer_aio(out_of=[raw.pipe])
                for _, data, has_ended in found:
                    raw.take_in(b"", has_ended)
                    if data:
                        reader.feed_data(data)
        except OSError as error:
            reader.set_exception(error)
        finally:
            reader.feed_eof()

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
        return await asyncio.shield(self._ended)

    async def communicate(self, input=None):
        """Gives it its input, waits for its end, and returns what it has printed."""
        if self.stdin is not None and not self.stdin.is_closing():
            if input:
                self.stdin.write(input)
            self.stdin.close()
        readers = [reader for reader in (self.stdout, self.stderr) if reader is not None]
        said = dict(zip(readers, await asyncio.gather(*(reader.read() for reader in readers))))
        await self.wait()
        return said.get(self.stdout), said.get(self.stderr)

    def send_signal(self, signal):
        """Ends it, whatever the signal is."""
        if self.returncode is not None:
            raise ProcessLookupError(3, "No such process")
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
    popen = Popen(cmd, shell=True, stdin=stdin, stdout=stdout, stderr=stderr, **kwds)
    return Process(popen, asyncio.get_running_loop(), limit)


async def _exec(program, *args, stdin=None, stdout=None, stderr=None, limit=2**16, **kwds):
    """Starts a program."""
    _check(kwds)
    popen = Popen([program, *args], stdin=stdin, stdout=stdout, stderr=stderr, **kwds)
    return Process(popen, asyncio.get_running_loop(), limit)


def install():
    """Puts them in the place of the library's."""
    Process.__module__ = "asyncio.subprocess"
    for function, name in ((_exec, "create_subprocess_exec"), (_shell, "create_subprocess_shell")):
        function.__name__ = function.__qualname__ = name
        function.__module__ = "asyncio.subprocess"
        setattr(asyncio, name, function)
        setattr(asyncio.subprocess, name, function)
    asyncio.subprocess.Process = Process
