"""The escapes with a backslash of `echo -e`, of formats and arguments of `printf`, and of `$'…'`."""

import re

from _cellar_prelude.shell.lines import decoded, encoded

_SIGNS = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "\\": "\\"}
_QUOTES = {"'": "'", '"': '"', "?": "?"}


def _kind(octal, signs, control=r"c()"):
    pattern = rf"\\(?:x([0-9A-Fa-f]{{1,2}})|u([0-9A-Fa-f]{{1,4}})|U([0-9A-Fa-f]{{1,8}})|({octal})|{control}|(.))"
    return re.compile(pattern, re.DOTALL), _SIGNS | signs


# Numbers of three digits begin with a zero of their own in some.
ECHO = _kind("0[0-7]{0,3}", {})
ARGUMENT = _kind("0[0-7]{0,3}|[1-7][0-7]{0,2}", _QUOTES)
FORMAT = _kind("[0-7]{1,3}", _QUOTES, "(?!)()")
QUOTED = _kind("[0-7]{1,3}", _QUOTES, "c(.)")


def filled(text, kind):
    """(the text with what its escapes stand for, whether one of them ends the output)."""
    pattern, signs = kind
    done, at = [], 0
    for match in pattern.finditer(text):
        done.append(text[at : match.start()])
        at = match.end()
        byte, short, long, octal, control, sign = match.groups()
        if control == "":
            return _joined(done), True
        if byte or octal:
            number = int(byte, 16) if byte else int(octal, 8) & 0xFF
            done.append(chr(number if number < 128 else 0xDC00 + number))
        elif short or long:
            number = int(short or long, 16)
            done.append(chr(number) if number < 0x110000 else match[0])
        else:
            done.append(chr(ord(control) & 0x1F) if control else signs.get(sign, match[0]))
    return _joined([*done, text[at:]]), False


def _joined(pieces):
    """The text of pieces, where bytes that are a character together become it."""
    return decoded(encoded("".join(pieces)))
