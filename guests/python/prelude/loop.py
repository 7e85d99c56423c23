"""The event loop: driven from outside, so that nothing is on any stack while cells wait.

The host enters the guest (`start`, `resume`), the loop runs until nothing can go on, and the guest is left with the
time of its earliest timer. The loop counts as running all the time.
"""

import asyncio
import asyncio.base_events
import asyncio.events
import asyncio.runners
import heapq
import time

import _cellar

# How long the loop may run before the host gets a turn, in seconds: a task that never waits must not keep answers,
# timers of the host and other cells out.
TURN = 0.01


class ReactorLoop(asyncio.base_events.BaseEventLoop):
    """An asyncio loop without a selector."""

    def __init__(self):
        super().__init__()
        # Called with (context, exception) when a callback raises what must not be swallowed.
        self.on_fatal = None

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
        if asyncio.iscoroutine(future):
            future.close()
        self._check_running()

    def stop(self):
        raise RuntimeError("the event loop of the kernel cannot be stopped: it belongs to all cells")

    def close(self):
        raise RuntimeError("the event loop of the kernel cannot be closed: it belongs to all cells")

    def call_soon_threadsafe(self, callback, *args, context=None):
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor, func, *args):
        """There are no threads: the function runs now and blocks the kernel."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - handed on
            future.set_exception(error)
        return future

    def wake_at(self):
        """When the earliest timer is due, in nanoseconds, or None. 0 when something is ready now."""
        if self._ready:
            return 0
        scheduled = self._scheduled
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        return int(scheduled[0]._when * 1e9) + 1 if scheduled else None

    def _move_due_timers(self):
        now = time.monotonic() + self._clock_resolution
        scheduled = self._scheduled
        while scheduled and (scheduled[0]._cancelled or scheduled[0]._when < now):
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            if not handle._cancelled:
                self._ready.append(handle)

    def _run_handle(self, handle):
        _cellar.enable_stop(True)
        try:
            handle._run()
        except BaseException as error:  # noqa: BLE001 - handed on
            _cellar.enable_stop(False)
            self.on_fatal(handle._context, error)
        finally:
            _cellar.enable_stop(False)

    def drain(self, check):
        """Runs what is ready, and what that makes ready, for one turn at most.

        `check` is called about every millisecond: it ends cells that must stop while others are busy.
        """
        ready = self._ready
        if self._scheduled:
            self._move_due_timers()
        if not ready:
            return
        start = checked = time.monotonic()
        while ready:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    self._run_handle(handle)
            if self._scheduled:
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
        self._ready.clear()
        self._scheduled.clear()

    def call_exception_handler(self, context):
        """Unhandled errors of tasks go to the standard error of the cell that made them."""
        if self._exception_handler is not None:
            super().call_exception_handler(context)
            return
        self.on_unhandled(context)


def refuse_run(main=None, **_options):
    """Stands for `asyncio.run`."""
    if asyncio.iscoroutine(main):
        main.close()
    raise RuntimeError(
        "asyncio.run() cannot be called from a cell, whose event loop is already running: use `await` instead, as in "
        "`await main()`"
    )


def _refuse_loop():
    """Stands for `asyncio.new_event_loop`."""
    raise RuntimeError(
        "the kernel has one event loop, which is always running: use `await` at the top level of the cell, and "
        "asyncio.get_running_loop() for the loop itself"
    )


class _NoRunner:
    """Stands for `asyncio.Runner`."""

    def __init__(self, **_options):
        refuse_run()


def install():
    """Makes one loop the running loop for ever; returns it."""
    loop = ReactorLoop()
    asyncio.set_event_loop(loop)
    asyncio.events._set_running_loop(loop)
    asyncio.run = asyncio.runners.run = refuse_run
    asyncio.new_event_loop = asyncio.events.new_event_loop = _refuse_loop
    asyncio.Runner = asyncio.runners.Runner = _NoRunner
    return loop
