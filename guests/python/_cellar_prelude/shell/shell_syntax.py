"""What a script of the shell says: its text is read into a tree.

A node is a tuple: its kind first. Words stay as they are written, and `shell_words` tells what they come to.
"""

import re

from _cellar_prelude.shell.arithmetic import Bad

_OPERATORS = (";;&", ";;", ";&", "&&", "||", "<<-", "<<<", "<<", "<>", ">>", ">|", "&>>", "&>", ">&", "<&", "|&", ";", "&", "|", "<", ">", "(", ")")
_OPERATORS = tuple(sorted(_OPERATORS, key=len, reverse=True))
_REDIRECTIONS = frozenset(("<<-", "<<<", "<<", "<>", ">>", ">|", "&>>", "&>", ">&", "<&", "<", ">"))
_CLOSING = frozenset(("then", "do", "done", "fi", "elif", "else", "esac", "}"))
_CASE_ENDS = (";;", ";&", ";;&")
# Words after which a command begins.
_BEFORE_COMMANDS = frozenset(("if", "elif", "while", "until", "then", "do", "else", "!", "{", "time", "for"))
# What is assigned to: a name, perhaps with an index.
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\[(?:[^\[\]]|\[[^\]]*\])*\])?(\+?)=")


class Unreadable(Bad):
    """A text that is no script."""


def closing(text, at, opened, closed):
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
        elif sign == '"':
            at = quote_end(text, at + 1)
        elif sign == opened:
            depth += 1
        elif sign == closed:
            depth -= 1
            if depth == 0:
                return at
        at += 1
    raise Unreadable(f"unexpected EOF while looking for matching `{closed}'")


def quote_end(text, at):
    """Where the double quotes end that are opened before `at`."""
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text.startswith(("$(", "${"), at):
            at = closing(text, at + 2, text[at + 1], ")" if text[at + 1] == "(" else "}") + 1
        elif text[at] == '"':
            return at
        else:
            at += 1
    raise Unreadable("unexpected EOF while looking for matching `\"'")


def single_end(text, at):
    """Where the single quotes end that are opened before `at`; those after `$` have escapes."""
    has_escapes = text[at - 2 : at - 1] == "$"
    while at < len(text):
        if text[at] == "\\" and has_escapes:
            at += 1
        elif text[at] == "'":
            return at
        at += 1
    raise Unreadable("unexpected EOF while looking for matching `''")


def _word_end(text, at, stops=" \t\n;|&<>()"):
    """Where a word ends that begins at `at`."""
    start = at
    while at < len(text):
        sign = text[at]
        if text.startswith(("$(", "${"), at):
            at = closing(text, at + 2, text[at + 1], ")" if text[at + 1] == "(" else "}") + 1
        elif sign == "(" and sign in stops and (match := ASSIGNMENT.fullmatch(text, start, at)) and match.end() == at:
            at = closing(text, at + 1, "(", ")") + 1
        elif sign in "<>" and sign in stops and at == start and text.startswith("(", at + 1):
            at = closing(text, at + 2, "(", ")") + 1
        elif sign in stops:
            return at
        elif sign == "\\":
            at += 2
        elif sign == "'":
            at = single_end(text, at + 1) + 1
        elif sign == '"':
            at = quote_end(text, at + 1) + 1
        elif sign == "`":
            end = text.find("`", at + 1)
            if end < 0:
                raise Unreadable("unexpected EOF while looking for matching ``'")
            at = end + 1
        elif sign == "[" and re.fullmatch(r"[A-Za-z_]\w*", text[start:at]) and (match := ASSIGNMENT.match(text, start)) and match.end() > at:
            at = match.end()
        else:
            at += 1
    return min(at, len(text))


def tokens(text):
    """(is operator, text) of each; a line's end is an operator; the text of a `<<` is the word behind it, as a list.

    What cannot be read is the last of them, as the error.
    """
    found = []
    try:
        _read_tokens(re.sub(r"((?:^|[^\\])(?:\\\\)*)\\\n", r"\1", text), found)
    except Bad as error:
        found.append((True, error))
    return found


def _begins_command(found):
    if not found:
        return True
    is_operator, text = found[-1]
    return text in ("\n", ";", "&", "&&", "||", "|", "|&", "(", ")", ";;", ";&", ";;&") if is_operator else text in _BEFORE_COMMANDS


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
        elif text.startswith("((", at) and _begins_command(found) and (end := _numbers_end(text, at)) is not None:
            found += [(True, "(("), (False, text[at + 2 : end])]
            at = end + 2
        elif re.compile(r"\[\[(?=\s)").match(text, at) and _begins_command(found):
            words, at = _condition_words(text, at + 2)
            found += [(True, "[["), (False, words)]
        else:
            at = _read_token(text, at, found, awaited)
    for place, _, mark in awaited:
        found[place] = (False, [mark == re.sub(r"['\"\\]", "", mark), ""])


def _read_token(text, at, found, awaited):
    # `2>` is a redirection with its number.
    number = re.compile(r"\d(?=[<>])").match(text, at)
    kind = next((each for each in _OPERATORS if text.startswith(each, at + (number is not None))), None)
    is_process = kind in ("<", ">") and number is None and text.startswith("(", at + 1)
    if kind is not None and not is_process and (number is None or kind in _REDIRECTIONS):
        found.append((True, (number[0] if number else "") + kind))
        return at + len(found[-1][1])
    end = _word_end(text, at)
    if found and found[-1][0] and isinstance(found[-1][1], str) and found[-1][1].lstrip("0123456789") in ("<<", "<<-"):
        awaited.append((len(found), found[-1][1].endswith("-"), text[at:end]))
    found.append((False, text[at:end]))
    return end


def _numbers_end(text, at):
    """Where the `))` is that closes the `((` at `at`; None if there is none, as in shells within shells."""
    try:
        end = closing(text, at + 2, "(", ")")
    except Bad:
        return None
    return end if text.startswith("))", end) else None


def _condition_words(text, at):
    """(the words of a `[[ … ]]`, where it ends)."""
    words = []
    while True:
        while at < len(text) and text[at] in " \t\n":
            at += 1
        if at >= len(text):
            raise Unreadable("syntax error: unexpected end of file")
        if re.compile(r"\]\](?![^\s;&|)<>])").match(text, at):
            return words, at + 2
        is_pattern = bool(words) and words[-1] == "=~"
        sign = next((each for each in ("&&", "||", "(", ")", "<", ">") if text.startswith(each, at)), None)
        if sign and not is_pattern:
            words.append(sign)
            at += len(sign)
            continue
        end = _word_end(text, at, " \t\n" if is_pattern else " \t\n()&|<>")
        if end == at:
            raise Unreadable(f"syntax error near unexpected token `{text[at]}'")
        words.append(text[at:end])
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


class Reader:
    """Makes a tree of tokens."""

    def __init__(self, found):
        self._tokens, self._at = found, 0

    def _peek(self):
        token = self._tokens[self._at] if self._at < len(self._tokens) else (True, "")
        if isinstance(token[1], Bad):
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
            raise Unreadable("syntax error: unexpected end of file" if near == "" else f"syntax error near unexpected token `{'newline' if near == chr(10) else near}'")
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
                parts.append(self._item())
                if not self._is(";", "\n", ""):
                    if parts[-1][0] != "back":
                        self._need("\0")
                while self._is(";"):
                    self._take()
            yield ("list", parts)
            self._skip_lines()

    def list(self):
        """Commands up to a word or sign that closes something."""
        parts = []
        self._skip_lines()
        while self._at < len(self._tokens) and not self._is(")", *_CASE_ENDS) and not self._is_word(*_CLOSING):
            parts.append(self._item())
            if not self._is(";", "\n") and parts[-1][0] != "back":
                break
            while self._is(";", "\n"):
                self._take()
        return ("list", parts)

    def _item(self):
        tree = self._chain()
        if self._is("&"):
            self._take()
            return ("back", tree)
        return tree

    def _chain(self):
        tree = self._pipeline()
        while self._is("&&", "||"):
            kind = self._take()
            self._skip_lines()
            tree = (kind, tree, self._pipeline())
        return tree

    def _pipeline(self):
        if self._is_word("time"):
            self._take()
            return ("time", self._pipeline())
        if self._is_word("!"):
            self._take()
            return ("!", self._pipeline())
        parts = [self._command()]
        while self._is("|", "|&"):
            if self._take() == "|&":
                parts[-1] = ("with", parts[-1], [("2>&", "1")])
            self._skip_lines()
            parts.append(self._command())
        return parts[0] if len(parts) == 1 else ("pipe", parts)

    def _command(self):
        compound = {"if": self._if, "for": self._for, "while": self._while, "until": self._while, "case": self._case, "{": self._group}
        token = self._peek()
        if self._is("(("):
            self._take()
            tree = ("let", self._take())
        elif self._is("[["):
            self._take()
            tree = ("test", self._take())
        elif self._is("("):
            self._take()
            tree = ("apart", self.list())
            self._need(")")
        elif not token[0] and isinstance(token[1], str) and token[1] in compound:
            tree = compound[token[1]]()
        else:
            return self._simple()
        targets = self._redirections()
        return ("with", tree, targets) if targets else tree

    def _redirections(self):
        found = []
        while self._peek()[0] and self._peek()[1].lstrip("0123456789") in _REDIRECTIONS:
            kind = self._take()
            if self._peek()[0]:
                self._need("\0")
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
            if len(words) == 2 and words[0] == "function":
                if self._is("("):
                    self._at += 2
                self._skip_lines()
                return ("function", words[1], self._command())
        if not words and not targets:
            self._need("\0")
        tree = ("run", words)
        return ("with", tree, targets) if targets else tree

    def _if(self):
        choices, other = [], None
        while not choices or self._is_word("elif"):
            self._take()
            condition = self.list()
            self._need("then")
            choices.append((condition, self.list()))
        if self._is_word("else"):
            self._take()
            other = self.list()
        self._need("fi")
        return ("if", choices, other)

    def _body(self):
        self._skip_lines()
        self._need("do")
        body = self.list()
        self._need("done")
        return body

    def _for(self):
        self._take()
        if self._is("(("):
            self._take()
            parts = [*self._take().split(";"), "", ""][:3]
            return ("count", parts, self._body())
        name, words = self._take(), None
        while self._is("\n"):
            self._take()
        if self._is_word("in"):
            self._take()
            words = []
            while not self._peek()[0]:
                words.append(self._take())
        return ("for", name, words, self._body())

    def _while(self):
        until = self._take() == "until"
        condition = self.list()
        return ("while", condition, self._body(), until)

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
            body = self.list()
            choices.append((patterns, body, self._take() if self._is(*_CASE_ENDS) else ";;"))
            self._skip_lines()
        self._take()
        return ("case", word, choices)

    def _group(self):
        self._take()
        tree = self.list()
        self._need("}")
        return tree
