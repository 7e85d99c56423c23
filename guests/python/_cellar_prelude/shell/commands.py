"""The shell commands that there are, for the lines of `shell`. Each is a function; programs are processes.

A command writes to the streams it is given and returns an exit status. One that is not there says so, and the cell goes on.
Those that work on texts are in `filters`, those that pack files and fetch pages in `packing`.
"""

import fnmatch
import glob
import itertools
import os
import re
import shutil
import stat
import time
import unicodedata

from _cellar_prelude.platform import lacks, packages, zones
from _cellar_prelude.shell import databases, escapes, filters, inspecting, jq, machine, packing, utilities
from _cellar_prelude.shell.lines import Stream, Unread, blobs, decoded, encoded, lines_of, texts

_NOT_FOUND = 127


class _Failed(Exception):
    """A command failed; its message is for standard error."""


# Options in words, by the letter that means the same. Commands that have others say so.
_LONG = {
    "bytes": "c", "count": "c", "decode": "d", "delimiter": "d", "extended-regexp": "E", "field-separator": "t", "fields": "f", "force": "f",
    "human-readable": "h", "ignore-case": "i", "invert-match": "v", "keep": "k", "key": "k", "line-number": "n", "lines": "n", "numeric-sort": "n",
    "only-matching": "o", "output": "o", "parents": "p", "quiet": "q", "recursive": "r", "reverse": "r", "silent": "q", "unique": "u", "verbose": "v",
    "zero-terminated": "z",
}  # fmt: skip


class Unfit(_Failed):
    """What is asked is no question."""


def _options(arguments, flags, valued="", longs=None):
    """Splits (options, operands): letters of `flags`, and of `valued` with their value; `-10` is `n` with the value 10.

    With `longs`, options in words are those of this dictionary and the usual ones, and others are refused: what they mean is
    a letter that is allowed, or a name, with "=" behind it where it has a value.
    """
    found, operands = {}, []
    rest = list(arguments)
    while rest:
        each = rest.pop(0)
        if each == "--":
            operands += rest
            break
        if not each.startswith("-") or each == "-":
            operands.append(each)
        elif each[1:].isdigit() and "n" in valued:
            found["n"] = each[1:]
        elif each.startswith("--"):
            name, equals, value = each[2:].partition("=")
            if longs is None:
                found[_LONG.get(name, name)] = value or True
                continue
            letter = longs.get(name) or _LONG.get(name, "?")
            is_valued = letter.endswith("=") or (letter in valued and len(letter) == 1)
            if not is_valued and letter not in flags and name not in longs:
                raise _Failed(f"unrecognized option '{each}'")
            if is_valued and not equals and not rest:
                raise _Failed(f"option '{each}' requires an argument")
            found[letter.removesuffix("=")] = (value if equals else rest.pop(0)) if is_valued else value or True
        else:
            for at, letter in enumerate(each[1:], 2):
                if letter in valued:
                    if not each[at:] and not rest:
                        raise _Failed(f"option requires an argument -- '{letter}'")
                    found[letter] = each[at:] or rest.pop(0)
                    break
                if letter not in flags:
                    raise _Failed(f"invalid option -- '{letter}'")
                found[letter] = True
    return found, operands


# --- Commands: (arguments, stdin, stdout, stderr) -> status or None


def _ls(arguments, _stdin, out, _err):
    options, operands = _options(arguments, "la1hRtrAFdS")
    places = operands or ["."]
    for number, place in enumerate(places):
        is_folder = os.path.isdir(place) and "d" not in options
        names = sorted(os.listdir(place)) if is_folder else [place]
        if not is_folder:
            os.lstat(place)
        if is_folder and "a" not in options and "A" not in options:
            names = [name for name in names if not name.startswith(".")]
        path = (lambda name: os.path.join(place, name)) if is_folder else (lambda name: name)
        if "t" in options or "S" in options:
            key = (lambda name: os.lstat(path(name)).st_mtime) if "t" in options else (lambda name: os.lstat(path(name)).st_size)
            names.sort(key=key, reverse=True)
        if "r" in options:
            names.reverse()
        if len(places) > 1 and is_folder:
            out.write(f"{os.linesep if number else ''}{place}:\n")
        if "l" in options and is_folder:
            out.write(f"total {sum((os.lstat(path(name)).st_size + 1023) // 1024 for name in names)}\n")
        for name in names:
            if "l" not in options:
                out.write(f"{name}\n")
                continue
            found = os.lstat(path(name))
            when = time.strftime("%b %d %H:%M", time.localtime(found.st_mtime))
            size = _human(found.st_size) if "h" in options else found.st_size
            out.write(f"{stat.filemode(found.st_mode)} {found.st_nlink} user user {size:>8} {when} {name}\n")


def _human(size):
    for unit in ("", "K", "M", "G"):
        if size < 1024 or unit == "G":
            return f"{size:.0f}{unit}" if unit == "" or size >= 10 else f"{size:.1f}{unit}"
        size /= 1024


def _marked(byte):
    """The signs by which `cat -v` shows a byte."""
    if byte >= 128:
        return "M-" + _marked(byte - 128)
    return f"^{chr(byte ^ 64)}" if byte < 32 or byte == 127 else chr(byte)


def _cat(arguments, stdin, out, _err):
    longs = {"show-all": "A", "number-nonblank": "b", "show-ends": "E", "number": "n", "squeeze-blank": "s", "show-tabs": "T", "show-nonprinting": "v"}
    options, operands = _options(arguments, "AbeEnstTuv", longs=longs)
    flags = set("".join({"A": "vET", "e": "vE", "t": "vT", "b": "bn"}.get(each, each) for each in options)) - {"u"}
    number, is_new, was_blank = 0, True, False
    for _, data in blobs(operands, stdin):
        if not flags:
            out.buffer.write(data)
            continue
        for line in re.findall(rb"[^\n]*\n|[^\n]+", data):
            is_blank = is_new and line == b"\n"
            if is_blank and was_blank and "s" in flags:
                continue
            was_blank = is_blank
            if is_new and "n" in flags and not (is_blank and "b" in flags):
                number += 1
                out.write(f"{number:6}\t")
            is_new = line.endswith(b"\n")
            if "v" in flags:
                line = b"".join(_marked(byte).encode() if byte not in b"\t\n" else bytes([byte]) for byte in line)
            if "T" in flags:
                line = line.replace(b"\t", b"^I")
            if "E" in flags and is_new:
                line = re.sub(rb"\r?\n\Z", lambda match: b"^M$\n" if match[0] == b"\r\n" else b"$\n", line)
            out.buffer.write(line)


def _echo(arguments, _stdin, out, _err):
    flags = ""
    while arguments and re.fullmatch(r"-[neE]+", arguments[0]):
        flags += arguments[0]
        arguments = arguments[1:]
    text, is_cut = " ".join(arguments), False
    if "e" in flags and "E" not in flags[flags.rindex("e") :]:
        text, is_cut = escapes.filled(text, escapes.ECHO)
    out.write(text + ("" if "n" in flags or is_cut else "\n"))


def _titled(name, number, out):
    out.write(f"{chr(10) if number else ''}==> {'standard input' if name == '-' else name} <==\n")


_PARTS = {"zero-terminated": "z", "verbose": "v"}


def _head(arguments, stdin, out, _err):
    options, operands = _options(arguments, "qvz", "nc", _PARTS)
    kind, end = ("c" if "c" in options else "n"), (b"\0" if "z" in options else b"\n")
    text = options.get(kind, "10")
    count = machine.size_of(text.lstrip("-+"))
    for each in operands:
        if kind == "c" and not text.startswith("-") and (made := machine.made_bytes(each, count)) is not None:
            out.buffer.write(made)
            return
    if not operands and not text.startswith("-") and end == b"\n":
        # The rest is for the next command that reads here.
        if kind == "c":
            out.buffer.write(stdin.buffer.read(count))
        for _ in range(count if kind == "n" else 0):
            if not (line := stdin.buffer.readline()):
                break
            out.buffer.write(line)
        return
    for number, (name, data) in enumerate(blobs(operands, stdin)):
        if (len(operands) > 1 or "v" in options) and "q" not in options:
            _titled(name, number, out)
        parts = data if kind == "c" else _cut_after(data, end)
        shown = parts[: max(len(parts) - count, 0)] if text.startswith("-") else parts[:count]
        out.buffer.write(shown if kind == "c" else b"".join(shown))


def _cut_after(data, end):
    """The lines of bytes, each with its end."""
    return [line for line in re.findall(b"[^" + end + b"]*" + end + b"?", data) if line]


def _tail(arguments, stdin, out, _err):
    options, operands = _options(arguments, "qvz", "nc", _PARTS)
    kind, end = ("c" if "c" in options else "n"), (b"\0" if "z" in options else b"\n")
    text = options.get(kind, "10")
    count = machine.size_of(text.lstrip("-+"))
    for number, (name, data) in enumerate(blobs(operands, stdin)):
        if (len(operands) > 1 or "v" in options) and "q" not in options:
            _titled(name, number, out)
        parts = data if kind == "c" else _cut_after(data, end)
        shown = parts[max(count - 1, 0) if text.startswith("+") else max(len(parts) - count, 0) :]
        out.buffer.write(shown if kind == "c" else b"".join(shown))


def _counts(data):
    """The counts of `wc`. As in GNU's, a word has at least one sign that can be printed."""
    text = decoded(data)
    words = re.findall(r"[^\s\xa0\u2007\u202f\u2060]+", text)
    return {
        "l": data.count(b"\n"), "w": sum(word.isascii() and word.isprintable() or any(map(str.isprintable, word)) for word in words),
        "c": len(data), "m": len(text) - len(re.findall("[\udc80-\udcff]", text)),
        "L": max((_columns(line) for line in re.split(r"[\n\r\f]", text)), default=0),
    }  # fmt: skip


def _columns(line):
    """The number of columns that a line takes."""
    columns = 0
    for sign in line:
        columns += 8 - columns % 8 if sign == "\t" else sign.isprintable() and (2 if unicodedata.east_asian_width(sign) in "WF" else unicodedata.combining(sign) == 0)
    return columns


def _wc(arguments, stdin, out, _err):
    options, operands = _options(arguments, "lwcmL", longs={"words": "w", "chars": "m", "lines": "l", "max-line-length": "L"})
    wanted = [letter for letter in "lwmcL" if letter in options] or list("lwc")
    rows, unread = [], None
    try:
        rows += ((_counts(data), name) for name, data in blobs(operands, stdin))
    except Unread as error:
        unread = error
    if len(operands) > 1:
        rows.append(({letter: (max if letter == "L" else sum)([row[letter] for row, _ in rows] or [0]) for letter in "lwcmL"}, "total"))
    # As wide as the bytes of all together; what is read from a stream may be of any length.
    is_known = stdin.is_file or (operands and "-" not in operands)
    width = 0 if len(wanted) == 1 and len(rows) == 1 else len(str(rows[-1][0]["c"])) if is_known and rows else 7
    for counts, name in rows:
        out.write(" ".join([*(str(counts[letter]).rjust(width) for letter in wanted), *([name] if operands else [])]) + "\n")
    if unread:
        raise unread


def _mkdir(arguments, _stdin, _out, _err):
    options, operands = _options(arguments, "pv", "m")
    for name in operands:
        os.makedirs(name, exist_ok=True) if "p" in options else os.mkdir(name)


def _rm(arguments, _stdin, _out, _err):
    options, operands = _options(arguments, "rRfvid")
    for name in operands:
        if not os.path.lexists(name) and "f" in options:
            continue
        if os.path.isdir(name) and not os.path.islink(name):
            if "r" not in options and "R" not in options:
                raise _Failed(f"cannot remove '{name}': Is a directory")
            shutil.rmtree(name)
        else:
            os.remove(name)


def _cp(arguments, _stdin, _out, _err):
    options, operands = _options(arguments, "rRapfv")
    _each_to(operands, lambda source, target: _copy(source, target, options))


def _copy(source, target, options):
    if not os.path.isdir(source):
        shutil.copy(source, target)
    elif options.keys() & {"r", "R", "a"}:
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        raise _Failed(f"-r not specified; omitting directory '{source}'")


def _mv(arguments, _stdin, _out, _err):
    _each_to(_options(arguments, "fvn")[1], shutil.move)


def _each_to(operands, action):
    if len(operands) < 2:
        raise _Failed("missing file operand")
    *sources, target = operands
    for source in sources:
        action(source, os.path.join(target, os.path.basename(source.rstrip("/"))) if os.path.isdir(target) else target)


def _touch(arguments, _stdin, _out, _err):
    for name in _options(arguments, "acm")[1]:
        with open(name, "a"):
            os.utime(name)


_GREP = {
    "after-context": "A", "before-context": "B", "binary-files": "binary-files=", "byte-offset": "b", "color": "color", "colour": "color", "context": "C",
    "exclude": "exclude=", "exclude-dir": "exclude-dir=", "files-with-matches": "l", "files-without-match": "L", "fixed-strings": "F", "basic-regexp": "G",
    "include": "include=", "line-regexp": "x", "max-count": "m", "no-filename": "h", "no-messages": "s", "null": "Z", "null-data": "z", "perl-regexp": "P",
    "regexp": "e", "text": "a", "with-filename": "H", "word-regexp": "w", "file": "f", "line-buffered": "line-buffered",
}  # fmt: skip


def _grep(arguments, stdin, out, err):
    # Each `-e` is a pattern of its own.
    patterns, rest, words = [], [], list(arguments)
    while words:
        each = words.pop(0)
        if each == "--":
            rest += [each, *words]
            break
        match = re.match(r"-([a-zA-Z]*?)e(.*)|--regexp=(.*)", each, re.DOTALL)
        if match is None or (match[1] or "") and set(match[1]) & set("mABCf"):
            rest.append(each)
            continue
        rest += [f"-{match[1]}"] if match[1] else []
        patterns.append(match[3] if match[3] is not None else match[2] or words.pop(0))
    options, operands = _options(rest, "invcrRlLEFGPHhowxqsabzZ", "mABCf", _GREP)
    if "f" in options:
        patterns += lines_of("".join(text for _, text in texts([options["f"]], stdin)))
    patterns = patterns or ([] if "f" in options else [operands.pop(0)])
    patterns = [part for pattern in patterns for part in pattern.split("\n")]
    is_extended = bool(options.keys() & {"E", "P"})
    made = [re.escape(each) if "F" in options else filters.pattern_of(each, is_extended, "P" in options) for each in patterns]
    pattern = made[0] if len(made) == 1 else "|".join(f"(?:{each})" for each in made) or "(?!)"
    pattern = rf"(?<!\w)(?:{pattern})(?!\w)" if "w" in options else pattern
    pattern = rf"(?:{pattern})\Z" if "x" in options else pattern
    wanted = re.compile(pattern, re.IGNORECASE if "i" in options else 0)
    is_deep = bool(options.keys() & {"r", "R"})
    if is_deep:
        operands = [path for place in operands or ["."] for path in _files(place)]
        if "include" in options:
            operands = [path for path in operands if fnmatch.fnmatchcase(os.path.basename(path), options["include"])]
        if "exclude" in options:
            operands = [path for path in operands if not fnmatch.fnmatchcase(os.path.basename(path), options["exclude"])]
        if "exclude-dir" in options:
            operands = [path for path in operands if not any(fnmatch.fnmatchcase(part, options["exclude-dir"]) for part in path.split("/")[:-1])]
    found, end = False, "\0" if "z" in options else "\n"
    is_text = "a" in options or options.get("binary-files") == "text"
    for name, data in blobs(operands, stdin) if operands or not is_deep else ():
        text, name = decoded(data), "(standard input)" if name == "-" else name
        head = name + ("\0" if "Z" in options else ":") if (len(operands) > 1 or is_deep or "H" in options) and "h" not in options else ""
        search = wanted.match if "x" in options else wanted.search
        whole = lines_of(text, end)
        lines = [(number, line) for number, line in enumerate(whole, 1) if bool(search(line)) != ("v" in options)]
        lines = lines[: int(options["m"])] if "m" in options else lines
        found |= bool(lines)
        if "q" in options:
            continue
        if "c" in options:
            out.write(f"{head}{len(lines)}\n")
        elif options.keys() & {"l", "L"}:
            is_named = bool(lines) == ("l" in options)
            out.write(name + ("\0" if "Z" in options else "\n") if is_named else "")
        elif not is_text and lines and end == "\n" and b"\0" in data[:32768]:
            err.write(f"grep: {name}: binary file matches\n")
        elif options.keys() & {"A", "B", "C"}:
            _around(whole, lines, options, head, out)
        else:
            starts = list(itertools.accumulate((len(encoded(line)) + 1 for line in whole), initial=0)) if "b" in options else None
            has_more = False
            for number, line in lines:
                if not is_text and _NO_TEXT.search(line):
                    has_more = True
                    continue
                shown = [(match.start(), match[0]) for match in wanted.finditer(line) if match[0]] if "o" in options else [(0, line)]
                for at, each in shown if "v" not in options or "o" not in options else ():
                    place = f"{number}:" if "n" in options else ""
                    place += f"{starts[number - 1] + len(encoded(line[:at]))}:" if starts else ""
                    out.write(f"{head}{place}{each}{end}")
            if has_more:
                err.write(f"grep: {name}: binary file matches\n")
    return 0 if found else 1


# Signs that lines of text do not have.
_NO_TEXT = re.compile("[\udc80-\udcff]")


def _around(lines, found, options, head, out):
    """Lines that were found among those before and after them."""
    before, after = (int(options.get(letter, options.get("C", 0))) for letter in "BA")
    numbers = {number for number, _ in found}
    shown = sorted({each for number in numbers for each in range(max(number - before, 1), min(number + after, len(lines)) + 1)})
    last = 0
    for number in shown:
        out.write("--\n" if last and number > last + 1 else "")
        last, sign = number, ":" if number in numbers else "-"
        out.write(f"{head.replace(':', sign)}{f'{number}{sign}' if 'n' in options else ''}{lines[number - 1]}\n")


def _files(place):
    if not os.path.isdir(place):
        return [place]
    return sorted(os.path.join(folder, name) for folder, _, names in os.walk(place) for name in names)


_SORT = {
    "general-numeric-sort": "g", "human-numeric-sort": "h", "version-sort": "V", "stable": "s", "check": "c", "ignore-case": "f", "field-separator": "t",
    "merge": "m", "ignore-leading-blanks": "b", "parallel": "parallel=", "buffer-size": "S", "temporary-directory": "T", "dictionary-order": "d",
}  # fmt: skip


def _sort(arguments, stdin, out, err):
    # Each `-k` is a key of its own, and the last resort is the whole line.
    keys, rest, words = [], [], list(arguments)
    while words:
        each = words.pop(0)
        if re.match(r"-k|--key=", each):
            keys.append(each.partition("=")[2] if each.startswith("--") else each[2:] or words.pop(0))
        else:
            rest.append(each)
    options, operands = _options(rest, "rnufVhgbscCmdz", "toST", _SORT)
    end = "\0" if "z" in options else "\n"
    lines = [line for _, text in texts(operands, stdin) for line in lines_of(text, end)]
    flags, mark = "".join(options.keys() & set("rnfVhgbd")), options.get("t")
    mark = "\0" if mark == "\\0" else mark
    places = [_sort_key(key, flags) for key in keys] or [(0, None, flags)]

    def part(line, place):
        start, end, flags = place
        fields = line.split(mark)
        text = (mark or " ").join(fields[start:end]) if start or end is not None else line
        text = text.upper() if "f" in flags else text
        text = re.sub(r"[^\w\s]", "", text) if "d" in flags else text
        if "V" in flags:
            return [(not each.isdigit(), each.zfill(20)) for each in re.split(r"(\d+)", text)]
        if set("nhg") & set(flags):
            match = re.match(r"\s*-?(?:\d+\.?\d*|\.\d+)" + (r"(?:[eE][-+]?\d+)?" if "g" in flags else ""), text)
            unit = text[match.end() : match.end() + 1].upper() if match and "h" in flags else ""
            return float(match[0]) * 1024 ** (" KMGT".find(unit or " ")) if match else 0.0
        return encoded(text)

    if "c" in options or "C" in options:
        for number, (first, second) in enumerate(itertools.pairwise(lines), 2):
            before, after = ((part(second, places[0]), part(first, places[0]))) if "r" in places[0][2] else (part(first, places[0]), part(second, places[0]))
            if before > after or ("u" in options and before == after):
                if "C" not in options:
                    err.write(f"sort: {operands[0] if operands else '-'}:{number}: disorder: {second}\n")
                return 1
        return 0
    if "u" in options:
        lines = list({tuple(map(repr, (part(line, place) for place in places))): line for line in reversed(lines)}.values())[::-1]
    elif "s" not in options:
        lines.sort(key=encoded, reverse="r" in flags)
    for place in reversed(places):
        lines.sort(key=lambda line, place=place: part(line, place), reverse="r" in place[2])
    data = encoded("".join(f"{line}{end}" for line in lines))
    if "o" not in options:
        out.buffer.write(data)
        return 0
    with open(options["o"], "wb") as file:
        file.write(data)
    return 0


def _sort_key(text, flags):
    """(first field, field after the last or None, flags) of a key such as `2,3nr`."""
    match = re.fullmatch(r"(\d+)(?:\.\d+)?([a-zA-Z]*)(?:,(\d+)(?:\.\d+)?([a-zA-Z]*))?", text)
    if match is None or match[1] == "0":
        raise _Failed(f"invalid number at field start: '{text}'")
    return int(match[1]) - 1, int(match[3]) if match[3] else None, match[2] + (match[4] or "") or flags


_UNIQ = {"repeated": "d", "all-repeated": "D", "skip-fields": "f", "skip-chars": "s", "check-chars": "w"}


def _uniq(arguments, stdin, out, _err):
    options, operands = _options(arguments, "cduizD", "fsw", _UNIQ)
    end, groups = "\0" if "z" in options else "\n", []
    for _, text in texts(operands[:1], stdin):
        for line in lines_of(text, end):
            key = re.sub(r"^(?:[ \t]*[^ \t]*){%d}" % int(options.get("f", 0)), "", line)
            key = encoded(key)[int(options.get("s", 0)) :]
            key = key[: int(options["w"])] if "w" in options else key
            key = key.lower() if "i" in options else key
            if groups and groups[-1][0] == key:
                groups[-1][1].append(line)
            else:
                groups.append((key, [line]))
    shown = []
    for _, lines in groups:
        if ("d" in options or "D" in options) and len(lines) == 1 or "u" in options and len(lines) > 1:
            continue
        shown += lines if "D" in options else [f"{len(lines):7} {lines[0]}" if "c" in options else lines[0]]
    data = encoded("".join(f"{line}{end}" for line in shown))
    if len(operands) > 1 and operands[1] != "-":
        with open(operands[1], "wb") as file:
            file.write(data)
    else:
        out.buffer.write(data)


def _find(arguments, _stdin, out, err):
    arguments, places = list(arguments), []
    while arguments and not arguments[0].startswith("-") and arguments[0] not in ("!", "("):
        places.append(arguments.pop(0))
    depth, negated, actions, is_deleting = [0, None], False, [], False
    # Alternatives, of each of which all tests must hold.
    tests = [[]]
    while arguments:
        option = arguments.pop(0)
        if option in ("!", "-not"):
            negated = not negated
        elif option in ("-o", "-or"):
            tests.append([])
        elif option in ("-a", "-and", "(", ")", "-print"):
            continue
        elif option == "-print0":
            actions.append(lambda path: out.write(f"{path}\0"))
        elif option in ("-maxdepth", "-mindepth"):
            depth[option == "-maxdepth"] = int(arguments.pop(0))
        elif option == "-delete":
            is_deleting = True
            actions.append(lambda path: os.rmdir(path) if os.path.isdir(path) and not os.path.islink(path) else os.remove(path))
        elif option == "-exec":
            end = next((number for number, each in enumerate(arguments) if each in (";", "+")), None)
            if end is None:
                raise _Failed("missing argument to `-exec'")
            words, arguments = arguments[:end], arguments[end + 1 :]
            actions.append(lambda path, words=words: run_words([each.replace("{}", path) for each in words], Stream(), out, err))
        else:
            tests[-1].append(_find_test(option, arguments, negated))
            negated = False
    for place in places or ["."]:
        os.lstat(place)
        paths = list(_walked(place, depth[1]))
        # What is deleted is so from within.
        for level, path in reversed(paths) if is_deleting else paths:
            if level >= depth[0] and any(all(test(path) for test in group) for group in tests):
                for action in actions or [lambda path: out.write(f"{path}\n")]:
                    action(path)


def _find_test(option, arguments, negated):
    value = "" if option == "-empty" else arguments.pop(0) if arguments else ""
    if option in ("-name", "-iname", "-path"):
        fold = str.lower if option == "-iname" else str
        part = str if option == "-path" else os.path.basename
        test = lambda path: fnmatch.fnmatchcase(fold(part(path)), fold(value))
    elif option == "-type":
        test = {"d": os.path.isdir, "l": os.path.islink}.get(value, os.path.isfile)
    elif option == "-empty":
        test = lambda path: not os.listdir(path) if os.path.isdir(path) else os.path.getsize(path) == 0
    elif option == "-size":
        unit = {"c": 1, "k": 1024, "M": 1 << 20, "G": 1 << 30}.get(value[-1:], 512)
        wanted = int(value.strip("+-ckMGb"))
        sign = value[:1]

        def test(path):
            size = -(-os.lstat(path).st_size // unit)
            return size > wanted if sign == "+" else size < wanted if sign == "-" else size == wanted

    elif option in ("-mtime", "-mmin"):
        seconds, sign = (86400 if option == "-mtime" else 60), value[:1]

        def test(path):
            age = (time.time() - os.lstat(path).st_mtime) // seconds
            return age > int(value[1:]) if sign == "+" else age < int(value[1:]) if sign == "-" else age == int(value)

    elif option == "-newer":
        test = lambda path: os.lstat(path).st_mtime > os.lstat(value).st_mtime
    else:
        raise _Failed(f"unknown predicate `{option}'")
    return (lambda path: not test(path)) if negated else test


def _walked(place, depth, level=0):
    """(level, path) of a place and all below it."""
    yield level, place
    if os.path.isdir(place) and not os.path.islink(place) and (depth is None or level < depth):
        for name in sorted(os.listdir(place)):
            yield from _walked(os.path.join(place, name), depth, level + 1)


def _du(arguments, _stdin, out, _err):
    options, operands = _options(arguments, "shkbc", "d")
    for place in operands or ["."]:
        size = sum(os.lstat(path).st_size for path in _files(place))
        out.write(f"{_human(size) if 'h' in options else size if 'b' in options else (size + 1023) // 1024}\t{place}\n")


def _pip(arguments, _stdin, out, err):
    status = packages.pip(arguments, out, err)
    if status is None:
        raise _Failed(f"unknown command \"{arguments[0] if arguments else ''}\"")
    return status


def _which(arguments, _stdin, out, _err):
    found = [name for name in arguments if is_known(name)]
    out.write("".join(f"/usr/bin/{name}\n" for name in found))
    return int(len(found) < len(arguments))


def _cd(arguments, _stdin, _out, _err):
    os.chdir(os.path.expanduser(arguments[0]) if arguments else os.environ.get("HOME", "/"))


def _env(arguments, stdin, out, err):
    before, rest = dict(os.environ), list(arguments)
    try:
        while rest and rest[0].startswith("-"):
            option = rest.pop(0)
            if option in ("-i", "-"):
                os.environ.clear()
            elif option == "-u" and rest:
                os.environ.pop(rest.pop(0), None)
        while rest and re.match(r"\w+=", rest[0]):
            name, _, value = rest.pop(0).partition("=")
            os.environ[name] = value
        if rest:
            return run_words(rest, stdin, out, err)
        out.write("".join(f"{name}={value}\n" for name, value in sorted(os.environ.items())))
    finally:
        os.environ.clear()
        os.environ.update(before)


def _printenv(arguments, _stdin, out, _err):
    missing = [name for name in arguments if name not in os.environ]
    out.write("".join(f"{os.environ[name]}\n" for name in arguments if name in os.environ))
    return int(bool(missing)) if arguments else _env([], None, out, None)


def _realpath(arguments, _stdin, out, err):
    options, operands = _options(arguments, "emsqz", longs={"canonicalize-existing": "e", "canonicalize-missing": "m", "strip": "s", "no-symlinks": "s", "zero": "z"})
    status = 0
    for each in operands:
        path = os.path.abspath(each) if "s" in options else os.path.realpath(each)
        needed = path if "e" in options else "/" if "m" in options else os.path.dirname(path)
        if os.path.exists(needed):
            out.write(path + ("\0" if "z" in options else "\n"))
        else:
            status = 1
            err.write("" if "q" in options else f"realpath: {each}: No such file or directory\n")
    return status


_ISO = {"date": "%Y-%m-%d", "hours": "%Y-%m-%dT%H%:z", "minutes": "%Y-%m-%dT%H:%M%:z", "seconds": "%Y-%m-%dT%H:%M:%S%:z"}


def _date(arguments, _stdin, out, _err):
    longs = {"date": "d", "utc": "u", "universal": "u", "rfc-email": "R", "reference": "r", "iso-8601": "I"}
    detail = next((each[2:] or "date" for each in arguments if each.startswith("-I")), "date")
    options, operands = _options(["-I" if each.startswith("-I") else each for each in arguments], "uRI", "dr", longs=longs)
    if isinstance(options.get("I"), str):
        detail = options["I"]
    now = time.time()
    if "d" in options:
        now = _moment(str(options["d"]), now, is_utc="u" in options)
    elif "r" in options:
        now = os.stat(options["r"]).st_mtime
    usual = _ISO.get(detail, _ISO["seconds"]) if "I" in options else "%a, %d %b %Y %H:%M:%S %z" if "R" in options else "%a %b %e %H:%M:%S %Z %Y"
    form = next((each[1:] for each in operands if each.startswith("+")), usual)
    form = form.replace("%N", f"{int(now % 1 * 1e9):09}").replace("%s", str(int(now))).replace("%3N", f"{int(now % 1 * 1e3):03}")
    when = time.gmtime(now) if "u" in options else time.localtime(now)
    form = form.replace("%:z", f"{'-' if when.tm_gmtoff < 0 else '+'}{abs(when.tm_gmtoff) // 3600:02}:{abs(when.tm_gmtoff) // 60 % 60:02}")
    out.write(time.strftime(form, when).replace("GMT", "UTC") + "\n")


def _moment(text, now, *, is_utc=False):
    import datetime

    if text.startswith("@"):
        return float(text[1:])
    match = re.fullmatch(r"([-+]?\d+) (second|minute|hour|day|week)s?( ago)?", text)
    if match:
        unit = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}[match[2]]
        return now + int(match[1]) * unit * (-1 if match[3] else 1)
    match = re.fullmatch(r"(\d{4}-\S+(?: \d\d:\S+)?|now|today|yesterday|tomorrow) ([-+]? ?\d+ \w+(?: ago)?)", text)
    if match:
        base = _moment(match[1], now, is_utc=is_utc)
        return _moment(match[2].replace(" ", "", 1) if match[2][1:2] == " " else match[2], base)
    days = {"now": 0, "today": 0, "yesterday": -1, "tomorrow": 1}
    if text in days:
        return now + days[text] * 86400
    when = datetime.datetime.fromisoformat(text.removesuffix(" UTC") + ("+00:00" if text.endswith(" UTC") else ""))
    return (when.replace(tzinfo=datetime.UTC) if is_utc and when.tzinfo is None else when).timestamp()


def _xargs(arguments, stdin, out, err):
    options, words = {}, list(arguments)
    while words and words[0].startswith("-"):
        each = words.pop(0)
        if each[1:2] in "nIPLd":
            options[each[1]] = each[2:] or words.pop(0)
        else:
            options[each[1:]] = True
    words, text = words or ["echo"], stdin.read()
    if "0" in options:
        given = text.removesuffix("\0").split("\0") if text else []
    elif "d" in options:
        given = text.removesuffix("\n").split(escapes.filled(options["d"], escapes.FORMAT)[0])
    else:
        given = [line for line in lines_of(text) if line.strip()] if "I" in options or "L" in options else text.split()
    if "0" not in options:
        given = [each.partition("\0")[0] for each in given]
    if not given and ("r" in options or "I" in options):
        return 0
    if "I" in options:
        groups = [[word.replace(options["I"], each) for word in words] for each in given]
    else:
        count = int(options.get("n") or options.get("L") or len(given) or 1)
        groups = [[*words, *given[at : at + count]] for at in range(0, len(given) or 1, count)]
    status = 0
    for group in groups:
        status = 123 if run_words(group, Stream(), out, err) else status
    return status


_TESTS = {
    "-e": os.path.lexists, "-f": os.path.isfile, "-d": os.path.isdir, "-L": os.path.islink, "-h": os.path.islink, "-n": bool,
    "-z": lambda text: not text, "-s": lambda path: os.path.exists(path) and os.path.getsize(path) > 0,
    "-r": os.path.exists, "-w": lambda path: os.access(path, os.W_OK), "-x": lambda path: os.access(path, os.X_OK), "-t": lambda _: False,
    "-v": lambda name: name in os.environ,
}  # fmt: skip
_RELATIONS = {"-eq": int.__eq__, "-ne": int.__ne__, "-lt": int.__lt__, "-le": int.__le__, "-gt": int.__gt__, "-ge": int.__ge__}


def is_test(word):
    """Whether a word asks something of the one behind it."""
    return word in _TESTS


def is_relation(word):
    """Whether a word asks something of the two around it."""
    return word in _RELATIONS or word in ("=", "==", "!=", "=~", "<", ">", "-nt", "-ot", "-ef")


def holds(words):
    """Whether the words of a `test` hold."""
    for sign, join in (("-o", any), ("-a", all)):
        if sign in words[1:-1] and len(words) > 3:
            at = words.index(sign, 1)
            return join([holds(words[:at]), holds(words[at + 1 :])])
    if words[:1] == ["!"]:
        return not holds(words[1:])
    if words[:1] == ["("] and words[-1:] == [")"]:
        return holds(words[1:-1])
    if len(words) == 3:
        left, sign, right = words
        if sign in _RELATIONS:
            for each in (left, right):
                if not re.fullmatch(r"\s*[-+]?\d{1,18}\s*", each):
                    raise Unfit(f"{each}: integer expression expected")
            return _RELATIONS[sign](int(left), int(right))
        if sign in ("=", "=="):
            return left == right
        if sign == "!=":
            return left != right
        if sign in ("<", ">"):
            return left < right if sign == "<" else left > right
        if sign in ("-nt", "-ot"):
            left, right = (os.path.getmtime(each) if os.path.exists(each) else -1 for each in (left, right))
            return left > right if sign == "-nt" else left < right
    if len(words) == 2 and words[0] in _TESTS:
        return bool(_TESTS[words[0]](words[1]))
    if len(words) < 2:
        return bool(words and words[0])
    raise Unfit("unknown operator")


def _basename(arguments, _stdin, out, _err):
    options, operands = _options(arguments, "a", "s")
    suffix = options.get("s") or (operands.pop() if len(operands) == 2 and "a" not in options else "")
    for each in operands:
        name = os.path.basename(each.rstrip("/")) or "/"
        out.write((name.removesuffix(suffix) if name != suffix else name) + "\n")


def _chmod(arguments, _stdin, _out, _err):
    options, rest = {}, list(arguments)
    while rest and rest[0] in ("-R", "-v", "-f"):
        options[rest.pop(0)[1:]] = True
    change, *names = rest
    paths = [path for name in names for _, path in _walked(name, None if "R" in options else 0)]
    for path in paths:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        if re.fullmatch(r"[0-7]{3,4}", change):
            mode = int(change, 8)
        else:
            for part in change.split(","):
                match = re.fullmatch(r"([ugoa]*)([-+=])([rwx]*)", part)
                if match is None:
                    raise _Failed(f"invalid mode: '{change}'")
                bits = sum({"r": 4, "w": 2, "x": 1}[each] for each in set(match[3]))
                mask = sum(bits << {"u": 6, "g": 3, "o": 0}[who] for who in set((match[1] or "a").replace("a", "ugo")))
                full = sum(7 << {"u": 6, "g": 3, "o": 0}[who] for who in set((match[1] or "a").replace("a", "ugo")))
                mode = mode | mask if match[2] == "+" else mode & ~mask if match[2] == "-" else mode & ~full | mask
        os.chmod(path, mode)


def _ln(arguments, _stdin, _out, _err):
    options, operands = _options(arguments, "sfn")
    target, *rest = operands
    name = rest[0] if rest else os.path.basename(target)
    name = os.path.join(name, os.path.basename(target)) if os.path.isdir(name) else name
    if "f" in options and os.path.lexists(name):
        os.remove(name)
    os.symlink(target, name) if "s" in options else os.link(target, name)


def _rmdir(arguments, _stdin, _out, _err):
    for name in _options(arguments, "p")[1]:
        os.rmdir(name)


def _stat(arguments, _stdin, out, _err):
    options, operands = _options(arguments, "L", "cf")
    for name in operands:
        found = os.stat(name)
        values = {"s": found.st_size, "n": name, "a": f"{stat.S_IMODE(found.st_mode):o}", "A": stat.filemode(found.st_mode), "Y": int(found.st_mtime), "U": "user", "G": "user"}
        form = options.get("c") or options.get("format") or "  File: %n\n  Size: %s\nAccess: (%a/%A)"
        out.write(re.sub(r"%([snaAYUG])", lambda match: str(values[match[1]]), form) + "\n")


def _tree(arguments, _stdin, out, _err):
    options, operands = _options(arguments, "adfh", "LI")
    counts = [0, 0]

    def show(folder, head, level):
        names = sorted(name for name in os.listdir(folder) if "a" in options or not name.startswith("."))
        names = [name for name in names if "d" not in options or os.path.isdir(os.path.join(folder, name))]
        for number, name in enumerate(names):
            path, is_last = os.path.join(folder, name), number == len(names) - 1
            out.write(f"{head}{'└── ' if is_last else '├── '}{name}\n")
            counts[not os.path.isdir(path)] += 1
            if os.path.isdir(path) and not os.path.islink(path) and level < int(options.get("L", 50)):
                show(path, head + ("    " if is_last else "│   "), level + 1)

    for place in operands or ["."]:
        out.write(f"{place}\n")
        show(place, "", 1)
    folders, files = (f"{count} {name if count == 1 else names}" for count, name, names in zip(counts, ("directory", "file"), ("directories", "files"), strict=True))
    out.write(f"\n{folders}\n" if "d" in options else f"\n{folders}, {files}\n")


def _df(arguments, _stdin, out, _err):
    total, used, free = shutil.disk_usage(os.getcwd())
    is_human = "h" in _options(arguments, "hkTm")[0]
    show = _human if is_human else (lambda size: str(size // 1024))
    out.write(f"Filesystem     {'Size' if is_human else '1K-blocks'}  Used Avail Use% Mounted on\n")
    out.write(f"workspace      {show(total)}  {show(used)} {show(free)} {100 * used // max(total, 1)}% {os.environ.get('HOME', '/')}\n")


def _uname(arguments, _stdin, out, _err):
    flags = set("".join(arguments).replace("-", ""))
    parts = {"s": "Linux", "n": "sandbox", "r": "6.1.0", "v": "#1", "m": "x86_64", "o": "GNU/Linux"}
    out.write(" ".join(parts[each] for each in "snrvmo" if each in flags or "a" in flags or (each == "s" and not flags)) + "\n")


def _write(text):
    return lambda _arguments, _stdin, out, _err: out.write(text()) and 0


_COMMANDS = {
    "basename": _basename,
    "cat": _cat,
    "cd": _cd,
    "chmod": _chmod,
    "clear": lambda *_: 0,
    "cp": _cp,
    "date": _date,
    "df": _df,
    "dirname": lambda arguments, _stdin, out, _err: out.write("".join(f"{os.path.dirname(each.rstrip('/')) or '.'}\n" for each in arguments)) and 0,
    "du": _du,
    "echo": _echo,
    "egrep": lambda arguments, *streams: _grep(["-E", *arguments], *streams),
    "env": _env,
    "false": lambda *_: 1,
    "fgrep": lambda arguments, *streams: _grep(["-F", *arguments], *streams),
    "find": _find,
    "grep": _grep,
    "head": _head,
    "hostname": _write(lambda: "sandbox\n"),
    "id": _write(lambda: "uid=1000(user) gid=1000(user) groups=1000(user)\n"),
    "jq": jq.command,
    "ln": _ln,
    "ls": _ls,
    "mkdir": _mkdir,
    "mv": _mv,
    "nproc": _write(lambda: "1\n"),
    "pip": _pip,
    "pip3": _pip,
    "printenv": _printenv,
    "pwd": _write(lambda: f"{os.getcwd()}\n"),
    "readlink": lambda arguments, _stdin, out, _err: out.write("".join(f"{os.path.realpath(each) if arguments[0].startswith('-') else os.readlink(each)}\n" for each in arguments if not each.startswith("-"))) and 0,
    "realpath": _realpath,
    "rm": _rm,
    "rmdir": _rmdir,
    "sleep": lambda arguments, *_: time.sleep(float(arguments[0].rstrip("s"))),
    "sort": _sort,
    "sqlite3": databases.command,
    "stat": _stat,
    "tail": _tail,
    "test": lambda arguments, *_: int(not holds(arguments)),
    "timeout": lambda arguments, *streams: run_words(arguments[1:], *streams),
    "touch": _touch,
    "tree": _tree,
    "true": lambda *_: 0,
    "uname": _uname,
    "uniq": _uniq,
    "wc": _wc,
    "which": _which,
    "whoami": _write(lambda: "user\n"),
    "xargs": _xargs,
}
filters.install(_COMMANDS, _options, _Failed)
packing.install(_COMMANDS, _options, _Failed, _moment)
inspecting.install(_COMMANDS, _options, _Failed)
machine.install(_COMMANDS, _options, _Failed)
utilities.install(_COMMANDS, _options, _Failed, lambda *command: run_words(*command))
_REMEDIES = {
    "apt": lacks.PACKAGES,
    "apt-get": lacks.PACKAGES,
    "conda": lacks.PACKAGES,
    **dict.fromkeys(("free", "htop", "lscpu", "top", "vmstat"), lacks.LIMITS),
    "git": "there is no program for repositories; files of the session are kept by it",
    "uv": lacks.PACKAGES,
}


def has(name):
    """Whether there is a command of this name."""
    return name in _COMMANDS


def is_known(name):
    """Whether there is a command of this name, or a program that comes with a package."""
    return has(name) or packages.program(name) is not None


def remedy(name):
    """What there is instead of a command that is not there."""
    return _REMEDIES.get(name) or f"there are no programs in this sandbox but {', '.join(name for name in sorted(_COMMANDS))}"


def add(name, command):
    """Adds a command."""
    _COMMANDS[name] = command


def add_programs(run, names):
    """Adds programs, which `run` runs as processes, given their arguments with their names first."""
    for name in names:
        _COMMANDS[name] = lambda arguments, stdin, out, err, name=name: run([name, *arguments], stdin, out, err)


# --- What runs them

# Commands whose status is 1 when all went well and nothing was found, or nothing is the same.
_TROUBLED = frozenset(("cmp", "diff", "egrep", "fgrep", "grep", "ls", "sort", "tar"))

# What commands say of a file that they cannot do their work on.
_SAID = {
    "cp": "cannot stat '{}'", "head": "cannot open '{}' for reading", "ls": "cannot access '{}'", "mkdir": "cannot create directory '{}'",
    "mv": "cannot stat '{}'", "rm": "cannot remove '{}'", "rmdir": "failed to remove '{}'", "tail": "cannot open '{}' for reading",
    "touch": "cannot touch '{}'",
}  # fmt: skip


def run_words(words, stdin, out, err):
    """Runs one command; returns its exit status."""
    name = words[0].rpartition("/")[2]
    command = _COMMANDS.get(name)
    if command is None and (text := packages.program(name)) is not None:
        return _COMMANDS["python"](["-c", text, *words[1:]], stdin, out, err)
    if command is None:
        err.write(f"{words[0]}: command not found: {remedy(name)}\n")
        return _NOT_FOUND
    try:
        with zones.of_environment():
            return command(words[1:], stdin, out, err) or 0
    except _Failed as error:
        err.write(f"{name}: {error}\n")
        return 2 if isinstance(error, Unfit) or name in _TROUBLED else 1
    except (OSError, Unread) as error:
        for each in error.args if isinstance(error, Unread) else [error]:
            said = f"{_SAID.get(name, '{}').format(each.filename)}: {each.strerror}" if each.filename else str(each)
            err.write(f"{name}: {said}\n")
        return 2 if name in _TROUBLED | {"awk", "gawk", "sed"} else 1
    except IndexError:
        err.write(f"{name}: missing operand\n")
    except (ValueError, EOFError, LookupError, OverflowError, re.error) as error:
        err.write(f"{name}: {error}\n")
    return 2 if name in _TROUBLED else 1
