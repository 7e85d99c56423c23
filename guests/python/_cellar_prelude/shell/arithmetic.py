"""Arithmetic of the shell: whole numbers of 64 bits, variables, and what assigns to them."""

import re

# Brackets are nested at most this deep, and exponents and shifts stay below this.
_DEPTH_MAX = 60
_POWER_MAX = 64
_TOKEN = re.compile(r"\s*(?:(0[xX][0-9a-fA-F]+|\d+#\w+|\d+)|([A-Za-z_]\w*)|(\*\*|<<=|>>=|\+\+|--|&&|\|\||[-+*/%&|^]=|<<|>>|[<>=!]=|[-+*/%<>=!~&|^?:,()\[\]]))")
_LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("<<", ">>"), ("+", "-"), ("*", "/", "%"))
_ASSIGNING = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^="))


class Bad(Exception):
    """A text that is no expression, or comes to no number; the words are for standard error."""


def _wrapped(number):
    """The number in 64 bits."""
    return (number + 2**63) % 2**64 - 2**63


def _joined(sign, left, right):
    """What a sign between two numbers comes to."""
    if sign in "/%":
        if right == 0:
            raise Bad("division by 0")
        whole = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return whole if sign == "/" else left - right * whole
    if sign in ("**", "<<", ">>"):
        if not 0 <= right < _POWER_MAX:
            raise Bad("exponent out of range")
        return left**right if sign == "**" else left << right if sign == "<<" else left >> right
    return int({
        "+": left + right, "-": left - right, "*": left * right, "&": left & right, "|": left | right, "^": left ^ right, "<": left < right,
        "<=": left <= right, ">": left > right, ">=": left >= right, "==": left == right, "!=": left != right,
    }[sign])  # fmt: skip


class Expression:
    """Reads an expression and computes it on the way; what is not chosen has no effect."""

    def __init__(self, text, variables):
        """`variables` has `number_of(name, index)` and `assign(name, index, number)`; the index is None or a text."""
        self._text, self._variables, self._tokens, self._at, self._skips, self._depth = text, variables, [], 0, 0, 0
        at = 0
        while text[at:].strip():
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._bad()
            self._tokens.append((match[1], match[2], match[3], match.start(match.lastindex), match.end()))
            at = match.end()

    def value(self):
        """The number that it comes to."""
        if not self._tokens:
            return 0
        number = self._comma()
        if self._at < len(self._tokens):
            raise self._bad()
        return number

    def _bad(self):
        return Bad(f"{self._text.strip()}: syntax error in an arithmetic expression")

    def _sign(self):
        return self._tokens[self._at][2] if self._at < len(self._tokens) else None

    def _take(self, *signs):
        sign = self._sign()
        if sign is None or sign not in signs:
            return None
        self._at += 1
        return sign

    def _need(self, sign):
        if self._take(sign) is None:
            raise self._bad()

    def _comma(self):
        number = self._choice()
        while self._take(","):
            number = self._choice()
        return number

    def _unless(self, is_skipped, read):
        self._skips += is_skipped
        try:
            return read()
        finally:
            self._skips -= is_skipped

    def _choice(self):
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise Bad("expression recursion level exceeded")
        number = self._binary(0)
        if self._take("?"):
            first = self._unless(not number, self._choice)
            self._need(":")
            second = self._unless(bool(number), self._choice)
            number = first if number else second
        self._depth -= 1
        return number

    def _binary(self, level):
        if level == len(_LEVELS):
            return self._power()
        left = self._binary(level + 1)
        while sign := self._take(*_LEVELS[level]):
            if sign in ("&&", "||"):
                right = self._unless(bool(left) == (sign == "||"), lambda: self._binary(level + 1))
                left = int(bool(left and right) if sign == "&&" else bool(left or right))
            else:
                right = self._binary(level + 1)
                left = 0 if self._skips else _wrapped(_joined(sign, left, right))
        return left

    def _power(self):
        left = self._unary()
        if self._take("**"):
            right = self._power()
            return 0 if self._skips else _wrapped(_joined("**", left, right))
        return left

    def _unary(self):
        sign = self._take("++", "--")
        if sign and self._at < len(self._tokens) and self._tokens[self._at][1]:
            name, index = self._place()
            return self._assigned(name, index, self._read(name, index) + (1 if sign == "++" else -1))
        if sign:
            # Two signs before a number.
            return self._unary()
        sign = self._take("!", "~", "-", "+")
        if sign:
            self._depth += 1
            if self._depth > _DEPTH_MAX:
                raise Bad("expression recursion level exceeded")
            number = self._unary()
            self._depth -= 1
            return _wrapped({"!": int(not number), "~": ~number, "-": -number, "+": number}[sign])
        return self._operand()

    def _operand(self):
        if self._take("("):
            number = self._comma()
            self._need(")")
            return number
        if self._at >= len(self._tokens):
            raise self._bad()
        constant, name = self._tokens[self._at][:2]
        if constant:
            self._at += 1
            return _wrapped(whole(constant))
        if not name:
            raise self._bad()
        name, index = self._place()
        sign = self._sign()
        if sign in _ASSIGNING:
            self._at += 1
            number = self._choice()
            if sign != "=" and not self._skips:
                number = _wrapped(_joined(sign[:-1], self._read(name, index), number))
            return self._assigned(name, index, number)
        number = self._read(name, index)
        if step := self._take("++", "--"):
            self._assigned(name, index, number + (1 if step == "++" else -1))
        return number

    def _place(self):
        """(name, text of its index or None) of a variable."""
        name, index = self._tokens[self._at][1], None
        self._at += 1
        if self._sign() == "[":
            start, depth = self._tokens[self._at][4], 0
            while self._at < len(self._tokens):
                sign = self._sign()
                depth += (sign == "[") - (sign == "]")
                self._at += 1
                if not depth:
                    break
            if depth:
                raise self._bad()
            index = self._text[start : self._tokens[self._at - 1][3]]
        return name, index

    def _read(self, name, index):
        return 0 if self._skips else self._variables.number_of(name, index)

    def _assigned(self, name, index, number):
        if not self._skips:
            self._variables.assign(name, index, _wrapped(number))
        return number


def whole(text):
    """The number that a constant stands for: with `0x`, with `0` for eight, or with its base before `#`."""
    try:
        if "#" in text:
            base, _, digits = text.partition("#")
            return int(digits, int(base))
        return int(text, 8 if len(text) > 1 and text.isdigit() and text[0] == "0" else 0)
    except ValueError:
        raise Bad(f"{text}: value too great for base") from None
