"""What the host is told about a failed cell: its place in the cell, and the user's part of the traceback."""

import linecache
import traceback
import types

import _cellar
from _cellar_prelude.sandbox import CellStopped, StdinNotImplementedError, is_user_file

# The world's kinds.
RAISED, STOPPED, MEMORY, STDIN = range(4)

# Messages and tracebacks longer than this lose their middle.
TEXT_LIMIT = 64 * 1024
# So do tracebacks of more user frames than this.
FRAMES_LIMIT = 400
# Of a chain of exceptions, this many are told.
CHAIN_LIMIT = 20

# Sources of the cells, by file name, as `linecache` wants them.
_lines = {}


def remember(filename, source):
    """Makes the source of a cell known to tracebacks, `inspect` and `pdb`."""
    lines = source.splitlines(True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    _lines[filename] = lines
    linecache.cache[filename] = (len(source), None, lines, filename)


def forget_sources():
    """Forgets all cells."""
    for filename in _lines:
        linecache.cache.pop(filename, None)
    _lines.clear()


def _shorten(text):
    if len(text) <= TEXT_LIMIT:
        return text
    half = TEXT_LIMIT // 2
    return f"{text[:half]}\n… {len(text) - TEXT_LIMIT} characters left out …\n{text[-half:]}"


def _user_frames(trace):
    """The frames of the user's code as a new chain."""
    frames = []
    while trace is not None:
        if is_user_file(trace.tb_frame.f_code.co_filename):
            frames.append(trace)
        trace = trace.tb_next
    if len(frames) > FRAMES_LIMIT:
        frames[FRAMES_LIMIT // 2 : -FRAMES_LIMIT // 2] = []
    chain = None
    for each in reversed(frames):
        chain = types.TracebackType(chain, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return chain


def _trim(error):
    """Leaves only the user's frames in an exception and in those that led to it, and cuts a very long chain."""
    waiting, seen = [(error, 0)], set()
    while waiting:
        each, depth = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        each.__traceback__ = _user_frames(each.__traceback__)
        if depth == CHAIN_LIMIT:
            suppressed = each.__suppress_context__
            each.__cause__ = each.__context__ = None
            each.__suppress_context__ = suppressed
            continue
        waiting.append((each.__cause__, depth + 1))
        waiting.append((each.__context__, depth + 1))
        for inner in getattr(each, "exceptions", ()):
            if isinstance(inner, BaseException):
                waiting.append((inner, depth + 1))


def format_exception(error):
    """The exception as Python prints it, with the user's frames only."""
    _trim(error)
    described = traceback.TracebackException.from_exception(error, compact=True)
    _drop_empty(described, set())
    return _shorten("".join(described.format()).rstrip("\n"))


def _drop_empty(described, seen):
    """Without frames there is no headline either."""
    if described is None or id(described) in seen:
        return
    seen.add(id(described))
    if not described.stack:
        described.stack = None
    _drop_empty(described.__cause__, seen)
    _drop_empty(described.__context__, seen)
    for each in described.exceptions or ():
        _drop_empty(each, seen)


def _characters(line, offset):
    """A column in UTF-8 bytes as one in characters."""
    return len(line.encode("utf-8", "replace")[:offset].decode("utf-8", "replace"))


def _pointer(snippet, start, end):
    """Blanks and carets under characters `start` to `end` (from 0) of a line."""
    blanks = "".join("\t" if char == "\t" else " " for char in snippet[:start])
    return blanks + "^" * max(end - start, 1)


def _positions(trace):
    """(line, end line, column, end column) of the instruction a traceback entry stands at; columns in bytes."""
    for index, position in enumerate(trace.tb_frame.f_code.co_positions()):
        if index == trace.tb_lasti // 2:
            return position
    return (trace.tb_lineno, None, None, None)


def _place_of_syntax_error(error, filename):
    if error.filename != filename or error.lineno is None:
        return None
    lines = _lines.get(filename, [])
    number = error.lineno
    snippet = lines[number - 1].rstrip("\r\n") if 0 < number <= len(lines) else (error.text or "").rstrip("\r\n")
    if error.text is None:
        # Found after parsing, when the compiler looks for the line in a file.
        error.text = snippet
    column = error.offset
    if not column or column < 1:
        return number, None, snippet, None
    end = error.end_offset if error.end_lineno == number and error.end_offset else None
    stop = end - 1 if end and end > column else column
    return number, column, snippet, _pointer(snippet, column - 1, min(stop, max(len(snippet), column)))


def _place(error, filename):
    """(line, column, snippet, pointer) of the fault in the cell, or None when the cell is not on the stack."""
    if isinstance(error, SyntaxError):
        place = _place_of_syntax_error(error, filename)
        if place is not None:
            return place
    found = None
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            found = trace
        trace = trace.tb_next
    if found is None:
        return None
    line, end_line, column, end_column = _positions(found)
    number = line or found.tb_lineno
    lines = _lines.get(filename, [])
    if not 0 < number <= len(lines):
        return number, None, None, None
    snippet = lines[number - 1].rstrip("\r\n")
    if column is None:
        return number, None, snippet, None
    start = _characters(snippet, column)
    end = _characters(snippet, end_column) if end_line == number and end_column is not None else len(snippet.rstrip())
    return number, start + 1, snippet, _pointer(snippet, start, end)


def _kind(error):
    if isinstance(error, CellStopped):
        return STOPPED, error.reason
    if isinstance(error, MemoryError) and not str(error).startswith("Parser stack overflowed"):
        return MEMORY, 0
    if isinstance(error, StdinNotImplementedError):
        return STDIN, 0
    return RAISED, 0


def _message(error):
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a broken __str__ must not hide the failure
        text = "<exception str() failed>"
    if isinstance(error, SyntaxError) and error.msg:
        text = error.msg
    if isinstance(error, MemoryError) and not text:
        text = "out of memory"
    return _shorten(text)


def describe(error, filename):
    """The failure record of a cell: (kind, reason, name, message, line, column, snippet, pointer, traceback)."""
    if isinstance(error, (MemoryError, RecursionError)):
        _cellar.release_reserve()
    kind, reason = _kind(error)
    try:
        place = _place(error, filename) or (None, None, None, None)
        text = format_exception(error)
    except Exception:  # noqa: BLE001 - better a poor record than none
        place, text = (None, None, None, None), type(error).__name__
    return (kind, reason, type(error).__name__, _message(error), *place, text)
