"""`awk`: a program is read into functions of Python, and run over the lines of its files."""

import math
import random
import re
import time

from _cellar_prelude.shell.lines import Stream, decoded, encoded

# Surrogates that stand for bytes, in a class of signs.
_NO_SIGNS = "\udc80-\udcff"
# Arrays and fields are addressed by texts; several subscripts are joined by this.
_SUBSCRIPT = "\x1c"
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r]+|\\\n|\#[^\n]*)|(?P<number>\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)|(?P<text>"(?:\\.|[^"\\])*")
    |(?P<name>[A-Za-z_]\w*)|(?P<sign>\+\+|--|\+=|-=|\*=|/=|%=|\^=|\*\*|==|<=|>=|!=|!~|&&|\|\||>>|[-+*/%^!~<>=?:,;(){}\[\]$|\n])""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "/": "/", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_KEYWORDS = frozenset("BEGIN END if else while for do in next exit break continue delete print printf function func return getline".split())
_DEPTH_MAX = 60


class Bad(Exception):
    """A program that is none, or that asks for what there is not."""


class _Next(Exception):
    """`next`."""


class _Exit(Exception):
    """`exit`."""


class _Break(Exception):
    """`break`."""


class _Continue(Exception):
    """`continue`."""


class _Return(Exception):
    """`return`."""


class _Field(str):
    """A text from the input, which is a number where it looks like one."""


class _Unset(_Field):
    """What was never set: an empty text, and the number 0."""


def unescaped(text):
    """A text with its `\\n` and the like replaced. Bytes that are UTF-8 together are the sign that they stand for."""
    text = re.sub(r"\\(?:x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4})|0?([0-7]{1,3})|(.))", _unescaped, text)
    return decoded(encoded(text))


def _unescaped(match):
    if match[4]:
        return _ESCAPES.get(match[4], match[0])
    number = int(match[1] or match[2], 16) if match[1] or match[2] else int(match[3], 8) & 0xFF
    return chr(0xDC00 + number) if number > 127 and not match[2] else chr(number)


def pattern_of(text):
    """A regular expression as Python has it, of an extended one. Bytes that are no text are no signs that `.` stands for."""

    def one(match):
        part = match[0]
        return f"[^{_NO_SIGNS}]" if part == "." else f"[^{_NO_SIGNS}{part[2:]}" if part.startswith("[^") and not part.startswith("[^]") else part

    return re.sub(r"\\.|\[\^?\]?(?:\[:\w+:\]|[^\]])*\]|\.", one, classes_of(text), flags=re.DOTALL)


def classes_of(text):
    """The expression with its classes of signs written out."""
    classes = {"alpha": "A-Za-z", "digit": "0-9", "alnum": "A-Za-z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s", "blank": r" \t",
               "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9A-Fa-f"}  # fmt: skip
    return re.sub(r"\[:(\w+):\]", lambda match: classes.get(match[1], match[0]), text)


def _tokens(text):
    found, at = [], 0
    while at < len(text):
        # A slash begins a pattern where no value stands before it.
        if text[at] == "/" and (not found or found[-1][0] not in ("number", "text", "name", "value") and found[-1][1] not in (")", "]", "$")):
            match = re.compile(r"/((?:\\.|\[[^\]]*\]|[^/\\\n])*)/").match(text, at)
            if match is None:
                raise Bad("unterminated regexp")
            found.append(("pattern", match[1].replace("\\/", "/")))
            at = match.end()
            continue
        match = _TOKEN.match(text, at)
        if match is None:
            raise Bad(f"syntax error at {text[at : at + 20]!r}")
        at = match.end()
        kind = match.lastgroup
        if kind == "space":
            continue
        value = match[0]
        if kind == "name" and value in _KEYWORDS:
            kind = "word"
        found.append((kind, unescaped(value[1:-1]) if kind == "text" else value, text[at : at + 1] == "("))
    return [*found, ("end", "", False)]


def _number(value):
    if isinstance(value, str):
        match = re.match(r"\s*[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+)", value)
        return float(match[0]) if match else 0.0
    return value


def _is_numeric(value):
    return not isinstance(value, str) or isinstance(value, _Unset) or (isinstance(value, _Field) and re.fullmatch(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*", value) is not None)


def text_of(value, form="%.6g"):
    """A value as a text."""
    if isinstance(value, str):
        return str(value)
    return str(int(value)) if value == int(value) and abs(value) < 1e16 else form % value if not math.isinf(value) else str(value)


def _truth(value):
    return _number(value) != 0 if _is_numeric(value) else value != ""


def _compare(left, right, kind):
    if not (_is_numeric(left) and _is_numeric(right)):
        left, right = text_of(left), text_of(right)
    else:
        left, right = _number(left), _number(right)
    return float({"<": left < right, "<=": left <= right, "==": left == right, "!=": left != right, ">": left > right, ">=": left >= right}[kind])


def printf(form, values):
    """What `printf` makes of its format and values."""
    values = list(values)

    def one(match):
        if match[0] == "%%":
            return "%"
        flags = match[1]
        while "*" in flags:
            flags = flags.replace("*", str(int(_number(values.pop(0)) if values else 0)), 1)
        kind, value = match[2], values.pop(0) if values else ""
        if kind == "c":
            return f"%{flags}s" % (text_of(value)[:1] if isinstance(value, str) else chr(int(value)))
        if kind == "s":
            return f"%{flags}s" % text_of(value)
        return f"%{flags}{kind.replace('i', 'd').replace('u', 'd')}" % (int(_number(value)) if kind in "dioxXu" else _number(value))

    return re.sub(r"%([-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?)([diouxXeEfFgGcs%])", one, form)


class Program:
    """A program and what it keeps while it runs."""

    def __init__(self, text, variables, out, err):
        self._tokens, self._at, self._depth = _tokens(text), 0, 0
        self.out, self._err, self._files = out, err, {}
        self.names = {"FS": " ", "OFS": " ", "ORS": "\n", "RS": "\n", "NR": 0.0, "FNR": 0.0, "SUBSEP": _SUBSCRIPT, "FILENAME": "", "OFMT": "%.6g", "CONVFMT": "%.6g"}
        self.names.update(variables)
        self.functions, self._begin, self._end, self._rules = {}, [], [], []
        self._fields, self._line, self._random = [], "", random.Random(0)
        self._patterns, self._match = {}, None
        self._read()

    # Reading

    def _peek(self):
        return self._tokens[self._at]

    def _is(self, *signs):
        token = self._peek()
        return token[0] in ("sign", "word") and token[1] in signs

    def _take(self):
        self._at += 1
        return self._tokens[self._at - 1][1]

    def _accept(self, *signs):
        return self._take() if self._is(*signs) else None

    def _need(self, sign):
        if not self._is(sign):
            raise Bad(f"syntax error near {self._peek()[1]!r}, where {sign!r} should be")
        return self._take()

    def _skip(self, *signs):
        while self._is("\n", *signs):
            self._take()

    def _read(self):
        self._skip(";")
        while self._peek()[0] != "end":
            if self._accept("function", "func"):
                self._function()
            elif self._accept("BEGIN"):
                self._begin.append(self._block())
            elif self._accept("END"):
                self._end.append(self._block())
            else:
                self._rule()
            self._skip(";")

    def _function(self):
        name = self._take()
        self._need("(")
        names = []
        while not self._is(")"):
            names.append(self._take())
            self._accept(",")
        self._take()
        self._skip()
        self.functions[name] = (names, self._block())

    def _rule(self):
        first = last = None
        if not self._is("{"):
            first = self._expression()
            if self._accept(","):
                last = self._expression()
        body = self._block() if self._is("{") else (lambda: self._print([]))
        self._rules.append([first, last, body, False])

    def _block(self):
        self._skip()
        self._need("{")
        parts = []
        self._skip(";")
        while not self._is("}"):
            parts.append(self._statement())
            self._skip(";")
        self._take()

        def run():
            for part in parts:
                part()

        return run

    def _body(self):
        self._skip()
        if self._accept(";"):
            return lambda: None
        return self._block() if self._is("{") else self._statement()

    def _statement(self):
        if self._is("{"):
            return self._block()
        readers = {"if": self._if, "while": self._while, "do": self._do, "for": self._for}
        for word, reader in readers.items():
            if self._accept(word):
                return reader()
        return self._simple()

    def _simple(self):
        for word, kind in (("next", _Next), ("break", _Break), ("continue", _Continue)):
            if self._accept(word):
                return lambda kind=kind: _raise(kind())
        for word, kind in (("exit", _Exit), ("return", _Return)):
            if self._accept(word):
                value = None if self._is(";", "\n", "}") or self._peek()[0] == "end" else self._expression()
                return lambda kind=kind: _raise(kind(value() if value else ""))
        if self._accept("delete"):
            name = self._take()
            if not self._accept("["):
                return lambda: self._array(name).clear()
            key = self._subscript()
            return lambda: self._array(name).pop(key(), None)
        if self._is("print", "printf"):
            return self._output(self._take())
        return self._expression()

    def _output(self, kind):
        values = []
        if not self._is(";", "\n", "}", ">", ">>", "|") and self._peek()[0] != "end":
            values = self._values()
        target = None
        if self._is(">", ">>", "|"):
            way = self._take()
            if way == "|":
                raise Bad("pipes to commands are not available in this awk")
            target = (way, self._joined())

        def run():
            found = [value() for value in values]
            out = self.out if target is None else self._file(target[0], text_of(target[1]()))
            if kind == "printf":
                out.write(printf(text_of(found[0]), found[1:]))
            else:
                self._print(found, out)

        return run

    def _values(self):
        """Values that `print` shows, of which a `>` is no part; parentheses may stand around all."""
        if self._is("("):
            start = self._at
            self._take()
            values = [self._expression()]
            while self._accept(","):
                self._skip()
                values.append(self._expression())
            self._need(")")
            if self._is(";", "\n", "}", ">", ">>", "|") or self._peek()[0] == "end":
                return values
            self._at = start
        values = [self._expression(no_greater=True)]
        while self._accept(","):
            self._skip()
            values.append(self._expression(no_greater=True))
        return values

    def _file(self, way, name):
        if name in ("/dev/stdout", "/dev/stderr"):
            return self.out if name == "/dev/stdout" else self._err
        if name not in self._files:
            if len(self._files) >= 100:
                raise Bad("too many open files")
            self._files[name] = Stream(open(name, "ab" if way == ">>" else "wb"))
        return self._files[name]

    def close(self, name):
        """Closes a file that was printed into; what is printed there next begins it anew."""
        file = self._files.pop(name, None)
        if file is not None:
            file.close()
        return 0.0 if file is not None else -1.0

    def _print(self, values, out=None):
        texts = [text_of(value, self.names["OFMT"]) for value in values] if values else [self._line]
        (out or self.out).write(text_of(self.names["OFS"]).join(texts) + text_of(self.names["ORS"]))

    def _if(self):
        self._need("(")
        condition = self._expression()
        self._need(")")
        body, other = self._body(), None
        at = self._at
        self._skip(";")
        if self._accept("else"):
            other = self._body()
        else:
            self._at = at

        def run():
            if _truth(condition()):
                body()
            elif other:
                other()

        return run

    @staticmethod
    def _loop(condition, body, step=None):
        while _truth(condition()):
            try:
                body()
            except _Break:
                break
            except _Continue:
                pass
            if step:
                step()

    def _while(self):
        self._need("(")
        condition = self._expression()
        self._need(")")
        body = self._body()
        return lambda: self._loop(condition, body)

    def _do(self):
        body = self._body()
        self._skip(";")
        self._need("while")
        self._need("(")
        condition = self._expression()
        self._need(")")

        def run():
            try:
                body()
                self._loop(condition, body)
            except (_Break, _Continue):
                pass

        return run

    def _for(self):
        self._need("(")
        ahead = [token[1] for token in self._tokens[self._at : self._at + 4]]
        if ahead[1:2] == ["in"] and ahead[3:4] == [")"]:
            name, array = self._take(), self._take() and self._take()
            self._need(")")
            body = self._body()

            def each():
                for key in list(self._array(array)):
                    self.set(name, _Field(key))
                    try:
                        body()
                    except _Break:
                        break
                    except _Continue:
                        pass

            return each
        begin = None if self._is(";") else self._simple()
        self._need(";")
        condition = (lambda: 1.0) if self._is(";") else self._expression()
        self._need(";")
        step = None if self._is(")") else self._simple()
        self._need(")")
        body = self._body()

        def run():
            if begin:
                begin()
            self._loop(condition, body, step)

        return run

    # Expressions: each reader gives a function without arguments

    def _expression(self, no_greater=False):
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise Bad("expressions are nested too deep")
        try:
            return self._choice(no_greater)
        finally:
            self._depth -= 1

    def _choice(self, no_greater):
        condition = self._or(no_greater)
        if self._accept("?"):
            first = self._expression(no_greater)
            self._skip()
            self._need(":")
            second = self._expression(no_greater)
            return lambda: first() if _truth(condition()) else second()
        if self._is("=", "+=", "-=", "*=", "/=", "%=", "^="):
            sign, place = self._take(), self._place_of(condition)
            value = self._expression(no_greater)
            if sign == "=":
                return lambda: place(value())
            return lambda: place(_arithmetic(sign[0], _number(condition()), _number(value())))
        return condition

    def _or(self, no_greater):
        left = self._and(no_greater)
        while self._accept("||"):
            self._skip()
            left = (lambda left, right: lambda: float(_truth(left()) or _truth(right())))(left, self._and(no_greater))
        return left

    def _and(self, no_greater):
        left = self._in(no_greater)
        while self._accept("&&"):
            self._skip()
            left = (lambda left, right: lambda: float(_truth(left()) and _truth(right())))(left, self._in(no_greater))
        return left

    def _in(self, no_greater):
        left = self._matching(no_greater)
        while self._accept("in"):
            left = (lambda left, name: lambda: float(text_of(left()) in self._array(name)))(left, self._take())
        return left

    def _matching(self, no_greater):
        left = self._compared(no_greater)
        while self._is("~", "!~"):
            sign = self._take()
            right = self._pattern(lambda: self._compared(no_greater))
            left = (lambda left, right, sign: lambda: float(bool(right().search(text_of(left()))) == (sign == "~")))(left, right, sign)
        return left

    def _pattern(self, reader):
        """A function that gives a compiled pattern: of the pattern that stands here, or of a value."""
        if self._peek()[0] == "pattern":
            text = self._take()
            return lambda: self._compiled(text)
        value = reader()
        return lambda: self._compiled(text_of(value()))

    def _compiled(self, text):
        found = self._patterns.get(text)
        if found is None:
            if len(self._patterns) > 500:
                self._patterns.clear()
            try:
                found = self._patterns[text] = re.compile(pattern_of(text))
            except re.error as error:
                raise Bad(f"bad regexp {text!r}: {error}") from None
        return found

    def _compared(self, no_greater):
        left = self._joined()
        signs = ("<", "<=", "==", "!=", ">=") if no_greater else ("<", "<=", "==", "!=", ">", ">=")
        if self._is(*signs):
            sign, right = self._take(), self._joined()
            return lambda: _compare(left(), right(), sign)
        return left

    def _joined(self):
        parts = [self._sum()]
        while self._peek()[0] in ("number", "text", "name") or self._is("$", "(", "++", "--"):
            if self._is("in"):
                break
            parts.append(self._sum())
        if len(parts) == 1:
            return parts[0]
        return lambda: "".join([text_of(part(), self.names["CONVFMT"]) for part in parts])

    def _sum(self):
        left = self._product()
        while self._is("+", "-"):
            left = self._operation(self._take(), left, self._product())
        return left

    def _product(self):
        left = self._unary()
        while self._is("*", "/", "%"):
            left = self._operation(self._take(), left, self._unary())
        return left

    @staticmethod
    def _operation(sign, left, right):
        return lambda: _arithmetic(sign, _number(left()), _number(right()))

    def _unary(self):
        if self._accept("!"):
            value = self._unary()
            return lambda: float(not _truth(value()))
        if self._is("-", "+"):
            sign, value = self._take(), self._unary()
            return lambda: -_number(value()) if sign == "-" else _number(value())
        return self._power()

    def _power(self):
        base = self._postfix()
        if self._accept("^", "**"):
            return self._operation("^", base, self._unary())
        return base

    def _postfix(self):
        if self._is("++", "--"):
            step = 1.0 if self._take() == "++" else -1.0
            value = self._primary()
            place = self._place_of(value)
            return lambda: place(_number(value()) + step)
        value = self._primary()
        if self._is("++", "--") and value in self._places:
            step, place = (1.0 if self._take() == "++" else -1.0), self._place_of(value)

            def run():
                before = _number(value())
                place(before + step)
                return before

            return run
        return value

    _places = {}

    def _place_of(self, value):
        """How what an expression names is set."""
        place = self._places.get(value)
        if place is None:
            raise Bad("something is assigned to that is no variable")
        return place

    def _assignable(self, value, place):
        if self._places is Program._places:
            self._places = {}
        self._places[value] = place
        return value

    def _primary(self):
        kind, text, is_called = (*self._peek(), False)[:3]
        if kind == "number":
            self._take()
            value = float(text)
            return lambda: value
        if kind == "text":
            self._take()
            return lambda: text
        if kind == "pattern":
            self._take()
            return lambda: float(bool(self._compiled(text).search(self._line)))
        if self._accept("("):
            value = self._expression()
            if self._is(","):
                values = [value]
                while self._accept(","):
                    values.append(self._expression())
                self._need(")")
                return lambda: _SUBSCRIPT.join(text_of(each()) for each in values)
            self._need(")")
            # `(a) in b`, and places in parentheses, stay what they are.
            return value
        if self._accept("$"):
            index = self._postfix() if self._is("++", "--") else self._primary()
            return self._assignable(lambda: self.field(int(_number(index()))), lambda value: self.set_field(int(_number(index())), value))
        if kind != "name":
            raise Bad(f"syntax error near {text!r}")
        self._take()
        if is_called or (text in _FUNCTIONS and self._is("(")) or text in ("length",):
            return self._call(text)
        if self._accept("["):
            key = self._subscript()
            return self._assignable(lambda: self._array(text).setdefault(key(), _Unset()), lambda value: self._store(text, key(), value))
        return self._assignable(lambda: self.get(text), lambda value: self.set(text, value))

    def _subscript(self):
        keys = [self._expression()]
        while self._accept(","):
            keys.append(self._expression())
        self._need("]")
        return lambda: text_of(keys[0]()) if len(keys) == 1 else _SUBSCRIPT.join(text_of(key()) for key in keys)

    def _call(self, name):
        arguments, raw = [], []
        if self._accept("("):
            self._skip()
            while not self._is(")"):
                raw.append(self._peek())
                is_pattern = name in ("match", "sub", "gsub", "split") and self._peek()[0] == "pattern"
                arguments.append(self._pattern(self._expression) if is_pattern else self._expression())
                self._accept(",")
                self._skip()
            self._take()
        if name in _FUNCTIONS:
            own = _FUNCTIONS[name]
            return lambda: own(self, arguments, raw)
        return lambda: self._call_own(name, arguments, raw)

    def _call_own(self, name, arguments, raw):
        if name not in self.functions:
            raise Bad(f"function {name} not defined")
        names, body = self.functions[name]
        values = []
        for argument, token in zip(arguments, raw, strict=True):
            is_array = token[0] == "name" and isinstance(self.names.get(token[1]), dict)
            values.append(self.names[token[1]] if is_array else argument())
        kept = {each: self.names.get(each) for each in names}
        self._depth += 1
        try:
            if self._depth > 200:
                raise Bad("function calls are nested too deep")
            for number, each in enumerate(names):
                self.names.pop(each, None)
                if number < len(values):
                    self.names[each] = values[number]
            body()
        except _Return as end:
            return end.args[0]
        finally:
            self._depth -= 1
            for each, value in kept.items():
                self.names.pop(each, None)
                if value is not None:
                    self.names[each] = value
        return ""

    # What it keeps

    def get(self, name):
        """The value of a variable."""
        if name == "NF":
            return float(len(self._fields))
        value = self.names.get(name, _Unset())
        if isinstance(value, dict):
            raise Bad(f"{name} is an array")
        return value

    def set(self, name, value):
        """Sets a variable."""
        if name == "NF":
            count = int(_number(value))
            if count > 100_000:
                raise Bad("too many fields")
            self._fields = [*self._fields, *[_Field("")] * count][:count]
            self._rebuild()
        else:
            self.names[name] = value
        return value

    def _array(self, name):
        found = self.names.setdefault(name, {})
        if not isinstance(found, dict):
            raise Bad(f"{name} is no array")
        return found

    def _store(self, name, key, value):
        self._array(name)[key] = value
        return value

    def field(self, number):
        """The field of this number; 0 is the line."""
        if number == 0:
            return _Field(self._line)
        return self._fields[number - 1] if 0 < number <= len(self._fields) else _Unset()

    def set_field(self, number, value):
        """Sets a field, and makes the line anew."""
        if number == 0:
            self.set_line(text_of(value))
            return value
        if not 0 < number <= 100_000:
            raise Bad(f"there is no field {number}")
        self._fields += [_Field("")] * (number - len(self._fields))
        self._fields[number - 1] = _Field(text_of(value))
        self._rebuild()
        return value

    def _rebuild(self):
        self._line = text_of(self.names["OFS"]).join(self._fields)

    def set_line(self, line):
        """Takes a line apart."""
        self._line = line
        self._fields = [_Field(each) for each in self.split(line, text_of(self.names["FS"]))]

    def split(self, text, separator):
        """The parts of a text: separated by white space, by a sign, or by what a pattern matches."""
        if separator == " ":
            return text.split()
        if not text:
            return []
        if separator == "":
            return list(text)
        return text.split(separator) if len(separator) == 1 else re.split(self._compiled(separator), text)

    # Running

    def run(self, sources):
        """Runs it over (name, text) pairs; its exit status."""
        status = 0
        try:
            for part in self._begin:
                part()
            if self._rules or self._end:
                self._over(sources)
        except _Exit as end:
            status = int(_number(end.args[0]))
        try:
            for part in self._end:
                part()
        except _Exit as end:
            status = int(_number(end.args[0]))
        finally:
            for file in self._files.values():
                file.close()
        return status

    def _over(self, sources):
        for name, text in sources:
            self.names.update(FILENAME=name, FNR=0.0)
            separator = text_of(self.names["RS"])
            lines = re.split(r"\n\n+", text.strip("\n")) if separator == "" else text.removesuffix(separator).split(separator) if text else []
            for line in lines:
                self.names["NR"] += 1.0
                self.names["FNR"] += 1.0
                self.set_line(line)
                try:
                    for rule in self._rules:
                        if self._applies(rule):
                            rule[2]()
                except _Next:
                    continue

    @staticmethod
    def _applies(rule):
        first, last, _, is_open = rule
        if last is None:
            return first is None or _truth(first())
        if not is_open and not _truth(first()):
            return False
        rule[3] = not _truth(last())
        return True

    def substitute(self, arguments, raw, count):
        """`sub` and `gsub`: replaces what a pattern matches in a place; how often."""
        pattern = arguments[0]()
        pattern = pattern if isinstance(pattern, re.Pattern) else self._compiled(text_of(pattern))
        new = text_of(arguments[1]())
        value = arguments[2] if len(arguments) > 2 else None
        text = text_of(value()) if value else self._line

        def filled(match):
            return re.sub(r"\\\\|\\&|&", lambda sign: {"\\\\": "\\", "\\&": "&", "&": match[0]}[sign[0]], new)

        text, times = pattern.subn(filled, text, count=count)
        if times:
            self._place_of(value)(text) if value else self.set_line(text)
        return float(times)

    def search(self, arguments):
        """`match`: where a pattern matches, from 1; 0 when it does not."""
        pattern = arguments[1]()
        pattern = pattern if isinstance(pattern, re.Pattern) else self._compiled(text_of(pattern))
        found = pattern.search(text_of(arguments[0]()))
        self.names.update(RSTART=float(found.start() + 1) if found else 0.0, RLENGTH=float(len(found[0])) if found else -1.0)
        return self.names["RSTART"]

    def fill(self, arguments, raw):
        """`split`: the parts of a text in an array; how many there are."""
        separator = arguments[2]() if len(arguments) > 2 else self.names["FS"]
        text = text_of(arguments[0]())
        parts = separator.split(text) if isinstance(separator, re.Pattern) else self.split(text, text_of(separator))
        array = self._array(raw[1][1])
        array.clear()
        array.update((str(number), _Field(part)) for number, part in enumerate(parts, 1))
        return float(len(parts))

    def length(self, arguments, raw):
        """`length` of a text, of an array, or of the line."""
        if not arguments:
            return float(len(self._line))
        if raw[0][0] == "name" and isinstance(self.names.get(raw[0][1]), dict):
            return float(len(self.names[raw[0][1]]))
        return float(len(text_of(arguments[0]())))

    def random(self, seed=None):
        """`rand`, or `srand` when there is a seed."""
        if seed is None:
            return self._random.random()
        self._random.seed(seed)
        return 0.0


def _raise(error):
    raise error


def _arithmetic(sign, left, right):
    if sign in "/%" and right == 0:
        raise Bad("division by zero")
    try:
        return {"+": lambda: left + right, "-": lambda: left - right, "*": lambda: left * right, "/": lambda: left / right, "%": lambda: math.fmod(left, right), "^": lambda: left**right}[sign]()
    except OverflowError:
        return math.inf


def _substr(values):
    text, start = text_of(values[0]), round(_number(values[1]))
    end = len(text) + 1 if len(values) < 3 else start + round(_number(values[2]))
    return text[max(start, 1) - 1 : max(end - 1, 0)]


def _plain(function):
    return lambda _program, arguments, _raw: function([argument() for argument in arguments])


def _strftime(values):
    form = text_of(values[0]) if values else "%a %b %e %H:%M:%S %Z %Y"
    return time.strftime(form, time.localtime(_number(values[1]) if len(values) > 1 else None))


_FUNCTIONS = {
    "close": lambda program, arguments, _raw: program.close(text_of(arguments[0]())),
    "fflush": _plain(lambda _values: 0.0),
    "strftime": _plain(_strftime),
    "systime": _plain(lambda _values: float(int(time.time()))),
    "atan2": _plain(lambda values: math.atan2(_number(values[0]), _number(values[1]))),
    "cos": _plain(lambda values: math.cos(_number(values[0]))),
    "exp": _plain(lambda values: math.exp(min(_number(values[0]), 700.0))),
    "gsub": lambda program, arguments, raw: program.substitute(arguments, raw, 0),
    "index": _plain(lambda values: float(text_of(values[0]).find(text_of(values[1])) + 1)),
    "int": _plain(lambda values: float(int(_number(values[0])))),
    "length": lambda program, arguments, raw: program.length(arguments, raw),
    "log": _plain(lambda values: math.log(_number(values[0])) if _number(values[0]) > 0 else -math.inf),
    "match": lambda program, arguments, _raw: program.search(arguments),
    "rand": lambda program, _arguments, _raw: program.random(),
    "sin": _plain(lambda values: math.sin(_number(values[0]))),
    "split": lambda program, arguments, raw: program.fill(arguments, raw),
    "sprintf": _plain(lambda values: printf(text_of(values[0]), values[1:])),
    "sqrt": _plain(lambda values: math.sqrt(max(_number(values[0]), 0.0))),
    "srand": lambda program, arguments, _raw: program.random(arguments[0]() if arguments else 0),
    "sub": lambda program, arguments, raw: program.substitute(arguments, raw, 1),
    "substr": _plain(_substr),
    "tolower": _plain(lambda values: text_of(values[0]).lower()),
    "toupper": _plain(lambda values: text_of(values[0]).upper()),
}
