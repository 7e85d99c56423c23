"""What IPython adds to Python's syntax: help with `name?`, the usual magics, and shell lines; see `shell`."""

import builtins
import codecs
import contextlib
import inspect
import io
import keyword
import os
import pathlib
import re
import sys
import time
import types

import _cellar
from _cellar_prelude.notebook import describing, display, ipython
from _cellar_prelude.platform import faults, streams
from _cellar_prelude.processes import processes, program
from _cellar_prelude.shell import shell
from _cellar_prelude.shell.lines import Stream, encoded

_HELP = re.compile(
    rf"\s*(?:(?P<before>\?{{1,2}})\s*(?P<after>{describing.SUBJECT})|(?P<subject>{describing.SUBJECT})\s*(?P<behind>\?{{1,2}}))\s*(?:#.*)?$",
    re.DOTALL,
)
_MAGIC = re.compile(r"\s*(?:[\w.,\s]+=\s*)?(?P<sign>%%?|!!?)\s*(?P<name>[\w./~-]+)?")

# Characters of what such a line asks for.
_SUBJECT_MAX = 500
# Characters of a command that the host is told of.
_COMMAND_TOLD = 200
# A line that ends in `name?` asks for that name, whatever stands before it.
_HELP_END = re.compile(rf"(?P<subject>{describing.SUBJECT})(?P<behind>\?{{1,2}})\s*$")


def help_call(source, filename):
    """The code that prints what there is to know about an object when the cell is `name?` or `?name`, else None."""
    call = _help(source)
    return None if call is None else compile(call, filename, "eval")


def _help(text):
    match = _HELP.match(text)
    if match is None:
        return None
    sign = match["before"] or match["behind"]
    return f"{_CALL}({sign!r}, {match['after'] or match['subject']!r})"


# --- Lines that are not Python: found where the parser stops, and replaced by calls

_LINE = re.compile(
    r"(?P<indent>\s*)(?P<target>[A-Za-z_][\w., \[\]'\"]*?=\s*)?(?P<sign>%|!!?)(?P<text>[^%!=\s].*|\s+\S.*)\s*$"
)
_CELL = re.compile(r"\s*%%(?P<name>[\w!]+)[ \t]*(?P<text>[^\n]*)(?:\n(?P<body>.*))?\Z", re.DOTALL)
# No more lines of a cell are looked at.
_LINES_MAX = 200
# What the calls are named among the built-in names.
_CALL = "__cellar_magic__"
# Cell magics after which the rest of the cell is run as it is.
_AROUND = frozenset(("time", "capture"))


# What stands before the lines of a session that was copied from a prompt.
_PROMPT = re.compile(r"^[ \t]*(?:>>>|In \[\d+\]:|\.\.\.:?)(?: |$)", re.MULTILINE)


def without_prompts(source):
    """A source that was copied from a prompt, as IPython takes it; None for one that does not begin with a prompt."""
    start = source.lstrip()
    if not _PROMPT.match(start) or start.startswith("..."):
        return None
    return _PROMPT.sub("", source)


# The indentation of the first line that has something.
_INDENT = re.compile(r"(?:[ \t]*\n)*([ \t]+)(?=[^ \t\n])")


def without_indent(source):
    """A source that is indented as a whole, as IPython takes it: without the indentation of its first line. None for one that
    is not."""
    match = _INDENT.match(source)
    if match is None:
        return None
    indent = match[1]
    return "\n".join(line.removeprefix(indent) for line in source.split("\n"))


def translate(source, error, compiles):
    """The source with its magics and shell lines as calls, or None when `error` lies elsewhere.

    `compiles(source)` returns None, or the next error.
    """
    match = _CELL.match(source)
    if source == processes.ENTRIES["py"]:
        return f"{_CALL}({source!r}, '')"
    if match is not None and match["name"] not in _AROUND:
        return f"{_CALL}({'%%' + match['name']!r}, {match['text'].strip()!r}, {match['body'] or ''!r})"
    lines = source.split("\n")
    if match is not None:
        at = next(number for number, line in enumerate(lines) if line.strip())
        lines[at] = f"{_CALL}({'%%' + match['name']!r}, {match['text'].strip()!r})"
        error = compiles("\n".join(lines))
    changed = match is not None
    for _ in range(_LINES_MAX):
        if error is None:
            break
        number = error.lineno or 0
        line = lines[number - 1] if 0 < number <= len(lines) else ""
        call = _call(line)
        if call is None:
            return None
        while line.endswith("\\") and number < len(lines):
            # A command that goes on in the next line.
            call = _call(line := line[:-1] + lines[number])
            lines[number] = ""
            number += 1
        lines[(error.lineno or 0) - 1] = call
        changed = True
        error = compiles("\n".join(lines))
    return "\n".join(lines) if changed else None


# What a line of an own magic begins with when its sign is left out, and what makes it something else.
_BARE = re.compile(r"\s*(?P<name>[a-z_]+)(?:[ \t]+(?P<text>\S.*?))?\s*\Z")
_NO_BARE = re.compile(r"=(?!=)|[-+*/%&|^@:]=|[,;):]|(?:in|is|and|or|not|if|for|as)\b|[*+<>|&^=]=?\s")


def bare_call(line):
    """The call that a line such as `cd data` or `pwd` is, whose name is a magic's and nothing else's; None for others."""
    match = _BARE.match(line)
    if match is None or match["name"] not in LINE_MAGICS or _NO_BARE.match(match["text"] or ""):
        return None
    name = match["name"]
    if name in _run_source[0] or hasattr(builtins, name) or keyword.iskeyword(name):
        return None
    return f"{_CALL}({'%' + name!r}, {match['text'] or ''!r})"


def translate_bare(source):
    """A source that begins with a magic without its sign, with calls for such lines; None for one that does not."""
    first, *others = source.strip("\n").split("\n")
    call = bare_call(first)
    if call is None:
        return None
    lines = [call]
    for line in others:
        call = None if line[:1].isspace() else bare_call(line)
        name = line.split(maxsplit=1)[0] if call else ""
        # A name that the cell binds is its own.
        is_bound = call is not None and re.search(rf"(?m)^\s*(?:{name}\b.*=|(?:def|class|import|from|for)\b.*\b{name}\b)", source)
        lines.append(line if call is None or is_bound else call)
    return "\n" * (len(source) - len(source.lstrip("\n"))) + "\n".join(lines)


def _call(line):
    before = line[: len(line) - len(line.lstrip())]
    asked = _help(line)
    if asked is not None:
        return before + asked
    match = _LINE.match(line)
    if match is None:
        asked = _HELP_END.search(line[-_SUBJECT_MAX:])
        if asked is not None:
            return before + _help(asked[0])
        call = None if before else bare_call(line)
        return None if call is None else before + call
    indent, target = match["indent"], match["target"] or ""
    text = match["text"].strip()
    if match["sign"] != "%":
        return f"{indent}{target}{_CALL}({'!!' if target or match['sign'] == '!!' else '!'!r}, {text!r})"
    name, _, rest = text.partition(" ")
    # The cell may make one of this name before the line is reached.
    if name not in LINE_MAGICS and not name.isidentifier():
        return None
    return f"{indent}{target}{_CALL}({'%' + name!r}, {rest.strip()!r})"


# A line that begins or ends code in Markdown.
_FENCE = re.compile(r"\s*(?:`{3,}|~{3,})[ \t]*[\w+#.-]*\s*")
_FENCES = "the cell has the fences of Markdown: a cell is the code between them"


def _is_fenced(lines, number, first):
    """Whether a syntax error in a line comes from fences of Markdown around code, or from words before them."""
    fences = [place for place, line in enumerate(lines, 1) if _FENCE.fullmatch(line)]
    last = next((place for place in range(len(lines), 0, -1) if lines[place - 1].strip()), 1)
    return bool(fences) and (number == first or not {number, first, last}.isdisjoint(fences))


def explain(error, source, filename):
    """Says in a syntax error that a magic at its place is not known, or that fences of Markdown are no Python."""
    if error.filename != filename or error.lineno is None:
        return
    lines = source.split("\n")
    first = next((number for number, line in enumerate(lines, 1) if line.strip()), 1)
    if _is_fenced(lines, error.lineno, first):
        error.msg = f"{error.msg} ({_FENCES})"
        return
    for number in (error.lineno, first):
        line = lines[number - 1] if 0 < number <= len(lines) else ""
        match = _MAGIC.match(line)
        if match is None or match["sign"][0] != "%" or (number != error.lineno and match["sign"] != "%%"):
            continue
        known = CELL_MAGICS if match["sign"] == "%%" else LINE_MAGICS
        if (match["name"] or "") in known:
            return
        error.msg = _unknown(match["sign"] + (match["name"] or ""))
        error.lineno = error.end_lineno = number
        error.offset = match.start("sign") + 1
        error.end_offset = len(line.rstrip()) + 1
        error.text = line
        return


# --- What the calls do

# The namespace of cells, and what runs a piece of source in it and returns the value of its last expression.
_names = {}
_run_source = [None]
# What is to be done at the end of cells, by their numbers.
_at_end = {}


def begin(names, run_source):
    """Says where magics look names up, and how they run code."""
    _run_source[:] = [names, run_source]
    setattr(builtins, _CALL, magic)
    install()
    builtins.get_ipython = get_ipython


def end(cell):
    """Does what a cell magic has left for the end of its cell."""
    action = _at_end.pop(cell, None)
    if action is not None:
        action()


def _unknown(name):
    """That there is no such magic, in IPython's words."""
    return f"{'Cell magic' if name.startswith('%%') else 'Line magic function'} `{name}` not found."


class UsageError(Exception):
    """A magic that is not there, or is asked for what it does not do."""


def magic(name, text, body=None):
    """Runs a magic or a shell line; called by what `translate` makes."""
    if name in ("!", "!!"):
        return _shell(text, name == "!!")
    if name in ("?", "??"):
        return describing.describe(_run_source[0], text, name == "??", {**CELL_MAGICS, **LINE_MAGICS})
    if name == processes.ENTRIES["py"]:
        return program.main()
    if name.startswith("%%"):
        if name[2:] not in CELL_MAGICS:
            raise UsageError(_unknown(name))
        return AROUND_MAGICS[name[2:]](text) if body is None else CELL_MAGICS[name[2:]](_filled(text), body)
    if name[1:] not in LINE_MAGICS:
        raise UsageError(_unknown(name))
    return LINE_MAGICS[name[1:]](_filled(text))


def _filled(text):
    """The text with `{expression}` and `$name` of Python replaced by their values, as far as they have one.

    `$$name` is the shell's `$name`, and what stands between single quotes has no names.
    """

    def value(match):
        name = match["name"]
        if match[0].startswith("$$"):
            return match[0][1:]
        # What stands behind a name may be an attribute of it, or a part of the text.
        for subject, rest in ((name, ""), name.partition(".")[::2] if match[0].startswith("$") else (name, "")):
            try:
                return str(eval(subject, _run_source[0])) + (f".{rest}" if rest else "")
            except Exception:  # noqa: BLE001 - what has no value stays as it is
                pass
        return match[0]

    text = re.sub(r"(?<!\$)\{(?P<name>[^{}\n]+)\}", value, text)
    parts = re.split(r"('[^']*')", text)
    return "".join(part if part.startswith("'") else re.sub(r"\$\$?(?P<name>[A-Za-z_]\w*(?:\.\w+)*)", value, part) for part in parts)


class SList(list):
    """The lines that a command has printed; `s`, `n` and `l` are its text and its lines, as in IPython."""

    @property
    def l(self):  # noqa: E743 - IPython's name
        return list(self)

    @property
    def n(self):
        return "\n".join(self)

    @property
    def s(self):
        return " ".join(self)

    @property
    def p(self):
        return [pathlib.Path(each) for each in self if os.path.exists(each)]

    def grep(self, pattern, prune=False, field=None):
        """The lines in which a pattern is found, or that a function holds for; with `prune` the others."""
        test = pattern if callable(pattern) else lambda text: re.search(pattern, text, re.IGNORECASE)

        def part(line):
            words = line.split()
            return line if field is None else (words[field] if -len(words) <= field < len(words) else "")

        return SList(line for line in self if bool(test(part(line))) != prune)

    def fields(self, *numbers):
        """The words of each line at these numbers."""
        lines = [line.split() for line in self]
        if not numbers:
            return lines
        kept = (" ".join(words[each] for each in numbers if -len(words) <= each < len(words)) for words in lines)
        return SList(line for line in kept if line)

    def sort(self, field=None, nums=False):
        """The lines in order, by a word of each; with `nums` by the numbers in them."""

        def key(line):
            text = line if field is None else " ".join(line.split()[field : field + 1])
            return int("".join(re.findall(r"\d", text)) or 0) if nums else text

        return SList(sorted(self, key=key))


def words(text):
    """The words of a line, as a shell takes them."""
    import shlex

    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


class _Decoded(io.BufferedIOBase):
    """The bytes that go to a stream of text alone, as they come; a character may come in two pieces."""

    def __init__(self, stream):
        self._stream, self._decoder = stream, codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self):
        return True

    def write(self, data):
        self._stream.write(self._decoder.decode(data))
        return len(data)

    def finish(self):
        """Writes what is held back of a character."""
        self._stream.write(self._decoder.decode(b"", final=True))


@contextlib.contextmanager
def _written_by_commands(*streams):
    """Streams of a cell as commands write to them: bytes that are no text are shown as U+FFFD."""
    below = [getattr(stream, "buffer", None) or _Decoded(stream) for stream in streams]
    try:
        for stream in streams:
            if hasattr(stream, "flush"):
                stream.flush()
        yield [Stream(each) for each in below]
    finally:
        for each in below:
            each.finish() if isinstance(each, _Decoded) else each.flush()


def _shell(text, keeps):
    text = _filled(text)
    if keeps:
        with _written_by_commands(sys.stderr) as (err,):
            status, out = shell.capture(text, err)
        _run_source[0]["_exit_code"] = status
        return SList(out.decode("utf-8", "replace").splitlines())
    with _written_by_commands(sys.stdout, sys.stderr) as (out, err):
        status = shell.run_apart(text, out, err)
    _run_source[0]["_exit_code"] = status
    if status:
        # The cell goes on; a program that ends so ends with that status.
        _cellar.status("command_failed", {"status": status, "command": text[:_COMMAND_TOLD]})
    return None


def _shell_cell(name):
    return lambda text, body: _script(f"{name} {text}", body)


def _script(text, body):
    """Runs the body by the program that `text` begins with; `--out` and `--err` name what its output is bound to."""
    given, bound = words(text), {}
    for option in ("out", "err"):
        if f"--{option}" in given[:-1]:
            at = given.index(f"--{option}")
            bound[option] = given[at + 1], Stream()
            del given[at : at + 2]
    arguments = [word for word in given if word not in ("--no-raise-error", "--bg")]
    with _written_by_commands(sys.stdout, sys.stderr) as streams:
        out, err = (bound[name][1] if name in bound else stream for name, stream in zip(("out", "err"), streams, strict=True))
        if arguments[1:2] == ["-s"]:
            # Arguments of the script on standard input follow.
            name, rest = arguments[0], arguments[2:]
            status = shell.run_shell(["-c", body, name, *rest], Stream(), out, err, name)
        elif arguments[:1] in (["bash"], ["sh"], []):
            name = (arguments or ["bash"])[0]
            status = shell.run_shell([*arguments[1:], "-c", body], Stream(), out, err, name)
        else:
            status = shell.run(" ".join(arguments), out, err, Stream(encoded(body)))
    _run_source[0].update({name: stream.buffer.getvalue().decode("utf-8", "replace") for name, stream in bound.values()}, _exit_code=status)
    if status and "--no-raise-error" not in text.split():
        import subprocess

        raise subprocess.CalledProcessError(status, body.encode())


def _duration(seconds):
    if seconds >= 60:
        parts, rest = [], int(seconds)
        for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
            count, rest = divmod(rest, size)
            if count:
                parts.append(f"{count}{unit}")
        return " ".join(parts)
    for unit, scale in (("s", 1), ("ms", 1e-3), ("μs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


class _Clock:
    def __init__(self):
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def tell(self):
        """Prints the time since it was made."""
        cpu, wall = time.process_time() - self._cpu, time.perf_counter() - self._wall
        print(f"CPU times: user {_duration(cpu)}, sys: 0 ns, total: {_duration(cpu)}\nWall time: {_duration(wall)}")


def _time(text):
    """Prints how long a line takes."""
    clock = _Clock()
    try:
        return _run_source[1](text)
    finally:
        clock.tell()


def _time_cell(_text):
    """Prints how long the cell takes."""
    _at_end[_cellar.cell.get(0)] = _Clock().tell


class RichOutput:
    """What a cell under `%%capture` has displayed once."""

    def __init__(self, data, metadata=None):
        self.data, self.metadata = data, metadata or {}

    def _repr_mimebundle_(self, include=None, exclude=None):
        return self.data

    def display(self):
        """Displays it."""
        ipython.InteractiveShell.display_pub.publish(self.data)


class CapturedIO:
    """What a cell under `%%capture` has printed and displayed."""

    def __init__(self, is_out=True, is_error=True, is_display=True):
        self._streams = io.StringIO(), io.StringIO()
        self._before = sys.stdout, sys.stderr, ipython.captures[0]
        self.outputs = []
        if is_out:
            sys.stdout = self._streams[0]
        if is_error:
            sys.stderr = self._streams[1]
        if is_display:
            ipython.captures[0] = self.keep

    def keep(self, data):
        """Takes what would be displayed."""
        self.outputs.append(RichOutput(data))

    def finish(self):
        """Ends the capture."""
        sys.stdout, sys.stderr, ipython.captures[0] = self._before

    stdout = property(lambda self: self._streams[0].getvalue())
    stderr = property(lambda self: self._streams[1].getvalue())

    def show(self):
        """Prints and displays what was captured."""
        sys.stdout.write(self.stdout)
        sys.stderr.write(self.stderr)
        for each in self.outputs:
            each.display()

    __call__ = show

    def __str__(self):
        return self.stdout


def _capture(text):
    """Keeps what the cell prints and displays: `%%capture [--no-stdout] [--no-stderr] [--no-display] [NAME]`."""
    given = text.split()
    captured = CapturedIO(*(f"--no-{each}" not in given for each in ("stdout", "stderr", "display")))
    name = next((word for word in given if word.isidentifier()), None)
    if name is not None:
        _run_source[0][name] = captured
    _at_end[_cellar.cell.get(0)] = captured.finish


def takes(cell, value):
    """Does what a magic has to do before the value of a cell is shown; whether it is not to be shown."""
    if cell in _at_end:
        owner = getattr(_at_end[cell], "__self__", None)
        if type(owner) is CapturedIO:
            if ipython.captures[0] == owner.keep:
                owner.keep(display.represent(value))
                return True
        else:
            end(cell)
    if Macro is not None and type(value) is Macro:
        shown = run(str(value))
        if shown is not None:
            display.show_result(shown)
        return True
    return False


# What `recalling` makes.
Macro = None


def names():
    """The namespace of cells."""
    return _run_source[0]


def run(source):
    """Runs source in it; the value of its last expression."""
    return _run_source[1](source)


class TimeitResult:
    """What `%timeit` has measured."""

    def __init__(self, loops, times):
        self.loops, self.repeat = loops, len(times)
        self.timings = self.all_runs = times
        self.best, self.worst = min(times), max(times)
        self.average = sum(times) / len(times)
        self.stdev = (sum((each - self.average) ** 2 for each in times) / len(times)) ** 0.5

    def __str__(self):
        runs, loops = ("s" if number != 1 else "" for number in (self.repeat, self.loops))
        return (
            f"{_duration(self.average)} ± {_duration(self.stdev)} per loop "
            f"(mean ± std. dev. of {self.repeat} run{runs}, {self.loops:,} loop{loops} each)"
        )

    def __repr__(self):
        return f"<TimeitResult : {self}>"


def _timeit(text, body=None):
    """Prints how long a piece of code takes, run many times: `%timeit [-n LOOPS] [-r RUNS] [-q] [-o] CODE`."""
    import timeit

    options = {}
    while match := re.match(r"-([nrtcpqo])\s*(\d*)\s*", text):
        options[match[1]] = match[2]
        text = text[match.end() :]
    setup, source = ("pass", text) if body is None else (text or "pass", body)
    timer = timeit.Timer(source, setup, globals=_run_source[0])
    loops = int(options.get("n") or 0)
    if not loops:
        loops = next((10**power for power in range(8) if timer.timeit(10**power) >= 0.05), 10**7)
    result = TimeitResult(loops, [each / loops for each in timer.repeat(int(options.get("r") or 7), loops)])
    if "q" not in options:
        if result.worst > 4 * result.best > 0 and result.worst > 1e-6:
            print(
                f"The slowest run took {result.worst / result.best:0.2f} times longer than the fastest. "
                "This could mean that an intermediate result is being cached."
            )
        print(result)
    return result if "o" in options else None


def _prun(text, body=None):
    """Prints what a piece of code spends its time on: `%prun [-l LIMIT] [-s KEY] [-T FILE] [-D FILE] [-q] [-r] CODE`."""
    import cProfile
    import pstats

    limits, keys, options = [], [], {}
    while match := re.match(r"-(?:([lsTD])\s*(\S+)|([qr]))(?:\s+|\Z)", text):
        text = text[match.end() :]
        if match[1] == "l":
            given = match[2].strip("'\"")
            limits.append(int(given) if given.isdigit() else float(given) if re.fullmatch(r"0?\.\d+", given) else given)
        elif match[1] == "s":
            keys.append(match[2])
        else:
            options[match[1] or match[3]] = match[2]
    profile = cProfile.Profile()
    try:
        profile.runctx(text if body is None else f"{text}\n{body}", _run_source[0], _run_source[0])
    except SystemExit:
        print("*** SystemExit exception caught in code being profiled.")
    out = io.StringIO()
    stats = pstats.Stats(profile, stream=out).sort_stats(*(keys or ["time"]))
    stats.print_stats(*limits)
    if "D" in options:
        stats.dump_stats(options["D"])
        print(f"*** Profile stats marshalled to file {options['D']!r}.")
    if "T" in options:
        with open(options["T"], "w", encoding="utf-8") as file:
            file.write(out.getvalue())
        print(f"*** Profile printout saved to text file {options['T']!r}.")
    if "q" not in options:
        print(out.getvalue().strip("\n"))
    return stats if "r" in options else None


def _interesting():
    found = []
    for name in _run_source[0]:
        if name.startswith("_"):
            continue
        # A cell may import anew what every session has.
        if name in _names and not any(re.search(rf"(?m)^\s*(?:import|from)\b.*\b{name}\b", source) for source in _run_source[0].get("In", ())):
            continue
        found.append(name)
    return sorted(found)


def note_names(names):
    """Remembers what a fresh namespace has, which `%who` does not list."""
    _names.clear()
    _names.update(names)


def _who_ls(text):
    """The names that cells have bound, of the types that are named if any are."""
    wanted = set(text.split())
    return [name for name in _interesting() if not wanted or type(_run_source[0][name]).__name__ in wanted]


# How many names `%who` writes on a line.
_NAMES_PER_LINE = 9
# Extensions that have nothing to bring.
EXTENSIONS = frozenset(("autoreload", "storemagic", "google.colab.data_table", "jupyter_black"))
# What `%whos` shows of a text of more characters than this: so many of its beginning and of its end.
_INFO_MAX, _INFO_PART = 50, 25


def _none_told(text):
    if text:
        print("No variables match your requested type.")
    else:
        print("Interactive namespace is empty.")


def _who(text):
    names = _who_ls(text)
    if not names:
        _none_told(text)
        return
    for number, name in enumerate(names, 1):
        print(f"{name}\t", end=" ")
        if number % _NAMES_PER_LINE == 0:
            print()
    print()


def _size_info(value):
    """What `%whos` says of a table or an array; None of anything else."""
    if type(value).__name__ in ("DataFrame", "Series"):
        return f"Shape: {value.shape}"
    numpy = sys.modules.get("numpy")
    if numpy is None or type(value) is not numpy.ndarray:
        return None
    shape = "x".join(map(str, value.shape))
    told = f"{shape}: {value.size} elems, type `{value.dtype}`, {value.nbytes} bytes"
    if value.nbytes < 100_000:
        return told
    return f"{told} ({value.nbytes / 1024} kb)" if value.nbytes < 1 << 20 else f"{told} ({value.nbytes / (1 << 20)} Mb)"


def _info(value):
    """What `%whos` says of a value."""
    if type(value) in (dict, list, tuple):
        return f"n={len(value)}"
    told = _size_info(value)
    if told is not None:
        return told
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 - a value that cannot be written down is told of all the same
        text = f"<object with id {id(value)} (str() failed)>"
    text = text.replace("\n", "\\n")
    return text if len(text) < _INFO_MAX else f"{text[:_INFO_PART]}<...>{text[-_INFO_PART:]}"


def _whos(text):
    names = _who_ls(text)
    if not names:
        _none_told(text)
        return
    values = [_run_source[0][name] for name in names]
    kinds = [type(value).__name__ for value in values]
    first, second = (max(map(len, column)) + 3 for column in (["Variable", *names], ["Type", *kinds]))
    head = f"{'Variable':<{first}}{'Type':<{second}} Data/Info"
    print(head, "-" * len(head), sep="\n")
    for name, kind, value in zip(names, kinds, values):
        print(f"{name:<{first}}{kind:<{second}} {_info(value)}")


def _reset(text):
    """Unbinds what cells have bound."""
    for name in _interesting():
        _run_source[0].pop(name, None)


def _reset_selective(text):
    """Unbinds the names that a pattern matches."""
    pattern = next((word for word in text.split() if not word.startswith("-")), "")
    for name in _interesting():
        if re.search(pattern, name):
            _run_source[0].pop(name, None)


def _unbind(text):
    name = text.split()[-1] if text else ""
    if name not in _run_source[0]:
        raise NameError(f"name '{name}' is not defined", name=name)
    del _run_source[0][name]


def _list_magics(_text):
    """Prints the names of all magics."""
    print("Available line magics:")
    print("  ".join(f"%{name}" for name in sorted(LINE_MAGICS)))
    print("\nAvailable cell magics:")
    print("  ".join(f"%%{name}" for name in sorted(CELL_MAGICS)))
    print("\nAutomagic is ON, % prefix IS NOT needed for line magics.")


def _show_help(sign):
    return lambda text: magic(sign, text.strip())


def _show_documentation(text):
    """What IPython's `%pdoc` prints."""
    import inspect
    import textwrap

    value = eval(text, _run_source[0])
    told = [("Class docstring:", inspect.getdoc(value))]
    if isinstance(value, type):
        told.append(("Init docstring:", inspect.getdoc(value.__init__)))
    elif hasattr(value, "__call__"):
        told.append(("Call docstring:", inspect.getdoc(value.__call__)))
    for title, said in told:
        if said:
            print(title, textwrap.indent(said, "    "), sep="\n")


def _show_source(text):
    import inspect

    print(inspect.getsource(eval(text, _run_source[0])))


def _show_signature(text):
    subject = text.strip()
    value = eval(subject, _run_source[0])
    signature = describing.signature(value, subject)
    if not callable(value):
        print("Object is not callable.")
    elif signature is None:
        print(f"No definition header found for {subject}")
    else:
        print("Class constructor information:\n" if isinstance(value, type) else "", signature)


def _search(text):
    words = [word for word in text.split() if not word.startswith("-")]
    describing.describe(_run_source[0], words[0] if words else "*", False, {})


def _load_extension(text):
    """Loads a module that makes magics of its own. What usual ones bring is there without them."""
    import importlib

    name = text.strip()
    if name in EXTENSIONS:
        return
    load = getattr(importlib.import_module(name), "load_ipython_extension", None)
    if load is None:
        print(f"The {name} module is not an IPython extension.")
    else:
        load(_shell_object)


def _set_mode(text):
    """Tracebacks are told in one way."""
    print(f"Exception reporting mode: {text.strip().capitalize()}")


def _show_file(text):
    """Prints a file."""
    with open(os.path.expanduser(text.strip("'\"")), encoding="utf-8") as file:
        print(file.read())


def _show_file_of(text):
    """Prints the file in which an object is defined."""
    import inspect

    try:
        value = eval(text, _run_source[0])
    except Exception:  # noqa: BLE001 - a path need not be an expression
        _show_file(text)
        return
    path = inspect.getsourcefile(value if isinstance(value, type) or hasattr(value, "__code__") or inspect.ismodule(value) else type(value))
    if path is None or path.startswith("<"):
        _show_source(text)
    else:
        _show_file(path)


# The folder that `%cd -` goes back to, and the names that `%bookmark` has given to folders.
_before = []
bookmarks = {}


def _cd(text):
    """Changes the folder: `%cd FOLDER`, `%cd -` to the one before, `%cd -b NAME` to a bookmark."""
    given = text.split()
    is_quiet = given[:1] == ["-q"]
    place = text.strip()[2:].strip() if is_quiet else text.strip()
    if place == "-":
        if not _before:
            raise UsageError("No previous directory to change to.")
        place = _before[-1]
    if given[:1] == ["-b"]:
        place = bookmarks.get(" ".join(given[1:]))
        if place is None:
            raise UsageError(f"Bookmark '{' '.join(given[1:])}' not found. Use '%bookmark -l' to see your bookmarks.")
    here = os.getcwd()
    try:
        os.chdir(os.path.expanduser(place.strip("'\"")) if place else os.environ.get("HOME", "/"))
    except OSError as error:
        print(error)
    else:
        _before[:] = [here]
        _run_source[0].setdefault("_dh", [pathlib.Path(here)]).append(pathlib.Path.cwd())
    if not is_quiet:
        print(os.getcwd())


def _env(text):
    """Tells or sets variables of the environment: `%env`, `%env NAME`, `%env NAME=VALUE`."""
    if not text:
        return dict(sorted(os.environ.items()))
    name, sign, value = re.match(r"([^=\s]+)\s*([=\s])?\s*(.*)", text).groups()
    if not sign:
        if name not in os.environ:
            raise UsageError(f"Environment does not have key: {name}")
        return os.environ[name]
    os.environ[name] = value
    print(f"env: {name}={value}")
    return None


def _run(text):
    """Runs a file; its names become the cells'."""
    import runpy
    import shlex

    before = sys.argv
    arguments = [each for each in shlex.split(text) if each not in ("-i", "-t")]
    if arguments and not os.path.exists(arguments[0]):
        raise FileNotFoundError(f"File `{arguments[0]!r}` not found.")
    sys.argv = arguments
    try:
        names = runpy.run_path(arguments[0], run_name="__main__")
    finally:
        sys.argv = before
    _run_source[0].update((name, value) for name, value in names.items() if not name.startswith("__"))


def _write_file(text, body):
    words = text.split()
    name = words[-1].strip("'\"")
    existed = os.path.exists(name)
    with open(os.path.expanduser(name), "a" if "-a" in words else "w", encoding="utf-8") as file:
        file.write(body if body.endswith("\n") or not body else body + "\n")
    print(f"{'Writing' if not existed else 'Appending to' if '-a' in words else 'Overwriting'} {name}")


def _shown(name):
    def show(_text, body):
        import IPython.display

        IPython.display.display(getattr(IPython.display, name)(body))

    return show


# What `%config` sets: by class a function of a name and its value, and the values that there are.
configurable = {}


def _precision(text):
    """Has floats shown with so many digits, or by a format such as `%.3e`; without either as they are."""
    digits = 8
    if "%" in text:
        form = text
    elif text:
        digits = int(text)
        form = f"%.{digits}f"
    else:
        form = "%r"
    form % 3.14159
    display.format_floats(None if form == "%r" else form)
    numpy = sys.modules.get("numpy")
    if numpy is not None and "%" not in text:
        numpy.set_printoptions(precision=digits)
    return form


def _nothing(_text):
    """A magic whose effect is there without it."""


def _command(name):
    return lambda text: _shell(f"{name} {text}", False)


LINE_MAGICS = {
    **dict.fromkeys(
        "autoreload colors matplotlib aimport autosave gui".split(),
        _nothing,
    ),
    **{name: _command(name) for name in "cat cp ls mkdir mv pip rm rmdir".split()},
    **dict.fromkeys(("ll", "lx", "lk", "lf", "ldir"), lambda text: _shell(f"ls -l {text}", False)),
    "cd": _cd,
    "env": _env,
    "load_ext": _load_extension,
    "lsmagic": _list_magics,
    "pdef": _show_signature,
    "pdoc": _show_documentation,
    "pfile": _show_file_of,
    "pinfo": _show_help("?"),
    "pinfo2": _show_help("??"),
    "precision": _precision,
    "prun": _prun,
    "psearch": _search,
    "psource": _show_source,
    "pwd": lambda _text: os.getcwd(),
    "pycat": _show_file,
    "reload_ext": _load_extension,
    "reset": _reset,
    "reset_selective": _reset_selective,
    "run": _run,
    "set_env": _env,
    "sx": lambda text: _shell(text, True),
    "system": lambda text: _shell(text, True),
    "time": _time,
    "timeit": _timeit,
    "who": _who,
    "who_ls": _who_ls,
    "whos": _whos,
    "xdel": _unbind,
    "xmode": _set_mode,
}
LINE_MAGICS["conda"] = LINE_MAGICS["uv"] = LINE_MAGICS["pip"]
AROUND_MAGICS = {"time": _time_cell, "capture": _capture}
CELL_MAGICS = {
    "!": lambda text, body: _shell(body, True),
    "bash": _shell_cell("bash"),
    "capture": None,
    "file": _write_file,
    "html": _shown("HTML"),
    "HTML": _shown("HTML"),
    "javascript": _shown("Javascript"),
    "js": _shown("Javascript"),
    "latex": _shown("Latex"),
    "markdown": _shown("Markdown"),
    "prun": _prun,
    "python": lambda _text, body: exec(compile(body, "<python>", "exec"), {"__name__": "__main__"}),
    "python3": lambda _text, body: exec(compile(body, "<python>", "exec"), {"__name__": "__main__"}),
    "script": _script,
    "sh": _shell_cell("sh"),
    "svg": _shown("SVG"),
    "SVG": _shown("SVG"),
    "sx": lambda text, body: _shell(body, True),
    "system": lambda text, body: _shell(body, True),
    "time": None,
    "timeit": _timeit,
    "writefile": _write_file,
}


# --- The shell object


class ExecutionResult:
    """What came of `get_ipython().run_cell`."""

    def __init__(self, result, error):
        self.result, self.error_in_exec, self.error_before_exec = result, error, None
        self.success = error is None

    def raise_error(self):
        """Raises what the source has raised."""
        if self.error_in_exec is not None:
            raise self.error_in_exec

    def __repr__(self):
        return f"<ExecutionResult object at {id(self):x}, error_before_exec=None error_in_exec={self.error_in_exec} result={self.result!r}>"


# All functions that are registered. Cells begin and end without making anything where there are none.
_listening = []


class Events:
    """Functions of cells that are called before and after each cell, by what they are registered for."""

    available = ("pre_execute", "pre_run_cell", "post_execute", "post_run_cell")

    def __init__(self):
        self.callbacks = {name: [] for name in self.available}

    def register(self, event, function):
        """Has a function called from now on."""
        if not callable(function):
            raise TypeError(f"Need a callable, got {function!r}")
        if function not in self.callbacks[event]:
            self.callbacks[event].append(function)
            _listening.append(function)

    def unregister(self, event, function):
        """Has it called no more."""
        if function not in self.callbacks[event]:
            raise ValueError(f"Function {function!r} is not registered as a {event} callback")
        self.callbacks[event].remove(function)
        _listening.remove(function)

    def trigger(self, event, *args):
        """Calls them; what one raises is told, and fails no cell."""
        for function in self.callbacks[event][:]:
            try:
                takes = bool(inspect.signature(function).parameters)
                function(*args if takes else ())
            except Exception as error:  # noqa: BLE001 - told
                streams.tell(f"Error in callback {function!r} (for {event}):\n{faults.format_exception(error)}")


def before(cell):
    """Tells that a cell begins to those who asked for it."""
    if _listening:
        events = _shell_object.events
        sources = _run_source[0].get("In")
        source = sources[-1] if isinstance(sources, list) and sources else ""
        events.trigger("pre_execute")
        events.trigger("pre_run_cell", types.SimpleNamespace(raw_cell=source, store_history=True, silent=False, cell_id=cell))


def after(error=None):
    """Tells that a cell has ended to those who asked for it."""
    if _listening:
        events = _shell_object.events
        events.trigger("post_execute")
        events.trigger("post_run_cell", ExecutionResult(None, error))


class Shell:
    """What `get_ipython()` returns: the little of IPython's shell that cells use."""

    config = {}
    colors = "nocolor"
    events = Events()
    display_formatter, display_pub = ipython.InteractiveShell.display_formatter, ipython.InteractiveShell.display_pub

    @property
    def user_ns(self):
        """The namespace of cells."""
        return _run_source[0]

    user_global_ns = user_ns

    def run_line_magic(self, name, line, _stack_depth=1):
        """Runs a magic, or raises when there is none of this name."""
        return self._find(LINE_MAGICS, name)(line)

    def run_cell_magic(self, name, line, cell):
        """Runs a cell magic, or raises when there is none of this name."""
        if name in AROUND_MAGICS:
            number = _cellar.cell.get(0)
            outer = _at_end.pop(number, None)
            AROUND_MAGICS[name](line)
            try:
                return _run_source[1](cell)
            finally:
                end(number)
                if outer is not None:
                    _at_end[number] = outer
        return self._find(CELL_MAGICS, name)(line, cell)

    def magic(self, line):
        """Runs a line magic that is written as one text."""
        name, _, rest = line.lstrip("%").partition(" ")
        return self.run_line_magic(name, rest.strip())

    def _find(self, known, name):
        if known.get(name) is None:
            raise UsageError(_unknown(f"{'%%' if known is CELL_MAGICS else '%'}{name}"))
        return known[name]

    def register_magic_function(self, func, magic_kind="line", magic_name=None):
        """Makes a function a magic."""
        register(func, magic_kind, magic_name)

    def register_magics(self, *sources):
        """Makes the marked methods of classes magics."""
        register_magics(*sources)

    def system(self, line):
        """Runs a shell line."""
        _shell(line, False)

    system_piped = system_raw = system

    def getoutput(self, line, split=True):
        """The lines that a shell line prints."""
        lines = _shell(line, True)
        return lines if split else lines.n

    def showtraceback(self, exc_tuple=None, *_args, **_options):
        """Prints an exception, or the one that is being handled, as the failure of a cell is told."""
        error = sys.exception() if exc_tuple is None else exc_tuple[1]
        if error is not None:
            streams.tell(faults.format_exception(error))

    @property
    def execution_count(self):
        """The number of the cell."""
        return _cellar.cell.get(0)

    @property
    def ast_node_interactivity(self):
        """Whose values are shown: "last_expr", "all" and so on."""
        return ipython.settings["ast_node_interactivity"]

    @ast_node_interactivity.setter
    def ast_node_interactivity(self, value):
        ipython.InteractiveShell.ast_node_interactivity = value

    def run_cell(self, source, *_args, **_options):
        """Runs source in the namespace of cells and shows its value; tells what it raises."""
        try:
            value = _run_source[1](source)
        except Exception as error:  # noqa: BLE001 - told, and returned
            self.showtraceback((type(error), error, error.__traceback__))
            return ExecutionResult(None, error)
        if value is not None:
            display.show_result(value)
        return ExecutionResult(value, None)

    def find_line_magic(self, name):
        """The function of a magic, or None."""
        return LINE_MAGICS.get(name)

    def find_cell_magic(self, name):
        """The function of a cell magic, or None."""
        return CELL_MAGICS.get(name)

    find_magic = find_line_magic

    def set_next_input(self, source, replace=False):
        """Prints a source that an editor would show as the next cell."""
        print(source)

    def ev(self, expression):
        """The value of an expression."""
        return eval(expression, _run_source[0])

    def ex(self, source):
        """Runs source in the namespace of cells."""
        exec(source, _run_source[0])

    def push(self, names, interactive=True):
        """Binds names of cells."""
        _run_source[0].update(names)

    def __repr__(self):
        return "<the shell of this kernel>"


# --- Magics that cells make


def register(function, kind="line", name=None):
    """Makes a function a magic: of lines, of cells, or of both."""
    name = name or function.__name__
    if kind in ("line", "line_cell"):
        LINE_MAGICS[name] = function
    if kind in ("cell", "line_cell"):
        CELL_MAGICS[name] = function
    return function


def registers(kind):
    """The decorator that makes functions magics of a kind, with or without a name given."""

    def decorate(target):
        return register(target, kind) if callable(target) else lambda function: register(function, kind, target)

    return decorate


def marks(kind):
    """The decorator of methods of a class of magics."""

    def marked(function, name):
        function._cellar_magic = (kind, name or function.__name__)
        return function

    def decorate(target=None):
        return marked(target, None) if callable(target) else lambda function: marked(function, target)

    return decorate


class Magics:
    """What classes of magics are made from."""

    def __init__(self, shell=None, **_options):
        self.shell = shell


def register_magics(*sources):
    """Makes the marked methods of classes magics."""
    for source in sources:
        instance = source(_shell_object) if isinstance(source, type) else source
        for member in dir(instance):
            kind, name = getattr(getattr(instance, member, None), "_cellar_magic", (None, None))
            if kind is not None:
                register(getattr(instance, member), kind, name)


def install():
    """Makes `IPython.core.magic`, by which cells make magics of their own."""
    module = types.ModuleType("IPython.core.magic", "A part of IPython: magics that cells make.")
    module.Magics, module.magics_class, module.UsageError = Magics, lambda kind: kind, UsageError
    for kind in ("line", "cell", "line_cell"):
        setattr(module, f"register_{kind}_magic", registers(kind))
        setattr(module, f"{kind}_magic", marks(kind))
    module.needs_local_scope = module.no_var_expand = lambda function: function
    sys.modules[module.__name__] = module
    sys.modules["IPython.core"].magic = module


for each, name in (
    (Shell, "builtins"),
    (SList, "IPython.utils.text"),
    (TimeitResult, "IPython.core.magics.execution"),
    (CapturedIO, "IPython.utils.capture"),
    (RichOutput, "IPython.utils.capture"),
    (ExecutionResult, "builtins"),
    (Magics, "IPython.core.magic"),
    (UsageError, "builtins"),
):
    each.__module__ = name

_shell_object = Shell()


def get_ipython():
    """The shell of this kernel."""
    return _shell_object
