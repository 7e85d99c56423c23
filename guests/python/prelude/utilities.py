"""Smaller commands of the shell: numbers, names of new files, files in parts, lines that files have in common."""

import ast
import decimal
import io
import os
import re
import tempfile

from _cellar_prelude import arithmetic
from _cellar_prelude.lines import lines_of, lines_with_ends

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


def _split_names():
    for first in "abcdefghijklmnopqrstuvwxyz":
        for second in "abcdefghijklmnopqrstuvwxyz":
            yield first + second


def install(table, options_of, texts_of, failed, run_words):
    """Adds the commands to a table."""

    def bc(arguments, stdin, out, err):
        calculator = _Calculator(failed, 20 if "-l" in arguments else 0)
        texts = [text for _, text in texts_of([each for each in arguments if not each.startswith("-")], stdin)]
        with decimal.localcontext(prec=_DIGITS_MAX):
            for line in re.split(r"[;\n]", "\n".join(texts)):
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
        options, operands = options_of(arguments, "d", "lbna")
        text = next(texts_of(operands[:1] if operands[:1] != ["-"] else [], stdin))[1]
        prefix = operands[1] if len(operands) > 1 else "x"
        if "b" in options:
            unit = {"k": 1 << 10, "K": 1 << 10, "m": 1 << 20, "M": 1 << 20}.get(options["b"][-1], 1)
            size = int(options["b"].rstrip("kKmM")) * unit
            parts = [text[at : at + size] for at in range(0, len(text), size)]
        else:
            lines, count = lines_with_ends(text), int(options.get("l", 1000))
            if "n" in options:
                count = -(-len(lines) // int(options["n"].rpartition("/")[2]))
            parts = ["".join(lines[at : at + count]) for at in range(0, len(lines), count)]
        names = (f"{number:02}" for number in range(100)) if "d" in options else _split_names()
        for part, name in zip(parts, names, strict=False):
            with open(prefix + name, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(part)
        if len(parts) > (100 if "d" in options else 676):
            raise failed("output file suffixes exhausted")

    def join(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "", "t12av")
        fields = int(options.get("1", 1)) - 1, int(options.get("2", 1)) - 1
        mark, tables = options.get("t"), []
        for (_, text), field in zip(texts_of(operands, stdin), fields, strict=True):
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

    def comm(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "123i")
        first, second = (lines_of(text) for _, text in texts_of(operands, stdin))
        rows, at, other = [], 0, 0
        while at < len(first) or other < len(second):
            if other >= len(second) or (at < len(first) and first[at] < second[other]):
                rows.append((0, first[at]))
                at += 1
            elif at >= len(first) or first[at] > second[other]:
                rows.append((1, second[other]))
                other += 1
            else:
                rows.append((2, first[at]))
                at, other = at + 1, other + 1
        shown = [column for column in range(3) if str(column + 1) not in options]
        out.write("".join("\t" * shown.index(column) + f"{line}\n" for column, line in rows if column in shown))

    def cmp(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "sl")
        names, texts = zip(*texts_of(operands, stdin), strict=True)
        if texts[0] == texts[1]:
            return 0
        at = next((number for number, (left, right) in enumerate(zip(*texts, strict=False)) if left != right), None)
        if "s" not in options and at is not None:
            out.write(f"{names[0]} {names[1]} differ: byte {at + 1}, line {texts[0].count(chr(10), 0, at) + 1}\n")
        elif "s" not in options:
            out.write(f"cmp: EOF on {names[len(texts[0]) > len(texts[1])]}\n")
        return 1

    def expand(arguments, stdin, out, _err):
        options, operands = options_of(arguments, "i", "t")
        for _, text in texts_of(operands, stdin):
            out.write(text.expandtabs(int(options.get("t", 8))))

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
