"""Runs cells: from source to outcome."""

import ast
import asyncio
import contextvars
import gc
import re
import sys
import tokenize

import _cellar
from _cellar_prelude.calls import bridges, rewrite
from _cellar_prelude.cells import binding, threads
from _cellar_prelude.notebook import display, habits, history, ipython, magics
from _cellar_prelude.notebook.history import file_name
from _cellar_prelude.platform import faults, modules, sandbox, streams
from _cellar_prelude.platform.loop import futures, made, made_by_key
from _cellar_prelude.platform.loop import install as install_loop
from _cellar_prelude.platform.sandbox import STOP_CLASSES, CellStopped, ProcessEnded

_FLAGS = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
# What a magic without its sign begins with.
_FIRST_WORD = re.compile(r"\s*([a-z_]+)(?=\s|\Z)")
_COROUTINE = 0x80  # inspect.CO_COROUTINE

loop = install_loop()
_Task = asyncio.Task
# The set within the weak one.
_scheduled_tasks = asyncio.tasks._scheduled_tasks.data

# The namespace of all cells.
main = sys.modules["__main__"]
names = main.__dict__

# Shows what a cell has made and not shown, at its end, where the image has such things.
show_left = None

# What the namespace began with.
_first_names = {}

# Tasks of the cells that wait.
_tasks = {}
# Tasks that have ended with their cell or behind it, and may have failed.
_left = []


class _Shared:
    __slots__ = ("context", "occupant")

    def __init__(self):
        self.context, self.occupant = contextvars.copy_context(), 0


def renew():
    """Makes anew what every cell writes to, at the end of baking; see `history.renew`."""
    global live, _finished, _shared
    # Numbers of the cells that have not ended. The native poll reads it.
    live = set()
    _cellar.set_live_cells(live)
    # What ended since the host last heard of it: (cell, outcome).
    _finished = []
    # The context of synchronous cells, which is one, so that what they set in context variables stays, and the cell whose code
    # runs, or waits, in it. In an object of its own, which no list holds that somebody may empty.
    _shared = _Shared()


renew()


# --- Compiling


def _compile_tree(source, filename):
    """The slow way, through a syntax tree in Python, for cells that call bridges, and that are to show more than usual."""
    tree = compile(source, filename, "exec", _FLAGS | ast.PyCF_ONLY_AST)
    is_rewritten = rewrite.needed(source) and rewrite.rewrite(tree, names)
    if not (habits.show_more(tree) or is_rewritten):
        return _cellar.compile(source, filename)
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = compile(ast.Expression(tree.body.pop().value), filename, "eval", _FLAGS)
    body = compile(tree, filename, "exec", _FLAGS) if tree.body else None
    return body, last


def _null_byte(source, filename):
    """What is wrong with a source that has a null byte, with its place, which CPython does not tell."""
    before, _, after = source.partition("\0")
    *lines, start = faults.lines_of(before + "|")
    text = faults.lines_of(start[:-1] + "\0" + after)[0].rstrip("\n")
    return SyntaxError("source code cannot contain null bytes", (filename, len(lines) + 1, len(start), text))


def _compile_source(source, filename):
    if "\0" in source:
        raise _null_byte(source, filename)
    if rewrite.needed(source) or ipython.settings["ast_node_interactivity"] != "last_expr":
        return _compile_tree(source, filename)
    return _cellar.compile(source, filename)


def _compile(source, filename):
    word = _FIRST_WORD.match(source)
    if word is not None and word[1] in magics.LINE_MAGICS:
        source = magics.translate_bare(source) or source
    try:
        return _compile_source(source, filename)
    except SyntaxError as error:
        failure = error
    typed = magics.without_prompts(source) or magics.without_indent(source)
    if typed is not None:
        faults.remember(filename, typed)
        return _compile(typed, filename)
    call = magics.help_call(source, filename)
    if call is not None:
        return None, call
    translated = magics.translate(source, failure, lambda text: _fault(text, filename))
    if translated is not None:
        return _compile_source(translated, filename)
    magics.explain(failure, source, filename)
    raise failure


def _fault(source, filename):
    """The error in a source, or None."""
    try:
        _compile_source(source, filename)
    except SyntaxError as error:
        return error
    return None


def _run_piece(source):
    """Runs a piece of source in the namespace of cells, for a magic; the value of its last expression."""
    body, last = _compile(source, file_name(_cellar.cell.get(0)))
    for part in (body, last):
        if part is not None and part.co_flags & _COROUTINE:
            raise SyntaxError("`await` does not work in a magic: await it in a cell of its own")
    if body is not None:
        exec(body, names)
    return eval(last, names) if last is not None else None


def _is_silenced(source):
    """Whether the cell ends with a semicolon, which keeps its last value from being shown."""
    if ";" not in source:
        return False
    stripped = source.rstrip()
    if stripped.endswith(";"):
        return True
    last_line = stripped.rsplit("\n", 1)[-1]
    if ";" not in last_line or "#" not in last_line:
        return False
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER, tokenize.DEDENT, tokenize.INDENT}
    last = ""
    try:
        lines = iter(stripped.splitlines(True))
        for token in tokenize.generate_tokens(lambda: next(lines, "")):
            if token.type not in skipped:
                last = token.string
    except (tokenize.TokenError, SyntaxError):
        return False
    return last == ";"


# --- Running


def _show(cell, value, silenced):
    """Shows the value of the last expression and binds it to `_` and its kin."""
    if value is None or silenced or magics.takes(cell, value):
        return
    hook = getattr(sys, "displayhook", display_hook)
    if hook is display_hook or not callable(hook) or not _show_with(hook, value):
        display.show_result(value)
    history.keep(cell, value, names)


def _show_with(hook, value):
    """Shows a value with the cells' own `sys.displayhook`. False when that fails, which is told."""
    try:
        hook(value)
    except Exception as error:  # noqa: BLE001 - showing a value does not fail its cell
        streams.tell(f"sys.displayhook failed:\n{faults.format_exception(error)}")
        return False
    return True


def display_hook(value):
    """`sys.displayhook`: what shows the values of expressions."""
    _show(_cellar.cell.get(0), value, False)


def _run_now(cell, body, last, silenced):
    """Runs code without awaits."""
    _cellar.cell.set(cell)
    magics.before(cell)
    if body is not None:
        _cellar.run(body, names)
    if last is not None:
        value = _cellar.run(last, names)
        if value is not None:
            _show(cell, value, silenced)
    if show_left is not None:
        show_left()
    magics.end(cell)
    magics.after()
    _cellar.enable_stop(False)


async def _run_waiting(cell, body, last, silenced):
    """Runs code of which some awaits."""
    magics.before(cell)
    if body is not None:
        made = _cellar.run(body, names)
        if body.co_flags & _COROUTINE:
            await made
    if last is not None:
        value = _cellar.run(last, names)
        if last.co_flags & _COROUTINE:
            value = await value
        _show(cell, value, silenced)
    if show_left is not None:
        show_left()
    magics.end(cell)
    magics.after()


def _outcome(cell, error):
    """The end of a cell that raised. `sys.exit` with a status or a word is a failure that says where, as in IPython."""
    if isinstance(error, SystemExit):
        # No code of the cell runs here, whatever it has made of the class.
        code = SystemExit.code.__get__(error)
        if code is None or (type(code) in (int, bool) and (not code or type(error) is ProcessEnded)):
            return int(code or 0)
        if type(code) is bool:
            code = int(code)
        # A text that reads as a status is told in quotes: it is none.
        shown = repr(code) if type(code) is int or (type(code) is str and _STATUS.fullmatch(code)) else None
        return faults.describe(error, file_name(cell), shown)
    if not isinstance(error, (MemoryError, RecursionError, KeyboardInterrupt, magics.UsageError)):
        # What is left of a failure that is none of the cell's own doing would hold what it has used.
        sys.last_type, sys.last_value, sys.last_exc, sys.last_traceback = type(error), error, error, error.__traceback__
    return faults.describe(error, file_name(cell))


# A status of `sys.exit`, written out.
_STATUS = re.compile(r"[+-]?[0-9]+")


def _in_cell(cell, function, *args):
    _cellar.cell.set(cell)
    return function(*args)


def _show_left_of_failed():
    """Shows what a cell has made before it failed. That may be stopped too: then there is nothing more to show."""
    _cellar.enable_stop(True)
    try:
        show_left()
    except BaseException as error:  # noqa: BLE001 - the cell has ended, by something else
        _cellar.enable_stop(False)
        streams.tell(f"what the cell has made cannot be shown: {type(error).__name__}")
    finally:
        _cellar.enable_stop(False)


def _tell_of_failed():
    """Calls what cells have registered for the end of one. That may be stopped too."""
    _cellar.enable_stop(True)
    try:
        magics.after(sys.last_exc if hasattr(sys, "last_exc") else None)
    except BaseException as error:  # noqa: BLE001 - the cell has ended, by something else
        _cellar.enable_stop(False)
        streams.tell(f"what is registered for the end of cells was stopped: {type(error).__name__}")
    finally:
        _cellar.enable_stop(False)


def _end(cell, outcome):
    """Notes that a cell ended."""
    if outcome is not None:
        if show_left is not None:
            _shared.context.copy().run(_in_cell, cell, _show_left_of_failed)
        magics.end(cell)
        _shared.context.copy().run(_in_cell, cell, _tell_of_failed)
    binding.end(cell, outcome is None)
    live.discard(cell)
    if _scheduled_tasks or made_by_key:
        _look_at_tasks(cell)
    _tasks.pop(cell, None)
    _stopping.pop(cell, None)
    _finished.append((cell, outcome))


def _look_at_tasks(cell):
    """Tells of the tasks of a cell that ends which have failed unheard, and watches those that go on."""
    own = _tasks.get(cell)
    for future, context in futures():
        if context.get(_cellar.cell, 0) != cell or future is own:
            continue
        if not future.done():
            future.add_done_callback(_left.append, context=context)
        elif future._log_traceback:
            _left.append(future)
    _tell_of_left()


def _tell_of_left():
    """Tells of the tasks that have failed behind the end of their cells, or at it, and are awaited by nobody."""
    for future in _left[:]:
        error = future._exception if not future.cancelled() and future._log_traceback else None
        if error is None or isinstance(error, (CellStopped, SystemExit)):
            continue
        # So that it is not told again when nobody holds it any more.
        future._log_traceback = False
        kind = "task" if isinstance(future, asyncio.Task) else "future"
        told = {"message": f"{kind.title()} exception was never retrieved", "exception": error, kind: future}
        context = future.get_context() if kind == "task" else made.get(future, _shared.context)
        _shared.context.copy().run(_in_cell, context.get(_cellar.cell, 0), loop.call_exception_handler, told)
    _left.clear()


# Cells that wait in a context that was the one of synchronous cells when they began, with a copy of when it was that last.
_displaced = {}


def _free_context():
    """The context of synchronous cells, without any code in it: one that waits there goes on in one of its own."""
    if _shared.occupant:
        _displaced[_shared.occupant] = _shared.context.copy()
        _shared.context, _shared.occupant = _shared.context.copy(), 0
    return _shared.context


def _spread(context, before):
    """Takes over what a cell set in context variables, given its context and what that was before."""
    shared = _free_context()
    for variable, value in context.items():
        if variable is not _cellar.cell and before.get(variable, _unset) is not value:
            shared.run(variable.set, value)


_unset = object()


def _task_done(cell, context, before, task):
    """A cell that awaited has ended."""
    _cellar.enable_stop(False)
    if cell not in live:
        # It was given up before; whatever came of it is not wanted.
        if not task.cancelled():
            task.exception()
        return
    if cell in _stopping and not _cellar.is_alone():
        # While the cell is live, so that they are told why.
        threads.stop(cell)
    _spread(context, before)
    if task.cancelled():
        _end(cell, faults.describe(_cancelled.pop(cell, None) or asyncio.CancelledError(), file_name(cell)))
        return
    error = task.exception()
    _end(cell, None if error is None else _outcome(cell, error))


async def _cancellable(cell, body, last, silenced):
    """The task of a cell. A cell that was cancelled because it must stop ends with the reason."""
    try:
        try:
            await _run_waiting(cell, body, last, silenced)
        finally:
            if not _cellar.is_alone() and cell not in _stopping:
                await threads.settled(cell, loop)
    except asyncio.CancelledError as error:
        reason = _stopping.get(cell)
        if reason is None:
            # A task that is cancelled does not keep the exception that says where.
            _cancelled[cell] = error
            raise
        stop = STOP_CLASSES[reason]().with_traceback(error.__traceback__)
        stop.__suppress_context__ = True
        raise stop from None


# Cells that were told to stop, with the reason.
_stopping = {}
# What ended cells that were cancelled by their own code.
_cancelled = {}


def _start_task(cell, body, last, silenced):
    before = _shared.context.copy()
    context = before.copy()
    context.run(_cellar.cell.set, cell)
    coroutine = _cancellable(cell, body, last, silenced)
    # Not by the loop, whose tasks cells may have made by a function of their own.
    task = _Task(coroutine, loop=loop, name=file_name(cell), context=context)
    _tasks[cell] = task
    task.add_done_callback(lambda done: _task_done(cell, context, before, done), context=context)


# What compiling raises because of the source.
_OF_SOURCE = (SyntaxError, ValueError, OverflowError, RecursionError, CellStopped)


def _prepare(cell, source, filename):
    """The code of a cell, and whether its last value is not to be shown."""
    history.remember(cell, source, names)
    if "import" in source:
        modules.refresh()
    return *_compile(source, filename), _is_silenced(source)


def _safely(function, *args):
    """Calls a function that leans on Python's library, and once more when it fails for something that can be mended."""
    try:
        return function(*args)
    except _OF_SOURCE:
        raise
    except MemoryError:
        # What earlier cells keep fills the memory; this one may be about to free it.
        _cellar.release_reserve()
    except Exception:  # noqa: BLE001 - the source is not at fault
        mend()
    return _in_reserve(function, args)


# What CPython raises when there is no memory; the second where it has found none for an exception.
_NO_MEMORY = (MemoryError, SystemError)


def _in_reserve(function, args):
    """Calls a function in the memory that was held back; when that is not enough, forgets what cells keep."""
    while True:
        try:
            return function(*args)
        except _NO_MEMORY:
            if not _cellar.release_reserve():
                break
    names.clear()
    history.forget()
    gc.collect()
    names.update(_first_names)
    streams.tell("the memory was full, so that no cell could run: what earlier cells had bound was forgotten")
    return function(*args)


def mend():
    """Puts everything back that was baked, after the prelude has failed because of what cells have changed of it."""
    _cellar.mend()
    loop.mend()
    sandbox.keep_ground(names)


def start(cell, source, traces_names=False):
    """Runs a cell until it ends or waits; then whatever else can go on."""
    filename = file_name(cell)
    context = _free_context() if _shared.occupant else _shared.context
    live.add(cell)
    # By lines: a warning of another cell's line of the same number is another one.
    names.pop("__warningregistry__", None)
    if not _cellar.is_alone():
        threads.note_lost()
    try:
        sandbox.keep_ground(names)
        streams.keep_ground()
        loop.keep_ground()
        body, last, silenced = _safely(_prepare, cell, source, filename)
        if traces_names:
            _safely(binding.begin, cell, body, last)
        if (body is not None and body.co_flags & _COROUTINE) or (last is not None and last.co_flags & _COROUTINE):
            _safely(_start_task, cell, body, last, silenced)
        else:
            _shared.occupant = cell
            context.run(_run_now, cell, body, last, silenced)
            if _cellar.is_alone():
                _end(cell, None)
            else:
                _end_with_threads(cell, None, context)
    except BaseException as error:  # noqa: BLE001 - the end of the cell, whatever it is
        _cellar.enable_stop(False)
        if isinstance(error, _NO_MEMORY):
            # There may be no memory for a call.
            _cellar.release_reserve()
        if _cellar.is_alone():
            _end(cell, _outcome(cell, error))
        else:
            _end_with_threads(cell, error, context)
        error = None
    if _shared.occupant == cell:
        _shared.occupant = 0
    elif cell in _displaced:
        _spread(context, _displaced.pop(cell))
    return go_on()


def _end_with_threads(cell, error, context):
    """The end of a cell that may have threads."""
    error = threads.settle(cell, error, context.run)
    _end(cell, None if error is None else _outcome(cell, error))


def recover(cell, error):
    """Goes on after the prelude itself has failed, and what was baked was put back; ends the cell that it failed in."""
    mend()
    if cell and cell not in _tasks and all(number != cell for number, _ in _finished):
        _end(cell, faults.describe(error, file_name(cell)))
    return go_on()


def fail(cell, error):
    """Ends a cell that cannot be run."""
    _end(cell, _outcome(cell, error))
    return go_on()


def go_on():
    """Runs what is ready; says what ended and when the guest wants to be entered again. None when the entry has returned."""
    try:
        loop.drain(_check_live)
        if _cellar.is_alone():
            wake_at = loop.wake_at()
        else:
            wake_at = _go_on_with_threads()
            if _cellar.is_away():
                return None
        if _left:
            _tell_of_left()
    except MemoryError as error:
        _cellar.release_reserve()
        _drop_tasks(error)
        wake_at = loop.wake_at()
    finished = _finished[:]
    _finished.clear()
    return finished, wake_at


def _go_on_with_threads():
    wake_at = threads.take_turns(loop, _check_live, live)
    while wake_at is None and not bridges.are_pending() and not _cellar.is_away() and _cellar.cut_deadlock():
        wake_at = threads.take_turns(loop, _check_live, live)
    return wake_at


def _drop_tasks(error):
    """Gives up all that waits, when there is no memory for what it would do; the cells that wait end with the error."""
    loop.clear()
    for cell in list(_tasks):
        _end(cell, faults.describe(error, file_name(cell)))
    gc.collect()


def _check_live():
    """Ends the cells that must stop although other code is busy."""
    for cell in list(live):
        if cell not in _stopping:
            reason = _cellar.should_stop(cell)
            if reason is not None:
                stop(cell, reason)


def stop(cell, reason):
    """Ends the wait of a cell: what it awaits is cancelled, and what waits in its code raises."""
    task = _tasks.get(cell)
    _stopping[cell] = reason
    _cellar.note_stop()
    _cellar.stop_threads(cell)
    if task is not None:
        task.cancel()


def interrupt(cell, reason):
    """Stops a cell that waits; the others go on. A cell that swallows the cancellation again and again is given up."""
    if cell not in _tasks:
        # It waits in the middle of its code. What that does on its way out may take the grace.
        stop(cell, reason)
        threads.stop_away(cell, live.__contains__)
        return go_on()
    for _ in range(3):
        stop(cell, reason)
        if not _cellar.is_alone():
            threads.stop(cell)
        loop.drain(_check_nothing)
        if cell not in live:
            return go_on()
    task = _tasks.get(cell)
    if task is not None:
        _end(cell, faults.describe(STOP_CLASSES[reason](), file_name(cell)))
        task.cancel()
    return go_on()


def _check_nothing():
    pass


def _on_fatal(context, error):
    """A callback or task raised what asyncio does not swallow: the stop of a cell, or `sys.exit`."""
    cell = context.get(_cellar.cell, 0)
    task = _tasks.get(cell)
    if task is None or task.done():
        # The cell's own task reports its end itself; a left-over task just ends.
        return
    if isinstance(error, SystemExit):
        _end(cell, _outcome(cell, error))
        task.cancel()
    elif isinstance(error, CellStopped):
        # A task that the cell awaits was hit instead of the cell: the cell sees the exception there.
        if cell not in _stopping:
            stop(cell, error.reason)
    else:
        _end(cell, _outcome(cell, error))
        task.cancel()


# Of the tasks of a cell that fail unheard, so many are told: its number, and how many there were.
_TOLD_MAX = 20
_told = [0, 0]


def _on_unhandled(context):
    """The exception of a task that nobody awaited, on the standard error of the cell that made it."""
    stoppable = _cellar.enable_stop(False)
    cell = _cellar.cell.get(0)
    _told[0], _told[1] = cell, _told[1] + 1 if _told[0] == cell else 1
    if _told[1] >= _TOLD_MAX:
        if _told[1] == _TOLD_MAX:
            streams.tell("more such failures of this cell's tasks are not told")
        _cellar.enable_stop(stoppable)
        return
    error = context.get("exception")
    lines = [context.get("message") or "Unhandled exception in the event loop"]
    lines += [f"{key}: {value!r}" for key, value in sorted(context.items()) if key not in ("message", "exception")]
    if error is not None:
        lines.append(faults.format_exception(error))
    streams.tell("\n".join(lines))
    _cellar.enable_stop(stoppable)


sys.displayhook = display_hook
loop.begin(_on_fatal, _on_unhandled)
magics.begin(names, _run_piece)
habits.begin(display_hook)


def forget_cells(fresh_names):
    """Forgets what cells bound and showed."""
    history.forget()
    binding.forget()
    rewrite.forget()
    display.forget_formatters()
    habits.forget()
    for name in ("last_type", "last_value", "last_exc", "last_traceback"):
        vars(sys).pop(name, None)
    names.clear()
    names.update(fresh_names)
    _first_names.clear()
    _first_names.update(fresh_names)
    magics.note_names(fresh_names)


def reset(fresh_names, baked_modules):
    """Forgets names, tasks and modules of the session."""
    if not _cellar.is_alone():
        threads.end_all()
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.drain(_check_nothing)
    loop.clear()
    live.clear()
    _tasks.clear()
    _stopping.clear()
    _cancelled.clear()
    _finished.clear()
    _left.clear()
    modules.forget()
    forget_cells(fresh_names)
    for name in list(sys.modules):
        if name not in baked_modules:
            del sys.modules[name]
    _shared.context, _shared.occupant = contextvars.copy_context(), 0
    _displaced.clear()
