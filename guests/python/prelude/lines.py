"""Lines as programs count them: `str.splitlines` also ends lines at carriage returns, form feeds, U+2028 and the like."""

import io


def lines_with_ends(text):
    """The lines of a text, each with the end that it has."""
    return io.StringIO(text, newline="\n").readlines()


def lines_of(text):
    """The lines of a text without their ends."""
    return [line.removesuffix("\n") for line in lines_with_ends(text)]
