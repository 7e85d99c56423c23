"""What the words of a script come to: variables, arrays, the output of commands, patterns, braces."""

import fnmatch
import glob
import os
import random
import re
import shlex
import tempfile
import time

from _cellar_prelude.shell import escapes
from _cellar_prelude.shell.arithmetic import Bad, Expression
from _cellar_prelude.shell.shell_syntax import ASSIGNMENT, closing, quote_end, single_end, tokens

# The words that one comes to, as by {1..100}, and the values of an array, are no more than this.
WORDS_MAX = 100_000
_CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": " \t\n\r\f\v", "blank": " \t",
    "punct": "!-/:-@[-`{-~", "xdigit": "0-9A-Fa-f", "word": "a-zA-Z0-9_",
}  # fmt: skip
_PARAMETER = re.compile(r"([A-Za-z_]\w*|\d+|[?#@*$!-])(\[(?:[^\[\]]|\[[^\]]*\])*\])?(?:(:?[-=+?]|##?|%%?|/[/#%]?|\^\^?|,,?|@[A-Za-z]$|:)(.*))?", re.DOTALL)

# What a part of a word is: only what was filled in is split by IFS, and what is quoted is no pattern.
_PLAIN, _FILLED_IN, _QUOTED = "plain", "filled in", "quoted"


class Unset(Exception):
    """A variable without a value was asked for where that ends the shell; the words are for standard error."""


class Variables:
    """Variables and arrays, those of functions before those around them, and before the environment.

    An array is a dictionary, with numbers or texts as its keys.
    """

    def __init__(self):
        self.scopes, self.kinds, self.options, self.arguments, self.status = [{}], {}, set(), ["bash"], 0
        self.statuses, self.started = [0], time.monotonic()

    def find(self, name):
        """The value of a variable: a text, a dictionary, or None."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        special = _DYNAMIC.get(name)
        return os.environ.get(name) if special is None else special(self)

    def get(self, name):
        """The text of a variable, or of a number or sign behind `$`; that of an array is its first."""
        if name.isdigit():
            return self.arguments[int(name)] if int(name) < len(self.arguments) else ""
        if name in _SIGNS:
            return _SIGNS[name](self)
        value = self.find(name)
        return value.get(0, value.get("0", "")) if isinstance(value, dict) else value or ""

    def _scope_of(self, name):
        return next((scope for scope in reversed(self.scopes) if name in scope), self.scopes[0])

    def set(self, name, value):
        """Sets a variable to a text or dictionary; one of the environment is set there."""
        kinds = self.kinds.get(name, "")
        if "r" in kinds:
            raise Bad(f"{name}: readonly variable")
        if isinstance(value, str):
            value = str(self.number(value)) if "i" in kinds else value.upper() if "u" in kinds else value.lower() if "l" in kinds else value
        scope = self._scope_of(name)
        if name not in scope and name in os.environ and isinstance(value, str):
            os.environ[name] = value
        else:
            scope[name] = value

    def _key(self, name, index, values):
        """The key that an index stands for."""
        if "A" in self.kinds.get(name, ""):
            return self.text(index)
        number = self.number(index)
        return number if number >= 0 else max(values, default=-1) + 1 + number

    def set_item(self, name, index, text):
        """Sets one value of an array, which is made if it is not there."""
        value = self.find(name)
        values = dict(value) if isinstance(value, dict) else {} if value is None else {0: value}
        if len(values) >= WORDS_MAX:
            raise Bad(f"{name}: the array is too long")
        values[self._key(name, index, values)] = text
        self.set(name, values)

    def get_item(self, name, index):
        """One value of an array; None when it has none."""
        value = self.find(name)
        values = value if isinstance(value, dict) else {} if value is None else {0: value}
        return values.get(self._key(name, index, values))

    def unset(self, name):
        """Forgets a variable, or one value of an array."""
        match = re.fullmatch(r"([A-Za-z_]\w*)\[(.*)\]", name)
        if match:
            values = self.find(match[1])
            if isinstance(values, dict):
                values.pop(self._key(match[1], match[2], values), None)
            return
        self._scope_of(name).pop(name, None)
        self.kinds.pop(name, None)
        os.environ.pop(name, None)

    def number_of(self, name, index):
        """The number of a variable within an expression; a text there is one itself."""
        text = (self.get_item(name, index) or "") if index is not None else self.get(name)
        if re.fullmatch(r"-?\d{1,18}", text) and not re.match(r"-?0\d", text):
            return int(text)
        if not text.strip() or text.strip() == name:
            return 0
        return Expression(text, self).value()

    def assign(self, name, index, number):
        """Sets a variable within an expression."""
        self.set(name, str(number)) if index is None else self.set_item(name, index, str(number))

    def number(self, text):
        """What an arithmetic expression comes to."""
        return Expression(self.filled(text), self).value()

    # Assignments

    def assigned(self, raw):
        """Carries an assignment out that is written as `name=value`, `name[i]=value`, `name+=value` or `name=(…)`."""
        match = ASSIGNMENT.match(raw)
        name, index, adds, value = match[1], match[2], match[3], raw[match.end() :]
        if value.startswith("(") and value.endswith(")") and index is None:
            self.set(name, self._array(name, value[1:-1], adds))
            return
        text = self.text(value)
        if index is not None:
            self.set_item(name, index[1:-1], (self.get_item(name, index[1:-1]) or "") + text if adds else text)
        elif not adds:
            if isinstance(self.find(name), dict):
                self.set_item(name, "0", text)
            else:
                self.set(name, text)
        elif "i" in self.kinds.get(name, ""):
            self.set(name, f"{self.get(name) or 0} + ({text})")
        else:
            self.set(name, self.get(name) + text)

    def _array(self, name, inner, adds):
        """The values between the brackets of `name=(…)`."""
        value = self.find(name)
        old = value if isinstance(value, dict) else {} if value is None else {0: value}
        values = dict(old) if adds else {}
        for is_operator, raw in tokens(inner):
            if isinstance(raw, Bad):
                raise raw
            if is_operator:
                continue
            match = re.match(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]=", raw)
            if match:
                values[self._key(name, match[1], values)] = self.text(raw[match.end() :])
                continue
            for each in self.words([raw]):
                values[max((key for key in values if isinstance(key, int)), default=-1) + 1] = each
            if len(values) > WORDS_MAX:
                raise Bad(f"{name}: the array is too long")
        return values

    # Words

    def words(self, raws):
        """What words come to: patterns, braces and variables filled in, split where they are not quoted."""
        found = []
        for raw in raws:
            for each in _braces(raw):
                found += self._fields(each)
                if len(found) > WORDS_MAX:
                    raise Bad("too many words")
        return found

    def text(self, raw):
        """What one word comes to, as a text."""
        return "".join(" ".join(text) if isinstance(text, list) else text for text, _ in self._pieces(raw))

    def pattern(self, raw, escaped=glob.escape):
        """The same, with what is quoted escaped: a pattern."""
        return "".join(escaped(" ".join(text) if isinstance(text, list) else text) if kind is _QUOTED else "".join(text) for text, kind in self._pieces(raw))

    def split(self, text):
        """The parts of a text between the signs of IFS, and whether the text begins and ends with such."""
        ifs = self.find("IFS")
        ifs = " \t\n" if ifs is None else ifs
        if not ifs or not text:
            return [text], False, False
        spaces = "".join(each for each in ifs if each in " \t\n")
        others = "".join(each for each in ifs if each not in " \t\n")
        blank = f"[{re.escape(spaces)}]" if spaces else "(?!)"
        mark = f"{blank}*[{re.escape(others)}]{blank}*|{blank}+" if others else f"{blank}+"
        parts = re.split(mark, text)
        begins, ends = len(parts) > 1 and parts[0] == "" and text[0] in spaces, len(parts) > 1 and parts[-1] == ""
        return parts[int(begins) : len(parts) - int(ends)], begins, ends

    def _fields(self, raw):
        fields, open_ = [], None
        for text, kind in self._pieces(raw):
            for number, part in enumerate(text if isinstance(text, list) else [text]):
                if number and open_ is not None:
                    fields.append(open_)
                    open_ = None
                if kind is not _FILLED_IN:
                    open_ = (open_ or "") + (glob.escape(part) if kind is _QUOTED else part)
                    continue
                parts, begins, ends = self.split(part)
                if begins and open_ is not None:
                    fields.append(open_)
                    open_ = None
                for place, each in enumerate(parts):
                    if place:
                        fields.append(open_ or "")
                        open_ = None
                    if each or place:
                        open_ = (open_ or "") + each
                if ends and open_ is not None:
                    fields.append(open_)
                    open_ = None
        if open_ is not None:
            fields.append(open_)
        return [each for field in fields for each in self._globbed(field)]

    def _globbed(self, field):
        plain = re.sub(r"\[([*?[])\]", r"\1", field)
        if not re.search(r"[*?[]", re.sub(r"\[[*?[]\]", "", field)) or "noglob" in self.options:
            return [plain]
        wanted = _with_classes(field)
        found = sorted(glob.glob(wanted, recursive="globstar" in self.options, include_hidden="dotglob" in self.options))
        return found or ([] if "nullglob" in self.options else [plain])

    def _pieces(self, raw):
        """(text or list of texts, what it is) of each part of a word."""
        at = 0
        if re.match(r"~(?=/|$)", raw):
            yield os.path.expanduser("~"), _QUOTED
            at = 1
        if raw.startswith(("<(", ">(")) and raw.endswith(")"):
            yield self._process(raw[2:-1]) if raw[0] == "<" else self._receiver(raw[2:-1]), _QUOTED
            return
        while at < len(raw):
            sign = raw[at]
            if sign == "'":
                end = single_end(raw, at + 1)
                yield raw[at + 1 : end], _QUOTED
                at = end + 1
            elif sign == '"':
                end = quote_end(raw, at + 1)
                yield from self._quoted(raw[at + 1 : end])
                at = end + 1
            elif raw.startswith("$'", at):
                end = single_end(raw, at + 2)
                yield escapes.filled(raw[at + 2 : end], escapes.QUOTED)[0].partition("\0")[0], _QUOTED
                at = end + 1
            elif raw.startswith('$"', at):
                at += 1
            elif sign == "\\":
                yield raw[at + 1 : at + 2], _QUOTED
                at += 2
            elif sign in "$`":
                text, at = self._dollar(raw, at)
                yield text, _FILLED_IN
            else:
                end = re.compile(r"[^'\"\\$`]+").match(raw, at).end()
                yield raw[at:end], _PLAIN
                at = end

    def _quoted(self, text):
        """The pieces between double quotes; `"$@"` of nothing is nothing at all."""
        at, held, lists = 0, [], 0
        while at < len(text):
            sign = text[at]
            if sign == "\\" and text[at + 1 : at + 2] in ('"', "\\", "$", "`", "\n"):
                held.append(text[at + 1].replace("\n", ""))
                at += 2
            elif sign in "$`":
                piece, at = self._dollar(text, at, is_quoted=True)
                if isinstance(piece, list):
                    if held:
                        yield "".join(held), _QUOTED
                        held = []
                    lists += 1
                    yield piece, _QUOTED
                else:
                    held.append(piece)
            else:
                held.append(sign)
                at += 1
        if held or not lists:
            yield "".join(held), _QUOTED

    def filled(self, text, is_here=False):
        """A text with its variables and commands filled in; in a text of `<<` signs may be escaped."""
        out, at = [], 0
        while at < len(text):
            sign = text[at]
            if sign == "\\" and is_here and text[at + 1 : at + 2] in ("\\", "$", "`", "\n"):
                out.append(text[at + 1].replace("\n", ""))
                at += 2
            elif sign in "$`":
                piece, at = self._dollar(text, at, is_quoted=True)
                out.append(" ".join(piece) if isinstance(piece, list) else piece)
            elif sign == '"' and not is_here:
                at += 1
            else:
                out.append(sign)
                at += 1
        return "".join(out)

    def _dollar(self, text, at, is_quoted=False):
        """(what a `$…` at `at` comes to, where it ends)."""
        if text[at] == "`":
            end = text.find("`", at + 1)
            if end < 0:
                raise Bad("unexpected EOF while looking for matching ``'")
            return self.output(re.sub(r"\\([`$\\])", r"\1", text[at + 1 : end])), end + 1
        if text.startswith("$((", at):
            end = closing(text, at + 3, "(", ")")
            if text.startswith("))", end):
                return str(self.number(text[at + 3 : end])), end + 2
        if text.startswith("$(", at):
            end = closing(text, at + 2, "(", ")")
            return self.output(text[at + 2 : end]), end + 1
        if text.startswith("${", at):
            end = closing(text, at + 2, "{", "}")
            return self._parameter(text[at + 2 : end], is_quoted), end + 1
        match = re.compile(r"\$([A-Za-z_]\w*|\d|[?#@*$!-])").match(text, at)
        if match is None:
            return "$", at + 1
        name, end = match[1], match.end()
        if name == "@" or (name == "*" and not is_quoted):
            return self.arguments[1:], end
        return self._wanted(name), end

    def _wanted(self, name):
        if "nounset" in self.options and not self._is_set(name, None):
            raise Unset(f"{name}: unbound variable")
        return self.get(name)

    def _is_set(self, name, index):
        if name.isdigit():
            return int(name) < len(self.arguments)
        if name in ("@", "*"):
            return len(self.arguments) > 1
        if index is not None and index not in "@*":
            return self.get_item(name, index) is not None
        value = self.find(name)
        return name in _SIGNS or (bool(value) if isinstance(value, dict) else value is not None)

    def _all(self, name):
        """The values of an array in the order of their places; of a variable, the one."""
        value = self.find(name)
        if isinstance(value, dict):
            return [value[key] for key in (value if "A" in self.kinds.get(name, "") else sorted(value))]
        return [] if value is None else [value]

    def _star(self, values):
        ifs = self.find("IFS")
        return (" " if ifs is None else ifs[:1]).join(values)

    def _parameter(self, text, is_quoted):
        if text.startswith("!") and len(text) > 1:
            return self._indirect(text[1:], is_quoted)
        counts = text.startswith("#") and len(text) > 1
        match = _PARAMETER.fullmatch(text[1:] if counts else text)
        if match is None or (counts and match[3]):
            raise Bad(f"${{{text}}}: bad substitution")
        name, index, kind, rest = match[1], match[2], match[3], match[4]
        index = index[1:-1] if index else None
        many = name in ("@", "*") or index in ("@", "*")
        if many:
            value = self.arguments[1:] if name in "@*" else self._all(name)
        elif index is not None:
            value = self.get_item(name, index) or ""
        else:
            value = self.get(name) if kind and kind[-1] in "-=+?" else self._wanted(name)
        if counts:
            return str(len(value))
        if kind and kind[-1] in "-=+?" and kind[0] != "@":
            is_set = self._is_set(name, index) and (kind[0] != ":" or bool("".join(value)))
            value = self._or_else((name, index), kind[-1], value, is_set, rest)
        elif kind == ":":
            value = self._sliced(value, rest, name in ("@", "*"))
        elif kind:
            value = [self._changed(each, kind, rest) for each in value] if many else self._changed(value, kind, rest)
        if many and isinstance(value, list) and "*" in (name, index) and is_quoted:
            return self._star(value)
        return value

    def _indirect(self, text, is_quoted):
        match = re.fullmatch(r"([A-Za-z_]\w*)(?:\[([@*])\]|([@*]))?", text)
        if match and match[2]:
            value = self.find(match[1])
            keys = list(value) if "A" in self.kinds.get(match[1], "") else sorted(value) if isinstance(value, dict) else [] if value is None else [0]
            return [str(key) for key in keys]
        if match and match[3]:
            names = {name for scope in self.scopes for name in scope} | set(os.environ)
            return sorted(name for name in names if name.startswith(match[1]))
        match = re.match(r"[A-Za-z_]\w*|\d+|#", text)
        if match is None:
            raise Bad(f"${{!{text}}}: bad substitution")
        return self._parameter(self.get(match[0]) + text[match.end() :], is_quoted)

    def _sliced(self, value, rest, is_arguments):
        start, _, length = rest.partition(":")
        start, length = self.number(start), self.number(length) if length.strip() else None
        if is_arguments:
            value, start = ([self.arguments[0], *value], start) if start <= 0 else (value, start - 1)
        start = max(len(value) + start, 0) if start < 0 else start
        end = len(value) if length is None else start + length if length >= 0 else len(value) + length
        return value[start : max(end, start)]

    def _or_else(self, place, kind, value, is_set, rest):
        if kind == "+":
            return self.text(rest) if is_set else ""
        if is_set:
            return value
        other = self.text(rest)
        if kind == "?":
            raise Unset(f"{place[0]}: {other or 'parameter null or not set'}")
        if kind == "=":
            self.set(place[0], other) if place[1] is None else self.set_item(*place, other)
        return other

    def _changed(self, value, kind, rest):
        """A value without what fits a pattern at an end, with something in its place, or in other letters."""
        if kind[0] == "@":
            return {"Q": shlex.quote, "U": str.upper, "L": str.lower, "u": lambda text: text[:1].upper() + text[1:]}.get(kind[1], str)(value)
        if kind[0] in "^,":
            change = str.upper if kind[0] == "^" else str.lower
            return change(value) if len(kind) == 2 else change(value[:1]) + value[1:]
        if kind[0] == "/":
            return self._replaced(value, kind, rest)
        pattern = self.pattern(rest)
        lengths = range(len(value) + 1)
        if kind[0] == "#":
            fits = [length for length in lengths if fits_pattern(value[:length], pattern)]
            return value[(max if kind == "##" else min)(fits, default=0) :]
        fits = [length for length in lengths if fits_pattern(value[length:], pattern)]
        return value[: (min if kind == "%%" else max)(fits, default=len(value))]

    def _replaced(self, value, kind, rest):
        at = 0
        while at < len(rest) and rest[at] != "/":
            at = at + 2 if rest[at] == "\\" else quote_end(rest, at + 1) + 1 if rest[at] == '"' else single_end(rest, at + 1) + 1 if rest[at] == "'" else at + 1
        old, new = self.pattern(rest[:at]), self.text(rest[at + 1 :])
        if not old:
            return value
        wanted = fnmatch.translate(_with_classes(old)).removeprefix("(?s:").removesuffix(r")\Z").removesuffix(r")\z")
        wanted = {"/#": rf"\A(?:{wanted})", "/%": rf"(?:{wanted})\Z"}.get(kind, wanted)
        return re.sub(f"(?s:{wanted})", lambda _: new, value, count=int(kind != "//"))

    def _process(self, text):
        """The file that the output of `<(…)` is in."""
        handle, name = tempfile.mkstemp(prefix="sh-")
        with open(handle, "wb") as file:
            file.write(self.output(text, keeps_end=True))
        self.made.append(name)
        return name

    def _receiver(self, text):
        """The file that is the input of `>(…)` once the command that writes to it has ended."""
        handle, name = tempfile.mkstemp(prefix="sh-")
        os.close(handle)
        self.made.append(name)
        self.receivers.append((name, text))
        return name


def fits_pattern(text, pattern):
    """Whether the whole text fits."""
    return fnmatch.fnmatchcase(text, _with_classes(pattern))


def _with_classes(pattern):
    """The pattern with `[:digit:]` and its like written out."""
    return re.sub(r"\[:(\w+):\]", lambda match: _CLASSES.get(match[1], match[0]), pattern).replace("[^", "[!")


def _braces(raw):
    """The words that `a{b,c}` and `{1..3}` stand for."""
    match = re.search(r"(?<![\$\\])\{([^{}'\"\s]*(?:,|\.\.)[^{}'\"\s]*)\}", raw)
    if match is None or "'" in raw[: match.start()] or '"' in raw[: match.start()] or raw.startswith("${"):
        return [raw]
    run = re.fullmatch(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.(-?\d+))?", match[1])
    if run:
        is_number = run[1].lstrip("-").isdigit() and run[2].lstrip("-").isdigit()
        first, last = (int(run[1]), int(run[2])) if is_number else (ord(run[1][0]), ord(run[2][0]))
        step = abs(int(run[3] or 1)) or 1
        if abs(last - first) // step > WORDS_MAX:
            raise Bad("too many words")
        numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
        width = len(run[1]) if is_number and run[1].startswith("0") and len(run[1]) > 1 else 0
        parts = [str(each).zfill(width) if is_number else chr(each) for each in numbers]
    elif "," in match[1]:
        parts = match[1].split(",")
    else:
        return [raw]
    head, tail = raw[: match.start()], raw[match.end() :]
    return [word for part in parts for word in _braces(f"{head}{part}{tail}")]


_SIGNS = {
    "?": lambda shell: str(shell.status),
    "#": lambda shell: str(len(shell.arguments) - 1),
    "@": lambda shell: " ".join(shell.arguments[1:]),
    "*": lambda shell: shell._star(shell.arguments[1:]),
    "$": lambda _: str(os.getpid()),
    "!": lambda shell: str(shell.last_job),
    "-": lambda _: "",
}
_DYNAMIC = {
    "PWD": lambda _: os.getcwd(),
    "RANDOM": lambda _: str(random.randrange(32768)),
    "SECONDS": lambda shell: str(int(time.monotonic() - shell.started)),
    "EPOCHSECONDS": lambda _: str(int(time.time())),
    "PIPESTATUS": lambda shell: dict(enumerate(map(str, shell.statuses))),
    "OPTIND": lambda _: "1",
    "BASH_VERSION": lambda _: "5.2.0(1)-release",
    "UID": lambda _: "1000",
    "HOSTNAME": lambda _: "sandbox",
}
