"""The event loop: driven from outside, so that nothing is on any stack while cells wait.

The host enters the guest (`start`, `resume`), the loop runs until nothing can go on, and the guest is left with the
time of its earliest timer. The loop counts as running all the time.
"""

import asyncio
import asyncio.base_events
import asyncio.events
import asyncio.runners
import asyncio.selector_events
import asyncio.tasks
import contextlib
import contextvars
import heapq
import os
import selectors
import socket
import sys
import time
import weakref

import _cellar
from _cellar_prelude.platform import sockets

# How long the loop may run before the host gets a turn, in seconds: a task that never waits must not keep answers,
# timers of the host and other cells out.
TURN = 0.01
# How often a loop that runs within itself looks for what threads have called, in seconds.
_PAUSE = 0.001
# More callbacks than this are not kept ready to run: tasks that are begun and never awaited would fill the memory.
READY_MAX = 20_000

# Of the one loop: the callbacks that can run, the timers, and all its attributes as they were in baking. Kept here as well,
# for cells can reach the loop.
_ready = None
_scheduled = None
_attributes = {}
# The selector of the sockets that tasks wait for, and those.
_selector = None
_watched = {}
# Called with (context, exception) when a callback raises what must not be swallowed, and with the context of an exception
# that nobody awaited.
_on_fatal = _on_unhandled = None

# What nobody may await besides tasks: futures of `gather` and of executors, each with its context.
made = weakref.WeakKeyDictionary()
made_by_key = made.data

_create_task = asyncio.base_events.BaseEventLoop.create_task
_run_in_executor = asyncio.base_events.BaseEventLoop.run_in_executor
_init_gathering = asyncio.tasks._GatheringFuture.__init__
_call_exception_handler = asyncio.base_events.BaseEventLoop.call_exception_handler
_run_callback = asyncio.events.Handle._run
_set_running_loop = asyncio.events._set_running_loop
_enter_task, _leave_task = asyncio.tasks._enter_task, asyncio.tasks._leave_task


_Base = asyncio.selector_events.BaseSelectorEventLoop
_Selector = sockets.make_selector(selectors._BaseSelectorImpl)


class _UnixServer(asyncio.base_events.Server):
    """A server with a name among the files, which is gone with it."""

    _place = None

    def close(self):
        super().close()
        place, self._place = self._place, None
        if place is not None:
            with contextlib.suppress(OSError):
                os.unlink(place)


def _unix_socket(path, sock):
    """The socket that is asked for: a new one for a path, or the one that was given."""
    if (path is None) == (sock is None):
        raise ValueError("path and sock can not be specified at the same time" if sock else "no path and sock were specified")
    if sock is None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    elif sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM:
        raise ValueError(f"A UNIX Domain Stream Socket was expected, got {sock!r}")
    sock.setblocking(False)
    return sock


def _watching(kind):
    """Makes a class of loops watch the sockets of this kernel, and no others.

    It is no class of its own, so that a loop's methods are all where cells cannot take them from.
    """

    def init(self):
        _Base.__init__(self, _Selector())

    def make_self_pipe(_self):
        """Threads ring the selector."""

    def close_self_pipe(_self):
        """There is none."""

    def write_to_self(self):
        self._selector.ring()

    async def getaddrinfo(_self, host, port, *, family=0, type=0, proto=0, flags=0):  # noqa: A002
        return socket.getaddrinfo(host, port, family, type, proto, flags)

    async def getnameinfo(_self, sockaddr, flags=0):
        return socket.getnameinfo(sockaddr, flags)

    async def create_unix_connection(self, protocol_factory, path=None, *, sock=None, ssl=None, server_hostname=None, **_timeouts):
        sock = _unix_socket(path, sock)
        try:
            if path is not None:
                await self.sock_connect(sock, os.fspath(path))
            return await self._create_connection_transport(sock, protocol_factory, ssl, server_hostname)
        except BaseException:
            sock.close()
            raise

    async def create_unix_server(self, protocol_factory, path=None, *, sock=None, backlog=100, start_serving=True, cleanup_socket=True, **_tls):
        sock = _unix_socket(path, sock)
        if path is not None:
            try:
                sock.bind(os.fspath(path))
            except BaseException:
                sock.close()
                raise
        server = _UnixServer(self, [sock], protocol_factory, None, backlog, None, None)
        server._place = os.path.abspath(sock.getsockname()) if cleanup_socket else None
        if start_serving:
            await server.start_serving()
        return server

    kind.__init__, kind.getaddrinfo, kind.getnameinfo = init, getaddrinfo, getnameinfo
    kind.create_unix_connection, kind.create_unix_server = create_unix_connection, create_unix_server
    kind._make_self_pipe, kind._close_self_pipe, kind._write_to_self = make_self_pipe, close_self_pipe, write_to_self
    return kind


@_watching
class ReactorLoop(_Base):
    """An asyncio loop that is driven from outside."""

    def begin(self, on_fatal, on_unhandled):
        """Remembers what the loop is like, and whom it tells of exceptions."""
        global _ready, _scheduled, _on_fatal, _on_unhandled, _selector, _watched
        _ready, _scheduled = self._ready, self._scheduled
        _selector, _watched = self._selector, self._selector._fd_to_key
        _on_fatal, _on_unhandled = on_fatal, on_unhandled
        self.is_nested, self.nested = False, 0
        _attributes.update(vars(self))

    def watch_generators(self):
        """Has generators of this thread that are left in the middle closed, so that their `finally` is run; as a loop that runs does."""
        sys.set_asyncgen_hooks(firstiter=self._asyncgen_firstiter_hook, finalizer=self._asyncgen_finalizer_hook)

    def keep_ground(self):
        """Takes back what cells have done to the loop that no code could work with."""
        state = self.__dict__
        if state.get("_ready") is not _ready or state.get("_scheduled") is not _scheduled or len(state) != len(_attributes):
            self.mend()
        _set_running_loop(self)

    def mend(self):
        """Makes the loop what it was, but for its callbacks and timers."""
        self.__dict__ = dict(_attributes)
        _set_running_loop(self)

    def create_task(self, coroutine, **options):
        """Makes a task, unless there are too many that have not begun."""
        if len(_ready) > READY_MAX:
            coroutine.close()
            raise RuntimeError(f"more than {READY_MAX} tasks wait to begin: await some of them before more are made")
        return _create_task(self, coroutine, **options)

    def run_in_executor(self, executor, function, *arguments):
        future = _run_in_executor(self, executor, function, *arguments)
        _note_made(future)
        return future

    def is_running(self):
        return True

    def _check_running(self):
        raise RuntimeError(
            "the event loop of the kernel is always running: use `await` at the top level of the cell instead of "
            "asyncio.run() or loop.run_until_complete()"
        )

    def run_forever(self):
        self._check_running()

    def run_until_complete(self, future):
        if self.__dict__.get("is_nested") and _is_kernels():
            return self._run_nested(future)
        if asyncio.iscoroutine(future):
            future.close()
        self._check_running()

    def _run_nested(self, future):
        """Runs the loop from within, until something is done; as with `nest_asyncio`."""
        task = asyncio.ensure_future(future, loop=self)
        current = asyncio.current_task(self)
        if current is not None:
            _leave_task(self, current)
        before, self.nested = self.__dict__.get("nested", 0), self.__dict__.get("nested", 0) + 1
        try:
            while not task.done():
                self.drain(_cellar.raise_if_stopped)
                _cellar.enable_stop(True)
                wake_at = self.wake_at()
                if task.done() or wake_at == 0:
                    continue
                if not _cellar.is_alone():
                    # What is waited for may come from a thread.
                    _cellar.run_threads()
                    time.sleep(_PAUSE)
                    continue
                if wake_at is None:
                    task.cancel()
                    raise RuntimeError("deadlock: what is run within the loop waits for something outside of it; use `await`")
                time.sleep(max(0.0, wake_at / 1e9 - time.monotonic()))
        finally:
            self.nested = before
            if current is not None:
                _enter_task(self, current)
        return task.result()

    def stop(self):
        raise RuntimeError("the event loop of the kernel cannot be stopped: it belongs to all cells")

    def close(self):
        raise RuntimeError("the event loop of the kernel cannot be closed: it belongs to all cells")

    def call_soon_threadsafe(self, callback, *args, context=None):
        return self.call_soon(callback, *args, context=context)

    def wake_at(self):
        """When the earliest timer is due, in nanoseconds, or None. 0 when something is ready now."""
        if _watched and not _ready:
            self._process_events(_selector.select(0))
        if _ready:
            return 0
        scheduled = _scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        return int(scheduled[0]._when * 1e9) + 1 if scheduled else None

    def _move_due_timers(self):
        now = time.monotonic() + self._clock_resolution
        scheduled = _scheduled
        while scheduled and (scheduled[0]._cancelled or scheduled[0]._when < now):
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if not handle._cancelled:
                _ready.append(handle)

    def _run_handle(self, handle):
        _cellar.enable_stop(handle._context.get(_cellar.cell, 0))
        try:
            _run_callback(handle)
        except BaseException as error:  # noqa: BLE001 - handed on
            _cellar.enable_stop(False)
            _on_fatal(handle._context, error)
        finally:
            _cellar.enable_stop(False)

    def drain(self, check):
        """Runs what is ready, and what that makes ready, for one turn at most.

        `check` is called about every millisecond: it ends cells that must stop while others are busy.
        """
        ready = _ready
        if _scheduled:
            self._move_due_timers()
        if not ready:
            return
        start = checked = time.monotonic()
        while ready:
            for _ in range(len(ready)):
                if not ready:
                    # This thread has waited in a callback, and another one has gone on with the loop.
                    break
                handle = ready.popleft()
                if not handle._cancelled:
                    self._run_handle(handle)
            if _scheduled:
                self._move_due_timers()
            now = time.monotonic()
            if now - checked > 0.001:
                checked = now
                check()
            if now - start > TURN:
                return

    def _timer_handle_cancelled(self, handle):
        """Cancelled timers are dropped when their time comes."""

    def clear(self):
        """Forgets everything that is scheduled."""
        _ready.clear()
        _scheduled.clear()
        _watched.clear()
        self._default_executor = None

    def call_exception_handler(self, context):
        """Unhandled errors of tasks go to the standard error of the cell that made them."""
        if self._exception_handler is not None:
            _call_exception_handler(self, context)
            return
        _on_unhandled(context)


@_watching
class ThreadLoop(_Base):
    """The loop of a thread other than the main one."""


def _note_made(future):
    made[future] = contextvars.copy_context()


def _gathering(self, children, *, loop):
    """Stands for the beginning of what `asyncio.gather` returns."""
    _init_gathering(self, children, loop=loop)
    _note_made(self)


def futures():
    """(future, context) of each task and future that nobody may await."""
    tasks = sorted(asyncio.tasks._scheduled_tasks, key=lambda task: (len(task.get_name()), task.get_name()))
    tasks = [(task, task.get_context()) for task in tasks]
    return tasks + list(made.items()) if made else tasks


def _is_kernels():
    """Whether the running loop is that of the kernel, as it always is in the main thread."""
    return isinstance(asyncio.events._get_running_loop(), ReactorLoop)


def _run(main=None, **options):
    """Stands for `asyncio.run`, which works in threads."""
    if not _is_kernels():
        return _original_run(main, **options)
    loop = asyncio.get_running_loop()
    if loop.__dict__.get("is_nested") and main is not None:
        return loop.run_until_complete(main)
    if asyncio.iscoroutine(main):
        main.close()
    raise RuntimeError(
        "asyncio.run() cannot be called from a running event loop, as that of a cell is: use `await` instead, as in "
        "`await main()`"
    )


def _new_loop():
    """Stands for `asyncio.new_event_loop`."""
    if not _is_kernels():
        return ThreadLoop()
    raise RuntimeError(
        "the kernel has one event loop, which is always running: use `await` at the top level of the cell, and "
        "asyncio.get_running_loop() for the loop itself"
    )


class _Runner(asyncio.Runner):
    """Stands for `asyncio.Runner`."""

    def __init__(self, **options):
        if _is_kernels():
            _run(None)
        super().__init__(**options)


_original_run = asyncio.runners.run


def install():
    """Makes one loop the running loop of the main thread for ever; returns it."""
    for kind in _Base.__mro__[:-1]:
        for name, member in vars(kind).items():
            # What the loop does must not change with the class it is made of.
            if not name.startswith("__") and name not in vars(ReactorLoop):
                setattr(ReactorLoop, name, member)
    loop = ReactorLoop()
    asyncio.set_event_loop(loop)
    asyncio.events._set_running_loop(loop)
    loop.watch_generators()
    asyncio.run = asyncio.runners.run = _run
    asyncio.new_event_loop = asyncio.events.new_event_loop = _new_loop
    asyncio.Runner = asyncio.runners.Runner = _Runner
    asyncio.tasks._GatheringFuture.__init__ = _gathering
    return loop
