"""The shell of lines such as `!ls data | head -3`, of `%%bash` cells, and of processes: what joins the commands of `commands`.

The commands of a pipeline run one after another, each when the one before it has ended; what is put in the background
with `&` has ended when the next command begins.
"""

import contextlib
import functools
import io
import os
import re
import time

from _cellar_prelude.shell import commands, filters
from _cellar_prelude.shell.arithmetic import Bad
from _cellar_prelude.shell.lines import Stream, contents, decoded, encoded, lines_of
from _cellar_prelude.shell.shell_syntax import ASSIGNMENT, Reader, Unreadable, tokens
from _cellar_prelude.shell.shell_words import Unset, Variables, fits_pattern

# Commands may be nested this deep.
_DEPTH_MAX = 300
# A command of a pipeline writes no more than this many bytes into it.
_PIPE_MAX = 64 << 20
# A command that has begun may write so many bytes although nobody reads them: they lie in the pipe.
_PIPE_ROOM = 64 << 10
_ENDLESS = (["/dev/zero"], ["/dev/urandom"], ["/dev/random"])
# What the status is of a command whose output nobody reads any more.
_BROKEN_PIPE = 141
_DECLARING = frozenset(("declare", "export", "local", "readonly", "typeset"))
_OPTIONS = {"e": "errexit", "u": "nounset", "x": "xtrace", "f": "noglob"}


class Exit(Exception):
    """`exit` ends the shell with a status."""


class _Leave(Exception):
    """`break`, `continue` and `return`, which end what is around them."""

    def __init__(self, kind, value):
        super().__init__(kind)
        self.kind, self.value = kind, value


class _Broken(Exception):
    """What is written is not read any more."""


class _Pipe(io.BytesIO):
    """The bytes that a command writes for the next one, which reads so many lines or bytes of them."""

    def __init__(self, lines, size):
        super().__init__()
        self._lines, self._size = lines, size

    def write(self, data):
        count = super().write(data)
        if self._lines is not None:
            self._lines -= data.count(b"\n")
        if self.tell() > _PIPE_MAX:
            raise Bad(f"a pipe holds at most {_PIPE_MAX} bytes")
        if self.tell() > _PIPE_ROOM:
            self.check()
        return count

    def check(self):
        """Ends who writes when all that is read has been written."""
        if (self._lines is not None and self._lines <= 0) or (self._size is not None and self.tell() >= self._size):
            raise _Broken


class _Nothing(io.BytesIO):
    """The bytes of `/dev/null`."""

    def write(self, data):
        return len(data)


class _Streams:
    """Where commands read and write: standard input, output and error, and the files of other numbers."""

    def __init__(self, stdin, out, err, others=()):
        self.stdin, self.out, self.err, self.others = stdin, out, err, dict(others)

    def copy(self):
        """The same streams, to be changed for one command."""
        return _Streams(self.stdin, self.out, self.err, self.others)

    def get(self, number):
        """The stream of a number."""
        stream = {"0": self.stdin, "1": self.out, "2": self.err}.get(number) or self.others.get(number)
        if stream is None:
            raise OSError(9, "Bad file descriptor", number)
        return stream

    def set(self, number, stream):
        """Changes the stream of a number."""
        names = {"0": "stdin", "1": "out", "2": "err"}
        if number in names:
            setattr(self, names[number], stream)
        else:
            self.others[number] = stream


@contextlib.contextmanager
def _surroundings_kept():
    """Puts the folder and the environment back as they were, as those of a shell of its own would be."""
    folder, environment = os.getcwd(), dict(os.environ)
    try:
        yield
    finally:
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
        if os.getcwd() != folder:
            os.chdir(folder)


class Shell(Variables):
    """A shell: its variables, functions, arguments, and the status of its last command."""

    def __init__(self, arguments=(), name="bash"):
        super().__init__()
        self.arguments = [name, *arguments]
        self.functions, self.traps, self.made, self.receivers, self.folders, self.last_job, self.jobs = {}, {}, [], [], [], 0, {}
        self._depth, self._guards, self._files, self._lasting, self._option_at = 0, 0, [], [], 1

    def run(self, text, stdin, out, err):
        """Runs a text to its end; its exit status."""
        self._err_streams = io_ = _Streams(stdin, out, err)
        try:
            self._whole(text, io_)
            trap, self._guards = self.traps.pop("EXIT", None), 0
            if trap:
                status = self.status
                self._whole(trap, io_)
                self.status = status if self.status in (0, status) else self.status
        finally:
            for file in self._files:
                file.close()
            for receiver, around in self._lasting:
                self._received([receiver], around)
            for name in self.made:
                os.remove(name)
            self.made.clear()
        return self.status

    def _whole(self, text, io_):
        try:
            self.told(text, io_)
        except Exit as end:
            self.status = end.args[0]

    def told(self, text, io_):
        """Runs a text, and writes what is wrong with it. Raises `Exit` where it ends the shell."""
        try:
            self.lines(text, io_)
        except Bad as error:
            io_.err.write(f"bash: {error}\n")
            self.status = 2 if isinstance(error, Unreadable) else 1
        except Unset as error:
            io_.err.write(f"bash: {error}\n")
            self.status = 1
        except RecursionError:
            io_.err.write("bash: commands are nested too deep\n")
            self.status = 1
        except _Leave as end:
            self.status = end.value if end.kind == "return" else 0

    def lines(self, text, io_):
        """Runs a text within this shell. As in any shell, lines are run before the next is read."""
        for tree in Reader(tokens(text)).lines():
            self._run(tree, io_)

    def _run(self, tree, io_):
        self._depth += 1
        try:
            if self._depth > _DEPTH_MAX:
                raise Bad("commands are nested too deep")
            getattr(self, _NODES[tree[0]])(tree, io_)
        finally:
            self._depth -= 1

    def _checked(self, status):
        """Takes the status of a command, which ends the shell after `set -e`."""
        self.status = status
        if status and not self._guards:
            if "ERR" in self.traps and "in ERR" not in self.options:
                self.options.add("in ERR")
                self.lines(self.traps["ERR"], self._err_streams)
                self.options.discard("in ERR")
                self.status = status
            if "errexit" in self.options:
                raise Exit(status)

    def _guarded(self, tree, io_):
        self._guards += 1
        try:
            self._run(tree, io_)
        finally:
            self._guards -= 1
        return self.status == 0

    def _list(self, tree, io_):
        for each in tree[1]:
            self._run(each, io_)

    def _chain(self, tree, io_):
        if self._guarded(tree[1], io_) == (tree[0] == "&&"):
            self._run(tree[2], io_)

    def _not(self, tree, io_):
        self.status = int(self._guarded(tree[1], io_))

    def _timed(self, tree, io_):
        start = time.monotonic()
        self._run(tree[1], io_)
        spent = f"{int((time.monotonic() - start) // 60)}m{(time.monotonic() - start) % 60:.3f}s"
        io_.err.write(f"\nreal\t{spent}\nuser\t{spent}\nsys\t0m0.000s\n")

    def _back(self, tree, io_):
        streams = io_.copy()
        streams.stdin = Stream()
        self._inside(tree[1], streams)
        self.last_job = os.getpid() + len(self.jobs) + 1
        self.jobs[str(self.last_job)] = self.status
        self.status = 0

    def _pipe(self, tree, io_):
        *first, last = tree[1]
        streams, statuses = io_.copy(), []
        for each, after in zip(first, tree[1][1:], strict=True):
            if each[0] == "run" and each[1][:1] == ["cat"] and each[1][1:] in _ENDLESS:
                # The next command reads of it as much as it wants.
                streams.stdin = Stream(open(each[1][1], "rb"), is_file=True)
                statuses.append(0)
                continue
            pipe = _Pipe(*_read_by(after))
            streams.out = Stream(pipe)
            try:
                self._inside(each, streams)
            except _Broken:
                self.status = _BROKEN_PIPE
            statuses.append(self.status)
            streams.stdin = Stream(pipe.getvalue())
        streams.out = io_.out
        self._inside(last, streams)
        self.statuses = [*statuses, self.status]
        failed = [status for status in self.statuses if status]
        self._checked(failed[-1] if failed and "pipefail" in self.options else self.status)

    def _inside(self, tree, io_):
        """Runs it as a shell of its own would: what it sets is gone afterwards."""
        kept = {name: getattr(self, name) for name in ("scopes", "kinds", "options", "arguments", "functions", "traps", "folders")}
        self.scopes = [{name: dict(value) if isinstance(value, dict) else value for name, value in scope.items()} for scope in self.scopes]
        self.kinds, self.options, self.functions = dict(self.kinds), set(self.options), dict(self.functions)
        self.traps, self.folders = {}, list(self.folders)
        with _surroundings_kept():
            try:
                self._run(tree, io_.copy())
                if "EXIT" in self.traps:
                    self.lines(self.traps["EXIT"], io_)
            except Exit as end:
                self.status = end.args[0]
                if "EXIT" in self.traps:
                    self.lines(self.traps["EXIT"], io_)
                    self.status = end.args[0]
            except Unset as error:
                io_.err.write(f"bash: {error}\n")
                self.status = 1
            finally:
                for name, value in kept.items():
                    setattr(self, name, value)

    def _apart(self, tree, io_):
        self._inside(tree[1], io_)
        self._checked(self.status)

    def _if(self, tree, io_):
        for condition, body in tree[1]:
            if self._guarded(condition, io_):
                return self._run(body, io_)
        self.status = 0
        if tree[2] is not None:
            self._run(tree[2], io_)

    def _turn(self, body, io_):
        """Runs the body of a loop once; whether the loop goes on."""
        try:
            self._run(body, io_)
        except _Leave as end:
            if end.kind == "return":
                raise
            if end.value > 1:
                raise _Leave(end.kind, end.value - 1) from None
            return end.kind == "continue"
        return True

    def _for(self, tree, io_):
        words = self.arguments[1:] if tree[2] is None else self.words(tree[2])
        self.status = 0
        for word in words:
            self.set(tree[1], word)
            if not self._turn(tree[3], io_):
                break

    def _count(self, tree, io_):
        begin, condition, step = tree[1]
        self.number(begin)
        self.status = 0
        while not condition.strip() or self.number(condition):
            if not self._turn(tree[2], io_):
                break
            self.number(step)

    def _while(self, tree, io_):
        status = 0
        while self._guarded(tree[1], io_) != tree[3]:
            self.status = 0
            if not self._turn(tree[2], io_):
                status = 0
                break
            status = self.status
        self.status = status

    def _case(self, tree, io_):
        word, falls = self.text(tree[1]), False
        self.status = 0
        for patterns, body, end in tree[2]:
            if falls or any(fits_pattern(word, self.pattern(each)) for each in patterns):
                self._run(body, io_)
                if end == ";;":
                    return
                falls = end == ";&"

    def _function(self, tree, _io):
        self.functions[tree[1]] = tree[2]
        self.status = 0

    def _let(self, tree, _io):
        self._checked(int(not self.number(tree[1])))

    # Conditions

    def _test(self, tree, _io):
        """`[[ … ]]`, whose words are not split."""
        words = list(tree[1])
        try:
            held = self._any(words)
        except commands.Unfit as error:
            raise Unreadable(f"[[: {error}") from None
        if words:
            raise Unreadable(f"syntax error near unexpected token `{words[0]}'")
        self._checked(int(not held))

    def _any(self, words):
        held = self._each(words)
        while words and words[0] == "||":
            words.pop(0)
            other = self._each(words)
            held = held or other
        return held

    def _each(self, words):
        held = self._primary(words)
        while words and words[0] == "&&":
            words.pop(0)
            other = self._primary(words, is_skipped=not held)
            held = held and other
        return held

    def _primary(self, words, is_skipped=False):
        if not words:
            raise Unreadable("syntax error near unexpected token `]]'")
        first = words.pop(0)
        if first == "!":
            return not self._primary(words, is_skipped)
        if first == "(":
            held = self._any(words)
            if not words or words.pop(0) != ")":
                raise Unreadable("syntax error near unexpected token `]]'")
            return held
        if commands.is_test(first) and words and words[0] not in ("&&", "||", ")") and not (len(words) > 2 and commands.is_relation(words[0])):
            operand = words.pop(0)
            if first == "-v":
                return self._is_set(*re.fullmatch(r"(\w+)(?:\[(.*)\])?", self.text(operand)).groups())
            return not is_skipped and commands.holds([first, self.text(operand)])
        if not words or words[0] in ("&&", "||", ")"):
            return bool(self.text(first))
        sign, right = words.pop(0), words.pop(0) if words else ""
        return not is_skipped and self._relation(self.text(first), sign, right)

    def _relation(self, left, sign, right):
        if sign in ("=", "==", "!="):
            wanted, text = self.pattern(right), left
            if "nocasematch" in self.options:
                wanted, text = wanted.lower(), text.lower()
            return fits_pattern(text, wanted) == (sign != "!=")
        if sign == "=~":
            try:
                found = re.search(filters.pattern_of(self.pattern(right, re.escape), True), left)
            except re.error as error:
                raise Bad(f"{right}: no expression: {error}") from None
            if found:
                self.set("BASH_REMATCH", {number: text or "" for number, text in enumerate((found[0], *found.groups()))})
            return found is not None
        if sign in ("-eq", "-ne", "-lt", "-le", "-gt", "-ge"):
            return commands.holds([str(self.number(left)), sign, str(self.number(self.text(right)))])
        return commands.holds([left, sign, self.text(right)])

    # Redirections

    def _with(self, tree, io_):
        streams, files, self.receivers = io_.copy(), [], []
        try:
            if tree[1][0] == "run" and tree[1][1][:1] == ["exec"] and len(tree[1][1]) == 1:
                around = io_.copy()
                self._redirect(tree[2], io_, self._files)
                self._lasting += [(each, around) for each in self.receivers]
                self.receivers, self.status = [], 0
                return
            self._redirect(tree[2], streams, files)
        except OSError as error:
            io_.err.write(f"bash: {error.filename}: {error.strerror}\n")
            self._checked(1)
            return
        receivers, self.receivers = self.receivers, []
        try:
            self._run(tree[1], streams)
        finally:
            for file in files:
                file.close()
            self._received(receivers, io_)

    def _redirect(self, targets, streams, files):
        for written, target in targets:
            number, kind = re.fullmatch(r"(\d*)(.*)", written).groups()
            if kind in ("<<", "<<-", "<<<"):
                text = self.text(target) + "\n" if kind == "<<<" else self.filled(target[1], is_here=True) if target[0] else target[1]
                streams.set(number or "0", Stream(encoded(text)))
                continue
            name = self.text(target)
            if kind in (">&", "<&") and re.fullmatch(r"\d+|-", name):
                number = number or ("1" if kind == ">&" else "0")
                streams.set(number, Stream(_Nothing()) if name == "-" else streams.get(name))
                continue
            mode = "rb" if kind == "<" else "ab" if kind.endswith(">>") else "r+b" if kind == "<>" else "wb"
            known = {"/dev/stdout": streams.out, "/dev/stderr": streams.err, "/dev/stdin": streams.stdin}.get(name)
            if kind == "<>" and not os.path.exists(name):
                mode = "w+b"
            file = known or Stream(_Nothing() if name == "/dev/null" else open(name, mode), is_file=True)
            if known is None:
                files.append(file)
            if kind.startswith("&") or (kind == ">&" and not number):
                streams.out = streams.err = file
            else:
                streams.set(number or ("0" if kind.startswith("<") else "1"), file)

    # Simple commands

    def _simple(self, tree, io_):
        words, settings = list(tree[1]), []
        while words and ASSIGNMENT.match(words[0]):
            settings.append(words.pop(0))
        if words and words[0] in _DECLARING:
            return self._checked(_declare(self, words, io_))
        found = self.words(words)
        if not found:
            self._output_status = 0
            for each in settings:
                self.assigned(each)
            return self._checked(self._output_status if settings else 0)
        if "xtrace" in self.options:
            io_.err.write(f"+ {' '.join(found)}\n")
        if not settings:
            return self._checked(self._called(found, io_))
        environment = dict(os.environ)
        self.scopes.append({})
        try:
            for each in settings:
                name = ASSIGNMENT.match(each)[1]
                self.scopes[-1].setdefault(name, self.get(name) if "+=" in each else "")
                self.assigned(each)
                if isinstance(self.scopes[-1][name], str):
                    os.environ[name] = self.scopes[-1][name]
            status = self._called(found, io_)
        finally:
            self.scopes.pop()
            os.environ.clear()
            os.environ.update(environment)
        self._checked(status)

    def _called(self, words, io_):
        """Calls a command, after which others can read what it has written."""
        if isinstance(io_.out.buffer, _Pipe):
            io_.out.buffer.check()
        receivers, self.receivers = self.receivers, []
        try:
            return self._call(words, io_)
        finally:
            for stream in (io_.out, io_.err):
                if stream.is_file:
                    stream.flush()
            self._received(receivers, io_)

    def _received(self, receivers, io_):
        """Runs the commands of `>(…)` on what was written to them."""
        for name, text in receivers:
            streams, status = io_.copy(), self.status
            streams.stdin = Stream(contents(name))
            self._inside(("text", text), streams)
            self.status = status

    def _call(self, words, io_):
        name = words[0]
        self._err_streams = io_
        if name in self.functions:
            return self._function_called(words, io_)
        own = _OWN.get(name)
        if own is not None:
            return self._own_called(own, words, io_)
        if "/" in name and os.path.isfile(name):
            return _program(name, words[1:], io_)
        return commands.run_words(words, io_.stdin, io_.out, io_.err)

    def _own_called(self, own, words, io_):
        try:
            return own(self, words[1:], io_) or 0
        except IndexError:
            io_.err.write(f"bash: {words[0]}: missing operand\n")
        except (ValueError, OSError) as error:
            io_.err.write(f"bash: {words[0]}: {error}\n")
        return 1

    def _function_called(self, words, io_):
        arguments, self.arguments = self.arguments, [self.arguments[0], *words[1:]]
        self.scopes.append({})
        depth = len(self.scopes)
        try:
            self._run(self.functions[words[0]], io_)
        except _Leave as end:
            if end.kind != "return":
                raise
            return end.value
        finally:
            self.arguments = arguments
            del self.scopes[depth - 1 :]
        return self.status

    def output(self, text, keeps_end=False):
        """What `$(…)` comes to."""
        held = Stream()
        streams = _Streams(Stream(), held, self._err_streams.err)
        guards, self._guards = self._guards, 0
        # As in any bash, `set -e` does not reach in here.
        options, self.options = self.options, self.options - {"errexit"}
        # A file alone is what is in it.
        tree = ("text", f"cat {text}" if re.fullmatch(r"\s*<\s*[^\s<>&|;()][^<>&|;()]*", text) else text)
        try:
            self._inside(tree, streams)
        finally:
            self._guards, self.options = guards, options
        self._output_status = self.status
        # A text has no bytes that are zero, as in any bash.
        return held.buffer.getvalue() if keeps_end else held.getvalue().replace("\0", "").rstrip("\n")

    def _text(self, tree, io_):
        self.lines(tree[1], io_)


_NODES = {
    "list": "_list", "&&": "_chain", "||": "_chain", "!": "_not", "pipe": "_pipe", "apart": "_apart", "if": "_if", "for": "_for",
    "count": "_count", "let": "_let", "while": "_while", "case": "_case", "function": "_function", "test": "_test", "with": "_with",
    "run": "_simple", "time": "_timed", "back": "_back", "text": "_text",
}  # fmt: skip


def _read_by(tree):
    """(lines, bytes) that a command reads of what is written to it, as far as that is known before."""
    if tree[0] != "run" or tree[1][:1] != ["head"] or len(tree[1]) > 3:
        return None, None
    match = re.fullmatch(r"(?:-(n|c) ?|-|--(lines|bytes)=)(\d{1,9})", " ".join(tree[1][1:]))
    if match is None:
        return 10 if len(tree[1]) == 1 else None, None
    return (None, int(match[3])) if "c" in (match[1], (match[2] or "")[:1].replace("b", "c")) else (int(match[3]), None)


def _program(name, arguments, io_):
    """A file that is run: by what its first line names, or as a script."""
    if not os.access(name, os.X_OK):
        io_.err.write(f"bash: {name}: Permission denied\n")
        return 126
    text = decoded(contents(name))
    first = text.partition("\n")[0]
    words = first[2:].split() if first.startswith("#!") else ["bash"]
    words = words[1:] if words and words[0].endswith("/env") else words
    words = words[1:] if words[:1] == ["-S"] else words
    program = words[0].rpartition("/")[2] if words else "bash"
    return commands.run_words([program, *words[1:], name, *arguments], io_.stdin, io_.out, io_.err)


# --- Commands of the shell itself


def _leave(kind):
    def leave(shell, arguments, _io):
        """Ends a loop, a function, or the shell."""
        value = int(arguments[0]) if arguments and re.fullmatch(r"-?\d{1,9}", arguments[0]) else None
        if kind == "exit":
            raise Exit(shell.status if value is None else value % 256)
        raise _Leave(kind, (shell.status if kind == "return" else 1) if value is None else value % 256 if kind == "return" else value)

    return leave


def _declare(shell, raws, io_):
    """`declare`, `local`, `export` and their like: assignments with what is said of the names."""
    command, flags, status = raws[0], "", 0
    shell._output_status = 0
    for raw in raws[1:]:
        match = ASSIGNMENT.match(raw)
        words = [raw] if match else shell.words([raw])
        for word in words:
            if word[:1] in "-+" and not match:
                flags += word[1:] if word[0] == "-" else ""
                continue
            name = match[1] if match else word
            if "f" in flags or "F" in flags:
                status = int(name not in shell.functions)
                continue
            if "p" in flags:
                io_.out.write(f'declare -- {name}="{shell.get(name)}"\n')
                continue
            _declare_one(shell, command, name, raw if match else None, flags)
    if len(raws) == 1 and command == "export":
        return commands.run_words(["env"], io_.stdin, io_.out, io_.err)
    return status or shell._output_status


def _declare_one(shell, command, name, raw, flags):
    is_local = command == "local" or (command in ("declare", "typeset") and len(shell.scopes) > 1 and "g" not in flags)
    value = shell.find(name)
    kinds = "".join(sorted(set(shell.kinds.get(name, "")) | (set(flags) & set("Ailu"))))
    if kinds:
        shell.kinds[name] = kinds
    if is_local:
        if raw is not None:
            # What is assigned may read the variable of the same name around it.
            outer = shell.scopes.pop()
            outer.pop(name, None)
            shell.scopes.append(outer)
            if "(" not in raw[raw.index("=") : raw.index("=") + 2]:
                raw = f"{raw[: raw.index('=') + 1]}{_quoted(shell.text(raw[raw.index('=') + 1 :]))}"
        shell.scopes[-1][name] = {} if set(flags) & set("aA") else ""
    elif raw is None and value is None and set(flags) & set("aA"):
        shell.set(name, {})
    if raw is not None:
        shell.assigned(raw)
    if command == "export" or "x" in flags:
        value = shell.find(name)
        if isinstance(value, str):
            shell._scope_of(name).pop(name, None)
            os.environ[name] = value
    if command == "readonly" or "r" in flags:
        shell.kinds[name] = shell.kinds.get(name, "") + "r"


def _quoted(text):
    return "'" + text.replace("'", "'\\''") + "'"


def _set(shell, arguments, io_):
    rest = list(arguments)
    if not rest:
        names = {name: value for scope in shell.scopes for name, value in scope.items() if isinstance(value, str)}
        io_.out.write("".join(f"{name}={value}\n" for name, value in sorted(names.items())))
    while rest:
        each = rest.pop(0)
        if each in ("--", "-"):
            shell.arguments = [shell.arguments[0], *rest]
            return 0
        if each[:1] not in ("-", "+"):
            shell.arguments = [shell.arguments[0], each, *rest]
            return 0
        change = shell.options.add if each[0] == "-" else shell.options.discard
        for letter in each[1:]:
            if letter == "o" and rest:
                change(rest.pop(0))
            elif letter in _OPTIONS:
                change(_OPTIONS[letter])
    return 0


def _shopt(shell, arguments, _io):
    change = shell.options.discard if "-u" in arguments else shell.options.add
    for each in arguments:
        if not each.startswith("-"):
            change(each)


def _read(shell, arguments, io_):
    rest, options = list(arguments), {}
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        letters = rest.pop(0)[1:]
        for number, letter in enumerate(letters):
            if letter in "adpnNtu":
                options[letter] = letters[number + 1 :] or (rest.pop(0) if rest else "")
                break
            options[letter] = True
    stream = io_.get(options["u"]) if "u" in options else io_.stdin
    if "p" in options:
        io_.err.write(options["p"])
    if "n" in options or "N" in options:
        count, end = int(options.get("N") or options["n"]), "" if "N" in options else options.get("d", "\n")[:1]
        line = sign = ""
        while len(line) < count and (sign := stream.read(1)) and sign != end:
            line += sign
        is_whole = len(line) == count or bool(sign)
    else:
        line, is_whole = _line(stream, options.get("d", "\n")[:1])
    status = int(not is_whole)
    if "r" not in options:
        line = re.sub(r"\\(.)", r"\1", line, flags=re.DOTALL)
    if "a" in options:
        shell.set(options["a"], dict(enumerate(shell.split(line)[0] if line.strip() else [])))
        return status
    names = rest or ["REPLY"]
    ifs = shell.find("IFS")
    spaces = "".join(each for each in (" \t\n" if ifs is None else ifs) if each in " \t\n")
    values = [line] if not rest else _parted(line, len(names), " \t\n" if ifs is None else ifs, spaces)
    for number, name in enumerate(names):
        shell.set(name, values[number] if number < len(values) else "")
    return status


def _line(stream, end):
    """(a line of a stream, whether it has an end); its end may be another sign. As in any bash, it has no bytes that are zero."""
    mark, data = (encoded(end) or b"\0")[:1], b""
    if mark == b"\n":
        data = stream.buffer.readline()
    while mark != b"\n" and not data.endswith(mark) and (byte := stream.buffer.read(1)):
        data += byte
    return decoded(data.removesuffix(mark).replace(b"\0", b"")), data.endswith(mark)


def _parted(line, count, ifs, spaces):
    """The first words of a line, and its rest as the last."""
    line, values = line.strip(spaces) if spaces else line, []
    if not ifs:
        return [line]
    mark = re.compile(f"[{re.escape(spaces)}]*[{re.escape(ifs)}][{re.escape(spaces)}]*" if spaces else f"[{re.escape(ifs)}]")
    while len(values) < count - 1:
        match = mark.search(line)
        if match is None:
            break
        values.append(line[: match.start()])
        line = line[match.end() :]
    if len(values) == count - 1 and line[-1:] in ifs and not mark.search(line[:-1]):
        line = line[:-1]
    return [*values, line]


def _map_lines(shell, arguments, io_):
    rest, options = list(arguments), {}
    while rest and rest[0].startswith("-"):
        letters = rest.pop(0)[1:]
        for number, letter in enumerate(letters):
            if letter in "dnsu":
                options[letter] = letters[number + 1 :] or (rest.pop(0) if rest else "")
                break
            if letter != "t":
                raise ValueError(f"-{letter}: invalid option")
            options[letter] = True
    stream, end = io_.get(options["u"]) if "u" in options else io_.stdin, options.get("d", "\n")[:1] or "\0"
    lines = lines_of(stream.read(), end)[int(options.get("s", 0)) :]
    lines = lines[: int(options["n"])] if int(options.get("n", 0)) else lines
    tail = "" if "t" in options else end
    shell.set(rest[0] if rest else "MAPFILE", {number: f"{line}{tail}".replace("\0", "") for number, line in enumerate(lines)})


def _options_of(shell, arguments, io_):
    """`getopts`: the next option of the arguments, or of the words after the name."""
    wanted, name, *given = arguments
    given = given or shell.arguments[1:]
    at = int(shell.get("OPTIND") or 1)
    word = given[at - 1] if at <= len(given) else ""
    if len(word) < 2 or word[0] != "-" or word == "--":
        shell.scopes[0]["OPTIND"] = str(at + (word == "--"))
        shell._option_at = 1
        shell.set(name, "?")
        return 1
    letter, found = word[shell._option_at], wanted.lstrip(":").find(word[shell._option_at])
    takes = found >= 0 and wanted.lstrip(":")[found + 1 : found + 2] == ":"
    rest = word[shell._option_at + 1 :]
    value, bad = "", letter if found < 0 else None
    if takes and not rest:
        at += 1
        bad = letter if at > len(given) else None
        value = given[at - 1] if at <= len(given) else ""
    elif takes:
        value = rest
    if takes or not rest:
        at, shell._option_at = at + 1, 1
    else:
        shell._option_at += 1
    shell.scopes[0]["OPTIND"] = str(at)
    if bad and not wanted.startswith(":"):
        io_.err.write(f"bash: option requires an argument -- {letter}\n" if takes else f"bash: illegal option -- {letter}\n")
    shell.set(name, (":" if takes and wanted.startswith(":") else "?") if bad else letter)
    shell.set("OPTARG", bad if bad and wanted.startswith(":") else value)
    return 0


def _shift(shell, arguments, _io):
    count = int(arguments[0]) if arguments else 1
    if count >= len(shell.arguments):
        return 1
    shell.arguments = [shell.arguments[0], *shell.arguments[1 + count :]]


def _source(shell, arguments, io_):
    try:
        text = decoded(contents(arguments[0]))
    except OSError as error:
        io_.err.write(f"bash: {arguments[0]}: {error.strerror}\n")
        return 1
    kept = shell.arguments
    shell.arguments = [kept[0], *arguments[1:]] if len(arguments) > 1 else kept
    try:
        shell.lines(text, io_)
    except _Leave as end:
        if end.kind != "return":
            raise
        return end.value
    finally:
        shell.arguments = kept
    return shell.status


def _eval(shell, arguments, io_):
    shell.status = 0
    shell.lines(" ".join(arguments), io_)
    return shell.status


def _cd(shell, arguments, io_):
    before, rest = os.getcwd(), [each for each in arguments if each not in ("-L", "-P", "--")]
    if rest == ["-"]:
        rest = [shell.get("OLDPWD") or before]
        io_.out.write(f"{rest[0]}\n")
    status = commands.run_words(["cd", *rest], io_.stdin, io_.out, io_.err)
    if not status:
        shell.scopes[0]["OLDPWD"] = before
    return status


def _pushd(shell, arguments, io_):
    before = os.getcwd()
    status = commands.run_words(["cd", *arguments], io_.stdin, io_.out, io_.err)
    if not status:
        shell.folders.append(before)
        io_.out.write(" ".join([os.getcwd(), *reversed(shell.folders)]) + "\n")
    return status


def _popd(shell, _arguments, io_):
    if not shell.folders:
        io_.err.write("bash: popd: directory stack empty\n")
        return 1
    os.chdir(shell.folders.pop())
    io_.out.write(" ".join([os.getcwd(), *reversed(shell.folders)]) + "\n")


def _print(shell, arguments, io_):
    """`printf`, which may write into a variable."""
    if arguments[:1] != ["-v"] or len(arguments) < 3:
        return commands.run_words(["printf", *arguments], io_.stdin, io_.out, io_.err)
    held = Stream()
    if not ASSIGNMENT.fullmatch(f"{arguments[1]}="):
        io_.err.write(f"bash: printf: `{arguments[1]}': not a valid identifier\n")
        return 2
    status = commands.run_words(["printf", *arguments[2:]], io_.stdin, held, io_.err)
    shell.assigned(f"{arguments[1]}={_quoted(held.getvalue().partition(chr(0))[0])}")
    return status


def _trap(shell, arguments, _io):
    rest = [each for each in arguments if each != "--"]
    for each in rest[1:]:
        name = "EXIT" if each == "0" else each.removeprefix("SIG")
        shell.traps.pop(name, None)
        if rest[0] not in ("-", ""):
            shell.traps[name] = rest[0]


def _unset(shell, arguments, _io):
    for each in arguments:
        if each in ("-v", "-f"):
            continue
        if "-f" in arguments or (each in shell.functions and shell.find(each) is None):
            shell.functions.pop(each, None)
        else:
            shell.unset(each)


def _wait(shell, arguments, _io):
    return shell.jobs.get(arguments[-1], 127) if arguments and arguments[-1].isdigit() else 0


def _command(shell, arguments, io_):
    """`command`: what a name stands for, or the command of a name without a function."""
    names = [each for each in arguments if each not in ("-v", "-V", "-p", "--")]
    if "-v" not in arguments and "-V" not in arguments:
        own = _OWN.get(names[0]) if names else None
        return own(shell, names[1:], io_) if own else commands.run_words(names, io_.stdin, io_.out, io_.err) if names else 0
    status = 1
    for name in names:
        if name in shell.functions or name in _OWN:
            io_.out.write(f"{name}\n")
            status = 0
        else:
            status = commands.run_words(["which", name], io_.stdin, io_.out, io_.err)
    return status


# Commands that are no files in any bash, and options of whose names it has more.
_BUILT_IN = frozenset("alias bg declare dirs echo export false fg history local logout pwd readonly true typeset unalias".split())


def _type(shell, arguments, io_):
    status = 0
    for name in (each for each in arguments if not each.startswith("-")):
        kind = "function" if name in shell.functions else "builtin" if name in _OWN or name in _BUILT_IN else "file" if commands.is_known(name) else None
        status = status if kind else 1
        if "-t" in arguments:
            io_.out.write(f"{kind}\n" if kind else "")
        elif kind == "file":
            io_.out.write(f"{name} is /usr/bin/{name}\n")
        elif kind:
            io_.out.write(f"{name} is a {'shell builtin' if kind == 'builtin' else kind}\n")
        else:
            io_.err.write(f"bash: type: {name}: not found\n")
    return status


def _exec(shell, arguments, io_):
    raise Exit(shell._call(arguments, io_) if arguments else 0)


def _let(shell, arguments, _io):
    return int(not [shell.number(each) for each in arguments][-1]) if arguments else 1


def _test_command(shell, arguments, io_):
    if arguments[:1] == ["-v"] and len(arguments) >= 2:
        match = re.fullmatch(r"(\w+)(?:\[(.*)\])?", arguments[1])
        return int(not (match and shell._is_set(*match.groups())))
    return commands.run_words(["test", *arguments], io_.stdin, io_.out, io_.err)


def _bracket(shell, arguments, io_):
    if arguments[-1:] != ["]"]:
        io_.err.write("bash: [: missing `]'\n")
        return 2
    return _test_command(shell, arguments[:-1], io_)


def _nothing(*_):
    return 0


_OWN = {
    ".": _source, ":": _nothing, "[": _bracket, "break": _leave("break"), "builtin": _command, "cd": _cd, "command": _command,
    "continue": _leave("continue"), "disown": _nothing, "eval": _eval, "exec": _exec, "exit": _leave("exit"), "getopts": _options_of,
    "alias": _nothing, "hash": _nothing, "jobs": _nothing, "kill": _nothing, "let": _let, "mapfile": _map_lines, "popd": _popd, "printf": _print,
    "pushd": _pushd, "read": _read, "readarray": _map_lines, "return": _leave("return"), "set": _set, "shift": _shift,
    "shopt": _shopt, "source": _source, "test": _test_command, "trap": _trap, "type": _type, "ulimit": _nothing, "umask": _nothing,
    "unset": _unset, "wait": _wait,
}  # fmt: skip


# --- What others run


def run(line, out, err, stdin=None):
    """Runs a line of commands; returns its exit status."""
    return Shell().run(line, stdin or Stream(), out, err)


def run_apart(line, out, err):
    """The same for a line whose changes of folder are its own, as those of a shell of its own would be."""
    folder = os.getcwd()
    try:
        return run(line, out, err)
    finally:
        if os.getcwd() != folder:
            os.chdir(folder)


def capture(line, err):
    """(exit status, bytes) of a line of commands."""
    out = Stream()
    status = run_apart(line, out, err)
    return status, out.buffer.getvalue()


def script(text, stdin, out, err, arguments=(), name="bash"):
    """Runs a script with its arguments; returns the exit status of the last command."""
    return Shell(arguments, name).run(text, stdin, out, err)


def _sh(arguments, stdin, out, err, name):
    """`sh`: a script after `-c`, in a file, or from standard input. `name` is what it was called by."""
    rest, settings, is_text = list(arguments), "", False
    while rest and rest[0][:1] in ("-", "+") and len(rest[0]) > 1 and not rest[0].startswith("--"):
        letters = rest.pop(0)
        is_text = is_text or (letters[0] == "-" and "c" in letters)
        options = letters.replace("c", "").replace("l", "").replace("i", "").replace("s", "")
        if len(options) > 1:
            settings += f"set {options} {rest.pop(0) if 'o' in options and rest else ''}\n"
    rest = [each for each in rest if not each.startswith("--")] if rest and rest[0].startswith("--") else rest
    if is_text:
        if not rest:
            err.write(f"{name}: -c: option requires an argument\n")
            return 2
        return script(settings + rest[0], stdin, out, err, rest[2:], rest[1] if len(rest) > 1 else name)
    if not rest or rest[0] == "-":
        return script(settings + stdin.read(), Stream(), out, err, rest[1:], name)
    try:
        text = decoded(contents(rest[0]))
    except OSError as error:
        err.write(f"{name}: {rest[0]}: {error.strerror}\n")
        return 127
    return script(settings + text, stdin, out, err, rest[1:], rest[0])


def run_shell(arguments, stdin, out, err, name="bash"):
    """The same as a shell of its own, whose changes of folder and environment are its own."""
    with _surroundings_kept():
        return _sh(arguments, stdin, out, err, name)


for _name in ("sh", "bash", "dash", "zsh"):
    commands.add(_name, functools.partial(run_shell, name=_name))
