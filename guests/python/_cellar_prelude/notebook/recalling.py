"""Magics of what cells were: `%history`, `%recall`, `%rerun`, `%macro`, `%save`, `%load`, `%notebook`."""

import json
import os
import re
import sys

from _cellar_prelude.notebook import display, history, magics
from _cellar_prelude.platform import faults, streams

UsageError = magics.UsageError
# A word that stands for cells: `4`, `4-6` (with the last one), `4:6` (without it).
_RANGE = re.compile(r"(\d+)(?:([-:])(\d+))?")


def _ended():
    """The number of the last cell before the one at hand."""
    return len(history.In) - 2


def _numbers(words):
    """The numbers of the cells that such words stand for, as far as they are known."""
    found = []
    for word in words:
        match = _RANGE.fullmatch(word)
        if match is None:
            raise UsageError(f"{word} is no number of a cell, nor a range such as 4-6")
        first = int(match[1])
        last = int(match[3]) + (match[2] == "-") if match[2] else first + 1
        found += [number for number in range(first, min(last, len(history.In))) if history.In[number]]
    return found


def _sources(words):
    return [history.In[number] for number in _numbers(words)]


def _options(text, valued=""):
    """The options of a line, a letter each with its value or True, and the words that are left."""
    found, words, rest = {}, [], text.split()
    while rest:
        word = rest.pop(0)
        if not re.fullmatch(r"-[A-Za-z]+", word):
            words.append(word)
            continue
        for letter in word[1:]:
            found[letter] = rest.pop(0) if letter in valued and rest else True
    return found, words


def _source_of(words):
    """The source that words stand for: of cells, of a macro or a text, or of a file."""
    if words and all(_RANGE.fullmatch(word) for word in words):
        sources = _sources(words)
        if not sources:
            raise UsageError(f"No cell is known of {' '.join(words)}")
        return "\n".join(sources)
    name = words[0] if words else ""
    value = magics.names().get(name)
    if isinstance(value, (str, Macro)):
        return str(value)
    path = os.path.expanduser(name.strip("'\""))
    for each in (path, f"{path}.py"):
        if os.path.isfile(each):
            with open(each, encoding="utf-8") as file:
                return file.read()
    raise UsageError(f"'{name}' was not found in history, as a file, nor in the user namespace.")


def _history(text):
    """Prints the sources of cells: `%history [-n] [-o] [-l N] [-g PATTERN] [-f FILE] [RANGE ...]`."""
    options, words = _options(text, "lgf")
    numbers = _numbers(words) if words else [each for each in range(1, len(history.In)) if history.In[each]]
    if "l" in options:
        limit = options["l"]
        numbers = [each for each in numbers if each <= _ended()][-int(limit if limit is not True else 10) :]
    if isinstance(options.get("g"), str):
        numbers = [each for each in numbers if options["g"].strip("'\"*") in history.In[each]]
    lines = []
    for number in numbers:
        source = history.In[number]
        sign = "\n" if "\n" in source else " "
        if "p" in options:
            source = source.replace("\n", "\n... ")
            lines.append(f">>> {source}")
        else:
            lines.append(f"{number:>4}:{sign}{source}" if "n" in options or "g" in options else source)
        if "o" in options and number in history.Out:
            lines.append(display.pretty(history.Out[number]))
    if isinstance(options.get("f"), str):
        with open(os.path.expanduser(options["f"]), "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
    elif lines:
        print("\n".join(lines))


def _recall(text):
    """Prints the source of a cell, or the last value, for the next cell: nobody edits one here."""
    if not text:
        print(history._latest[0])
        return
    value = magics.names().get(text.strip())
    print(str(value) if isinstance(value, (str, Macro)) else "\n".join(_sources(text.split())))


def _rerun(text):
    """Runs cells again: `%rerun [-l N] [-g PATTERN] [RANGE ...]`; without a word the one before."""
    options, words = _options(text, "lg")
    ended = _ended()
    if "l" in options:
        words = [f"{max(1, ended + 1 - int(options['l']))}-{ended}"]
    elif isinstance(options.get("g"), str):
        found = [number for number in range(1, ended + 1) if options["g"].strip("'\"*") in history.In[number]]
        words = [str(found[-1])] if found else ["0"]
    sources = _sources(words or [str(ended)])
    if not sources:
        print("No lines in history match specification")
        return None
    source = "\n".join(sources)
    print(f"=== Executing: ===\n{source}\n=== Output: ===")
    return magics.run(source)


class Macro:
    """Source under a name: it runs where the name is the last line of a cell."""

    def __init__(self, value):
        self.value = value.rstrip("\n") + "\n"

    def __str__(self):
        return self.value

    def __repr__(self):
        return f"IPython.macro.Macro({self.value!r})"

    def __add__(self, other):
        return Macro(self.value + str(other))


def _macro(text):
    """Names cells, to run them again by that name: `%macro NAME RANGE ...`."""
    options, words = _options(text)
    if not words:
        return sorted(name for name, value in magics.names().items() if isinstance(value, Macro))
    if len(words) == 1:
        raise UsageError("%macro insufficient args; usage '%macro name n1-n2 n3-4...")
    macro = Macro(_source_of(words[1:]))
    magics.names()[words[0]] = macro
    if "q" not in options:
        print(f"Macro `{words[0]}` created. To execute, type its name (without quotes).")
        print(f"=== Macro contents: ===\n{macro}", end="")
    return None


def _save(text):
    """Writes cells into a file: `%save [-a] [-f] FILE RANGE ...`."""
    options, words = _options(text)
    if len(words) < 2:
        raise UsageError("%save takes the name of a file and numbers of cells, as in `%save work.py 1-4`")
    path = os.path.expanduser(words[0] if words[0].endswith((".py", ".ipy")) else f"{words[0]}.py")
    source = _source_of(words[1:])
    if os.path.exists(path) and not {"a", "f"} & {*options}:
        raise UsageError(f"File `{path}` exists: `%save -f` overwrites it, `%save -a` adds to it")
    with open(path, "a" if "a" in options else "w", encoding="utf-8") as file:
        file.write(("" if "a" in options else "# coding: utf-8\n") + source.rstrip("\n") + "\n")
    print(f"The following commands were written to file `{path}`:\n{source}")


def _load(text):
    """Prints the source of a file, of cells or of a macro: nobody edits the next cell here."""
    _options_given, words = _options(text, "rsn")
    source = _source_of(words)
    print(f"# %load {text}\n{source}")


def _notebook(text):
    """Writes the cells so far into a notebook: `%notebook FILE.ipynb`."""
    path = text.split()[-1].strip("'\"") if text else ""
    if not path:
        raise UsageError("%notebook takes the name of a file")
    cells = [
        {"cell_type": "code", "execution_count": number, "id": f"cell-{number}", "metadata": {}, "outputs": [], "source": source.splitlines(True)}
        for number, source in enumerate(history.In)
        if source
    ]
    metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    with open(os.path.expanduser(path), "w", encoding="utf-8") as file:
        json.dump({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}, file, indent=1)


def _traceback(_text):
    """Prints the traceback of the last failure."""
    error = getattr(sys, "last_exc", None)
    if error is None:
        print("No traceback available to show.")
    else:
        streams.tell(faults.format_exception(error))


magics.Macro = Macro
magics.LINE_MAGICS.update(
    {"hist": _history, "history": _history, "load": _load, "loadpy": _load, "macro": _macro, "notebook": _notebook}
    | {"recall": _recall, "rep": _recall, "rerun": _rerun, "save": _save, "tb": _traceback}
)
