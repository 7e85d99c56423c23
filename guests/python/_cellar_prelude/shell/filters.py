"""Shell commands that work on texts: `sed`, `tr`, `cut`, `awk` and their kin. Each is a function as those of `commands`."""

import base64
import binascii
import difflib
import hashlib
import itertools
import os
import re
import shutil

from _cellar_prelude.shell import awk, escapes
from _cellar_prelude.shell.lines import Unread, blobs, contents, decoded, encoded, lines_of, texts, units

# Numbers that `seq` prints, and bytes that a count may ask for, at most.
_NUMBERS_MAX = 1_000_000
# Bytes that are read at a time.
_PIECE = 1 << 16
# The last of a list of numbers that has no end.
_NUMBERS_END = 1 << 60
_CLASSES = {
    "alnum": str.isalnum, "alpha": str.isalpha, "blank": " \t".__contains__, "cntrl": lambda sign: not sign.isprintable(), "digit": str.isdigit,
    "graph": lambda sign: sign.isprintable() and sign != " ", "lower": str.islower, "print": str.isprintable,
    "punct": lambda sign: sign.isprintable() and not sign.isalnum() and sign != " ", "space": " \t\n\r\f\v".__contains__, "upper": str.isupper,
    "xdigit": "0123456789abcdefABCDEF".__contains__,
}  # fmt: skip
_CHANGES = {"replace": "c", "insert": "a", "delete": "d"}


def pattern_of(text, is_extended, is_perl=False):
    """A regular expression as Python has it, of a basic or an extended one, or one of Perl's."""
    if not is_perl:
        text = re.sub(r"(?<!\\)((?:\\\\)*)((?:\\x[0-9A-Fa-f]{2})+)", lambda match: match[1] + re.escape(awk.unescaped(match[2])), text)
    text = awk.classes_of(text) if is_perl else awk.pattern_of(text)
    if is_extended:
        return text
    # In basic ones the backslash is what gives these signs their meaning.
    return re.sub(r"\\([(){}|+?])|([(){}|+?])|(\\.)", lambda match: match[1] or (f"\\{match[2]}" if match[2] else match[3]), text)


_TAGS = {"blake2b": "BLAKE2b", "md5": "MD5", **{f"sha{size}": f"SHA{size}" for size in (1, 224, 256, 384, 512)}}
_PROGRAMS = {"blake2b": "b2sum", "md5": "md5sum", **{f"sha{size}": f"sha{size}sum" for size in (1, 224, 256, 384, 512)}}


class Edit:
    """One command of `sed`."""

    def __init__(self, first, last, is_negated, name):
        self.first, self.last, self.is_negated, self.name = first, last, is_negated, name
        self.is_open, self.value, self.block = False, None, None

    def applies(self, number, line, is_last):
        """Whether its addresses fit a line."""
        return self._fits(number, line, is_last) != self.is_negated

    def _fits(self, number, line, is_last):
        def fits(address):
            if isinstance(address, int):
                return number == address
            return is_last if address == "$" else bool(address.search(line))

        if self.last is None:
            return self.first is None or fits(self.first)
        if not self.is_open:
            if not fits(self.first):
                return False
            self.is_open = not (isinstance(self.last, int) and self.last <= number)
            return True
        self.is_open = not ((isinstance(self.last, int) and number >= self.last) or (not isinstance(self.last, int) and fits(self.last)))
        return True


class _Script:
    """Reads a script of `sed`."""

    def __init__(self, text, is_extended):
        self._text, self._at, self._is_extended, self._last = text, 0, is_extended, None

    def read(self, is_inner=False):
        """Its commands."""
        found = []
        while True:
            match = re.compile(r"[\s;]*").match(self._text, self._at)
            self._at = match.end()
            if self._at >= len(self._text) or (is_inner and self._text[self._at] == "}"):
                self._at += 1
                return found
            found.append(self._one())

    def _one(self):
        first = self._address()
        last = None
        if self._sign(","):
            if self._sign("+"):
                count = self._digits()
                last = (first + count) if isinstance(first, int) else None
            else:
                last = self._address()
        self._at = re.compile(r"\s*").match(self._text, self._at).end()
        is_negated = self._sign("!")
        name = self._text[self._at : self._at + 1]
        self._at += 1
        edit = Edit(first, last, is_negated, name)
        if name == "{":
            edit.block = self.read(is_inner=True)
        elif name in "sy":
            edit.value = self._replacement(name)
        elif name in "aic":
            match = re.compile(r"\s*\\?\n?([^\n]*)").match(self._text, self._at)
            edit.value, self._at = awk.unescaped(match[1].removesuffix("}") if "{" in self._text[: self._at] else match[1]), match.end()
        elif name not in "dpqnNgGhHxP=D" or not name:
            raise ValueError(f"unknown command: `{name}'")
        return edit

    def _sign(self, sign):
        found = self._text.startswith(sign, self._at)
        self._at += found
        return found

    def _digits(self):
        match = re.compile(r"\d+").match(self._text, self._at)
        if match is None:
            raise ValueError("a number is missing in an address")
        self._at = match.end()
        return int(match[0])

    def _address(self):
        if self._text[self._at : self._at + 1].isdigit():
            return self._digits()
        if self._sign("$"):
            return "$"
        if self._sign("/"):
            found = re.compile(self._pattern(self._until("/")))
            if self._sign("I"):
                found = re.compile(found.pattern, re.IGNORECASE)
            return found
        return None

    def _pattern(self, text):
        self._last = pattern_of(text, self._is_extended) if text else self._last or ""
        return self._last

    def _until(self, end):
        out = []
        while self._at < len(self._text):
            sign = self._text[self._at]
            self._at += 1
            if sign == end:
                return "".join(out)
            if sign == "\\" and self._at < len(self._text):
                following = self._text[self._at]
                self._at += 1
                out.append(following if following == end and end not in "|.*+?()[]" else f"\\{following}")
            else:
                out.append(sign)
        raise ValueError("unterminated `s' command")

    def _replacement(self, name):
        end = self._text[self._at]
        self._at += 1
        old, new = self._until(end), self._until(end)
        if name == "y":
            old, new = awk.unescaped(old), awk.unescaped(new)
            if len(old) != len(new):
                raise ValueError("strings for `y' command are different lengths")
            return str.maketrans(old, new)
        flags = re.compile(r"[gpiI0-9]*").match(self._text, self._at)
        self._at = flags.end()
        digits = re.sub(r"\D", "", flags[0])
        pattern = re.compile(self._pattern(old), re.IGNORECASE if set("iI") & set(flags[0]) else 0)
        return pattern, new, "g" in flags[0], int(digits or 1), "p" in flags[0]


def _filled(match, new):
    state = [str]

    def one(part):
        sign = part[0]
        if sign in ("\\U", "\\L", "\\E"):
            state[0] = {"\\U": str.upper, "\\L": str.lower, "\\E": str}[sign]
            return ""
        if sign == "&":
            return state[0](match[0])
        if sign[0] == "\\" and sign[1:].isdigit():
            return state[0](match[int(sign[1])] or "")
        if sign[0] == "\\":
            return escapes.filled(sign, escapes.FORMAT)[0].removeprefix("\\")
        return state[0](sign)

    return re.sub(r"(?:\\x[0-9A-Fa-f]{2})+|\\.|&|[^\\&]+", one, new, flags=re.DOTALL)


def _substituted(line, value):
    """(what `s` makes of a line, whether it changed)."""
    pattern, new, is_global, nth, _ = value
    count = 0

    def one(match):
        nonlocal count
        count += 1
        return _filled(match, new) if count == nth or (is_global and count >= nth) else match[0]

    changed = pattern.sub(one, line)
    return changed, count >= nth


class _Open(str):
    """A line without an end, as the last of a text may be."""


def _shown(state):
    """The line at hand of `sed` as it is printed."""
    return _Open(state["line"]) if state["is_open"] else state["line"]


class _Sed:
    def __init__(self, edits, is_quiet, end):
        self._edits, self._is_quiet, self._end = edits, is_quiet, end

    def run(self, text):
        """What it makes of a text."""
        out, held = [], ""
        lines = lines_of(text, self._end)
        self._is_open = bool(text) and not text.endswith(self._end)
        at = 0
        while at < len(lines):
            line, at = lines[at], at + 1
            after = []
            state = {"line": line, "held": held, "at": at, "after": after, "out": out, "is_open": self._is_open and at == len(lines)}
            ends = self._apply(self._edits, state, lines)
            held, at = state["held"], state["at"]
            if ends != "d" and not self._is_quiet:
                out.append(_shown(state))
            out += after
            if ends == "q":
                break
        return self._end.join(out) + ("" if not out or isinstance(out[-1], _Open) else self._end)

    def _apply(self, edits, state, lines):
        for edit in edits:
            if not edit.applies(state["at"], state["line"], state["at"] == len(lines)):
                continue
            name = edit.name
            if name == "{":
                ends = self._apply(edit.block, state, lines)
                if ends:
                    return ends
            elif name == "s":
                state["line"], changed = _substituted(state["line"], edit.value)
                if changed and edit.value[4]:
                    state["out"].append(_shown(state))
            elif name == "y":
                state["line"] = state["line"].translate(edit.value)
            elif name in "dq":
                return name
            elif name == "c":
                state["out"].append(edit.value)
                return "d"
            elif name == "N" and state["at"] < len(lines):
                state["line"] += "\n" + lines[state["at"]]
                state["at"] += 1
                state["is_open"] = self._is_open and state["at"] == len(lines)
            else:
                self._small(name, edit, state)
        return None

    @staticmethod
    def _small(name, edit, state):
        if name == "p":
            state["out"].append(_shown(state))
        elif name == "P":
            state["out"].append(state["line"].partition("\n")[0])
        elif name == "=":
            state["out"].append(str(state["at"]))
        elif name == "i":
            state["out"].append(edit.value)
        elif name == "a":
            state["after"].append(edit.value)
        elif name == "h":
            state["held"] = state["line"]
        elif name == "H":
            state["held"] += "\n" + state["line"]
        elif name in "gG":
            state["line"], state["is_open"] = state["held"] if name == "g" else state["line"] + "\n" + state["held"], False
        elif name == "x":
            state["line"], state["held"], state["is_open"] = state["held"], state["line"], False


def install(table, options_of, failed):
    """Adds the commands to a table; the function reads options, and the exception is of a command that fails."""

    def sed(arguments, stdin, out, _err):
        scripts, rest, place = [], [], None
        arguments = list(arguments)
        while arguments:
            each = arguments.pop(0)
            if each in ("-e", "--expression"):
                scripts.append(arguments.pop(0))
            elif re.match(r"-i|--in-place", each):
                place = each[2:] if each.startswith("-i") else each.partition("=")[2]
            else:
                rest.append(each)
        options, operands = options_of(rest, "nErsuz", "f", {"regexp-extended": "E", "null-data": "z", "separate": "s", "unbuffered": "u", "file": "f", "posix": "posix"})
        if "f" in options:
            scripts.append(decoded(contents(options["f"])).removesuffix("\n"))
        script = "\n".join(scripts) if scripts else operands.pop(0)
        for group in [[name] for name in operands] if place is not None or "s" in options else [operands]:
            edits = _Script(script, bool(options.keys() & {"E", "r"})).read()
            end = "\0" if "z" in options else "\n"
            parts, unread = [], None
            try:
                parts += (text for _, text in texts(group, stdin))
            except Unread as error:
                if place is not None:
                    raise
                unread = error
            # Each file but the last ends with a line.
            text = "".join(part if number == len(parts) or part.endswith(end) or not part else part + end for number, part in enumerate(parts, 1))
            text = _Sed(edits, "n" in options, end).run(text)
            if place is None:
                out.write(text)
                if unread:
                    raise unread
            else:
                if place:
                    shutil.copy(group[0], place.replace("*", os.path.basename(group[0])) if "*" in place else group[0] + place)
                with open(group[0], "wb") as file:
                    file.write(encoded(text))

    def awk_(arguments, stdin, out, err):
        variables, arguments, text = {}, list(arguments), None
        while arguments and arguments[0].startswith("-") and arguments[0] != "-":
            each = arguments.pop(0)
            value = each[2:] or (arguments.pop(0) if each[:2] in ("-F", "-v", "-f") else "")
            if each.startswith("-F"):
                variables["FS"] = "\t" if value == "t" else awk.unescaped(value)
            elif each.startswith("-v"):
                name, _, setting = value.partition("=")
                variables[name] = awk._Field(awk.unescaped(setting))
            elif each.startswith("-f"):
                text = decoded(stdin.buffer.read() if value == "-" else contents(value))
            else:
                raise failed(f"unknown option {each}")
        text = arguments.pop(0) if text is None else text
        try:
            named = (("", stdin.read()) if name == "-" else (name, decoded(contents(name))) for name in arguments or ["-"])
            return awk.Program(text, variables, out, err).run(named)
        except awk.Bad as error:
            raise failed(str(error)) from None

    def signs(text):
        """The signs of a set of `tr`, each of which is a byte; see `units`."""
        found = []
        for part in re.finditer(r"\[:(\w+):\]|\[=(.)=\]|\[(\\.|.)\*(\d*)\]|(\\[0-7]{1,3}|\\.|.)(?:-(\\[0-7]{1,3}|\\.|.))?", text, re.DOTALL):
            if part[1]:
                if part[1] not in _CLASSES:
                    raise failed(f"invalid character class '{part[1]}'")
                found += filter(_CLASSES[part[1]], map(chr, range(128)))
            elif part[2]:
                found.append(part[2])
            elif part[3]:
                # Without a count it fills the set up to the length of the other.
                found.append((sign_of(part[3]), int(part[4], 8 if part[4].startswith("0") else 10) if part[4] else 0))
            elif part[6]:
                first, last = sign_of(part[5]), sign_of(part[6])
                if first > last:
                    raise failed(f"range-endpoints of '{part[0]}' are in reverse collating sequence order")
                found += map(chr, range(ord(first), ord(last) + 1))
            else:
                found.append(sign_of(part[5]))
        return found

    def sign_of(text):
        return text if len(text) == 1 else {"e": "e", "E": "E"}.get(text[1]) or units(escapes.filled(text, escapes.FORMAT)[0])[-1]

    def spread(found, length):
        """The set with its repeated signs, as long as the other one where they have no count."""
        single = sum(not isinstance(each, tuple) for each in found)
        return [sign for each in found for sign in (each[0] * (each[1] or max(length - single, 0)) if isinstance(each, tuple) else each)]

    def tr(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "dscCt", longs={"complement": "c", "delete": "d", "squeeze-repeats": "s", "truncate-set1": "t"})
        needed = 1 if ("d" in options) != ("s" in options) else 2
        if len(operands) < needed:
            raise failed(f"missing operand{f' after {chr(39)}{operands[0]}{chr(39)}' if operands else ''}")
        if len(operands) > (1 if needed == 1 and "d" in options else 2):
            raise failed(f"extra operand '{operands[-1]}'")
        first = spread(signs(units(operands[0])), 0)
        if "c" in options or "C" in options:
            kept = set(first)
            first = [chr(byte) for byte in range(256) if chr(byte) not in kept]
        second = spread(signs(units(operands[1])), len(first)) if len(operands) > 1 else []
        changes = {}
        if "d" in options:
            changes = dict.fromkeys(map(ord, first))
        elif second:
            first = first[: len(second)] if "t" in options else first
            filled = second + [second[-1]] * (len(first) - len(second))
            changes = {ord(old): new for old, new in zip(first, filled, strict=False)}
        elif len(operands) > 1 and "t" not in options:
            raise failed("when not truncating set1, string2 must be non-empty")
        squeezed, last = re.escape("".join(second or first)) if "s" in options else "", ""
        # A piece at a time: the input may never end.
        while data := stdin.buffer.read(_PIECE):
            text = data.decode("latin-1").translate(changes)
            if squeezed and text:
                text = re.sub(f"([{squeezed}])\\1+", r"\1", last + text)[len(last) :]
                last = text[-1:] or last
            out.buffer.write(text.encode("latin-1"))

    def ranges(text):
        """The spans of a list of numbers, in order and without what is in two of them."""
        spans = []
        for part in text.split(","):
            match = re.fullmatch(r"(\d*)(-?)(\d*)", part)
            if match is None or not (match[1] or match[3]) or "0" in (match[1], match[3]) or (match[3] and int(match[1] or 1) > int(match[3])):
                raise failed(f"invalid range: '{part}'")
            first = int(match[1] or 1) - 1
            spans.append((first, (int(match[3]) if match[3] else _NUMBERS_END) if match[2] else first + 1))
        joined = []
        for first, last in sorted(spans):
            if joined and first < joined[-1][1]:
                joined[-1] = joined[-1][0], max(last, joined[-1][1])
            else:
                joined.append((first, last))
        return joined

    def cut(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "snz", "dfcb", {"characters": "c", "only-delimited": "s", "complement": "complement", "output-delimiter": "output-delimiter="})
        given = [letter for letter in "fcb" if letter in options]
        if len(given) != 1:
            raise failed("only one type of list may be specified" if given else "you must specify a list of bytes, characters, or fields")
        # Characters are bytes, as in GNU's.
        is_fields, end = given == ["f"], "\0" if "z" in options else "\n"
        separator = units(options.get("d", "\t")) or "\0"
        glue = units(options["output-delimiter"]) if "output-delimiter" in options else separator if is_fields else ""
        spans = ranges(options[given[0]])
        if "complement" in options:
            ends = [0, *(edge for span in spans for edge in span), _NUMBERS_END]
            spans = [(first, last) for first, last in zip(ends[::2], ends[1::2], strict=True) if first < last]
        for _, data in blobs(operands, stdin):
            rows = []
            for line in lines_of(data.decode("latin-1"), end):
                parts = line.split(separator) if is_fields else line
                if is_fields and len(parts) == 1:
                    rows += [] if "s" in options else [line]
                    continue
                found = [parts[first:last] for first, last in spans if first < len(parts)]
                rows.append(glue.join(part for each in found for part in each) if is_fields else glue.join(found))
            out.buffer.write("".join(f"{row}{end}" for row in rows).encode("latin-1"))

    def seq(arguments, _stdin, out, _err):
        options, operands = options_of([f"./{each}" if re.match(r"-[\d.]", each) else each for each in arguments], "w", "sf")
        numbers = [float(each.removeprefix("./")) for each in operands]
        first, step, last = {1: (1.0, 1.0, *numbers), 2: (numbers[0], 1.0, numbers[-1]), 3: tuple(numbers)}[len(numbers)]
        if step == 0 or (last - first) / step > _NUMBERS_MAX:
            raise failed("too many numbers")
        digits = max(len(each.partition(".")[2]) for each in operands)
        found = [f"{first + step * number:.{digits}f}" for number in range(int((last - first) / step + 1e-9) + 1)]
        width = max((len(each) for each in found), default=0) if "w" in options else 0
        found = [options["f"] % float(each) for each in found] if "f" in options else [each.zfill(width) for each in found]
        out.write(options.get("s", "\n").join(found) + "\n" if found else "")

    def printf(arguments, _stdin, out, err):
        """Works on bytes, each of which is a sign of its texts: widths count them."""
        form, values, status = units(escapes.filled(arguments[0], escapes.FORMAT)[0]), list(map(units, arguments[1:])), 0
        items = list(re.finditer(r"%(%|([-+ #0']*)(\*|\d*)(?:\.(\*|-?\d*))?(?:hh?|ll?|[jztqL])?([a-zA-Z])|)", form))
        for bad in (item for item in items if not item[1]):
            raise failed(f"`{form[bad.end()]}': invalid format character" if bad.end() < len(form) else "`%': missing format character")
        takes = any(item[1] != "%" for item in items)

        def number(text, is_whole):
            """The number of an argument; that of a sign behind a quotation mark is its code."""
            nonlocal status
            if text[:1] in ("'", '"'):
                return ord(decoded(text[1:].encode("latin-1"))[0]) if len(text) > 1 else 0
            match = re.match(r"\s*([-+]?)(0[xX][0-9a-fA-F]+|0[0-7]*(?![\d.eE])|\d+)" if is_whole else r"\s*[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+|inf|nan)", text)
            if text and (match is None or match.end() < len(text.rstrip() if match else text)):
                err.write(f"printf: {decoded(text.encode('latin-1'))}: invalid number\n")
                status = 1
            if match is None:
                return 0
            if not is_whole:
                return float(match[0])
            digits = match[2]
            return int(match[1] + digits, 16 if digits[:2].lower() == "0x" else 8 if digits[0] == "0" else 10)

        def one(item):
            flags, width, places, kind = item[2].replace("'", ""), item[3], item[4], item[5]
            width = int(number(values.pop(0) if values else "", True)) if width == "*" else int(width or 0)
            flags, width = (flags + "-", -width) if width < 0 else (flags, width)
            places = int(number(values.pop(0) if values else "", True)) if places == "*" else None if places is None else int(places or 0)
            places = None if places is not None and places < 0 else places
            value, is_cut = values.pop(0) if values else "", False
            head = f"%{flags}{width or ''}"
            point = "" if places is None else f".{places}"
            if kind in "di":
                return f"{head}{point}d" % number(value, True), False
            if kind in "uoxX":
                return f"{head}{point}{kind.replace('u', 'd')}".replace("+", "").replace(" ", "") % (number(value, True) % (1 << 64)), False
            if kind in "eEfFgG":
                return f"{head}{point}{kind}" % number(value, False), False
            if kind == "b":
                value, is_cut = escapes.filled(decoded(value.encode("latin-1")), escapes.ARGUMENT)
                value = units(value)
            elif kind == "q":
                value = units(re.sub(r"([^\w@%+=:,./-])", r"\\\1", decoded(value.encode("latin-1"))) or "''")
            elif kind == "c":
                value = value[:1]
            elif kind != "s":
                raise failed(f"`%{kind}': invalid format character")
            value = value if places is None or kind == "c" else value[:places]
            return value.ljust(width) if "-" in flags else value.rjust(width), is_cut

        while True:
            at = 0
            for item in items:
                out.buffer.write(form[at : item.start()].encode("latin-1"))
                text, is_cut = ("%", False) if item[1] == "%" else one(item)
                out.buffer.write(text.encode("latin-1"))
                at = item.end()
                if is_cut:
                    return status
            out.buffer.write(form[at:].encode("latin-1"))
            if not values or not takes:
                return status

    def tee(arguments, stdin, out, err):
        options, operands = options_of(arguments, "aip", longs={"append": "a", "ignore-interrupts": "i"})
        data, status = stdin.buffer.read(), 0
        out.buffer.write(data)
        for name in operands:
            if name in ("/dev/stdout", "/dev/stderr"):
                (out if name == "/dev/stdout" else err).buffer.write(data)
                continue
            try:
                with open(name, "ab" if "a" in options else "wb") as file:
                    file.write(data)
            except OSError as error:
                err.write(f"tee: {name}: {error.strerror}\n")
                status = 1
        return status

    def tac(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "b", "s", {"separator": "s", "before": "b"})
        mark = re.escape(encoded(options.get("s", "\n")))
        for _, data in blobs(operands, stdin):
            found = re.split(b"(?=" + mark + b")" if "b" in options else b"(?<=" + mark + b")", data)
            out.buffer.write(b"".join(reversed(found)))

    def rev(arguments, stdin, out, _err):
        for _, text in texts(options_of(arguments, "", longs={})[1], stdin):
            out.write("\n".join(line[::-1] for line in text.split("\n")))

    def nl(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "p", "bfhinsvwl", {"body-numbering": "b", "number-width": "w", "number-format": "n", "number-separator": "s", "starting-line-number": "v", "line-increment": "i"})
        number, step, width = int(options.get("v", 1)), int(options.get("i", 1)), int(options.get("w", 6))
        glue, form, style = options.get("s", "\t"), options.get("n", "rn"), options.get("b", "t")
        counts = {"a": lambda _: True, "t": bool, "n": lambda _: False}.get(style)
        if style[:1] == "p":
            counts = re.compile(pattern_of(style[1:], False)).search
        if counts is None or form not in ("ln", "rn", "rz"):
            raise failed(f"invalid {'body' if counts is None else 'line'} numbering {'style' if counts is None else 'format'}: '{style if counts is None else form}'")
        for _, text in texts(operands, stdin):
            for line in lines_of(text):
                if not counts(line):
                    out.write(f"{' ' * (width + len(glue))}{line}\n")
                    continue
                out.write({"ln": str(number).ljust(width), "rn": str(number).rjust(width), "rz": str(number).zfill(width)}[form] + f"{glue}{line}\n")
                number += step

    def paste(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "sz", "d", {"delimiters": "d", "serial": "s"})
        end, names = "\0" if "z" in options else "\n", ["-" if name == "/dev/stdin" else name for name in operands or ["-"]]
        # Columns that read standard input get its lines in turn.
        given = iter(lines_of(stdin.buffer.read().decode("latin-1"), end)) if "-" in names else iter(())
        columns = [given if name == "-" else iter(lines_of(contents(name).decode("latin-1"), end)) for name in names]
        marks = [re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t", "0": "", "b": "\b", "f": "\f", "r": "\r", "v": "\v"}.get(match[1], match[1]), each)
                 for each in re.findall(r"\\.|[^\\]", units(options.get("d", "\t")), re.DOTALL)] or [""]  # fmt: skip

        def joined(parts):
            return "".join(part + (marks[number % len(marks)] if number < len(parts) - 1 else "") for number, part in enumerate(parts)) + end

        if "s" in options:
            out.buffer.write("".join(joined(list(column)) for column in columns).encode("latin-1"))
            return
        while True:
            row = [next(column, None) for column in columns]
            if all(each is None for each in row):
                return
            out.buffer.write(joined([each or "" for each in row]).encode("latin-1"))

    def fold(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "sb", "w", {"width": "w", "spaces": "s"})
        width = int(options.get("w", 80))
        if width < 1:
            raise failed(f"invalid number of columns: '{options['w']}'")

        def step(column, sign):
            if "b" in options:
                return column + 1
            return {"\b": max(column - 1, 0), "\r": 0, "\t": column + 8 - column % 8}.get(sign, column + 1)

        # A column is a byte, as in GNU's.
        for _, data in blobs(operands, stdin):
            done = []
            for line in data.decode("latin-1").split("\n"):
                held, column = "", 0
                for sign in line:
                    if held and step(column, sign) > width:
                        cut = max(held.rfind(" "), held.rfind("\t")) + 1 if "s" in options else 0
                        done.append(held[: cut or None] + "\n")
                        held, column = held[cut:] if cut else "", 0
                        for each in held:
                            column = step(column, each)
                    held, column = held + sign, step(column, sign)
                done += [held, "\n"]
            out.buffer.write("".join(done[:-1]).encode("latin-1"))

    def column(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "tx", "sco", {"table": "t", "separator": "s", "output-separator": "o"})
        lines = [line for _, text in texts(operands, stdin) for line in lines_of(text) if line.strip(" \t")]
        mark = options.get("s")
        rows = [line.split(mark) if mark else re.split(r"[ \t]+", line.strip(" \t")) for line in lines]
        widths = [max(map(len, each)) for each in itertools.zip_longest(*rows, fillvalue="")]
        glue = options.get("o", "  ")
        for row in rows:
            out.write("".join(cell if number == len(widths) - 1 else f"{cell:<{widths[number]}}{glue}" for number, cell in enumerate(row)) + "\n")

    def digest(name):
        def run(arguments, stdin, out, err):
            options, operands = options_of(arguments, "bctqwz", longs={"check": "c", "binary": "b", "text": "t", "tag": "tag", "status": "status", "zero": "z", "warn": "w", "strict": "strict", "ignore-missing": "ignore-missing"})
            if "c" in options:
                return checked(name, operands, stdin, out, err, options)
            for each, data in blobs(operands, stdin):
                value = hashlib.new(name, data).hexdigest()
                mark = " *" if "b" in options else "  "
                out.write((f"{_TAGS[name]} ({each}) = {value}" if "tag" in options else f"{value}{mark}{each}") + ("\0" if "z" in options else "\n"))
            return 0

        return run

    def checked(name, operands, stdin, out, err, options):
        """Compares files with the digests that lists give."""
        wrong = unread = found = 0
        for _, text in texts(operands, stdin):
            for line in lines_of(text):
                match = re.fullmatch(r"([0-9a-fA-F]+) [ *](.+)", line) or re.fullmatch(r"\w+ \((?P<file>.+)\) = (?P<value>[0-9a-fA-F]+)", line)
                if match is None:
                    continue
                value, file = (match["value"], match["file"]) if "value" in match.groupdict() else (match[1], match[2])
                found += 1
                try:
                    data = stdin.buffer.read() if file == "-" else contents(file)
                except OSError as error:
                    err.write(f"{_PROGRAMS[name]}: {file}: {error.strerror}\n")
                    unread += 1
                    said = "FAILED open or read"
                else:
                    is_same = hashlib.new(name, data).hexdigest() == value.lower()
                    wrong += not is_same
                    said = "OK" if is_same else "FAILED"
                if "status" not in options and not (said == "OK" and "q" in options):
                    out.write(f"{file}: {said}\n")
        if not found:
            raise failed(f"{operands[0] if operands else 'standard input'}: no properly formatted checksum lines found")
        for count, one, many in ((unread, "listed file could not be read", "listed files could not be read"), (wrong, "computed checksum did NOT match", "computed checksums did NOT match")):
            if count and "status" not in options:
                err.write(f"{_PROGRAMS[name]}: WARNING: {count} {one if count == 1 else many}\n")
        return int(bool(wrong or unread))

    def base(encode, decode, alphabet):
        def run(arguments, stdin, out, _err):
            options, operands = options_of(arguments, "di", "w", {"ignore-garbage": "i", "wrap": "w"})
            data = next(blobs(operands[:1], stdin))[1]
            if "d" not in options:
                text, width = encode(data).decode(), int(options.get("w", 76))
                out.write("".join(f"{text[at : at + width]}\n" for at in range(0, len(text), width)) if width else text)
                return 0
            data = re.sub(b"[^" + alphabet + b"=]" if "i" in options else b"\n", b"", data)
            # Groups before a fault are written all the same.
            good = re.match(b"(?:[" + alphabet + b"]+=*)*", data)[0]
            group = 8 if decode is base64.b32decode else 4
            pieces = re.findall(b"[" + alphabet + b"]+=*", good)
            for number, piece in enumerate(pieces):
                whole = len(piece) % group == 0
                try:
                    out.buffer.write(decode(piece if whole else piece[: len(piece) // group * group]))
                    if not whole and group == 4 and b"=" not in piece and len(piece) % 4 > 1:
                        rest = piece[len(piece) // 4 * 4 :]
                        out.buffer.write(decode(rest + b"=" * (4 - len(rest))))
                except binascii.Error:
                    whole = False
                if not whole:
                    raise failed("invalid input")
            if len(good) < len(data):
                raise failed("invalid input")
            return 0

        return run

    def diff(arguments, stdin, out, _err):
        longs = {"brief": "q", "unified": "u", "ignore-all-space": "w", "ignore-space-change": "b", "ignore-blank-lines": "B", "text": "a", "report-identical-files": "s", "color": "color"}
        options, operands = options_of(arguments, "uqbwiaBsN", "U", longs)
        if len(operands) != 2:
            raise failed("missing operand" if len(operands) < 2 else f"extra operand '{operands[2]}'")
        names = [os.path.join(name, os.path.basename(other)) if os.path.isdir(name) and not os.path.isdir(other) else name for name, other in (operands, operands[::-1])]
        data = [b"" if "N" in options and name != "-" and not os.path.exists(name) else next(blobs([name], stdin))[1] for name in names]
        if data[0] == data[1]:
            out.write(f"Files {names[0]} and {names[1]} are identical\n" if "s" in options else "")
            return 0
        if "a" not in options and "q" not in options and any(b"\0" in each for each in data):
            out.write(f"Binary files {names[0]} and {names[1]} differ\n")
            return 1
        first, second = (re.findall(r"[^\n]*\n|[^\n]+", decoded(each)) for each in data)

        def looked_at(line):
            line = re.sub(r"\s+", "", line) if "w" in options else re.sub(r"[ \t]+", " ", line.rstrip()) if "b" in options else line
            return line.lower() if "i" in options else line

        keys = [[looked_at(line) for line in lines] for lines in (first, second)]
        if keys[0] == keys[1]:
            return 0
        if "q" in options:
            out.write(f"Files {names[0]} and {names[1]} differ\n")
        elif "u" in options or "U" in options:
            for line in difflib.unified_diff(first, second, *names, n=int(options.get("U", 3))):
                out.write(_with_end(line))
        else:
            _plain_diff(first, second, keys, out)
        return 1

    table.update({
        "awk": awk_, "b2sum": digest("blake2b"), "base32": base(base64.b32encode, base64.b32decode, b"A-Z2-7"),
        "base64": base(base64.b64encode, base64.b64decode, b"A-Za-z0-9+/"), "column": column, "cut": cut, "diff": diff, "fold": fold, "gawk": awk_, "md5sum": digest("md5"), "nl": nl,
        "paste": paste, "printf": printf, "rev": rev, "sed": sed, "seq": seq, "sha1sum": digest("sha1"), "sha224sum": digest("sha224"),
        "sha256sum": digest("sha256"), "sha384sum": digest("sha384"), "sha512sum": digest("sha512"),
        "tac": tac, "tee": tee, "tr": tr,
    })  # fmt: skip


def _with_end(line):
    """A line of what `diff` prints, which says where the file had no end of line."""
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _plain_diff(first, second, keys, out):
    for kind, from_, to, at, end in difflib.SequenceMatcher(None, *keys, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        sides = [f"{low + 1},{high}" if high - low > 1 else f"{low + (high > low)}" for low, high in ((from_, to), (at, end))]
        out.write(f"{sides[0]}{_CHANGES[kind]}{sides[1]}\n")
        out.write("".join(_with_end(f"< {line}") for line in first[from_:to]))
        out.write("---\n" if kind == "replace" else "")
        out.write("".join(_with_end(f"> {line}") for line in second[at:end]))
