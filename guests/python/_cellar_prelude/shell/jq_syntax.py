"""The filters of `jq` as trees."""

import json
import re

# Filters are nested at most this deep.
_DEPTH_MAX = 200
_TOKEN = re.compile(
    r'\s+|#[^\n]*|(?P<format>@\w+)|(?P<name>\$?[A-Za-z_]\w*(?:::\w+)*)|(?P<field>\.[A-Za-z_]\w*)|(?P<number>\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)'
    r'|(?P<text>")|(?P<sign>\?//=|\?//|\|=|//=|//|[-+*/%=!<>]=|\.\.|[-+*/%=<>|,.:;()\[\]{}?])'
)
_LEVELS = (
    (("//",), "right"), (("=", "|=", "+=", "-=", "*=", "/=", "%=", "//="), "none"), (("or",), "left"), (("and",), "left"),
    (("==", "!=", "<", "<=", ">", ">="), "none"), (("+", "-"), "left"), (("*", "/", "%"), "left"),
)  # fmt: skip
_WORDS = frozenset("as def then elif else end if reduce foreach try catch and or label import include".split())
_LITERALS = {"true": True, "false": False, "null": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


class Bad(Exception):
    """A text that is no filter."""


class Parser:
    """Reads a filter, and the definitions in front of it."""

    def __init__(self, text):
        self._tokens, self._at, self._depth = list(_tokens(text)), 0, 0

    def whole(self):
        """The filter that the whole text is, and the definitions when it has no other."""
        definitions = self._definitions()
        tree = self._pipe() if self._at < len(self._tokens) else ("identity",)
        if self._at < len(self._tokens):
            raise Bad(f"syntax error, unexpected {self._shown()}")
        return _within(definitions, tree), definitions

    def _shown(self):
        return f"'{self._tokens[self._at][1]}'" if self._at < len(self._tokens) else "end of file"

    def _peek(self, *texts):
        kind, text = self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")
        return text if kind in ("sign", "name") and text in texts else None

    def _take(self, *texts):
        found = self._peek(*texts)
        self._at += found is not None
        return found

    def _need(self, text):
        if not self._take(text):
            raise Bad(f"syntax error, unexpected {self._shown()}, expecting '{text}'")

    def _kind(self, kind):
        if self._at < len(self._tokens) and self._tokens[self._at][0] == kind:
            self._at += 1
            return self._tokens[self._at - 1][1]
        return None

    def _definitions(self):
        found = []
        while self._take("def"):
            name, parameters = self._kind("name"), []
            if self._take("("):
                while True:
                    parameters.append(self._kind("name"))
                    if not self._take(";"):
                        break
                self._need(")")
            self._need(":")
            body = self._pipe()
            self._need(";")
            found.append((name, parameters, body))
        return found

    def _pipe(self):
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise Bad("the filter is nested too deep")
        try:
            definitions = self._definitions()
            if definitions:
                return _within(definitions, self._pipe())
            if self._take("label"):
                name = self._kind("name")
                self._need("|")
                return ("label", name, self._pipe())
            tree = self._comma()
            return ("pipe", tree, self._pipe()) if self._take("|") else tree
        finally:
            self._depth -= 1

    def _comma(self):
        tree = self._level(0)
        while self._take(","):
            tree = ("comma", tree, self._level(0))
        return tree

    def _level(self, level):
        if level == len(_LEVELS):
            return self._unary()
        signs, side = _LEVELS[level]
        tree = self._level(level + 1)
        while sign := self._take(*signs):
            tree = ("binary", sign, tree, self._level(level if side == "right" else level + 1))
            if side != "left":
                break
        return tree

    def _unary(self):
        if self._take("-"):
            return ("negated", self._postfix())
        return self._postfix()

    def _postfix(self):
        tree = self._term()
        while True:
            if self._take("?"):
                tree = ("try", tree, None)
            elif field := self._kind("field"):
                tree = ("index", tree, ("value", field[1:]))
            elif self._peek(".") and self._following(("text", "sign"), '["'):
                self._at += 1
                if self._peek("["):
                    continue
                tree = ("index", tree, self._text(None))
            elif self._take("["):
                tree = self._bracket(tree)
            elif self._take("as"):
                patterns = [self._pattern()]
                while self._take("?//"):
                    patterns.append(self._pattern())
                self._need("|")
                return ("as", tree, patterns, self._pipe())
            else:
                return tree

    def _following(self, kinds, firsts):
        if self._at + 1 >= len(self._tokens):
            return False
        kind, text = self._tokens[self._at + 1]
        return kind in kinds and (kind == "text" or text in firsts)

    def _bracket(self, tree):
        if self._take("]"):
            return ("each", tree)
        if self._take(":"):
            end = self._pipe()
            self._need("]")
            return ("slice", tree, None, end)
        index = self._pipe()
        if self._take(":"):
            end = None if self._peek("]") else self._pipe()
            self._need("]")
            return ("slice", tree, index, end)
        self._need("]")
        return ("index", tree, index)

    def _term(self):
        if (number := self._kind("number")) is not None:
            return ("value", _number(number))
        if self._at < len(self._tokens) and self._tokens[self._at][0] == "text":
            return self._text(None)
        if form := self._kind("format"):
            return self._text(form) if self._at < len(self._tokens) and self._tokens[self._at][0] == "text" else ("format", form)
        if field := self._kind("field"):
            return ("index", ("identity",), ("value", field[1:]))
        if self._take(".."):
            return ("call", "recurse", [])
        if self._take("."):
            if self._at < len(self._tokens) and self._tokens[self._at][0] == "text":
                return ("index", ("identity",), self._text(None))
            return ("identity",)
        if self._take("("):
            tree = self._pipe()
            self._need(")")
            return tree
        if self._take("["):
            tree = None if self._peek("]") else self._pipe()
            self._need("]")
            return ("array", tree)
        if self._take("{"):
            return self._object()
        name = self._kind("name")
        if name is None:
            raise Bad(f"syntax error, unexpected {self._shown()}")
        return self._named(name)

    def _named(self, name):
        if name.startswith("$"):
            return ("variable", name)
        if name in _LITERALS:
            return ("value", _LITERALS[name])
        if name == "if":
            return self._if()
        if name == "try":
            body = self._post_try()
            return ("try", body, self._post_try() if self._take("catch") else ("call", "empty", []))
        if name in ("reduce", "foreach"):
            source = self._postfix_of_loop()
            self._need("as")
            pattern = self._pattern()
            self._need("(")
            parts = [self._pipe()]
            while self._take(";"):
                parts.append(self._pipe())
            self._need(")")
            return (name, source, pattern, *parts)
        if name == "break":
            return ("break", self._kind("name"))
        if name == "def":
            self._at -= 1
            return self._pipe()
        if name in _WORDS:
            raise Bad(f"syntax error, unexpected '{name}'")
        arguments = []
        if self._take("("):
            arguments.append(self._pipe())
            while self._take(";"):
                arguments.append(self._pipe())
            self._need(")")
        return ("call", name, arguments)

    def _post_try(self):
        tree = self._term()
        while field := self._kind("field"):
            tree = ("index", tree, ("value", field[1:]))
        while self._take("["):
            tree = self._bracket(tree)
        return tree

    def _postfix_of_loop(self):
        tree = self._post_try()
        while self._take("?"):
            tree = ("try", tree, None)
        return tree

    def _if(self):
        condition = self._pipe()
        self._need("then")
        body = self._pipe()
        if self._take("elif"):
            return ("if", condition, body, self._if())
        other = self._pipe() if self._take("else") else ("identity",)
        self._need("end")
        return ("if", condition, body, other)

    def _object(self):
        pairs = []
        while not self._take("}"):
            name = None
            if self._at < len(self._tokens) and self._tokens[self._at][0] == "text":
                key = self._text(None)
            elif form := self._kind("format"):
                key = self._text(form) if self._tokens[self._at][0] == "text" else ("format", form)
            elif (number := self._kind("number")) is not None:
                key = ("value", number)
            elif self._take("("):
                key = self._pipe()
                self._need(")")
            else:
                name = self._kind("name")
                if name is None:
                    raise Bad(f"syntax error, unexpected {self._shown()}")
                key = ("value", name.removeprefix("$"))
            if self._take(":"):
                value = self._object_value()
            elif name and name.startswith("$"):
                value = ("variable", name)
            else:
                value = ("index", ("identity",), key)
            pairs.append((key, value))
            if not self._take(","):
                self._need("}")
                break
        return ("object", pairs)

    def _object_value(self):
        tree = self._level(0)
        while self._take("|"):
            tree = ("pipe", tree, self._level(0))
        return tree

    def _pattern(self):
        if self._take("["):
            parts = [self._pattern()]
            while self._take(","):
                parts.append(self._pattern())
            self._need("]")
            return ("array", parts)
        if self._take("{"):
            pairs = []
            while True:
                if self._take("("):
                    key = self._pipe()
                    self._need(")")
                    name = None
                elif self._at < len(self._tokens) and self._tokens[self._at][0] == "text":
                    key, name = self._text(None), None
                else:
                    name = self._kind("name")
                    key = ("value", (name or "").removeprefix("$"))
                pairs.append((key, name if name and name.startswith("$") else None, self._pattern() if self._take(":") else None))
                if not self._take(","):
                    break
            self._need("}")
            return ("object", pairs)
        name = self._kind("name")
        if name is None or not name.startswith("$"):
            raise Bad(f"syntax error, unexpected {self._shown()}")
        return ("variable", name)

    def _text(self, form):
        parts = self._tokens[self._at][1]
        self._at += 1
        if all(isinstance(part, str) for part in parts):
            return ("value", "".join(parts))
        return ("text", form, [part if isinstance(part, str) else Parser(part[0]).whole()[0] for part in parts])


def _within(definitions, tree):
    for name, parameters, body in reversed(definitions):
        tree = ("define", name, parameters, body, tree)
    return tree


def _tokens(text):
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Bad(f"syntax error, unexpected INVALID_CHARACTER: {text[at : at + 10]!r}")
        at = match.end()
        if match.lastgroup == "text":
            parts, at = _string(text, at)
            yield "text", parts
        elif match.lastgroup:
            yield match.lastgroup, match[match.lastgroup]


def _string(text, at):
    """The parts of a string whose quote is before `at`: texts, and filters in lists of one; and where it ends."""
    parts, plain = [], []
    while at < len(text):
        sign = text[at]
        if sign == '"':
            return [*parts, "".join(plain)], at + 1
        if sign != "\\":
            plain.append(sign)
            at += 1
            continue
        sign = text[at + 1 : at + 2]
        if sign == "(":
            depth, end = 1, at + 2
            while end < len(text) and depth:
                if text[end] == '"':
                    _, end = _string(text, end + 1)
                    continue
                depth += {"(": 1, ")": -1}.get(text[end], 0)
                end += 1
            parts += ["".join(plain), [text[at + 2 : end - 1]]]
            plain, at = [], end
        elif sign == "u":
            match = re.compile(r"(?:\\u[0-9a-fA-F]{4})+").match(text, at)
            if match is None:
                raise Bad("invalid \\uXXXX escape")
            plain.append(json.loads(f'"{match[0]}"'))
            at = match.end()
        else:
            plain.append(_ESCAPES.get(sign, sign))
            at += 2
    raise Bad("syntax error, unexpected end of file: unterminated string")


def _number(text):
    value = float(text)
    return int(text) if re.fullmatch(r"\d+", text) else value
