"""Small functions for text and files that every cell has. Those that touch files tell the host what they did."""

import builtins
import difflib
import errno
import json
import os
import re

import _cellar
from _cellar_prelude.shell.lines import lines_with_ends

# A drawing of a folder has no more lines.
TREE_LINES_MAX = 2000
# Of a file that is not text, the first bytes give it away.
_SNIFFED = 8192


def _remedy_for(address, what):
    """What to use for an address, by its scheme and by what was asked for."""
    scheme = address.partition("://")[0].lower()
    if scheme == "file":
        return "give the path alone"
    if what not in ("read", "diff"):
        return "name a file in the workspace"
    if scheme in ("http", "https"):
        return "use urllib.request"
    return f"use tool.read(path={address!r})"


def _path(path, what):
    """A path as text; addresses are someone else's business."""
    text = os.fspath(path)
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    if "://" in text:
        raise ValueError(f"{what}() takes paths in the sandbox, not addresses: {_remedy_for(text, what)}")
    if text.startswith("~/"):
        text = os.path.expanduser(text)
    return text


def _file(path, what):
    """The path of something that is not a folder."""
    text = _path(path, what)
    if os.path.isdir(text):
        reads = what in ("read", "diff")
        remedy = f"use tree({text!r}), or tool.read(path={text!r})" if reads else "name a file in it"
        raise IsADirectoryError(f"{what}() takes a file, and {text!r} is a directory: {remedy}")
    return text


def _similar(path):
    """An existing path that is nearly the one that is missing, or None."""
    found = ""
    for part in path.rstrip("/").split("/"):
        step = f"{found}{part}"
        if part and not os.path.lexists(step):
            try:
                close = difflib.get_close_matches(part, os.listdir(found or "."), 1)
            except OSError:
                close = []
            if not close:
                return None
            step = f"{found}{close[0]}"
        found = f"{step}/"
    found = found.rstrip("/")
    return found if found and found != path else None


class _Remedies:
    """Says in the usual failures of files what to do about them."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        return self

    def __exit__(self, _kind, error, _trace):
        if isinstance(error, FileNotFoundError):
            similar = _similar(self.path)
            remedy = f"did you mean {similar!r}?" if similar else "tree() shows what is there"
        elif isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM):
            remedy = f"the session was not granted that folder; paths below {os.getcwd()} are fine"
        elif isinstance(error, OSError) and error.errno == errno.EROFS:
            remedy = f"that folder was granted for reading only; paths below {os.getcwd()} are fine"
        else:
            return
        raise type(error)(error.errno, f"{error.strerror.partition(':')[0]} ({remedy})", self.path) from None


def _text_of(name):
    """The text of a file, which must be text."""
    with _Remedies(name), open(name, "rb") as file:
        data = file.read()
    if b"\0" in data[:_SNIFFED] and not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(f"{name!r} is not a text file: use open({name!r}, 'rb').read() for its bytes")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


def _count(value, what):
    """A whole number that is not negative, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{what} must be an integer, not {type(value).__name__}")
    number = value.__index__()
    if number < 0:
        raise ValueError(f"{what} must not be negative, found {number}")
    return number


def read(path, offset=None, limit=None):
    """The text of a file; with `offset` (a line number from 1) and `limit`, some of its lines."""
    name = _file(path, "read")
    offset, limit = _count(offset, "offset"), _count(limit, "limit")
    text = _text_of(name)
    if offset is not None or limit is not None:
        first = max((offset or 1) - 1, 0)
        lines = lines_with_ends(text)
        text = "".join(lines[first:] if limit is None else lines[first : first + limit])
    _cellar.status("read", {"path": name, "bytes": len(text.encode("utf-8", "replace")), "chars": len(text)})
    return text


def _write(path, content, mode, what):
    name = _file(path, what)
    if isinstance(content, (builtins.bytes, bytearray, memoryview)):
        data = bytes(content)
    elif isinstance(content, str):
        data = content.encode("utf-8", "surrogateescape")
    else:
        kind = type(content).__name__
        raise TypeError(f"{what}() takes str or bytes, not {kind}: use str(value), or json.dumps(value) for plain data")
    with _Remedies(name):
        folder = os.path.dirname(name)
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(name, mode + "b") as file:
            file.write(data)
    _cellar.status(what, {"path": name, "bytes": len(data)})
    return name


def write(path, content):
    """Writes text or bytes to a file, making its folders. Returns the path."""
    return _write(path, content, "w", "write")


def append(path, content):
    """Adds text or bytes to the end of a file, making it when there is none. Returns the path."""
    return _write(path, content, "a", "append")


def _items(text):
    """The lines of a text, or the items of anything else."""
    return [line.removesuffix("\n").removesuffix("\r") for line in lines_with_ends(text)] if isinstance(text, str) else list(text)


def sort(text, *, reverse=False, unique=False):
    """The lines of a text, sorted. A list gives a list."""
    lines = _items(text)
    if unique:
        lines = list(dict.fromkeys(lines))
    lines.sort(reverse=reverse)
    _cellar.status("sort", {"lines": len(lines), "reverse": bool(reverse), "unique": bool(unique)})
    return "\n".join(lines) if isinstance(text, str) else lines


def uniq(text, *, count=False):
    """The lines of a text without repetitions of the line before; with `count`, pairs of count and line.

    A list gives a list.
    """
    groups = []
    for line in _items(text):
        if groups and groups[-1][1] == line:
            groups[-1] = (groups[-1][0] + 1, line)
        else:
            groups.append((1, line))
    _cellar.status("uniq", {"groups": len(groups), "count": bool(count)})
    if count:
        return groups
    lines = [line for _, line in groups]
    return "\n".join(lines) if isinstance(text, str) else lines


def counter(items, *, limit=None, reverse=True):
    """Pairs of count and item, the most frequent first; `reverse=False` turns the order round. A text counts by line."""
    import collections

    limit = _count(limit, "limit")
    counts = collections.Counter(_items(items))
    pairs = sorted(((n, item) for item, n in counts.items()), key=lambda pair: pair[0], reverse=reverse)
    _cellar.status("counter", {"unique": len(counts), "total": sum(counts.values())})
    return pairs[:limit] if limit is not None else pairs


def diff(a, b):
    """A unified diff of two text files; empty when they are the same."""
    first, second = _file(a, "diff"), _file(b, "diff")
    one, two = (lines_with_ends(_text_of(name)) for name in (first, second))
    lines = difflib.unified_diff(one, two, fromfile=first, tofile=second)
    text = "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
    _cellar.status("diff", {"a": first, "b": second, "identical": not text})
    return text


class _Tree:
    """Draws folders."""

    def __init__(self, max_depth, hidden):
        self.max_depth, self.hidden = max_depth, hidden
        self.lines, self.files, self.folders, self.left_out = [], 0, 0, 0

    def add(self, line):
        if len(self.lines) < TREE_LINES_MAX:
            self.lines.append(line)
        else:
            self.left_out += 1

    def walk(self, folder, prefix, depth):
        """Draws what is in a folder."""
        if depth > self.max_depth:
            return
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: (not entry.is_dir(follow_symlinks=False), entry.name))
        except OSError as error:
            self.add(f"{prefix}└── [{error.strerror}]")
            return
        entries = [entry for entry in entries if self.hidden or not entry.name.startswith(".")]
        for entry in entries:
            last = entry is entries[-1]
            is_folder = entry.is_dir(follow_symlinks=False)
            self.folders += is_folder
            self.files += not is_folder
            self.add(f"{prefix}{'└── ' if last else '├── '}{entry.name}{'/' if is_folder else ''}")
            if is_folder:
                self.walk(entry.path, prefix + ("    " if last else "│   "), depth + 1)


def tree(path=".", *, max_depth=3, hidden=False):
    """The files below a folder, as a drawing."""
    root = _path(path, "tree")
    max_depth = _count(max_depth, "max_depth")
    with _Remedies(root):
        if not os.path.isdir(root):
            os.stat(root)
            raise NotADirectoryError(f"tree() takes a folder, and {root!r} is a file: use read({root!r})")
    drawn = _Tree(3 if max_depth is None else max_depth, hidden)
    drawn.add(f"{root.rstrip('/')}/")
    drawn.walk(root, "", 1)
    if drawn.left_out:
        drawn.lines.append(f"… {drawn.left_out} more; name a folder below, or a smaller max_depth")
    _cellar.status("tree", {"path": root, "files": drawn.files, "folders": drawn.folders})
    return "\n".join(drawn.lines)


def env(key=None, value=None):
    """The environment: all of it, one variable, or one variable set to a value."""
    if key is None:
        _cellar.status("env", {"count": len(os.environ), "action": "list"})
        return dict(sorted(os.environ.items()))
    if not isinstance(key, str):
        raise TypeError(f"env() takes the name of a variable as a str, not {type(key).__name__}")
    if value is not None:
        os.environ[key] = str(value)
        _cellar.status("env", {"key": key, "action": "set"})
        return str(value)
    _cellar.status("env", {"key": key, "action": "get"})
    return os.environ.get(key)


def _address(name):
    """Where `output` finds a name: what looks like the id of an artifact is one, all else is the output of an agent."""
    if "://" in name:
        return name
    is_id = len(name) >= 6 and set(name) <= set("0123456789abcdef")
    return f"artifact://{name}" if is_id else f"agent://{name}"


# What `output` makes of a text.
_FORMATS = ("raw", "stripped", "json")
# A step of a query: a name behind a dot, or a number or a text in brackets.
_STEP = re.compile(r"""\.?([A-Za-z_]\w*)|\.?\[(?:(-?\d+)|"([^"]*)"|'([^']*)')\]""")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")


def _find(name, value, query):
    """What a query such as `.rows[0].name` leads to."""
    at = 1 if query == "." else 0
    while at < len(query):
        step = _STEP.match(query, at)
        if step is None:
            raise ValueError(f"output(): the query {query!r} goes on with {query[at:]!r}; it is made of .name, [0] and [\"name\"]")
        at = step.end()
        key = int(step[2]) if step[2] else next(key for key in (step[1], step[3], step[4]) if key is not None)
        try:
            value = value[key]
        except (LookupError, TypeError):
            raise LookupError(f"output(): {name!r} has nothing at {query[:at]!r}") from None
    return value


def _formed(name, text, form, query):
    if form == "stripped":
        text = _ESCAPES.sub("", text)
    if form != "json" and query is None:
        return text
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ValueError(f"output(): {name!r} is no JSON: {error}") from None
    return _find(name, value, query or "")


def make_output(tool):
    """`output`, which reads artifacts through the tool `read`, which every session has."""

    def output(*ids, format="raw", query=None, offset=None, limit=None):
        """The text of artifacts by their ids, and of what agents said by their labels; of several, a list.

        `format` is "raw", "stripped" of the escapes of terminals, or "json": the value that the text says. `query` leads
        to a part of that value: `.rows[0].name`.
        """
        if not ids:
            raise ValueError("output() needs the id of an artifact, or the label of an agent")
        if format not in _FORMATS:
            raise ValueError(f"output(): format is {' or '.join(map(repr, _FORMATS))}, not {format!r}")
        texts = []
        for each in ids:
            options = {name: number for name, number in (("offset", offset), ("limit", limit)) if number is not None}
            texts.append(_formed(each, tool.read(path=_address(str(each)), **options), format, query))
        _cellar.status("output", {"count": len(texts)})
        return texts[0] if len(texts) == 1 else texts

    output.__qualname__ = "output"
    return output
