"""What the host is told about a failed cell: its place in the cell, and the user's part of the traceback."""

import io
import linecache
import re
import traceback
import types
import unicodedata

import _cellar
from _cellar_prelude.platform.sandbox import CellStopped, StdinNotImplementedError, is_user_file

# The world's kinds.
RAISED, STOPPED, MEMORY, STDIN = range(4)

# Messages and tracebacks longer than this lose their middle.
TEXT_LIMIT = 64 * 1024
# So do tracebacks of more user frames than this.
FRAMES_LIMIT = 400
# Lines that repeat so often are folded, …
FOLD_FROM = 6
# … and shown this often; cycles of more frames than `PERIOD_LIMIT` are not looked for.
SHOWN_OF_FOLD = 3
PERIOD_LIMIT = 8
# Of a chain of exceptions, this many are told.
CHAIN_LIMIT = 20
# Of a source line, this many characters are shown around the fault.
SNIPPET_LIMIT = 160


def renew():
    """Makes anew what holds the sources, at the end of baking; see `history.renew`."""
    global _lines
    # Sources of the cells, by file name, as `linecache` wants them.
    _lines = {}
    linecache.cache = dict(linecache.cache)


renew()


def lines_of(source):
    """The lines of a source as CPython counts them. `str.splitlines` also ends lines at form feeds, U+2028 and the like."""
    if "\r" in source:
        return io.StringIO(source, newline=None).readlines()
    lines = source.split("\n")
    last = lines.pop()
    lines = [line + "\n" for line in lines]
    if last:
        lines.append(last)
    return lines


def remember(filename, source):
    """Makes the source of a cell known to tracebacks, `inspect` and `pdb`."""
    lines = lines_of(source if not source or source[-1] in "\r\n" else source + "\n")
    _lines[filename] = lines
    linecache.cache[filename] = (len(source), None, lines, filename)


def forget(filename):
    """Forgets one cell."""
    _lines.pop(filename, None)
    linecache.cache.pop(filename, None)


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


def _place_key(trace):
    return trace.tb_frame.f_code, trace.tb_lineno


def _fold(frames):
    """Frames with repetitions taken out, as after runaway recursion: traceback entries and texts in their place."""
    keys = [_place_key(trace) for trace in frames]
    folded, index = [], 0
    while index < len(frames):
        for period in range(1, min(PERIOD_LIMIT, (len(frames) - index) // FOLD_FROM) + 1):
            count = 1
            cycle = keys[index : index + period]
            while keys[index + count * period : index + (count + 1) * period] == cycle:
                count += 1
            if count >= FOLD_FROM:
                folded.extend(frames[index : index + SHOWN_OF_FOLD * period])
                what = "Previous line" if period == 1 else f"Previous {period} lines"
                folded.append(f"[{what} repeated {count - SHOWN_OF_FOLD} more times]")
                index += count * period
                break
        else:
            folded.append(frames[index])
            index += 1
    if len(folded) > FRAMES_LIMIT:
        half = FRAMES_LIMIT // 2
        folded[half:-half] = [f"[{len(folded) - 2 * half} frames left out]"]
    return folded


def _user_frames(trace):
    """The frames of the user's code as a new chain; what was left out of it stands there as a frame of that name."""
    frames = []
    while trace is not None:
        if is_user_file(trace.tb_frame.f_code.co_filename):
            frames.append(trace)
        trace = trace.tb_next
    if len(frames) > FOLD_FROM:
        frames = _fold(frames)
    chain = None
    for each in reversed(frames):
        if isinstance(each, str):
            chain = types.TracebackType(chain, eval(_NOTE_CODE.replace(co_name=each)), 0, 1)
        else:
            chain = types.TracebackType(chain, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return chain


# Stands for frames that are not shown.
_NOTE_FILE = "<left out>"
_NOTE_CODE = compile("__import__('sys')._getframe()", _NOTE_FILE, "eval")


class _Stack(traceback.StackSummary):
    """The frames as Python prints them, and what was left out."""

    def format_frame_summary(self, frame_summary, **options):
        if frame_summary.filename == _NOTE_FILE:
            return f"  {frame_summary.name}\n"
        return super().format_frame_summary(frame_summary, **options)


def _related(error):
    """An exception and those that led to it or are in it, each with its distance."""
    waiting, seen = [(error, 0)], set()
    while waiting:
        each, depth = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each, depth
        if depth < CHAIN_LIMIT:
            groups = [inner for inner in getattr(each, "exceptions", ()) if isinstance(inner, BaseException)]
            waiting.extend((inner, depth + 1) for inner in (each.__cause__, each.__context__, *groups))


def format_exception(error):
    """The exception as Python prints it, with the user's frames only. The exception stays as it is."""
    before = []
    try:
        for each, depth in _related(error):
            before.append((each, each.__traceback__, each.__cause__, each.__context__, each.__suppress_context__))
            each.__traceback__ = _user_frames(each.__traceback__)
            if depth == CHAIN_LIMIT:
                each.__cause__ = each.__context__ = None
        described = traceback.TracebackException.from_exception(error, compact=True)
    finally:
        for each, trace, cause, context, suppressed in before:
            each.__traceback__, each.__cause__, each.__context__ = trace, cause, context
            each.__suppress_context__ = suppressed
    if getattr(error, "without_frames", False) is True:
        described.stack = None
    _tidy(described, set())
    return _shorten("".join(described.format()).rstrip("\n"))


def _tidy(described, seen):
    """Without frames there is no headline either."""
    if described is None or id(described) in seen:
        return
    seen.add(id(described))
    described.stack = _Stack(described.stack) if described.stack else None
    _tidy(described.__cause__, seen)
    _tidy(described.__context__, seen)
    for each in described.exceptions or ():
        _tidy(each, seen)


def _characters(line, offset):
    """A column in UTF-8 bytes as one in characters."""
    return len(line.encode("utf-8", "replace")[:offset].decode("utf-8", "replace"))


def _columns(text):
    """How many columns a text takes where it is shown with a fixed width."""
    if text.isascii():
        return len(text)
    width = 0
    for char in text:
        if unicodedata.east_asian_width(char) in "WF":
            width += 2
        elif unicodedata.category(char) not in ("Mn", "Me", "Cf"):
            width += 1
    return width


def _blanks(text):
    return "".join("\t" if part == "\t" else " " * _columns(part) for part in _TABS.split(text))


_TABS = re.compile(r"(\t)")


def _excerpt(line, start, end):
    """A source line and the carets under its characters `start` to `end`, from 0; of a long line the part around them."""
    end = max(end, start + 1)
    before, after = 0, len(line)
    if len(line) > SNIPPET_LIMIT:
        before = max(min(start - SNIPPET_LIMIT // 4, len(line) - SNIPPET_LIMIT), 0)
        after = min(before + SNIPPET_LIMIT, len(line))
        end = min(end, after)
    head, tail = "…" if before else "", "…" if after < len(line) else ""
    marked = max(_columns(line[start:end]), 1)
    return f"{head}{line[before:after]}{tail}", _blanks(head + line[before:start]) + "^" * marked


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
        return number, None, snippet[:SNIPPET_LIMIT], None
    end = error.end_offset if error.end_lineno == number and error.end_offset else None
    stop = end - 1 if end and end > column else column
    return number, column, *_excerpt(snippet, column - 1, min(stop, max(len(snippet), column)))


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
        return number, None, snippet[:SNIPPET_LIMIT], None
    start = _characters(snippet, column)
    end = _characters(snippet, end_column) if end_line == number and end_column is not None else len(snippet.rstrip())
    return number, start + 1, *_excerpt(snippet, start, end)


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


def describe(error, filename, message=None):
    """The failure record of a cell: (kind, reason, name, message, line, column, snippet, pointer, traceback).

    `message` stands for what the error says of itself."""
    if isinstance(error, (MemoryError, RecursionError)):
        _cellar.release_reserve()
    while isinstance(error, MemoryError) and isinstance(error.__context__, MemoryError) and not error.__traceback__:
        # There was no memory for the frames either.
        error = error.__context__
    kind, reason = _kind(error)
    try:
        place, text = _tell(error, filename)
    except Exception:  # noqa: BLE001 - cells may have broken what it needs of Python's library
        _cellar.release_reserve()
        _cellar.mend()
        try:
            place, text = _tell(error, filename)
        except Exception:  # noqa: BLE001 - better a poor record than none
            place, text = (None, None, None, None), type(error).__name__
    return (kind, reason, type(error).__name__, message or _message(error), *place, text)


def _tell(error, filename):
    """The place and the traceback of a failure."""
    return _place(error, filename) or (None, None, None, None), format_exception(error)
