"""Smaller commands of the shell: numbers, names of new files, files in parts, lines that files have in common."""

import ast
import decimal
import itertools
import os
import re
import tempfile

from _cellar_prelude.shell import arithmetic
from _cellar_prelude.shell.lines import blobs, encoded, lines_of, texts
from _cellar_prelude.shell.machine import size_of

# `yes` says as many lines as the next command reads, and no more than these when it reads all.
_YES_MAX = 1_000_000
# Digits of a number of `bc`, and the largest exponent.
_DIGITS_MAX = 2_000
_POWER_MAX = 10_000
_JOINS = {
    ast.Lt: "__lt__", ast.LtE: "__le__", ast.Gt: "__gt__", ast.GtE: "__ge__", ast.Eq: "__eq__", ast.NotEq: "__ne__",
}  # fmt: skip


class _Calculator:
    """`bc`: decimal numbers with as many digits behind the point as `scale` says."""

    def __init__(self, failed, scale):
        self._names, self._failed, self.scale = {}, failed, scale

    def line(self, text):
        """What a line prints, or None."""
        match = re.fullmatch(r"\s*([a-z]\w*)\s*([-+*/%^]?)=(?!=)(.*)", text)
        if match:
            value = self._text(f"{match[1]} {match[2]} ({match[3]})" if match[2] else match[3])
            if match[1] == "scale":
                self.scale = max(0, min(int(value), 100))
            else:
                self._names[match[1]] = value
            return None
        value = self._text(text)
        shown = f"{value:f}"
        shown = shown.rstrip("0").rstrip(".") if "." in shown and not shown.split(".")[1].strip("0") and self.scale == 0 else shown
        return re.sub(r"^(-?)0\.", r"\1.", shown) if value else "0"

    def _text(self, text):
        try:
            return self._value(ast.parse(text.strip().replace("^", "**").replace("&&", " and ").replace("||", " or "), mode="eval").body)
        except (SyntaxError, decimal.DecimalException):
            raise self._failed("syntax error") from None

    def _cut(self, value, scale):
        return value.quantize(decimal.Decimal(1).scaleb(-scale), rounding=decimal.ROUND_DOWN)

    def _value(self, tree):
        if isinstance(tree, ast.Constant) and isinstance(tree.value, int | float):
            return decimal.Decimal(repr(tree.value))
        if isinstance(tree, ast.Name):
            return decimal.Decimal(self.scale) if tree.id == "scale" else self._names.get(tree.id, decimal.Decimal(0))
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub | ast.UAdd):
            value = self._value(tree.operand)
            return -value if isinstance(tree.op, ast.USub) else value
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and len(tree.args) == 1:
            return self._called(tree.func.id, self._value(tree.args[0]))
        if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
            held = getattr(self._value(tree.left), _JOINS[type(tree.ops[0])])(self._value(tree.comparators[0]))
            return decimal.Decimal(int(held))
        if isinstance(tree, ast.BinOp):
            return self._joined(type(tree.op), self._value(tree.left), self._value(tree.right))
        raise self._failed("syntax error")

    def _called(self, name, value):
        functions = {"sqrt": value.sqrt, "l": value.ln, "e": value.exp, "length": lambda: decimal.Decimal(len(value.as_tuple().digits))}
        if name not in functions:
            raise self._failed(f"there is no function {name}: sqrt, l, e and length are known")
        return self._cut(functions[name](), max(self.scale, -value.as_tuple().exponent))

    def _joined(self, kind, left, right):
        places = max(0, -left.as_tuple().exponent), max(0, -right.as_tuple().exponent)
        if kind in (ast.Div, ast.Mod) and not right:
            raise self._failed("divide by zero")
        if kind is ast.Add:
            return left + right
        if kind is ast.Sub:
            return left - right
        if kind is ast.Mult:
            return self._cut(left * right, min(sum(places), max(self.scale, *places)))
        if kind is ast.Div:
            return self._cut(left / right, self.scale)
        if kind is ast.Mod:
            return left - right * self._cut(left / right, self.scale)
        if kind is ast.Pow and right == int(right) and abs(right) <= _POWER_MAX:
            value = left ** int(right)
            return self._cut(value, self.scale if right < 0 else min(places[0] * int(right), max(self.scale, places[0])))
        raise self._failed("syntax error")


def _split_names(letters, length):
    """Names of parts, in order; without a length they grow, as GNU's do."""
    if length:
        yield from map("".join, itertools.product(letters, repeat=length))
        return
    head = ""
    while True:
        for first in letters[:-1]:
            for rest in map("".join, itertools.product(letters, repeat=1 + len(head))):
                yield head + first + rest
        head += letters[-1]


def _lacks_order(first, second):
    """Says if GNU's `join` would miss lines with these keys: it looks at their order from the first one without a partner."""
    sides, at, is_alone = (first, second), [0, 0], False
    while at[0] < len(first) or at[1] < len(second):
        ended = [place == len(side) for place, side in zip(at, sides, strict=True)]
        if any(ended):
            moves = [not each for each in ended]
        else:
            left, right = first[at[0]], second[at[1]]
            moves = [left <= right, left >= right]
        key = None if any(ended) or not all(moves) else first[at[0]]
        for number, side in enumerate(sides):
            while moves[number] and at[number] < len(side) and (key is None or side[at[number]] == key):
                at[number] += 1
                if is_alone and at[number] < len(side) and side[at[number]] < side[at[number] - 1]:
                    return True
                if key is None:
                    break
        is_alone = is_alone or (not any(ended) and not all(moves))
    return False


def install(table, options_of, failed, run_words):
    """Adds the commands to a table."""

    def bc(arguments, stdin, out, err):
        calculator = _Calculator(failed, 20 if "-l" in arguments else 0)
        given = [text for _, text in texts([each for each in arguments if not each.startswith("-")], stdin)]
        with decimal.localcontext(prec=_DIGITS_MAX):
            for line in re.split(r"[;\n]", "\n".join(given)):
                line = re.sub(r"/\*.*?\*/|#.*", "", line).strip()
                if line in ("quit", "halt"):
                    break
                if not line:
                    continue
                try:
                    shown = calculator.line(line)
                except failed as error:
                    err.write(f"(standard_in) 1: {error}\n")
                    continue
                if shown is not None:
                    out.write(f"{shown}\n")

    def expression(arguments, _stdin, out, _err):
        value = _Expr(list(arguments), failed).value()
        out.write(f"{value}\n")
        return int(value in ("", "0"))

    def yes(arguments, _stdin, out, _err):
        line = (" ".join(arguments) or "y") + "\n"
        for _ in range(_YES_MAX):
            out.write(line)

    def split(arguments, stdin, out, _err):
        longs = {"numeric-suffixes": "d", "hex-suffixes": "x", "line-bytes": "C", "number": "n", "suffix-length": "a", "additional-suffix": "additional-suffix=", "bytes": "b", "lines": "l", "elide-empty-files": "e", "separator": "t"}
        options, operands = options_of(arguments, "dxe", "lbnaCt", longs)
        data = next(blobs(operands[:1], stdin))[1]
        prefix = operands[1] if len(operands) > 1 else "x"
        mark = re.escape(encoded(options.get("t", "\n").replace("\\0", "\0")))
        lines = re.findall(b"(?:(?!" + mark + b").)*" + mark + b"|(?:(?!" + mark + b").)+", data, re.DOTALL)
        chosen = None
        if "b" in options:
            size = max(size_of(options["b"]), 1)
            parts = [data[at : at + size] for at in range(0, len(data), size)]
        elif "C" in options:
            size, parts = max(size_of(options["C"]), 1), []
            for line in lines:
                if parts and len(parts[-1]) + len(line) <= size:
                    parts[-1] += line
                else:
                    parts += [line[at : at + size] for at in range(0, len(line), size)]
        elif "n" in options:
            match = re.fullmatch(r"(?:([lr])/)?(?:(\d+)/)?(\d+)", options["n"])
            if match is None or int(match[3]) < 1:
                raise failed(f"invalid number of chunks: '{options['n']}'")
            count, size = int(match[3]), len(data) // int(match[3])
            chosen = int(match[2]) if match[2] else None
            # The last one takes the remainder, as in GNU's.
            ends = [*(size * number for number in range(1, count)), len(data)]
            if match[1] == "r":
                parts = [b"".join(lines[number::count]) for number in range(count)]
            elif match[1] == "l":
                parts, starts = [b""] * count, itertools.accumulate(map(len, lines), initial=0)
                for line, start in zip(lines, starts, strict=False):
                    parts[next((number for number, end in enumerate(ends) if start < end), count - 1)] += line
            else:
                parts = [data[start:end] for start, end in zip([0, *ends], ends, strict=False)]
            parts = [part for part in parts if part] if "e" in options else parts
        else:
            count = max(size_of(str(options.get("l", 1000))), 1)
            parts = [b"".join(lines[at : at + count]) for at in range(0, len(lines), count)]
        if chosen is not None:
            out.buffer.write(parts[chosen - 1])
            return
        letters = "0123456789" if "d" in options else "0123456789abcdef" if "x" in options else "abcdefghijklmnopqrstuvwxyz"
        length = int(options.get("a", 0)) or (len(str(len(parts) - 1)) if "n" in options and len(parts) > len(letters) ** 2 else 0)
        names = _split_names(letters, length)
        for part in parts:
            name = next(names, None)
            if name is None:
                raise failed("output file suffixes exhausted")
            with open(prefix + name + options.get("additional-suffix", ""), "wb") as file:
                file.write(part)

    def join(arguments, stdin, out, err):
        options, operands = options_of(arguments, "", "t12av")
        fields = int(options.get("1", 1)) - 1, int(options.get("2", 1)) - 1
        mark, tables = options.get("t"), []
        for (_, text), field in zip(texts(operands, stdin), fields, strict=True):
            tables.append([(row[field] if field < len(row) else "", row[:field] + row[field + 1 :]) for row in (line.split(mark) for line in lines_of(text))])
        glue, matched = mark or " ", set()
        for key, rest in tables[0]:
            found = [other for other_key, other in tables[1] if other_key == key]
            matched.update([key] if found else [])
            for other in found:
                if "v" not in options:
                    out.write(glue.join([key, *rest, *other]) + "\n")
            if not found and "1" in (options.get("a"), options.get("v")):
                out.write(glue.join([key, *rest]) + "\n")
        if "2" in (options.get("a"), options.get("v")):
            for key, rest in tables[1]:
                if key not in matched:
                    out.write(glue.join([key, *rest]) + "\n")
        keys = [[encoded(key) for key, _ in rows] for rows in tables]
        if not _lacks_order(*keys):
            return 0
        err.write("join: input is not in sorted order\n")
        return 1

    def comm(arguments, stdin, out, err):
        options, operands = options_of(arguments, "123iz", longs={"output-delimiter": "output-delimiter=", "check-order": "check-order", "nocheck-order": "nocheck-order"})
        end = "\0" if "z" in options else "\n"
        first, second = (lines_of(text, end) for _, text in texts(operands, stdin))
        rows, at, other = [], 0, 0
        keys = [list(map(encoded, lines)) for lines in (first, second)]
        while at < len(first) or other < len(second):
            if other >= len(second) or (at < len(first) and keys[0][at] < keys[1][other]):
                rows.append((0, first[at]))
                at += 1
            elif at >= len(first) or keys[0][at] > keys[1][other]:
                rows.append((1, second[other]))
                other += 1
            else:
                rows.append((2, first[at]))
                at, other = at + 1, other + 1
        shown = [column for column in range(3) if str(column + 1) not in options]
        glue = options.get("output-delimiter", "\t")
        out.write("".join(glue * shown.index(column) + f"{line}{end}" for column, line in rows if column in shown))
        wrong = [number for number, lines in enumerate(keys, 1) if lines != sorted(lines)]
        if not wrong or "nocheck-order" in options or all(column == 2 for column, _ in rows):
            return 0
        err.write("".join(f"comm: file {number} is not in sorted order\n" for number in wrong) + "comm: input is not in sorted order\n")
        return 1

    def cmp(arguments, stdin, out, err):
        options, operands = options_of(arguments, "slb", "ni", {"quiet": "s", "silent": "s", "verbose": "l", "print-bytes": "b", "bytes": "n", "ignore-initial": "i"})
        names = [*operands[:2], "-"][:2]
        given = [data for _, data in blobs(names, stdin)]
        skips = [size_of(each) for each in options.get("i", "0").split(":")] + [size_of(each) for each in operands[2:]]
        limit = size_of(options["n"]) if "n" in options else None
        given = [data[skip:][:limit] for data, skip in zip(given, [skips[0], skips[-1]], strict=True)]
        if given[0] == given[1]:
            return 0
        if "s" in options:
            return 1
        differing = [number for number, (left, right) in enumerate(zip(*given, strict=False)) if left != right]
        if "l" in options:
            width = len(str(max(map(len, given))))
            out.write("".join(f"{number + 1:>{width}} {given[0][number]:3o} {given[1][number]:3o}\n" for number in differing))
        elif differing:
            at = differing[0]
            out.write(f"{names[0]} {names[1]} differ: byte {at + 1}, line {given[0].count(10, 0, at) + 1}\n")
            return 1
        if len(given[0]) != len(given[1]):
            short = min(given, key=len)
            lines = short.count(b"\n")
            where = f", {'line' if short.endswith(chr(10).encode()) else 'in line'} {lines if short.endswith(chr(10).encode()) else lines + 1}"
            said = f" after byte {len(short)}{'' if 'l' in options else where}" if short else " which is empty"
            err.write(f"cmp: EOF on {names[given[0] != short]}{said}\n")
        return 1

    def expand(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "i", "t", {"initial": "i", "tabs": "t"})
        width = max(int(options.get("t", 8)), 1)
        # A column is a byte, as in GNU's.
        for _, data in blobs(operands, stdin):
            done, column, is_initial = [], 0, True
            for sign in data.decode("latin-1"):
                is_initial = sign == "\n" or (is_initial and sign in " \t")
                room = width - column % width if sign == "\t" else 1
                done.append(" " * room if sign == "\t" and (is_initial or "i" not in options) else sign)
                column = 0 if sign == "\n" else max(column - 1, 0) if sign == "\b" else column + room
            out.buffer.write("".join(done).encode("latin-1"))

    def new_file(arguments, _stdin, out, _err):
        options, operands = options_of(arguments, "dqtu", "p")
        template = operands[0] if operands else "tmp.XXXXXXXXXX"
        folder = options.get("p") or (os.path.dirname(template) if operands and "t" not in options else tempfile.gettempdir())
        match = re.search(r"X{3,}(?=[^X]*$)", os.path.basename(template))
        if match is None:
            raise failed(f"too few X's in template '{template}'")
        name = os.path.basename(template)
        head, tail = name[: match.start()], name[match.end() :]
        if "d" in options:
            path = tempfile.mkdtemp(tail, head, folder or ".")
        else:
            handle, path = tempfile.mkstemp(tail, head, folder or ".")
            os.close(handle)
        out.write(f"{path}\n")

    def within(skips):
        def command(arguments, stdin, out, err):
            """Runs the command behind the options."""
            rest = list(arguments)
            while rest and rest[0].startswith("-"):
                if rest.pop(0) in skips and rest:
                    rest.pop(0)
            return run_words(rest, stdin, out, err) if rest else 0

        return command

    table.update(
        {
            "bc": bc, "cmp": cmp, "comm": comm, "expand": expand, "expr": expression, "join": join, "mktemp": new_file, "nice": within(("-n",)), "nohup": within(()),
            "split": split, "stdbuf": within(("-o", "-e", "-i")), "yes": yes,
        }  # fmt: skip
    )


class _Expr:
    """`expr`: its arguments are an expression."""

    _LEVELS = (("|",), ("&",), ("=", "==", "!=", "<", "<=", ">", ">="), ("+", "-"), ("*", "/", "%"), (":",))

    def __init__(self, words, failed):
        self._words, self._failed, self._at = words, failed, 0

    def value(self):
        """The text that it comes to."""
        text = self._level(0)
        if self._at < len(self._words):
            raise self._failed("syntax error")
        return text

    def _next(self):
        if self._at >= len(self._words):
            raise self._failed("syntax error: missing argument")
        self._at += 1
        return self._words[self._at - 1]

    def _level(self, level):
        if level == len(self._LEVELS):
            return self._operand()
        left = self._level(level + 1)
        while self._at < len(self._words) and self._words[self._at] in self._LEVELS[level]:
            sign = self._next()
            left = self._joined(sign, left, self._level(level + 1))
        return left

    def _joined(self, sign, left, right):
        is_number = re.fullmatch(r"-?\d{1,18}", left) and re.fullmatch(r"-?\d{1,18}", right)
        if sign in "|&":
            is_set = left not in ("", "0")
            return left if sign == "|" and is_set else right if sign == "|" else left if is_set and right not in ("", "0") else "0"
        if sign == ":":
            match = re.match(re.sub(r"\\([()])", r"\1", right), left)
            return (match[1] or "" if match.re.groups else str(len(match[0]))) if match else "0"
        if sign in ("=", "==", "!=", "<", "<=", ">", ">="):
            first, second = (int(left), int(right)) if is_number else (left, right)
            return str(int({"=": first == second, "==": first == second, "!=": first != second, "<": first < second, "<=": first <= second, ">": first > second, ">=": first >= second}[sign]))
        if not is_number:
            raise self._failed("non-integer argument")
        try:
            return str(arithmetic.Expression(f"({left}) {sign} ({right})", None).value())
        except arithmetic.Bad as error:
            raise self._failed("division by zero" if "division" in str(error) else str(error)) from None

    def _operand(self):
        word = self._next()
        if word == "(":
            text = self._level(0)
            if self._next() != ")":
                raise self._failed("syntax error: expecting ')'")
            return text
        if word == "length" and self._at < len(self._words):
            return str(len(self._next()))
        if word == "substr" and self._at + 2 < len(self._words):
            text, start, length = self._next(), int(self._next()), int(self._next())
            return text[max(start - 1, 0) : max(start - 1, 0) + length]
        if word == "index" and self._at + 1 < len(self._words):
            text, signs = self._next(), self._next()
            return str(min((text.find(sign) + 1 for sign in signs if sign in text), default=0))
        return word
