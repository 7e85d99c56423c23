"""Small functions for text and files that every cell has. Those that touch files tell the host what they did."""

import builtins
import difflib
import os

import _cellar
from _cellar_prelude.sandbox import SandboxError


def _path(path, what):
    """A path as text; addresses and folders are someone else's business."""
    text = os.fspath(path)
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    if "://" in text:
        raise ValueError(f"{what}() takes paths in the sandbox, not addresses: use tool.read(path={text!r})")
    if text.startswith("~/"):
        text = os.path.expanduser(text)
    return text


def _file(path, what):
    text = _path(path, what)
    if os.path.isdir(text):
        raise IsADirectoryError(f"{text!r} is a directory: use tree({text!r}), or tool.read(path={text!r})")
    return text


def read(path, offset=None, limit=None):
    """The text of a file; with `offset` (a line number from 1) and `limit`, some of its lines."""
    name = _file(path, "read")
    with open(name, encoding="utf-8", errors="replace", newline="") as file:
        text = file.read()
    if offset is not None or limit is not None:
        first = max((offset or 1) - 1, 0)
        lines = text.splitlines(True)
        text = "".join(lines[first:] if limit is None else lines[first : first + max(limit, 0)])
    _cellar.status("read", {"path": name, "bytes": len(text.encode("utf-8", "replace")), "chars": len(text)})
    return text


def _write(path, content, mode, what):
    name = _file(path, what)
    folder = os.path.dirname(name)
    if folder:
        os.makedirs(folder, exist_ok=True)
    if isinstance(content, (builtins.bytes, bytearray, memoryview)):
        data = bytes(content)
    else:
        data = str(content).encode("utf-8", "surrogateescape")
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


def _lines(text):
    return text.splitlines() if isinstance(text, str) else [str(line) for line in text]


def sort(text, *, reverse=False, unique=False):
    """The lines of a text, sorted. A list of lines gives a list."""
    lines = _lines(text)
    if unique:
        lines = list(dict.fromkeys(lines))
    lines.sort(reverse=reverse)
    _cellar.status("sort", {"lines": len(lines), "reverse": bool(reverse), "unique": bool(unique)})
    return "\n".join(lines) if isinstance(text, str) else lines


def uniq(text, *, count=False):
    """The lines of a text without repetitions of the line before; with `count`, pairs of count and line."""
    groups = []
    for line in _lines(text):
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

    counts = collections.Counter(items.splitlines() if isinstance(items, str) else items)
    pairs = sorted(((n, item) for item, n in counts.items()), key=lambda pair: pair[0], reverse=reverse)
    _cellar.status("counter", {"unique": len(counts), "total": sum(counts.values())})
    return pairs[:limit] if limit is not None else pairs


def diff(a, b):
    """A unified diff of two files."""
    first, second = _file(a, "diff"), _file(b, "diff")
    with open(first, encoding="utf-8", errors="replace") as one, open(second, encoding="utf-8", errors="replace") as two:
        text = "".join(difflib.unified_diff(one.readlines(), two.readlines(), fromfile=first, tofile=second))
    _cellar.status("diff", {"a": first, "b": second, "identical": not text})
    return text


def tree(path=".", *, max_depth=3, hidden=False):
    """The files below a folder, as a drawing."""
    root = _path(path, "tree")
    lines = [f"{root.rstrip('/') or '/'}/"]
    counts = {"files": 0, "folders": 0}

    def walk(folder, prefix, depth):
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: (not entry.is_dir(), entry.name))
        except OSError as error:
            lines.append(f"{prefix}└── [{error.strerror}]")
            return
        entries = [entry for entry in entries if hidden or not entry.name.startswith(".")]
        for index, entry in enumerate(entries):
            last = index == len(entries) - 1
            is_folder = entry.is_dir(follow_symlinks=False)
            counts["folders" if is_folder else "files"] += 1
            lines.append(f"{prefix}{'└── ' if last else '├── '}{entry.name}{'/' if is_folder else ''}")
            if is_folder and depth < max_depth:
                walk(entry.path, prefix + ("    " if last else "│   "), depth + 1)

    if not os.path.isdir(root):
        raise NotADirectoryError(f"{root!r} is not a directory")
    walk(root, "", 1)
    _cellar.status("tree", {"path": root, **counts})
    return "\n".join(lines)


def env(key=None, value=None):
    """The environment: all of it, one variable, or one variable set to a value."""
    if key is None:
        _cellar.status("env", {"count": len(os.environ), "action": "list"})
        return dict(sorted(os.environ.items()))
    if value is not None:
        os.environ[key] = str(value)
        _cellar.status("env", {"key": key, "action": "set"})
        return str(value)
    _cellar.status("env", {"key": key, "action": "get"})
    return os.environ.get(key)


def make_output(tool):
    """`output`, which reads artifacts through the host's `read` tool."""

    def output(*ids, offset=None, limit=None):
        """The text of artifacts of the session, by their ids; of several, a list."""
        if not ids:
            raise ValueError("output() needs the id of an artifact")
        if "read" not in dir(tool):
            raise SandboxError("output() reads artifacts through the `read` tool, which this session was not granted")
        texts = []
        for each in ids:
            path = each if "://" in str(each) else f"artifact://{each}"
            options = {name: number for name, number in (("offset", offset), ("limit", limit)) if number is not None}
            texts.append(tool.read(path=path, **options))
        _cellar.status("output", {"count": len(texts)})
        return texts[0] if len(texts) == 1 else texts

    return output
