"""Shell commands that work on texts: `sed`, `tr`, `cut`, `awk` and their kin. Each is a function as those of `commands`."""

import base64
import difflib
import hashlib
import itertools
import os
import re
import shutil

from _cellar_prelude import awk
from _cellar_prelude.lines import lines_of, lines_with_ends

# Numbers that `seq` prints, and bytes that a count may ask for, at most.
_NUMBERS_MAX = 1_000_000
_CHANGES = {"replace": "c", "insert": "a", "delete": "d"}


def pattern_of(text, is_extended):
    """A regular expression as Python has it, of a basic or an extended one."""
    text = awk.pattern_of(text)
    if is_extended:
        return text
    # In basic ones the backslash is what gives these signs their meaning.
    return re.sub(r"\\([(){}|+?])|([(){}|+?])|(\\.)", lambda match: match[1] or (f"\\{match[2]}" if match[2] else match[3]), text)


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
        if sign[1:].isdigit():
            return state[0](match[int(sign[1])] or "")
        if sign.startswith("\\"):
            return {"n": "\n", "t": "\t"}.get(sign[1], sign[1])
        return state[0](sign)

    return re.sub(r"\\.|&|[^\\&]+", one, new, flags=re.DOTALL)


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


class _Sed:
    def __init__(self, edits, is_quiet):
        self._edits, self._is_quiet = edits, is_quiet

    def run(self, text):
        """What it makes of a text."""
        out, held = [], ""
        lines = text.removesuffix("\n").split("\n") if text else []
        at = 0
        while at < len(lines):
            line, at = lines[at], at + 1
            after = []
            state = {"line": line, "held": held, "at": at, "after": after, "out": out}
            ends = self._apply(self._edits, state, lines)
            held, at = state["held"], state["at"]
            if ends != "d" and not self._is_quiet:
                out.append(state["line"])
            out += after
            if ends == "q":
                break
        return "".join(f"{line}\n" for line in out)

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
                    state["out"].append(state["line"])
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
            else:
                self._small(name, edit, state)
        return None

    @staticmethod
    def _small(name, edit, state):
        if name == "p":
            state["out"].append(state["line"])
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
            state["line"] = state["held"] if name == "g" else state["line"] + "\n" + state["held"]
        elif name == "x":
            state["line"], state["held"] = state["held"], state["line"]


def install(table, options_of, texts_of, failed):
    """Adds the commands to a table; the functions read options and texts, and the exception is of a command that fails."""

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
        options, operands = options_of(rest, "nErsuz")
        script = "\n".join(scripts) if scripts else operands.pop(0)
        for group in [[name] for name in operands] if place is not None else [operands]:
            edits = _Script(script, bool(options.keys() & {"E", "r"})).read()
            text = _Sed(edits, "n" in options).run("".join(text for _, text in texts_of(group, stdin)))
            if place is None:
                out.write(text)
            else:
                if place:
                    shutil.copy(group[0], place.replace("*", os.path.basename(group[0])) if "*" in place else group[0] + place)
                with open(group[0], "w", encoding="utf-8") as file:
                    file.write(text)

    def awk_(arguments, stdin, out, _err):
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
                with open(value, encoding="utf-8") as file:
                    text = file.read()
            else:
                raise failed(f"unknown option {each}")
        text = arguments.pop(0) if text is None else text
        try:
            return awk.Program(text, variables, out).run((("" if name == "-" else name), found) for name, found in texts_of(arguments, stdin))
        except awk.Bad as error:
            raise failed(str(error)) from None

    def signs(text):
        text = awk.unescaped(text)
        names = {"alpha": "A-Za-z", "digit": "0-9", "alnum": "A-Za-z0-9", "upper": "A-Z", "lower": "a-z", "space": " \t\n\r\f\v", "blank": " \t",
                 "punct": "".join(sign for sign in map(chr, range(33, 127)) if not sign.isalnum())}  # fmt: skip
        found = []
        for part in re.finditer(r"\[:(\w+):\]|(.)-(.)|(.)", text, re.DOTALL):
            if part[1]:
                inner = names.get(part[1], "")
                found += signs(inner) if "-" in inner and part[1] != "punct" else list(inner)
            elif part[2]:
                found += map(chr, range(ord(part[2]), ord(part[3]) + 1))
            else:
                found.append(part[4])
        return found

    def tr(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "dsccC")
        first = signs(operands[0])
        second = signs(operands[1]) if len(operands) > 1 else []
        text = stdin.read()
        if "c" in options or "C" in options:
            kept = set(first)
            first = [sign for sign in sorted(set(text)) if sign not in kept]
        if "d" in options:
            text = text.translate(dict.fromkeys(map(ord, first)))
        elif second:
            second += [second[-1]] * (len(first) - len(second))
            text = text.translate({ord(old): new for old, new in reversed(list(zip(first, second, strict=False)))})
        if "s" in options:
            squeezed = re.escape("".join(second or first))
            text = re.sub(f"([{squeezed}])\\1+", r"\1", text) if squeezed else text
        out.write(text)

    def ranges(text):
        for part in text.split(","):
            first, dash, last = part.partition("-")
            yield int(first or 1) - 1, (int(last) if last else None) if dash else int(first)

    def cut(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "s", "dfcb")
        wanted = options.get("f") or options.get("c") or options.get("b")
        if not wanted:
            raise failed("you must specify a list of bytes, characters, or fields")
        separator = options.get("d", "\t")
        output = options.get("output-delimiter", separator)
        spans = list(ranges(wanted))
        for _, text in texts_of(operands, stdin):
            for line in lines_of(text):
                parts = line.split(separator) if "f" in options else list(line)
                if "f" in options and len(parts) == 1:
                    out.write("" if "s" in options else f"{line}\n")
                    continue
                numbers = sorted({number for first, last in spans for number in range(len(parts))[first:last]})
                out.write((output if "f" in options else "").join(parts[number] for number in numbers) + "\n")

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

    def printf(arguments, _stdin, out, _err):
        form, values = awk.unescaped(arguments[0]), list(arguments[1:])
        count = len(re.findall(r"%[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]", form))
        while True:
            group, values = values[:count], values[count:]
            kinds = re.findall(r"%[-+ #0]*\d*(?:\.\d+)?([a-zA-Z])", form)
            changes = {"b": awk.unescaped, "q": lambda text: re.sub(r"([^\w@%+=:,./-])", r"\\\1", text) or "''"}
            group = [changes.get(kind, str)(each) for kind, each in zip(kinds, group, strict=False)]
            out.write(awk.printf(re.sub(r"(%[-+ #0]*\d*(?:\.\d+)?)[bq]", r"\1s", form), [awk._Field(each) for each in group]))
            if not values or not count:
                break

    def tee(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "a")
        text = stdin.read()
        for name in operands:
            with open(name, "a" if "a" in options else "w", encoding="utf-8", errors="surrogateescape", newline="") as file:
                file.write(text)
        out.write(text)

    def tac(arguments, stdin, out, _err):
        for _, text in texts_of(options_of(arguments, "")[1], stdin):
            out.write("".join(f"{line}\n" for line in reversed(lines_of(text))))

    def rev(arguments, stdin, out, _err):
        for _, text in texts_of(options_of(arguments, "")[1], stdin):
            out.write("".join(f"{line[::-1]}\n" for line in lines_of(text)))

    def nl(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "", "bwn")
        number = 0
        for _, text in texts_of(operands, stdin):
            for line in lines_of(text):
                counts = bool(line) or options.get("b") == "a"
                number += counts
                out.write(f"{number:6}\t{line}\n" if counts else f"       {line}\n")

    def paste(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "s", "d")
        columns = [lines_of(text) for _, text in texts_of(operands, stdin)]
        separator = awk.unescaped(options.get("d", "\t"))
        rows = columns if "s" in options else itertools.zip_longest(*columns, fillvalue="")
        out.write("".join(f"{separator.join(row)}\n" for row in rows))

    def fold(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "s", "w")
        width = max(int(options.get("w", 80)), 1)
        for _, text in texts_of(operands, stdin):
            for line in lines_of(text):
                out.write("".join(f"{line[at : at + width]}\n" for at in range(0, max(len(line), 1), width)))

    def column(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "tx", "s")
        rows = [line.split(options.get("s")) for _, text in texts_of(operands, stdin) for line in lines_of(text)]
        widths = [max(map(len, each)) for each in itertools.zip_longest(*rows, fillvalue="")]
        for row in rows:
            out.write("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)).rstrip() + "\n")

    def digest(name):
        def run(arguments, stdin, out, _err):
            for each in options_of(arguments, "b")[1] or ["-"]:
                data = stdin.read().encode("utf-8", "surrogateescape") if each == "-" else _bytes(each)
                out.write(f"{hashlib.new(name, data).hexdigest()}  {each}\n")

        return run

    def base(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "di", "w")
        data = stdin.read().encode("utf-8", "surrogateescape") if not operands or operands[0] == "-" else _bytes(operands[0])
        if "d" in options or "decode" in options:
            out.write(base64.b64decode(data).decode("utf-8", "surrogateescape"))
            return
        text, width = base64.b64encode(data).decode(), int(options.get("w", 76))
        out.write("".join(f"{text[at : at + width]}\n" for at in range(0, len(text), width)) if width else text)

    def diff(arguments, _stdin, out, _err):
        options, operands = options_of(arguments, "uqbwiy", "U")
        first, second = (lines_with_ends(_bytes(name).decode("utf-8", "replace")) for name in operands[:2])
        if first == second:
            return 0
        if "q" in options:
            out.write(f"Files {operands[0]} and {operands[1]} differ\n")
        elif "u" in options or "U" in options:
            out.write("".join(f"{line.removesuffix(chr(10))}\n" for line in difflib.unified_diff(first, second, *operands[:2])))
        else:
            _plain_diff(first, second, out)
        return 1

    table.update({
        "awk": awk_, "b2sum": digest("blake2b"), "base64": base, "column": column, "cut": cut, "diff": diff, "fold": fold, "gawk": awk_, "md5sum": digest("md5"), "nl": nl,
        "paste": paste, "printf": printf, "rev": rev, "sed": sed, "seq": seq, "sha1sum": digest("sha1"), "sha224sum": digest("sha224"),
        "sha256sum": digest("sha256"), "sha512sum": digest("sha512"),
        "tac": tac, "tee": tee, "tr": tr,
    })  # fmt: skip


def _bytes(name):
    with open(name, "rb") as file:
        return file.read()


def _plain_diff(first, second, out):
    for kind, from_, to, at, end in difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        if kind == "equal":
            continue
        sides = [f"{low + 1},{high}" if high - low > 1 else f"{low + (high > low)}" for low, high in ((from_, to), (at, end))]
        out.write(f"{sides[0]}{_CHANGES[kind]}{sides[1]}\n")
        out.write("".join(f"< {line.removesuffix(chr(10))}\n" for line in first[from_:to]))
        out.write("---\n" if kind == "replace" else "")
        out.write("".join(f"> {line.removesuffix(chr(10))}\n" for line in second[at:end]))
