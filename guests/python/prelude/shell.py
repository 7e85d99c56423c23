"""The shell of lines such as `!ls data | head -3`, of `%%bash` cells, and of processes: what joins the commands of `commands`.

A text is read into a tree: lists, pipelines, loops, choices, functions. What a word comes to is found when its command runs.
The commands of a pipeline run one after another, each when the one before it has ended.
"""

import ast
import fnmatch
import glob
import io
import operator
import os
import re
import sys

from _cellar_prelude import commands

# Commands that call each other may be nested this deep.
_DEPTH_MAX = 60
# A loop over a range such as {1..100} has no more words than this.
_WORDS_MAX = 100_000
_OPERATORS = (";;", "&&", "||", "<<-", "<<<", "<<", ">>", ">|", "&>>", "&>", ">&", "<&", "|&", ";", "&", "|", "<", ">", "(", ")")
_OPERATORS = tuple(sorted(_OPERATORS, key=len, reverse=True))
_REDIRECTIONS = frozenset(("<<-", "<<<", "<<", ">>", ">|", "&>>", "&>", ">&", "<&", "<", ">"))
_CLOSING = frozenset(("then", "do", "done", "fi", "elif", "else", "esac", "}"))


class _Bad(Exception):
    """A text that is no script; the words are for standard error."""


class Exit(Exception):
    """`exit` ends the shell with a status."""


class _Leave(Exception):
    """`break`, `continue` and `return`, which end what is around them."""

    def __init__(self, kind, value):
        super().__init__(kind)
        self.kind, self.value = kind, value


# --- Reading


def _closing(text, at, opened, closed):
    """Where the bracket that is opened before `at` is closed, past quotes and inner ones."""
    depth = 1
    while at < len(text):
        sign = text[at]
        if sign == "\\":
            at += 1
        elif sign == "'" and opened != "{":
            at = text.find("'", at + 1)
            if at < 0:
                break
        elif sign == opened:
            depth += 1
        elif sign == closed:
            depth -= 1
            if depth == 0:
                return at
        at += 1
    raise _Bad(f"unexpected EOF while looking for matching `{closed}'")


def _word_end(text, at):
    """Where a word ends that begins at `at`."""
    while at < len(text):
        sign = text[at]
        if sign in " \t\n;|&<>()":
            return at
        if sign == "\\":
            at += 2
        elif sign == "'":
            end = text.find("'", at + 1)
            if end < 0:
                raise _Bad("unexpected EOF while looking for matching `''")
            at = end + 1
        elif sign == '"':
            at = _quote_end(text, at + 1) + 1
        elif sign == "`":
            end = text.find("`", at + 1)
            if end < 0:
                raise _Bad("unexpected EOF while looking for matching ``'")
            at = end + 1
        elif text.startswith(("$(", "${"), at):
            at = _closing(text, at + 2, text[at + 1], ")" if text[at + 1] == "(" else "}") + 1
        else:
            at += 1
    return at


def _quote_end(text, at):
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text.startswith(("$(", "${"), at):
            at = _closing(text, at + 2, text[at + 1], ")" if text[at + 1] == "(" else "}") + 1
        elif text[at] == '"':
            return at
        else:
            at += 1
    raise _Bad("unexpected EOF while looking for matching `\"'")


def _tokens(text):
    """(is operator, text) of each; a line's end is an operator; the text of a `<<` is the word behind it, as a list.

    What cannot be read is the last of them, as the error.
    """
    found = []
    try:
        _read_tokens(text.replace("\\\n", ""), found)
    except _Bad as error:
        found.append((True, error))
    return found


def _read_tokens(text, found):
    at, awaited = 0, []
    while at < len(text):
        sign = text[at]
        if sign in " \t\r":
            at += 1
        elif sign == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif sign == "\n":
            found.append((True, "\n"))
            at += 1
            for place, folds, mark in awaited:
                at = _read_here(text, at, found, place, folds, mark)
            awaited = []
        else:
            # `2>` is a redirection with its number.
            number = re.compile(r"\d(?=[<>])").match(text, at)
            kind = next((each for each in _OPERATORS if text.startswith(each, at + (number is not None))), None)
            if kind is not None and (number is None or kind in _REDIRECTIONS):
                found.append((True, (number[0] if number else "") + kind))
                at += len(found[-1][1])
                continue
            end = _word_end(text, at)
            if found and found[-1] in ((True, "<<"), (True, "<<-")):
                awaited.append((len(found), found[-1][1] == "<<-", text[at:end]))
            found.append((False, text[at:end]))
            at = end


def _read_here(text, at, found, place, folds, mark):
    lines, end = [], re.sub(r"['\"\\]", "", mark)
    while at < len(text):
        stop = text.find("\n", at)
        stop = len(text) if stop < 0 else stop
        line, at = text[at:stop], stop + 1
        line = line.lstrip("\t") if folds else line
        if line == end:
            break
        lines.append(f"{line}\n")
    found[place] = (False, [end == mark, "".join(lines)])
    return min(at, len(text))


class _Reader:
    """Makes a tree of tokens. A node is (kind, ...)."""

    def __init__(self, tokens):
        self._tokens, self._at = tokens, 0

    def _peek(self):
        token = self._tokens[self._at] if self._at < len(self._tokens) else (True, "")
        if isinstance(token[1], _Bad):
            raise token[1]
        return token

    def _is_word(self, *words):
        token = self._peek()
        return not token[0] and token[1] in words

    def _is(self, *kinds):
        token = self._peek()
        return token[0] and token[1] in kinds

    def _take(self):
        token = self._peek()
        self._at += 1
        return token[1]

    def _need(self, word):
        if self._peek()[1] != word:
            near = self._peek()[1]
            raise _Bad("unexpected end of file" if near == "" else f"near unexpected token `{'newline' if near == chr(10) else near}'")
        self._take()

    def _skip_lines(self):
        while self._is("\n", ";"):
            self._take()

    def lines(self):
        """The tree of each line, or of the lines that belong together, as they are asked for."""
        self._skip_lines()
        while self._at < len(self._tokens):
            parts = []
            while self._at < len(self._tokens) and not self._is("\n"):
                parts.append(self._chain())
                if not self._is(";", "\n", "&", ""):
                    raise _Bad(f"near unexpected token `{self._peek()[1]}'")
                while self._is(";", "&"):
                    self._take()
            yield ("list", parts)
            self._skip_lines()

    def list(self):
        """Commands up to a word or sign that closes something."""
        parts = []
        self._skip_lines()
        while self._at < len(self._tokens) and not self._is(")", ";;") and not self._is_word(*_CLOSING):
            parts.append(self._chain())
            if not self._is(";", "\n", "&"):
                break
            while self._is(";", "\n", "&"):
                self._take()
        return ("list", parts)

    def _chain(self):
        tree = self._pipeline()
        while self._is("&&", "||"):
            kind = self._take()
            self._skip_lines()
            tree = (kind, tree, self._pipeline())
        return tree

    def _pipeline(self):
        negated = self._is_word("!")
        if negated:
            self._take()
        parts = [self._command()]
        while self._is("|", "|&"):
            self._take()
            self._skip_lines()
            parts.append(self._command())
        tree = parts[0] if len(parts) == 1 else ("pipe", parts)
        return ("!", tree) if negated else tree

    def _command(self):
        compound = {"if": self._if, "for": self._for, "while": self._while, "until": self._while, "case": self._case, "{": self._group}
        if self._is("(") and self._tokens[self._at + 1 : self._at + 2] == [(True, "(")]:
            tree = ("let", " ".join(self._numbers()))
        elif self._is("("):
            self._take()
            tree = ("apart", self.list())
            self._need(")")
        elif not self._peek()[0] and isinstance(self._peek()[1], str) and self._peek()[1] in compound:
            tree = compound[self._peek()[1]]()
        elif self._is_word("[["):
            tree = self._condition()
        else:
            return self._simple()
        targets = self._redirections()
        return ("with", tree, targets) if targets else tree

    def _redirections(self):
        found = []
        while self._peek()[0] and self._peek()[1].lstrip("012") in _REDIRECTIONS and self._peek()[1]:
            kind = self._take()
            found.append((kind, self._take()))
        return found

    def _simple(self):
        words, targets = [], []
        while True:
            targets += self._redirections()
            token = self._peek()
            if token[0]:
                break
            words.append(self._take())
            if len(words) == 1 and self._is("(") and self._tokens[self._at + 1 : self._at + 2] == [(True, ")")]:
                self._at += 2
                self._skip_lines()
                return ("function", words[0], self._command())
        if words[:1] == ["function"] and len(words) > 1:
            self._skip_lines()
            return ("function", words[1], self._command())
        if not words and not targets:
            self._need("\0")
        tree = ("run", words)
        return ("with", tree, targets) if targets else tree

    def _condition(self):
        self._take()
        words = []
        while not self._is_word("]]"):
            if self._at >= len(self._tokens):
                raise _Bad("unexpected end of file")
            words.append(self._peek())
            self._take()
        self._take()
        return ("test", words)

    def _if(self):
        self._take()
        choices, other = [], None
        condition = self.list()
        self._need("then")
        choices.append((condition, self.list()))
        while self._is_word("elif"):
            self._take()
            condition = self.list()
            self._need("then")
            choices.append((condition, self.list()))
        if self._is_word("else"):
            self._take()
            other = self.list()
        self._need("fi")
        return ("if", choices, other)

    def _for(self):
        self._take()
        if self._is("("):
            return self._for_numbers()
        name, words = self._take(), None
        self._skip_lines()
        if self._is_word("in"):
            self._take()
            words = []
            while not self._peek()[0]:
                words.append(self._take())
        self._skip_lines()
        self._need("do")
        body = self.list()
        self._need("done")
        return ("for", name, words, body)

    def _for_numbers(self):
        """`for ((i=0; i<3; i++))`."""
        parts = self._numbers()
        self._skip_lines()
        self._need("do")
        body = self.list()
        self._need("done")
        return ("count", [*parts, "", ""][:3], body)

    def _numbers(self):
        """The expressions between `((` and `))`."""
        self._take()
        self._need("(")
        parts, depth = [""], 0
        while depth or not self._is(")"):
            if self._at >= len(self._tokens):
                raise _Bad("unexpected end of file")
            token = self._take()
            depth += (token == "(") - (token == ")")
            if token == ";":
                parts.append("")
            else:
                parts[-1] += token
        self._need(")")
        self._need(")")
        return parts

    def _while(self):
        until = self._take() == "until"
        condition = self.list()
        self._need("do")
        body = self.list()
        self._need("done")
        return ("while", condition, body, until)

    def _case(self):
        self._take()
        word, choices = self._take(), []
        self._skip_lines()
        self._need("in")
        self._skip_lines()
        while not self._is_word("esac"):
            if self._is("("):
                self._take()
            patterns = [self._take()]
            while self._is("|"):
                self._take()
                patterns.append(self._take())
            self._need(")")
            choices.append((patterns, self.list()))
            if self._is(";;"):
                self._take()
            self._skip_lines()
        self._take()
        return ("case", word, choices)

    def _group(self):
        self._take()
        tree = self.list()
        self._need("}")
        return tree


# --- Numbers

_ARITHMETIC = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Pow: operator.pow, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
# Exponents and shifts stay below this.
_POWER_MAX = 64


def _number(tree, value_of):
    """What a tree of Python's comes to, by the shell's rules for whole numbers."""
    if isinstance(tree, ast.Constant) and isinstance(tree.value, int):
        return int(tree.value)
    if isinstance(tree, ast.Name):
        return value_of(tree.id)
    if isinstance(tree, ast.UnaryOp):
        value = _number(tree.operand, value_of)
        return {ast.USub: -value, ast.UAdd: value, ast.Not: int(not value), ast.Invert: ~value}[type(tree.op)]
    if isinstance(tree, ast.BoolOp):
        values = [_number(each, value_of) for each in tree.values]
        return int(all(values) if isinstance(tree.op, ast.And) else any(values))
    if isinstance(tree, ast.IfExp):
        return _number(tree.body if _number(tree.test, value_of) else tree.orelse, value_of)
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
        left, right, kind = _number(tree.left, value_of), _number(tree.comparators[0], value_of), type(tree.ops[0])
        return int(_ARITHMETIC[kind](left, right))
    if isinstance(tree, ast.BinOp):
        left, right, kind = _number(tree.left, value_of), _number(tree.right, value_of), type(tree.op)
        if kind in (ast.FloorDiv, ast.Mod):
            if right == 0:
                raise _Bad("division by 0")
            whole = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return whole if kind is ast.FloorDiv else left - right * whole
        if kind in (ast.Pow, ast.LShift, ast.RShift) and not 0 <= right < _POWER_MAX:
            raise _Bad("exponent out of range")
        # Numbers have 64 bits.
        return (_ARITHMETIC[kind](left, right) + 2**63) % 2**64 - 2**63
    raise _Bad("syntax error in an arithmetic expression")


# --- Running


class Shell:
    """A shell: its variables, functions, arguments, and the status of its last command."""

    def __init__(self, arguments=(), name="sh"):
        self.status, self.arguments, self._stops = 0, [name, *arguments], False
        self._names, self._functions, self._depth = {}, {}, 0

    def run(self, text, stdin, out, err):
        """Runs a text; its exit status."""
        try:
            # As in any shell, lines are run before the next is read.
            for tree in _Reader(_tokens(text)).lines():
                self._run(tree, stdin, out, err)
        except _Bad as error:
            err.write(f"sh: syntax error: {error}\n")
            self.status = 2
        except Exit as end:
            self.status = end.args[0]
        except _Leave as end:
            self.status = end.value if end.kind == "return" else 0
        return self.status

    def _run(self, tree, stdin, out, err):
        self._depth += 1
        try:
            if self._depth > _DEPTH_MAX:
                raise _Bad("commands are nested too deep")
            getattr(self, _NODES[tree[0]])(tree, stdin, out, err)
        finally:
            self._depth -= 1

    def _list(self, tree, stdin, out, err):
        for each in tree[1]:
            self._run(each, stdin, out, err)
            if self._stops and self.status and each[0] not in ("&&", "||", "!", "if", "while"):
                raise Exit(self.status)

    def _chain(self, tree, stdin, out, err):
        self._run(tree[1], stdin, out, err)
        if (self.status == 0) == (tree[0] == "&&"):
            self._run(tree[2], stdin, out, err)

    def _not(self, tree, stdin, out, err):
        self._run(tree[1], stdin, out, err)
        self.status = int(self.status == 0)

    def _pipe(self, tree, stdin, out, err):
        *first, last = tree[1]
        for each in first:
            held = io.StringIO()
            self._apart((None, each), stdin, held, err)
            stdin = io.StringIO(held.getvalue())
        self._apart((None, last), stdin, out, err)

    def _apart(self, tree, stdin, out, err):
        """Runs it as a shell of its own would: what it sets is gone afterwards."""
        names, folder = dict(self._names), os.getcwd()
        try:
            self._run(tree[1], stdin, out, err)
        except Exit as end:
            self.status = end.args[0]
        finally:
            self._names = names
            if os.getcwd() != folder:
                os.chdir(folder)

    def _holds(self, tree, stdin, out, err):
        stops, self._stops = self._stops, False
        try:
            self._run(tree, stdin, out, err)
        finally:
            self._stops = stops
        return self.status == 0

    def _if(self, tree, stdin, out, err):
        for condition, body in tree[1]:
            if self._holds(condition, stdin, out, err):
                return self._run(body, stdin, out, err)
        self.status = 0
        if tree[2] is not None:
            self._run(tree[2], stdin, out, err)

    def _turn(self, body, stdin, out, err):
        """Runs the body of a loop once; whether the loop goes on."""
        try:
            self._run(body, stdin, out, err)
        except _Leave as end:
            if end.kind == "return":
                raise
            if end.value > 1:
                raise _Leave(end.kind, end.value - 1) from None
            return end.kind == "continue"
        return True

    def _for(self, tree, stdin, out, err):
        words = self.arguments[1:] if tree[2] is None else self.words(tree[2])
        self.status = 0
        for word in words:
            self.set(tree[1], word)
            if not self._turn(tree[3], stdin, out, err):
                break

    def _count(self, tree, stdin, out, err):
        begin, condition, step = tree[1]
        self.number(begin)
        while not condition.strip() or self.number(condition):
            if not self._turn(tree[2], stdin, out, err):
                break
            self.number(step)

    def _while(self, tree, stdin, out, err):
        while self._holds(tree[1], stdin, out, err) != tree[3]:
            if not self._turn(tree[2], stdin, out, err):
                break
        self.status = 0

    def _case(self, tree, stdin, out, err):
        word = self.text(tree[1])
        for patterns, body in tree[2]:
            if any(fnmatch.fnmatchcase(word, self.text(each)) for each in patterns):
                return self._run(body, stdin, out, err)
        self.status = 0

    def _function(self, tree, _stdin, _out, _err):
        self._functions[tree[1]] = tree[2]
        self.status = 0

    def _let(self, tree, *_streams):
        self.status = int(not self.number(tree[1]))

    def _test(self, tree, _stdin, _out, _err):
        """`[[ … ]]`, whose words are not split."""
        words = []
        for is_operator, text in tree[1]:
            words.append(text if is_operator else self.text(text))
        self.status = int(not commands.holds(words))

    def _with(self, tree, stdin, out, err):
        files = []
        try:
            for kind, target in tree[2]:
                number, kind = (kind[0], kind[1:]) if kind[0] in "012" else ("", kind)
                if kind in ("<<", "<<-", "<<<"):
                    if kind == "<<<":
                        text = self.text(target) + "\n"
                    else:
                        text = self._filled(target[1]) if target[0] else target[1]
                    stdin = io.StringIO(text)
                    continue
                name = self.text(target)
                if kind == ">&" and name in ("1", "2"):
                    chosen = out if name == "1" else err
                    out, err = (out, chosen) if number == "2" else (chosen, err)
                    continue
                mode = "r" if kind == "<" else "a" if kind.endswith(">>") else "w"
                file = io.StringIO() if name == "/dev/null" else open(name, mode, encoding="utf-8", errors="replace")
                files.append(file)
                if kind == "<":
                    stdin = file
                elif number == "2":
                    err = file
                else:
                    out, err = file, file if kind.startswith("&") or kind == ">&" else err
            self._run(tree[1], stdin, out, err)
        except OSError as error:
            err.write(f"sh: {error.filename}: {error.strerror}\n")
            self.status = 1
        finally:
            for file in files:
                file.close()

    def _simple(self, tree, stdin, out, err):
        words = list(tree[1])
        settings = []
        while words and re.match(r"[A-Za-z_]\w*\+?=", words[0]):
            name, _, value = words.pop(0).partition("=")
            value = self.text(value)
            settings.append((name.rstrip("+"), self.get(name[:-1]) + value if name.endswith("+") else value))
        words = self.words(words)
        if not words:
            self.status = 0
            for name, value in settings:
                self.set(name, value)
            return
        before = dict(os.environ) if settings else None
        os.environ.update(settings)
        try:
            self.status = self._call(words, stdin, out, err)
        finally:
            if before is not None:
                os.environ.clear()
                os.environ.update(before)

    def _call(self, words, stdin, out, err):
        name = words[0]
        if name in self._functions:
            arguments, self.arguments = self.arguments, words
            try:
                self._run(self._functions[name], stdin, out, err)
            except _Leave as end:
                if end.kind != "return":
                    raise
                return end.value
            finally:
                self.arguments = arguments
            return self.status
        own = _OWN.get(name)
        if own is not None:
            return own(self, words[1:], stdin, out, err) or 0
        return commands.run_words(words, stdin, out, err)

    # What words come to

    def get(self, name):
        """The value of a variable, or of a number or sign behind `$`."""
        if name.isdigit():
            return self.arguments[int(name)] if int(name) < len(self.arguments) else ""
        if name in _SIGNS:
            return _SIGNS[name](self)
        return self._names[name] if name in self._names else os.environ.get(name, "")

    def set(self, name, value):
        """Sets a variable; one of the environment is set there."""
        if name in os.environ:
            os.environ[name] = value
        else:
            self._names[name] = value

    def unset(self, name):
        """Forgets a variable and a function."""
        self._names.pop(name, None)
        self._functions.pop(name, None)
        os.environ.pop(name, None)

    def own_names(self):
        """Names and values of the variables that are no part of the environment."""
        return self._names

    def turn_on_stops(self, is_on):
        """Whether a command that fails ends the shell: `set -e`."""
        self._stops = is_on

    def number(self, text):
        """What an arithmetic expression comes to."""
        text = self._filled(text).strip()
        if not text:
            return 0
        match = re.fullmatch(r"(?:(\w+)\s*(\+\+|--)|(\+\+|--)\s*(\w+))", text)
        if match:
            name, step = match[1] or match[4], 1 if "+" in (match[2] or match[3]) else -1
            before = self._value(name)
            self.set(name, str(before + step))
            return before if match[1] else before + step
        match = re.fullmatch(r"([A-Za-z_]\w*)\s*([-+*/%]?)=(?!=)(.*)", text, re.DOTALL)
        if match:
            value = self.number(f"{match[1]} {match[2]} ({match[3]})" if match[2] else match[3])
            self.set(match[1], str(value))
            return value
        text = text.replace("&&", " and ").replace("||", " or ").replace("/", "//")
        text = re.sub(r"!(?!=)", " not ", text)
        text = re.sub(r"\b0+(?=\d)", "", text)
        choice = re.fullmatch(r"([^?]*)\?([^:]*):(.*)", text, re.DOTALL)
        if choice:
            text = f"({choice[2]}) if ({choice[1]}) else ({choice[3]})"
        try:
            tree = ast.parse(text.strip(), mode="eval").body
        except SyntaxError:
            raise _Bad(f"{text}: syntax error in an arithmetic expression") from None
        return _number(tree, self._value)

    def _value(self, name):
        text = self.get(name)
        return int(text) if re.fullmatch(r"-?\d+", text) else 0

    def words(self, raws):
        """What words come to: patterns, braces and variables filled in, split where they are not quoted."""
        found = []
        for raw in raws:
            for each in _braces(raw):
                found += self._fields(each)
                if len(found) > _WORDS_MAX:
                    raise _Bad("too many words")
        return found

    def text(self, raw):
        """What one word comes to, as a text."""
        return "".join(text for text, _ in self._pieces(raw))

    def _fields(self, raw):
        if raw == '"$@"':
            return self.arguments[1:]
        fields, open_, bare = [], None, []
        for text, is_quoted in self._pieces(raw):
            if is_quoted:
                open_ = (open_ or "") + glob.escape(text)
                bare.append(False)
                continue
            parts = re.split(r"[ \t\n]+", text)
            for number, part in enumerate(parts):
                if number:
                    if open_ is not None:
                        fields.append(open_)
                    open_ = None
                if part:
                    open_ = (open_ or "") + part
        if open_ is not None:
            fields.append(open_)
        return [each for field in fields for each in _globbed(field)]

    def _pieces(self, raw):
        """(text, is quoted) of each part of a word."""
        at = 0
        if re.match(r"~(?=/|$)", raw):
            yield os.path.expanduser("~"), True
            at = 1
        while at < len(raw):
            sign = raw[at]
            if sign == "'":
                end = raw.index("'", at + 1)
                yield raw[at + 1 : end], True
                at = end + 1
            elif sign == '"':
                end = _quote_end(raw, at + 1)
                yield self._filled(raw[at + 1 : end], in_quotes=True), True
                at = end + 1
            elif raw.startswith("$'", at):
                end = raw.index("'", at + 2)
                yield commands.unescaped(raw[at + 2 : end]), True
                at = end + 1
            elif sign == "\\":
                yield raw[at + 1 : at + 2], True
                at += 2
            elif sign in "$`":
                text, at = self._dollar(raw, at)
                yield text, False
            else:
                end = re.compile(r"[^'\"\\$`]+").match(raw, at).end()
                yield raw[at:end], False
                at = end

    def _filled(self, text, in_quotes=False):
        """A text with its variables and commands filled in, as between double quotes."""
        out, at = [], 0
        while at < len(text):
            sign = text[at]
            if sign == "\\" and in_quotes and text[at + 1 : at + 2] in ('"', "\\", "$", "`"):
                out.append(text[at + 1])
                at += 2
            elif sign in "$`":
                piece, at = self._dollar(text, at)
                out.append(piece)
            else:
                out.append(sign)
                at += 1
        return "".join(out)

    def _dollar(self, text, at):
        """(what a `$…` at `at` comes to, where it ends)."""
        if text[at] == "`":
            end = text.index("`", at + 1)
            return self._output(text[at + 1 : end]), end + 1
        if text.startswith("$((", at):
            end = _closing(text, at + 2, "(", ")")
            if text.startswith(")", end - 1):
                return str(self.number(text[at + 3 : end - 1])), end + 1
        if text.startswith("$(", at):
            end = _closing(text, at + 2, "(", ")")
            return self._output(text[at + 2 : end]), end + 1
        if text.startswith("${", at):
            end = _closing(text, at + 2, "{", "}")
            return self._parameter(text[at + 2 : end]), end + 1
        match = re.compile(r"\$(\w+|[?#@*$!-])").match(text, at)
        if match is None:
            return "$", at + 1
        name = match[1]
        name = name[0] if name[0].isdigit() else name
        return self.get(name), at + 1 + len(name)

    def _output(self, text):
        held = io.StringIO()
        inner = Shell(self.arguments[1:])
        inner._names, inner._functions, inner._depth = dict(self._names), dict(self._functions), self._depth + 1
        if inner._depth > _DEPTH_MAX:
            raise _Bad("commands are nested too deep")
        folder = os.getcwd()
        self.status = inner.run(text, io.StringIO(), held, sys.stderr)
        if os.getcwd() != folder:
            os.chdir(folder)
        return held.getvalue().rstrip("\n")

    def _parameter(self, text):
        match = re.fullmatch(r"(#?)(\w+|[?#@*])(?:(:?[-=+?]|##?|%%?|//?|\^\^?|,,?|:)(.*))?", text, re.DOTALL)
        if match is None:
            raise _Bad(f"${{{text}}}: bad substitution")
        value, kind, rest = self.get(match[2]), match[3], match[4]
        if match[1]:
            return str(len(value))
        if kind is None:
            return value
        if kind[-1] in "-=+?":
            is_set = bool(value) if kind[0] == ":" else value != "" or match[2] in self._names or match[2] in os.environ
            return self._or_else(match[2], kind[-1], value, is_set, rest)
        if kind == ":":
            start, _, length = rest.partition(":")
            start = self.number(start)
            start = max(len(value) + start, 0) if start < 0 else start
            return value[start:][: self.number(length)] if length else value[start:]
        return _cut(value, kind, self.text(rest))

    def _or_else(self, name, kind, value, is_set, rest):
        if kind == "+":
            return self.text(rest) if is_set else ""
        if is_set:
            return value
        other = self.text(rest)
        if kind == "?":
            raise _Bad(f"{name}: {other or 'parameter null or not set'}")
        if kind == "=":
            self.set(name, other)
        return other


def _cut(value, kind, pattern):
    """A value without what fits a pattern at an end, with something in its place, or in other letters."""
    if kind[0] == "^":
        return value.upper() if kind == "^^" else value[:1].upper() + value[1:]
    if kind[0] == ",":
        return value.lower() if kind == ",," else value[:1].lower() + value[1:]
    if kind[0] == "/":
        old, _, new = pattern.partition("/")
        wanted = fnmatch.translate(old).removeprefix("(?s:").removesuffix(r")\Z")
        return re.sub(f"(?s:{wanted})", lambda _: new, value, count=int(kind == "/"))
    lengths = range(len(value) + 1)
    if kind[0] == "#":
        fits = [length for length in lengths if fnmatch.fnmatchcase(value[:length], pattern)]
        return value[(max if kind == "##" else min)(fits, default=0) :]
    fits = [length for length in lengths if fnmatch.fnmatchcase(value[length:], pattern)]
    return value[: (min if kind == "%%" else max)(fits, default=len(value))]


def _globbed(field):
    plain = re.sub(r"\[([*?[])\]", r"\1", field)
    if not re.search(r"[*?[]", re.sub(r"\[[*?[]\]", "", field)):
        return [plain]
    return sorted(glob.glob(field)) or [plain]


def _braces(raw):
    """The words that `a{b,c}` and `{1..3}` stand for."""
    match = re.search(r"(?<![\$\\])\{([^{}'\"\s]*(?:,|\.\.)[^{}'\"\s]*)\}", raw)
    if match is None or "'" in raw[: match.start()] or '"' in raw[: match.start()]:
        return [raw]
    run = re.fullmatch(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.(-?\d+))?", match[1])
    if run:
        is_number = run[1].lstrip("-").isdigit()
        first, last = (int(run[1]), int(run[2])) if is_number and run[2].lstrip("-").isdigit() else (ord(run[1][0]), ord(run[2][0]))
        step = abs(int(run[3] or 1)) or 1
        if abs(last - first) // step > _WORDS_MAX:
            raise _Bad("too many words")
        numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
        width = len(run[1]) if is_number and run[1].startswith("0") and len(run[1]) > 1 else 0
        parts = [str(each).zfill(width) if is_number else chr(each) for each in numbers]
    elif "," in match[1]:
        parts = match[1].split(",")
    else:
        return [raw]
    head, tail = raw[: match.start()], raw[match.end() :]
    return [word for part in parts for word in _braces(f"{head}{part}{tail}")]


_NODES = {
    "list": "_list", "&&": "_chain", "||": "_chain", "!": "_not", "pipe": "_pipe", "apart": "_apart", "if": "_if", "for": "_for",
    "count": "_count", "let": "_let", "while": "_while", "case": "_case", "function": "_function", "test": "_test", "with": "_with", "run": "_simple",
}  # fmt: skip
_SIGNS = {
    "?": lambda shell: str(shell.status),
    "#": lambda shell: str(len(shell.arguments) - 1),
    "@": lambda shell: " ".join(shell.arguments[1:]),
    "*": lambda shell: " ".join(shell.arguments[1:]),
    "$": lambda _: str(os.getpid()),
    "!": lambda _: "",
    "-": lambda _: "",
}


# --- Commands of the shell itself


def _leave(kind):
    def leave(_shell, arguments, *_streams):
        """Ends a loop, a function, or the shell."""
        value = int(arguments[0]) if arguments and arguments[0].isdigit() else None
        if kind == "exit":
            raise Exit(_shell.status if value is None else value)
        raise _Leave(kind, (_shell.status if kind == "return" else 1) if value is None else value)

    return leave


def _export(shell, arguments, _stdin, out, _err):
    for each in arguments:
        name, equals, value = each.partition("=")
        if not name.startswith("-"):
            os.environ[name] = value if equals else shell.own_names().pop(name, os.environ.get(name, ""))
    if not arguments:
        commands.run_words(["env"], io.StringIO(), out, out)


def _local(shell, arguments, *_streams):
    for each in arguments:
        name, equals, value = each.partition("=")
        if equals and not name.startswith("-"):
            shell.set(name, value)


def _set(shell, arguments, *_streams):
    for number, each in enumerate(arguments):
        if each == "--":
            shell.arguments = [shell.arguments[0], *arguments[number + 1 :]]
            break
        if each[:1] in "-+" and "e" in each[1:]:
            shell.turn_on_stops(each[0] == "-")


def _read(shell, arguments, stdin, _out, _err):
    names = [each for each in arguments if not each.startswith("-")] or ["REPLY"]
    line = stdin.readline()
    text = line.rstrip("\n")
    split = shell.get("IFS") if "IFS" in os.environ else None
    parts = [text] if split == "" or len(names) == 1 else text.split(split, len(names) - 1)
    for number, name in enumerate(names):
        value = parts[number] if number < len(parts) else ""
        shell.set(name, value if split == "" else value.strip(" \t"))
    return 0 if line else 1


def _shift(shell, arguments, *_streams):
    count = int(arguments[0]) if arguments else 1
    shell.arguments = [shell.arguments[0], *shell.arguments[1 + count :]]


def _source(shell, arguments, stdin, out, err):
    with open(arguments[0], encoding="utf-8", errors="replace") as file:
        return shell.run(file.read(), stdin, out, err)


def _let(shell, arguments, *_streams):
    return int(not [shell.number(each) for each in arguments][-1])


_OWN = {
    ".": _source,
    ":": lambda *_: 0,
    "break": _leave("break"),
    "continue": _leave("continue"),
    "declare": _local,
    "eval": lambda shell, arguments, stdin, out, err: shell.run(" ".join(arguments), stdin, out, err),
    "exit": _leave("exit"),
    "export": _export,
    "let": _let,
    "local": _local,
    "read": _read,
    "return": _leave("return"),
    "set": _set,
    "shift": _shift,
    "source": _source,
    "trap": lambda *_: 0,
    "unset": lambda shell, arguments, *_: [shell.unset(each) for each in arguments] and 0,
    "wait": lambda *_: 0,
}


# --- What others run


def run(line, out, err, stdin=None):
    """Runs a line of commands; returns its exit status."""
    return Shell().run(line, stdin or io.StringIO(), out, err)


def run_apart(line, out, err):
    """The same for a line whose changes of folder are its own, as those of a shell of its own would be."""
    folder = os.getcwd()
    try:
        return run(line, out, err)
    finally:
        if os.getcwd() != folder:
            os.chdir(folder)


def capture(line, err):
    """(exit status, text) of a line of commands."""
    out = io.StringIO()
    status = run_apart(line, out, err)
    return status, out.getvalue()


def script(text, stdin, out, err, arguments=(), name="sh"):
    """Runs a script with its arguments; returns the exit status of the last command."""
    return Shell(arguments, name).run(text, stdin, out, err)


def _sh(arguments, stdin, out, err):
    """`sh`: a script after `-c`, in a file, or from standard input."""
    arguments = list(arguments)
    stops = ""
    while arguments and arguments[0].startswith("-") and arguments[0] != "-c" and not arguments[0].endswith("c"):
        stops += "set -e\n" if "e" in arguments[0] and not arguments[0].startswith("--") else ""
        arguments.pop(0)
    if arguments and arguments[0].startswith("-"):
        if len(arguments) < 2:
            err.write("sh: -c: option requires an argument\n")
            return 2
        return script(stops + arguments[1], stdin, out, err, arguments[3:], *arguments[2:3])
    if not arguments:
        return script(stops + stdin.read(), io.StringIO(), out, err)
    with open(arguments[0], encoding="utf-8", errors="replace") as file:
        text = file.read()
    return script(stops + text, stdin, out, err, arguments[1:], arguments[0])


def run_shell(arguments, stdin, out, err):
    """The same as a shell of its own, whose changes of folder and environment are its own."""
    folder, before = os.getcwd(), dict(os.environ)
    try:
        return _sh(arguments, stdin, out, err)
    finally:
        os.environ.clear()
        os.environ.update(before)
        if os.getcwd() != folder:
            os.chdir(folder)


for _name in ("sh", "bash", "dash", "zsh"):
    commands.add(_name, run_shell)
