"""Threads of cells: they take turns, and a cell ends when its threads have ended, as a program does.

A daemon thread is not waited for. When its cell has ended it is held: it goes on while a later cell runs or waits, and
is lost when the kernel must give its memory back. A worker of an executor ends with its cell when it has nothing to do.
"""

import asyncio
import concurrent.futures.thread as executors
import queue
import sys
import threading
import time

import _cellar
from _cellar_prelude.calls import bridges
from _cellar_prelude.platform import faults
from _cellar_prelude.platform.sandbox import CellStopped

# How long threads run before the host gets a turn, in seconds, as tasks do; see `loop`.
TURN = 0.01
# How long daemon threads that are about to end are let run when their cell ends, in seconds.
_LAST_TURN = 0.005
# How often each thread gets a turn to end in when the session is reset.
_TURNS_TO_END = 20
# Names of lost threads are told up to this length.
_NAMES_LIMIT = 200

# Of the library, which cells can change.
_active = threading._active
_Thread = threading.Thread
_wait_for_end = _Thread.join
_is_daemon, _ident = _Thread.daemon.fget, _Thread.ident.fget

# Cells whose own code has ended: their threads are waited for.
_settling = set()
# Futures of cells that await the end of their threads, by cell.
_awaited = {}
# Idents of the workers of executors that have nothing to do.
_idle = set()


def _of(cell):
    """The threads that a cell has started and waits for."""
    return [
        thread for thread in list(_active.values())
        if isinstance(thread, _Thread) and not _is_daemon(thread) and _cellar.thread_cell(_ident(thread)) == cell
    ]


def _dismiss(cell):
    """Ends the workers of executors that wait for work."""
    for thread, jobs in list(executors._threads_queues.items()):
        if thread.ident in _idle and jobs.empty() and _cellar.thread_cell(thread.ident) == cell:
            _cellar.end_wait(thread.ident)


def _finish_turns():
    """Lets threads run that need a moment only: daemons that were told to end."""
    end = time.monotonic() + _LAST_TURN
    while _cellar.run_threads() == 0 and time.monotonic() < end:
        pass


def settle(cell, error, run):
    """Waits until the threads of a cell have ended. Returns what the cell raised, `error`, or what came instead.

    `run` calls a function as code of the cell.
    """
    _settling.add(cell)
    try:
        _dismiss(cell)
        while waited := _of(cell):
            try:
                run(_join, waited[0])
            except CellStopped as stop:
                # Each of them is told to stop, whenever it asks and wherever it waits.
                error = error or stop
            except BaseException as failure:  # noqa: BLE001 - the end of the cell, whatever it is
                error = error or failure
                for thread in waited:
                    # Nobody is left who could release what it waits for.
                    _cellar.end_thread(thread.ident)
        if _cellar.thread_count():
            _finish_turns()
        # The last of them may have ended before this one heard that the cell must stop.
        run(_cellar.raise_if_cut)
    except CellStopped as stop:
        error = error or stop
    finally:
        _settling.discard(cell)
    return error


def _join(thread):
    _cellar.enable_stop(True)
    try:
        _wait_for_end(thread)
    finally:
        _cellar.enable_stop(False)


async def settled(cell, loop):
    """The same for a cell that awaits."""
    _settling.add(cell)
    try:
        _dismiss(cell)
        if _of(cell):
            _awaited[cell] = loop.create_future()
            await _awaited[cell]
    finally:
        _awaited.pop(cell, None)
        _settling.discard(cell)


def take_turns(loop, check, live):
    """Lets the threads and the loop's tasks take turns; returns when the guest wants to be entered again.

    Threads stand still while no cell is live.
    """
    end = time.monotonic() + TURN
    while True:
        for completion in _cellar.take_completions():
            bridges.complete(*completion)
        loop.drain(check)
        ready_at = _cellar.run_threads() if live else None
        for cell, future in list(_awaited.items()):
            if not future.done() and not _of(cell):
                future.set_result(None)
        wake_at = loop.wake_at()
        if wake_at != 0 and ready_at != 0:
            return min((at for at in (wake_at, ready_at) if at is not None), default=None)
        if time.monotonic() > end or not live:
            return 0


def note_visit(begins, loop):
    """Makes the loop that of a thread which does the work of the main one, as long as it lives."""
    if begins:
        asyncio.events._set_running_loop(loop)
        loop.watch_generators()
    else:
        _active.pop(threading.get_ident(), None)


def stop_away(cell, is_live):
    """Has the code of a cell run that was told to stop where it waited, as long as that takes it no time."""
    for _ in range(_TURNS_TO_END):
        if not is_live(cell) or _cellar.run_threads() != 0:
            return


def stop(cell):
    """Lets the threads of a cell end that must stop. Those that will not are told to exit whenever they run."""
    for _ in range(_TURNS_TO_END):
        idents = [ident for ident in list(_active) if _cellar.thread_cell(ident) == cell]
        if not idents:
            return
        _cellar.stop_threads(cell)
        _cellar.run_threads()
    for ident in idents:
        _cellar.end_thread(ident)


def note_lost():
    """Tells the cell that begins which threads did not outlive the memory that they ran in."""
    count = _cellar.take_lost()
    if not count:
        return
    names = []
    for ident, thread in list(_active.items()):
        if thread is not threading.main_thread() and _cellar.thread_cell(ident) is None:
            names.append(thread.name)
            thread._handle._set_done()
            _active.pop(ident, None)
    _cellar.status("threads_lost", {"count": count, "names": ", ".join(names)[:_NAMES_LIMIT]})


def end_all():
    """Ends all threads; those that will not end are held for ever."""
    for _ in range(_TURNS_TO_END):
        idents = [ident for ident in list(_active) if _cellar.thread_cell(ident) is not None]
        if not _cellar.end_away() and not idents:
            break
        for ident in idents:
            _cellar.end_thread(ident)
        _cellar.run_threads()
    _settling.clear()
    _awaited.clear()


def _work(reference, jobs, initializer, initargs):
    """What a worker of an executor does. Unlike the library's, it ends with its cell when there is nothing to do."""
    if initializer is not None:
        try:
            initializer(*initargs)
        except BaseException:  # noqa: BLE001 - told to those who wait for the executor
            executors._base.LOGGER.critical("Exception in initializer:", exc_info=True)
            executor = reference()
            if executor is not None:
                executor._initializer_failed()
            return
    while True:
        try:
            job = jobs.get_nowait()
        except queue.Empty:
            try:
                job = _next_job(reference, jobs)
            except (SystemExit, CellStopped):
                _leave(reference)
                return
        if job is not None:
            job.run()
            del job
            continue
        executor = reference()
        if executors._shutdown or executor is None or executor._shutdown:
            if executor is not None:
                executor._shutdown = True
            # For the other workers.
            jobs.put(None)
            return
        del executor


def _next_job(reference, jobs):
    ident = threading.get_ident()
    executor = reference()
    if executor is not None:
        executor._idle_semaphore.release()
    del executor
    if _cellar.thread_cell(ident) in _settling:
        raise SystemExit
    _idle.add(ident)
    try:
        return jobs.get()
    finally:
        _idle.discard(ident)


def _leave(reference):
    """Makes room for another worker, as if this one had never been."""
    executor = reference()
    if executor is not None:
        executor._idle_semaphore.acquire(blocking=False)
        executor._threads.discard(threading.current_thread())


def _report(caught):
    """What ended a thread, on its cell's standard error. That its cell must stop is told elsewhere."""
    if issubclass(caught.exc_type, (SystemExit, CellStopped)):
        return
    name = threading.get_ident() if caught.thread is None else caught.thread.name
    print(f"Exception in thread {name}:\n{faults.format_exception(caught.exc_value)}", file=sys.stderr)


_stack_size = 0


def _set_stack_size(size=0, /):
    """`threading.stack_size`. Python code needs no C stack, so any size is taken as it comes."""
    global _stack_size
    before, _stack_size = _stack_size, size
    return before


def _grow(executor, grow=executors.ThreadPoolExecutor._adjust_thread_count):
    """Starts another worker, if there may be one. Those that are there do the work otherwise."""
    try:
        grow(executor)
    except RuntimeError:
        if not executor._threads:
            raise


def install():
    """Makes the library's threads those of cells."""
    executors._worker = _work
    executors.ThreadPoolExecutor._adjust_thread_count = _grow
    threading.excepthook = threading.__excepthook__ = _report
    threading.stack_size = _set_stack_size
    # Programs look up where a name of a module comes from.
    _report.__module__ = _set_stack_size.__module__ = "threading"
