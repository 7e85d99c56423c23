"""Completions: what a piece of code means at a cursor, found without running it.

Code that is being typed is seldom whole, so nothing here needs it to parse: strings, comments and brackets are told apart
up to the cursor, and what stands before it is looked up among live values. Attributes are looked up, as `dir` and
`getattr` do; calls, operators and subscripts of anything but built-in containers are not carried out.
"""

import ast
import builtins
import inspect
import io
import keyword
import os
import re
import sys
import types

from _cellar_prelude.cells import cells

ITEMS_MAX = 500
# Characters before the cursor that are looked at.
CODE_MAX = 100_000
# Attributes, subscripts and calls in one expression.
DEPTH_MAX = 20

_WORD = re.compile(r"\w*$")
_IMPORT = re.compile(
    r"^\s*(?:from\s+([\w.]*)$|from\s+([\w.]+)\s+import\s+(?:.*,\s*)?(\w*)$|import\s+(?:.*,\s*)?([\w.]*)$)"
)
_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
    | (?<!\w)(?P<prefix>[a-zA-Z]{0,2})(?P<quote>\"{3}|'{3}|["'])
    | (?P<open>[(\[{]) | (?P<close>[)\]}])""",
    re.VERBOSE,
)
_STRING_ENDS = {
    '"': re.compile(r'(?:[^"\\\n]|\\[\s\S])*("|\n)'),
    "'": re.compile(r"(?:[^'\\\n]|\\[\s\S])*('|\n)"),
    '"""': re.compile(r'(?:[^"\\]|\\[\s\S]|"(?!""))*(""")'),
    "'''": re.compile(r"(?:[^'\\]|\\[\s\S]|'(?!''))*(''')"),
}
# What binds names in a cell that has not run: the names, or the list of them, is the one group that matched.
_BINDING = re.compile(
    r"\b(?:class|as|for)\s+(\w+)|\bdef\s+(\w+(?:\([^()]*)?)|\blambda\s+([^:\n]*)|\bimport\s+([\w ,]+)"
    r"|^[ \t]*([\w ,]{1,200}?)[ \t]*(?::[^=\n]+)?=(?!=)|(\w+)\s*:=",
    re.MULTILINE,
)
_NAME = re.compile(r"[^\W\d]\w*")
# Attributes of these live on the values that a call or a literal makes, whatever its arguments are.
_TEXT_LISTS = {"split", "rsplit", "splitlines"}
_TRUTHS = ("is", "starts", "ends")
_CONTAINERS = (dict, list, tuple, str, bytes, set, frozenset)


class Made:
    """A value that there would be: only its class is known."""

    def __init__(self, kind):
        self.kind = kind


def kind_of(value):
    """What an editor calls a value."""
    if isinstance(value, type):
        return "class"
    if isinstance(value, types.ModuleType):
        return "module"
    return "function" if callable(value) else "variable"


# --- Where the cursor is


class _Place:
    """What surrounds the end of a piece of code."""

    def __init__(self, code):
        self.code = code
        # Where brackets stand that are still open, the innermost last.
        self.brackets = []
        self.in_comment = False
        # Where the string begins that the cursor is in, its prefix and quotes not counted.
        self.string = None
        self.prefix = self.quote = ""
        self._scan()

    def _scan(self):
        at = 0
        while (token := _TOKEN.search(self.code, at)) is not None:
            at = token.end()
            if token["comment"] is not None:
                self.in_comment = at == len(self.code)
            elif token["open"]:
                self.brackets.append(token.start())
            elif token["close"]:
                if self.brackets:
                    self.brackets.pop()
            else:
                end = _STRING_ENDS[token["quote"]].match(self.code, at)
                if end is None:
                    self.string, self.prefix, self.quote = at, token["prefix"].lower(), token["quote"]
                    return
                at = end.end()


def _expression_start(code, end):
    """Where the primary expression begins that ends there: names, attributes, calls, subscripts, one literal."""
    at = end
    while at > 0:
        last = code[at - 1]
        if last.isidentifier() or last.isdigit():
            at -= len(re.search(r"\w+$", code[:at]).group())
            if at == 0 or code[at - 1] != ".":
                return at
            at -= 1
        elif last in ")]}":
            opened = _opening(code, at - 1)
            if opened is None:
                return at
            at = opened
            if at == 0 or not (code[at - 1].isidentifier() or code[at - 1].isdigit() or code[at - 1] in ")]}\"'"):
                return at
        elif last in "\"'":
            # Strings do not say where they begin; on one line the first such quote before will do.
            opened = code.rfind(last, code.rfind("\n", 0, at - 1) + 1, at - 1)
            return opened if opened >= 0 else at
        else:
            return at
    return at


def _opening(code, closing):
    """Where the bracket opens that closes there."""
    stack = _Place(code[:closing]).brackets
    return stack[-1] if stack else None


# --- What expressions are


def subject(code, cursor):
    """The expression at a cursor and its value; between the parentheses of a call that is its function.

    Raises one exception or another when there is none.
    """
    end = cursor + len(re.match(r"\w*", code[cursor : cursor + CODE_MAX]).group())
    before = code[max(0, cursor - CODE_MAX) : end].rstrip(".")
    start = _expression_start(before, len(before))
    if start == len(before):
        before = before[: _Place(before).brackets[-1]]
        start = _expression_start(before, len(before))
    return before[start:], _value_of(before[start:], before[:start])


def _value_of(text, code, depth=DEPTH_MAX):
    """The value of an expression, or a `Made`. `code` is what stands before it in the same cell.

    Raises one exception or another when that cannot be known without running something.
    """
    return _value(ast.parse(text.strip(), mode="eval").body, code, depth)


def _value(node, code, depth):
    if depth == 0:
        raise ValueError("too deep")
    match node:
        case ast.Name(name):
            return _named(name, code, depth - 1)
        case ast.Constant(value):
            return value
        case ast.JoinedStr():
            return Made(str)
        case ast.List() | ast.ListComp():
            return Made(list)
        case ast.Dict() | ast.DictComp():
            return Made(dict)
        case ast.Set() | ast.SetComp():
            return Made(set)
        case ast.Attribute(owner, name):
            owner = _value(owner, code, depth - 1)
            if not isinstance(owner, Made):
                return getattr(owner, name)
            found = inspect.getattr_static(owner.kind, name)
            if not inspect.isdatadescriptor(found):
                return found
        case ast.Subscript(owner, ast.Constant(key)):
            owner = _value(owner, code, depth - 1)
            if type(owner) in _CONTAINERS:
                return owner[key]
        case ast.Call(ast.Attribute(owner, name)):
            owner = _value(owner, code, depth - 1)
            kind = owner.kind if isinstance(owner, Made) else type(owner)
            made = _made_by_text(kind, name) if kind in (str, bytes) else None
            if made is not None:
                return Made(made)
            return _called(getattr(kind if isinstance(owner, Made) else owner, name))
        case ast.Call(function):
            return _called(_value(function, code, depth - 1))
    raise ValueError("cannot be known")


def _made_by_text(kind, method):
    """What a method of `str` or `bytes` returns."""
    if method in _TEXT_LISTS:
        return list
    if method in ("encode", "decode"):
        return bytes if kind is str else str
    if method in ("find", "rfind", "index", "rindex", "count") or method.startswith(_TRUTHS):
        return int
    return tuple if "partition" in method else kind


def _called(function):
    """What a call returns, as far as the function says it."""
    if isinstance(function, type):
        return Made(function)
    if function is builtins.open:
        return Made(io.TextIOWrapper)
    if function in (builtins.sorted, builtins.dir):
        return Made(list)
    made = getattr(function, "__annotations__", {})["return"]
    if isinstance(made, str):
        made = getattr(function, "__globals__", {})[made]
    made = getattr(made, "__origin__", made)
    if not isinstance(made, type):
        raise ValueError("cannot be known")
    return Made(made)


def _named(name, code, depth):
    """What a name is: what this cell says before the cursor, else what it is bound to."""
    word = re.escape(name)
    found = re.compile(
        rf"^[ \t]*(?:(?P<import>import)[ \t]+(?P<module>[\w.]+)(?:[ \t]+as[ \t]+{word})?[ \t]*$"
        rf"|from[ \t]+(?P<source>[\w.]+)[ \t]+import[ \t]+(?:[\w ,]*,[ \t]*)?(?P<item>\w+[ \t]+as[ \t]+{word}|{word})\b"
        rf"|(?:async[ \t]+)?for[ \t]+{word}[ \t]+in[ \t]+(?P<items>.+):"
        rf"|(?:async[ \t]+)?with[ \t]+(?P<entered>.+)[ \t]+as[ \t]+{word}[ \t]*:"
        rf"|{word}[ \t]*(?::[^=\n]+)?=(?!=)[ \t]*(?P<value>.+)$)",
        re.MULTILINE,
    )
    for match in reversed(list(found.finditer(code))):
        if match["module"]:
            if not match.group().rstrip().endswith(name) and match["module"].split(".")[0] != name:
                continue
            return sys.modules[match["module"] if " as " in match.group() else name]
        before = code[: match.start()]
        if match["source"]:
            return getattr(sys.modules[match["source"]], match["item"].split()[0])
        if match["items"]:
            return _first(_value_of(match["items"], before, depth))
        return _value_of(match["value"] or match["entered"], before, depth)
    return cells.names[name] if name in cells.names else getattr(builtins, name)


def _first(items):
    """What a loop over built-in containers begins with."""
    if type(items) not in _CONTAINERS:
        raise ValueError("cannot be known")
    return next(iter(items))


# --- Items


def _is_wanted(name, prefix):
    return name.startswith(prefix) and (not name.startswith("_") or prefix.startswith("_"))


def _module_names(prefix):
    """Names of modules that begin with a dotted prefix."""
    import pkgutil

    package, _, start = prefix.rpartition(".")
    if package:
        path = getattr(sys.modules.get(package), "__path__", None) or _package_path(package)
        found = {each.name for each in pkgutil.iter_modules(path)} if path else set()
    else:
        found = {each.name for each in pkgutil.iter_modules()} | {n for n in sys.modules if "." not in n}
    return [(name, "module") for name in sorted(found) if name.startswith(start) and not name.startswith("_cellar")]


def _package_path(package):
    """Where the modules of a package are that has not been imported; finding it runs nothing of a top-level package."""
    import importlib.util

    spec = importlib.util.find_spec(package) if "." not in package else None
    return spec and spec.submodule_search_locations


def _import_items(match):
    source, package, name, module = match.groups()
    if package is not None:
        target = sys.modules.get(package)
        names = [each for each in dir(target) if _is_wanted(each, name)] if target is not None else []
        items = [(each, kind_of(getattr(target, each, None))) for each in names]
        return len(name), items + [each for each in _module_names(f"{package}.{name}") if each[0] not in names]
    prefix = source if source is not None else module
    return len(prefix.rpartition(".")[2]), _module_names(prefix)


def _attribute_items(value, prefix):
    owner = value.kind if isinstance(value, Made) else value
    items = []
    for name in dir(owner):
        if not _is_wanted(name, prefix):
            continue
        try:
            static = inspect.getattr_static(owner, name)
        except AttributeError:
            static = None
        kind = kind_of(static)
        items.append((name, "property" if kind == "variable" else kind))
    return items


def _name_items(prefix, code):
    items = dict.fromkeys(keyword.kwlist, "keyword")
    for match in _BINDING.finditer(code):
        for name in _NAME.findall(next(group for group in match.groups() if group is not None)):
            items.setdefault(name, "variable")
    for name, value in vars(builtins).items():
        if not name.startswith("__cellar"):
            items[name] = kind_of(value)
    for name, value in cells.names.items():
        items[name] = kind_of(value)
    return [(name, kind) for name, kind in sorted(items.items()) if _is_wanted(name, prefix)]


def _parameter_items(place, prefix):
    """Keyword arguments of the call that the cursor is in."""
    if not place.brackets or place.code[place.brackets[-1]] != "(":
        return []
    opened = place.brackets[-1]
    start = _expression_start(place.code, opened)
    before = place.code[:start]
    if start == opened or re.search(r"\b(?:def|class)\s+$", before):
        return []
    given = place.code[opened:]
    if re.search(r"[=.]\s*$", given[: len(given) - len(prefix)]):
        return []
    try:
        value = _value_of(place.code[start:opened], before)
        parameters = inspect.signature(value.kind if isinstance(value, Made) else value).parameters.values()
    except Exception:  # noqa: BLE001 - nothing to offer
        return []
    wanted = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    names = [each.name for each in parameters if each.kind in wanted]
    given = set(re.findall(r"(\w+)\s*=(?!=)", given))
    return [(f"{name}=", "variable") for name in names if name.startswith(prefix) and name not in given]


def _key_items(place, written, quote):
    """Keys of the dictionary whose subscript the cursor is in: texts, without the quotes when one is there already."""
    opened = place.brackets[-1]
    start = _expression_start(place.code, opened)
    try:
        value = _value_of(place.code[start:opened], place.code[:start])
    except Exception:  # noqa: BLE001 - nothing to offer
        return []
    keys = dict.keys(value) if start < opened and isinstance(value, dict) else ()
    texts = [key for key, _ in zip(keys, range(100 * ITEMS_MAX)) if type(key) is str and key.startswith(written)]
    if quote:
        return [(text, "property") for text in texts if quote not in text and "\\" not in text and "\n" not in text]
    return [(repr(text), "property") for text in texts]


def _file_items(written):
    """Files whose path a string may become."""
    folder, slash, start = written.rpartition("/")
    try:
        with os.scandir(folder + slash or ".") as entries:
            found = [each.name + ("/" if each.is_dir() else "") for each, _ in zip(entries, range(100 * ITEMS_MAX))]
    except (OSError, ValueError):
        return []
    return [(name, "variable") for name in sorted(found) if _is_file_wanted(name, start)]


def _is_file_wanted(name, start):
    return name.startswith(start) and (not name.startswith(".") or start.startswith("."))


def complete(code, cursor):
    """(start, end, [(text, kind)]) at a cursor, in characters."""
    before = code[max(0, cursor - CODE_MAX) : cursor]
    width, items = _complete(before, code[cursor : cursor + CODE_MAX])
    return cursor - width, cursor, items[:ITEMS_MAX]


def _complete(before, after):
    place = _Place(before)
    if place.in_comment:
        return 0, []
    if place.string is not None:
        return _complete_string(place)
    match = _IMPORT.match(before.rsplit("\n", 1)[-1])
    if match is not None:
        return _import_items(match)
    prefix = _WORD.search(before).group()
    head = before[: len(before) - len(prefix)]
    if head.endswith("."):
        start = _expression_start(head, len(head) - 1)
        if head[start:-1].isdigit():
            return 0, []
        try:
            value = _value_of(head[start:-1], head[:start])
            return len(prefix), _attribute_items(value, prefix)
        except Exception:  # noqa: BLE001 - nothing to offer
            return len(prefix), []
    if not prefix and head.endswith("["):
        return 0, _key_items(place, "", "")
    items = _parameter_items(place, prefix)
    if prefix:
        items += _name_items(prefix, head + "\n" + after)
    return len(prefix), items


def _complete_string(place):
    written = place.code[place.string :]
    if "f" in place.prefix and written.rfind("{") > written.rfind("}"):
        # A field of an f-string is code like the rest of the cell.
        start = place.string - len(place.prefix) - len(place.quote)
        line = place.code.rfind("\n", 0, start) + 1
        return _complete(place.code[:line] + " " + written[written.rfind("{") + 1 :], "")
    if place.brackets and place.code[place.brackets[-1] + 1 : place.string].strip() == place.prefix + place.quote:
        if place.code[place.brackets[-1]] == "[":
            items = _key_items(place, written, place.quote)
            if items:
                return len(written), items
    return len(written.rpartition("/")[2]), _file_items(written)
