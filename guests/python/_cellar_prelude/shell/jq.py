"""`jq`: the language, and the command for the shell. Filters are trees; running one gives as many values as it says."""

import base64
import datetime
import functools
import html
import itertools
import json
import math
import os
import re
import sys
import time
import urllib.parse

from _cellar_prelude.shell.jq_syntax import Bad, Parser

# Values that an array is filled up to when one far behind its end is set.
_FILL_MAX = 1_000_000
_KINDS = {type(None): "null", bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object"}


class Failed(Exception):
    """A filter that fails on a value, with the value of the error."""

    def __init__(self, value):
        super().__init__(value if isinstance(value, str) else f"{dumped(value)} (not a string)")
        self.value = value


class _Left(Exception):
    """`break`, which ends the label of its identity."""


# --- Values


def _shrunk(value):
    """A number as JSON writes it: without a fraction where it has none."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e17 else value


def kind_of(value):
    """The name of a value's type."""
    return _KINDS[type(value)]


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_true(value):
    return value is not None and value is not False


def _rank(value):
    """What values are sorted by."""
    kind = kind_of(value)
    if kind == "array":
        return (5, [_rank(each) for each in value])
    if kind == "object":
        return (6, sorted(value), [_rank(value[key]) for key in sorted(value)])
    if kind == "number" and value != value:
        return (3, -math.inf)
    return ({"null": 0, "boolean": 1, "number": 3, "string": 4}[kind], value if value is not None else 0)


def dumped(value, **options):
    """A value as JSON."""

    def fit(value):
        if isinstance(value, list):
            return [fit(each) for each in value]
        if isinstance(value, dict):
            return {key: fit(each) for key, each in value.items()}
        if isinstance(value, float):
            return None if value != value else math.copysign(sys.float_info.max, value) if math.isinf(value) else _shrunk(value)
        return value

    options.setdefault("separators", (",", ":"))
    return json.dumps(fit(value), ensure_ascii=options.pop("ensure_ascii", False), **options)


def _said(value):
    text = dumped(value)
    return f"{kind_of(value)} ({text if len(text) <= 11 else text[:10] + '...'})"


def _add(left, right):
    if left is None or right is None:
        return right if left is None else left
    if _is_number(left) and _is_number(right):
        return _shrunk(left + right)
    if type(left) is type(right) and isinstance(left, str | list):
        return left + right
    if isinstance(left, dict) and isinstance(right, dict):
        return left | right
    raise Failed(f"{_said(left)} and {_said(right)} cannot be added")


def _subtract(left, right):
    if _is_number(left) and _is_number(right):
        return _shrunk(left - right)
    if isinstance(left, list) and isinstance(right, list):
        return [each for each in left if each not in right]
    raise Failed(f"{_said(left)} and {_said(right)} cannot be subtracted")


def _merged(left, right):
    found = dict(left)
    for key, value in right.items():
        found[key] = _merged(found[key], value) if isinstance(value, dict) and isinstance(found.get(key), dict) else value
    return found


def _multiply(left, right):
    if _is_number(left) and _is_number(right):
        return _shrunk(float(left) * right) if isinstance(left, float) or isinstance(right, float) else left * right
    if isinstance(left, str) and _is_number(right) or isinstance(right, str) and _is_number(left):
        text, count = (left, right) if isinstance(left, str) else (right, left)
        if len(text) * count > _FILL_MAX:
            raise Failed("Repeat string result too long")
        return text * max(int(count), 1) if count > 0 else None
    if isinstance(left, dict) and isinstance(right, dict):
        return _merged(left, right)
    raise Failed(f"{_said(left)} and {_said(right)} cannot be multiplied")


def _divide(left, right):
    if _is_number(left) and _is_number(right):
        if right == 0:
            raise Failed(f"{_said(left)} and {_said(right)} cannot be divided because the divisor is zero")
        return _shrunk(left / right)
    if isinstance(left, str) and isinstance(right, str):
        return left.split(right) if right else list(left)
    raise Failed(f"{_said(left)} and {_said(right)} cannot be divided")


def _modulo(left, right):
    if not _is_number(left) or not _is_number(right):
        raise Failed(f"{_said(left)} and {_said(right)} cannot be divided")
    if int(right) == 0:
        raise Failed(f"{_said(left)} and {_said(right)} cannot be divided because the divisor is zero")
    return int(math.fmod(int(left), abs(int(right))))


_BINARY = {
    "+": _add, "-": _subtract, "*": _multiply, "/": _divide, "%": _modulo,
    "==": lambda left, right: _rank(left) == _rank(right), "!=": lambda left, right: _rank(left) != _rank(right),
    "<": lambda left, right: _rank(left) < _rank(right), "<=": lambda left, right: _rank(left) <= _rank(right),
    ">": lambda left, right: _rank(left) > _rank(right), ">=": lambda left, right: _rank(left) >= _rank(right),
}  # fmt: skip


def _indexed(value, key):
    """What a value has at a key, or at a span of an array."""
    if isinstance(key, dict) and (value is None or isinstance(value, list | str)):
        return None if value is None else value[_span(value, key)]
    if isinstance(value, dict) and isinstance(key, str):
        return value.get(key)
    if isinstance(value, list) and _is_number(key):
        at = math.floor(key)
        return value[at] if -len(value) <= at < len(value) else None
    if isinstance(value, list) and isinstance(key, list):
        return [at for at in range(len(value)) if key and value[at : at + len(key)] == key]
    if value is None and (isinstance(key, str) or _is_number(key) or key is None):
        return None
    if isinstance(key, str):
        raise Failed(f'Cannot index {kind_of(value)} with "{key}"')
    raise Failed(f"Cannot index {kind_of(value)} with {kind_of(key)}")


def _span(value, key):
    start, end = key.get("start"), key.get("end")
    return slice(None if start is None else math.floor(start), None if end is None else math.ceil(end))


def _placed(value, path, change):
    """The value with what is at a path changed."""
    if not path:
        return change(value)
    key, rest = path[0], path[1:]
    new = _placed(_indexed(value, key), rest, change)
    if isinstance(key, dict):
        found = list(value or [])
        found[_span(found, key)] = new
        return found
    if isinstance(key, str):
        return {**(value or {}), key: new}
    found, at = list(value or []), math.floor(key)
    if at >= len(found):
        if at > _FILL_MAX:
            raise Failed("Array index too large")
        found += [None] * (at - len(found) + 1)
    if at < -len(found):
        raise Failed("Out of bounds negative array index")
    found[at] = new
    return found


def _without(value, path):
    if not path or value is None:
        return None
    key = path[0]
    if len(path) > 1:
        inner = _indexed(value, key)
        return value if inner is None else _placed(value, path[:1], lambda _: _without(inner, path[1:]))
    if isinstance(value, dict):
        return {name: each for name, each in value.items() if name != key}
    found = list(value)
    if isinstance(key, dict):
        del found[_span(found, key)]
    elif -len(found) <= math.floor(key) < len(found):
        del found[math.floor(key)]
    return found


# --- Running


class _Scope:
    """Names and what they mean, in front of those around them."""

    __slots__ = ("around", "meaning", "name", "outermost")

    def __init__(self, name, meaning, around):
        self.name, self.meaning, self.around = name, meaning, around
        self.outermost = self if around is None else around.outermost

    def find(self, name):
        """What a name means, or None."""
        scope = self
        while scope is not None:
            if scope.name == name:
                return scope
            scope = scope.around
        return None


def run(tree, value, scope):
    """The values that a filter makes of one."""
    for _, found in _RUN[tree[0]](tree, None, value, scope):
        yield found


def paths(tree, value, scope):
    """(path, value) of each place that a filter means."""
    return _RUN[tree[0]](tree, (), value, scope)


def _go(tree, path, value, scope):
    return _RUN[tree[0]](tree, path, value, scope)


def _plain(path, tree):
    if path is not None:
        raise Failed(f"Invalid path expression with result of {tree[0]}")


def _run_identity(_tree, path, value, _scope):
    yield path, value


def _run_value(tree, path, _value, _scope):
    # The path of a value is none; `empty` and `error` have no value at all.
    yield (None if path is None else ()), tree[1]


def _run_pipe(tree, path, value, scope):
    for inner, found in _go(tree[1], path, value, scope):
        yield from _go(tree[2], inner, found, scope)


def _run_comma(tree, path, value, scope):
    yield from _go(tree[1], path, value, scope)
    yield from _go(tree[2], path, value, scope)


def _run_index(tree, path, value, scope):
    for inner, found in _go(tree[1], path, value, scope):
        for key in run(tree[2], value, scope):
            yield (None if inner is None else (*inner, key)), _indexed(found, key)


def _run_slice(tree, path, value, scope):
    for inner, found in _go(tree[1], path, value, scope):
        for end in run(tree[3], value, scope) if tree[3] else (None,):
            for start in run(tree[2], value, scope) if tree[2] else (None,):
                if found is not None and not isinstance(found, list | str):
                    raise Failed(f"Cannot index {kind_of(found)} with object")
                key = {"start": start, "end": end}
                yield (None if inner is None else (*inner, key)), _indexed(found, key)


def _run_each(tree, path, value, scope):
    for inner, found in _go(tree[1], path, value, scope):
        if not isinstance(found, list | dict):
            raise Failed(f"Cannot iterate over {kind_of(found)}{'' if found is None else ' (' + dumped(found)[:11] + ')'}")
        for key, each in found.items() if isinstance(found, dict) else enumerate(found):
            yield (None if inner is None else (*inner, key)), each


def _run_array(tree, path, value, scope):
    _plain(path, tree)
    yield None, [] if tree[1] is None else list(run(tree[1], value, scope))


def _run_object(tree, path, value, scope):
    _plain(path, tree)

    def made(pairs):
        if not pairs:
            yield {}
            return
        (key, inner), rest = pairs[0], pairs[1:]
        for name in run(key, value, scope):
            if not isinstance(name, str):
                raise Failed(f"Object keys must be strings, not {_said(name)}")
            for found in run(inner, value, scope):
                for others in made(rest):
                    yield {name: found, **others}

    for each in made(tree[1]):
        yield None, each


def _run_negated(tree, path, value, scope):
    _plain(path, tree)
    for found in run(tree[1], value, scope):
        if not _is_number(found):
            raise Failed(f"{_said(found)} cannot be negated")
        yield None, -found


def _run_binary(tree, path, value, scope):
    _, sign, left, right = tree
    if sign == "//":
        yield from _alternative(left, right, path, value, scope)
        return
    _plain(path, tree)
    if sign in ("and", "or"):
        for first in run(left, value, scope):
            if _is_true(first) == (sign == "or"):
                yield None, sign == "or"
                continue
            for second in run(right, value, scope):
                yield None, _is_true(second)
    elif sign.endswith("=") and sign not in _BINARY:
        yield from ((None, each) for each in _assigned(sign, left, right, value, scope))
    else:
        for second in run(right, value, scope):
            for first in run(left, value, scope):
                yield None, _BINARY[sign](first, second)


def _alternative(left, right, path, value, scope):
    is_found = False
    try:
        for inner, found in _go(left, path, value, scope):
            if _is_true(found):
                is_found = True
                yield inner, found
    except Failed:
        pass
    if not is_found:
        yield from _go(right, path, value, scope)


def _assigned(sign, left, right, value, scope):
    places = [path for path, _ in paths(left, value, scope)]
    if sign == "|=":
        for path in reversed(places):
            news = list(itertools.islice(run(right, _at(value, path), scope), 1))
            value = _placed(value, path, lambda _, news=news: news[0]) if news else _without(value, path)
        yield value
        return
    for given in run(right, value, scope):
        changed = value
        for path in places:
            if sign == "=":
                changed = _placed(changed, path, lambda _: given)
            elif sign == "//=":
                changed = _placed(changed, path, lambda old: old if _is_true(old) else given)
            else:
                changed = _placed(changed, path, lambda old: _BINARY[sign[:-1]](old, given))
        yield changed


def _at(value, path):
    for key in path:
        value = _indexed(value, key)
    return value


def _run_if(tree, path, value, scope):
    for held in run(tree[1], value, scope):
        yield from _go(tree[2] if _is_true(held) else tree[3], path, value, scope)


def _run_try(tree, path, value, scope):
    try:
        yield from _go(tree[1], path, value, scope)
    except Failed as error:
        if tree[2] is not None:
            yield from _go(tree[2], None if path is None else (), error.value, scope)


def _run_as(tree, path, value, scope):
    for found in run(tree[1], value, scope):
        for number, pattern in enumerate(tree[2]):
            try:
                for inner in _bound(pattern, found, value, _cleared(tree[2], scope)):
                    yield from _go(tree[3], path, value, inner)
                break
            except Failed:
                if number == len(tree[2]) - 1:
                    raise


def _cleared(patterns, scope):
    if len(patterns) > 1:
        for name in {name for pattern in patterns for name in _names(pattern)}:
            scope = _Scope(name, None, scope)
    return scope


def _names(pattern):
    if pattern[0] == "variable":
        yield pattern[1]
    elif pattern[0] == "array":
        for each in pattern[1]:
            yield from _names(each)
    else:
        for _, name, inner in pattern[1]:
            yield from [name] if name else []
            yield from _names(inner) if inner else []


def _bound(pattern, found, value, scope):
    """The scopes in which the names of a pattern have their values."""
    if pattern[0] == "variable":
        yield _Scope(pattern[1], found, scope)
        return
    if pattern[0] == "array":
        scopes = [scope]
        for at, inner in enumerate(pattern[1]):
            scopes = [new for each in scopes for new in _bound(inner, _indexed(found, at), value, each)]
        yield from scopes
        return
    scopes = [scope]
    for key, name, inner in pattern[1]:
        following = []
        for each in scopes:
            for text in run(key, value, each):
                item = _indexed(found, text)
                new = _Scope(name, item, each) if name else each
                following += _bound(inner, item, value, new) if inner else [new]
        scopes = following
    yield from scopes


def _run_reduce(tree, path, value, scope):
    _plain(path, tree)
    _, source, pattern, first, update = tree
    for state in run(first, value, scope):
        for found in run(source, value, scope):
            for inner in _bound(pattern, found, value, scope):
                last = None
                for last in run(update, state, inner):  # noqa: B007 - the last one counts
                    pass
                state = last
        yield None, state


def _run_foreach(tree, path, value, scope):
    _plain(path, tree)
    _, source, pattern, first, update, *rest = tree
    for state in run(first, value, scope):
        for found in run(source, value, scope):
            for inner in _bound(pattern, found, value, scope):
                for state in run(update, state, inner):
                    for each in run(rest[0], state, inner) if rest else (state,):
                        yield None, each


def _run_label(tree, path, value, scope):
    mark = object()
    try:
        yield from _go(tree[2], path, value, _Scope(f"label {tree[1]}", mark, scope))
    except _Left as end:
        if end.args[0] is not mark:
            raise


def _run_break(tree, _path, _value, scope):
    found = scope.find(f"label {tree[1]}")
    if found is None:
        raise Failed(f"$*label-{tree[1][1:]} is not defined")
    raise _Left(found.meaning)
    yield


def _run_define(tree, path, value, scope):
    _, name, parameters, body, rest = tree
    inner = _Scope((name, len(parameters)), None, scope)
    inner.meaning = (parameters, body, inner)
    yield from _go(rest, path, value, inner)


def _run_variable(tree, path, _value, scope):
    found = scope.find(tree[1])
    if found is None:
        if tree[1] == "$ENV":
            yield path and (), dict(os.environ)
            return
        if tree[1] == "$__loc__":
            yield path and (), {"file": "<top-level>", "line": 1}
            return
        raise Bad(f"{tree[1]} is not defined")
    yield (None if path is None else ()), found.meaning


def _run_text(tree, path, value, scope):
    _plain(path, tree)
    form = _FORMATS[tree[1]] if tree[1] else _text_of
    parts = [[part] if isinstance(part, str) else [form(each) for each in run(part, value, scope)] for part in tree[2]]
    for each in itertools.product(*parts):
        yield None, "".join(each)


def _run_format(tree, path, value, _scope):
    _plain(path, tree)
    if tree[1] not in _FORMATS:
        raise Bad(f"{tree[1][1:]} is not a valid format")
    yield None, _FORMATS[tree[1]](value)


def _run_call(tree, path, value, scope):
    _, name, arguments = tree
    found = scope.find((name, len(arguments)))
    if found is not None:
        parameters, body, inner = found.meaning
        if isinstance(body, _Closure):
            yield from _go(body.tree, path, value, body.scope)
            return
        yield from _called(parameters, arguments, body, inner, path, value, scope)
        return
    special = _SPECIAL.get((name, len(arguments)))
    if special is not None:
        yield from special(arguments, path, value, scope)
        return
    function = _FUNCTIONS.get(name)
    if function is None or len(arguments) not in function[0]:
        library = _library().get((name, len(arguments)))
        if library is None:
            raise Bad(f"{name}/{len(arguments)} is not defined")
        yield from _called(library[0], arguments, library[1], scope.outermost, path, value, scope)
        return
    _plain(path, tree)
    for given in itertools.product(*[list(run(each, value, scope)) for each in arguments]):
        yield None, function[1](value, *given)


class _Closure:
    """A filter that was given to a function, with the names that it knows."""

    __slots__ = ("scope", "tree")

    def __init__(self, tree, scope):
        self.tree, self.scope = tree, scope


def _called(parameters, arguments, body, inner, path, value, scope):
    def with_values(names, trees, inner):
        if not names:
            yield from _go(body, path, value, inner)
            return
        name, tree = names[0], trees[0]
        if not name.startswith("$"):
            yield from with_values(names[1:], trees[1:], _Scope((name, 0), ([], _Closure(tree, scope), None), inner))
            return
        for each in run(tree, value, scope):
            new = _Scope((name[1:], 0), ([], _Closure(("value", each), None), None), _Scope(name, each, inner))
            yield from with_values(names[1:], trees[1:], new)

    yield from with_values(parameters, arguments, inner)


_RUN = {name.removeprefix("_run_"): function for name, function in list(globals().items()) if name.startswith("_run_")}


# --- What there is


def _empty(_arguments, _path, _value, _scope):
    return iter(())


def _select(arguments, path, value, scope):
    for held in run(arguments[0], value, scope):
        if _is_true(held):
            yield path, value


def _recurse(arguments, path, value, scope):
    yield path, value
    if arguments:
        for inner, found in _go(arguments[0], path, value, scope):
            yield from _recurse(arguments, inner, found, scope)
    elif isinstance(value, list | dict):
        for key, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _recurse(arguments, None if path is None else (*path, key), each, scope)


def _path(arguments, path, value, scope):
    _plain(path, ("path",))
    for inner, _ in paths(arguments[0], value, scope):
        yield None, list(inner)


def _delete(arguments, path, value, scope):
    _plain(path, ("del",))
    for each in sorted([list(inner) for inner, _ in paths(arguments[0], value, scope)], key=_rank, reverse=True):
        value = _without(value, each)
    yield None, value


def _getpath(arguments, path, value, scope):
    for keys in run(arguments[0], value, scope):
        try:
            found = _at(value, keys)
        except Failed:
            found = None
        yield (None if path is None else (*path, *keys)), found


def _first(arguments, path, value, scope):
    return itertools.islice(_go(arguments[0], path, value, scope), 1)


def _limit(arguments, path, value, scope):
    for count in run(arguments[0], value, scope):
        if count > 0:
            yield from itertools.islice(_go(arguments[1], path, value, scope), int(count))


def _range(arguments, path, value, scope):
    _plain(path, ("range",))
    texts = [list(run(each, value, scope)) for each in arguments]
    for given in itertools.product(*texts):
        at, end, step = (0, given[0], 1) if len(given) == 1 else (*given, 1) if len(given) == 2 else given
        while step > 0 and at < end or step < 0 and at > end:
            yield None, at
            at = _shrunk(at + step)


def _by(change):
    """A function that sorts by what a filter makes of each value."""

    def apply(arguments, path, value, scope):
        _plain(path, ("sort_by",))
        if not isinstance(value, list):
            raise Failed(f"{_said(value)} cannot be sorted, as it is not an array")
        ranked = [([_rank(each) for each in run(arguments[0], item, scope)], item) if arguments else (_rank(item), item) for item in value]
        yield None, change(ranked)

    return apply


def _sorted(ranked):
    return sorted(ranked, key=lambda pair: pair[0])


def _groups(ranked):
    return [[item for _, item in group] for _, group in itertools.groupby(_sorted(ranked), key=lambda pair: pair[0])]


def _largest(ranked):
    found = None
    for pair in ranked:
        found = pair if found is None or pair[0] >= found[0] else found
    return found and found[1]


def _error(arguments, _path, value, scope):
    for found in run(arguments[0], value, scope) if arguments else (value,):
        raise Failed(found)
    yield


def _input(_arguments, path, _value, scope):
    for each in scope.find("inputs").meaning:
        yield path, each
        return
    raise Failed("No more inputs")


def _inputs(_arguments, path, _value, scope):
    for each in scope.find("inputs").meaning:
        yield path, each


def _debug(_arguments, path, value, scope):
    scope.find("err").meaning.write(f'["DEBUG:",{dumped(value)}]\n')
    yield path, value


def _walk(arguments, path, value, scope):
    _plain(path, ("walk",))

    def one(value):
        if isinstance(value, list):
            value = [new for each in value for new in itertools.islice(one(each), 1)]
        elif isinstance(value, dict):
            value = {key: new for key, each in value.items() for new in itertools.islice(one(each), 1)}
        yield from run(arguments[0], value, scope)

    for each in one(value):
        yield None, each


_SPECIAL = {
    ("empty", 0): _empty, ("error", 0): _error, ("error", 1): _error, ("select", 1): _select, ("recurse", 0): _recurse, ("recurse", 1): _recurse,
    ("path", 1): _path, ("del", 1): _delete, ("getpath", 1): _getpath, ("first", 1): _first, ("limit", 2): _limit,
    ("range", 1): _range, ("range", 2): _range, ("range", 3): _range, ("input", 0): _input, ("inputs", 0): _inputs, ("debug", 0): _debug,
    ("walk", 1): _walk,
    ("sort", 0): _by(lambda ranked: [item for _, item in _sorted(ranked)]), ("sort_by", 1): _by(lambda ranked: [item for _, item in _sorted(ranked)]),
    ("group_by", 1): _by(_groups), ("unique", 0): _by(lambda ranked: [group[0] for group in _groups(ranked)]),
    ("unique_by", 1): _by(lambda ranked: [group[0] for group in _groups(ranked)]),
    ("min", 0): _by(lambda ranked: min(ranked, key=lambda pair: pair[0], default=(0, None))[1]),
    ("min_by", 1): _by(lambda ranked: min(ranked, key=lambda pair: pair[0], default=(0, None))[1]),
    ("max", 0): _by(_largest), ("max_by", 1): _by(_largest),
}  # fmt: skip


def _length(value):
    if isinstance(value, bool):
        raise Failed(f"boolean ({dumped(value)}) has no length")
    return 0 if value is None else abs(value) if _is_number(value) else len(value)


def _keys(value, is_sorted=True):
    if not isinstance(value, list | dict):
        raise Failed(f"{_said(value)} has no keys")
    return list(range(len(value))) if isinstance(value, list) else sorted(value) if is_sorted else list(value)


def _has(value, key):
    if isinstance(value, dict) and isinstance(key, str):
        return key in value
    if isinstance(value, list) and _is_number(key):
        return 0 <= key < len(value)
    raise Failed(f"Cannot check whether {kind_of(value)} has a {kind_of(key)} key")


def _contains(value, other):
    if isinstance(value, dict) and isinstance(other, dict):
        return all(key in value and _contains(value[key], each) for key, each in other.items())
    if isinstance(value, list) and isinstance(other, list):
        return all(any(kind_of(one) == kind_of(each) and _contains(one, each) for one in value) for each in other)
    if isinstance(value, str) and isinstance(other, str):
        return other in value
    if kind_of(value) != kind_of(other):
        raise Failed(f"{_said(value)} and {_said(other)} cannot have their containment checked")
    return value == other


def _text_of(value):
    return value if isinstance(value, str) else dumped(value)


def _tonumber(value):
    if _is_number(value):
        return value
    if isinstance(value, str) and re.fullmatch(r"\s*-?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", value):
        return int(value) if re.fullmatch(r"\s*-?\d+\s*", value) else float(value)
    raise Failed(f"Cannot parse '{value}' as a number" if isinstance(value, str) else f"{_said(value)} cannot be parsed as a number")


def _of_text(function):
    def apply(value, *arguments):
        if not isinstance(value, str) or not all(isinstance(each, str) for each in arguments):
            raise Failed(f"{_said(value)} is not a string" if not isinstance(value, str) else f"{function.__name__} input must be a string")
        return function(value, *arguments)

    return apply


def _join(value, separator):
    return separator.join("" if each is None else each if isinstance(each, str) else _joinable(each) for each in value)


def _joinable(value):
    if isinstance(value, list | dict):
        raise Failed(f"Cannot join with {_said(value)}")
    return dumped(value)


def _flatten(value, depth=1e9):
    found = []
    for each in value:
        found += _flatten(each, depth - 1) if isinstance(each, list) and depth > 0 else [each]
    return found


def _indices(value, other):
    if value is None:
        return None
    if isinstance(value, str):
        return [at for at in range(len(value)) if other and value.startswith(other, at)]
    return _indexed(value, other) if isinstance(other, list) else [at for at, each in enumerate(value) if each == other]


def _csv(value, separator, quote):
    if not isinstance(value, list):
        raise Failed(f"{_said(value)} cannot be csv-formatted, only an array can be")
    found = []
    for each in value:
        if isinstance(each, list | dict):
            raise Failed(f"{_said(each)} is not valid in a csv row")
        found.append("" if each is None else quote(each) if isinstance(each, str) else dumped(each))
    return separator.join(found)


def _tsv_text(text):
    for old, new in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(old, new)
    return text


def _quoted_for_shell(value):
    if isinstance(value, list):
        return " ".join(map(_quoted_for_shell, value))
    if isinstance(value, dict):
        raise Failed(f"{_said(value)} can not be escaped for shell")
    return "'" + value.replace("'", "'\\''") + "'" if isinstance(value, str) else dumped(value)


_FORMATS = {
    "@text": _text_of,
    "@json": lambda value: dumped(value),
    "@csv": lambda value: _csv(value, ",", lambda text: '"' + text.replace('"', '""') + '"'),
    "@tsv": lambda value: _csv(value, "\t", _tsv_text),
    "@html": lambda value: html.escape(_text_of(value)).replace("&#x27;", "&#39;"),
    "@uri": lambda value: urllib.parse.quote(_text_of(value), safe="-_.~"),
    "@sh": _quoted_for_shell,
    "@base64": lambda value: base64.b64encode(_text_of(value).encode()).decode(),
    "@base64d": lambda value: base64.b64decode(_text_of(value) + "===").decode("utf-8", "replace"),
}


@functools.lru_cache(maxsize=64)
def _pattern(text, flags):
    letters = {"i": re.IGNORECASE, "x": re.VERBOSE, "s": re.DOTALL}
    try:
        return re.compile(re.sub(r"\(\?<(?=[A-Za-z_])", "(?P<", text), functools.reduce(lambda all_, flag: all_ | letters.get(flag, 0), flags, re.NOFLAG))
    except re.error as error:
        raise Failed(f"{text} (at offset 0) is not a valid regex: {error}") from None


def _matches(value, given, flags=None, is_global=False):
    if isinstance(given, list):
        given, flags = (*given, None)[:2]
    if not isinstance(value, str):
        raise Failed(f"{_said(value)} cannot be matched, as it is not a string")
    flags = flags or ""
    found = _pattern(given, flags).finditer(value)
    return [each for each in (found if is_global or "g" in flags else itertools.islice(found, 1)) if "n" not in flags or each[0]]


def _match(value, given, flags=None):
    found = []
    for each in _matches(value, given, flags):
        names = {number: name for name, number in each.re.groupindex.items()}
        groups = [{"offset": each.start(at), "length": len(each[at] or ""), "string": each[at], "name": names.get(at)} for at in range(1, each.re.groups + 1)]
        found.append({"offset": each.start(), "length": len(each[0]), "string": each[0], "captures": groups})
    return found


def _scan(value, given, flags=None):
    return [list(each.groups()) if each.re.groups else each[0] for each in _matches(value, given, flags, is_global=True)]


def _split(value, separator, *flags):
    if not isinstance(value, str):
        raise Failed("split input and separator must be strings")
    if flags:
        return re.split(_pattern(separator, (flags[0] or "").replace("g", "")), value)
    return (value.split(separator) if separator else list(value)) if value else []


def _substitute(arguments, path, value, scope, flags=""):
    _plain(path, ("sub",))
    for given in run(arguments[0], value, scope):
        for more in run(arguments[2], value, scope) if len(arguments) > 2 else ("",):
            results = [("", 0)]
            for each in _matches(value, given, flags + more):
                names = {name: each[name] for name in each.re.groupindex}
                news = list(run(arguments[1], names, scope))
                results = [(text + value[at : each.start()] + new, each.end()) for text, at in results for new in news]
            for text, at in results:
                yield None, text + value[at:]


_SPECIAL |= {
    ("sub", 2): _substitute, ("sub", 3): _substitute,
    ("gsub", 2): lambda *call: _substitute(*call, flags="g"), ("gsub", 3): lambda *call: _substitute(*call, flags="g"),
}  # fmt: skip


def _as_time(value):
    if isinstance(value, list):
        year, month, day, hour, minute, second = (int(each) for each in value[:6])
        return datetime.datetime(year, month + 1, day, hour, minute, second, tzinfo=datetime.UTC)
    if not _is_number(value):
        raise Failed("strftime/1 requires parsed datetime inputs")
    return datetime.datetime.fromtimestamp(value, datetime.UTC)


def _local_time(value):
    when = _as_time(value)
    # What is broken down already is local time.
    return when.replace(tzinfo=None).astimezone() if isinstance(value, list) else when.astimezone()


def _broken(when):
    return [when.year, when.month - 1, when.day, when.hour, when.minute, when.second, (when.weekday() + 1) % 7, when.timetuple().tm_yday - 1]


def _strptime(value, form):
    try:
        return _broken(datetime.datetime.strptime(value, form).replace(tzinfo=datetime.UTC))
    except (ValueError, TypeError):
        raise Failed(f'date "{value}" does not match format "{form}"') from None


def _fromjson(value):
    try:
        return json.loads(value)
    except ValueError as error:
        raise Failed(f"{value} (while parsing '{value}'): {error}") from None


def _setpath(value, path, new):
    return _placed(value, tuple(path), lambda _: new)


def _delpaths(value, given):
    for each in sorted(given, key=_rank, reverse=True):
        value = _without(value, each)
    return value


def _tojson_time(value):
    return _as_time(value).strftime("%Y-%m-%dT%H:%M:%SZ")


def _trimmed(side):
    def apply(value):
        if not isinstance(value, str):
            raise Failed(f"{_said(value)} cannot be trimmed")
        return getattr(value, side)()

    return apply


def _mathematical(function):
    def apply(value, *arguments):
        numbers = arguments or (value,)
        if not all(map(_is_number, numbers)):
            raise Failed(f"{_said(next(each for each in numbers if not _is_number(each)))} number required")
        try:
            return _shrunk(function(*numbers))
        except (ValueError, OverflowError):
            return math.nan

    return apply


_FUNCTIONS = {
    "length": ((0,), _length), "utf8bytelength": ((0,), _of_text(lambda value: len(value.encode()))), "not": ((0,), lambda value: not _is_true(value)),
    "keys": ((0,), _keys), "keys_unsorted": ((0,), lambda value: _keys(value, is_sorted=False)), "has": ((1,), _has), "contains": ((1,), _contains),
    "inside": ((1,), lambda value, other: _contains(other, value)), "type": ((0,), kind_of), "tostring": ((0,), _text_of), "tonumber": ((0,), _tonumber),
    "reverse": ((0,), lambda value: [] if value is None else value[::-1]), "setpath": ((2,), _setpath), "delpaths": ((1,), _delpaths),
    "startswith": ((1,), _of_text(str.startswith)), "endswith": ((1,), _of_text(str.endswith)), "explode": ((0,), _of_text(lambda value: [ord(each) for each in value])),
    "implode": ((0,), lambda value: "".join(map(chr, value))), "split": ((1, 2), _split), "join": ((1,), _join),
    "ascii_downcase": ((0,), _of_text(lambda value: "".join(each.lower() if each.isascii() else each for each in value))),
    "ascii_upcase": ((0,), _of_text(lambda value: "".join(each.upper() if each.isascii() else each for each in value))),
    "ltrimstr": ((1,), lambda value, other: value.removeprefix(other) if isinstance(value, str) and isinstance(other, str) else value),
    "rtrimstr": ((1,), lambda value, other: value.removesuffix(other) if isinstance(value, str) and isinstance(other, str) else value),
    "trim": ((0,), _trimmed("strip")), "ltrim": ((0,), _trimmed("lstrip")), "rtrim": ((0,), _trimmed("rstrip")),
    "flatten": ((0, 1), _flatten), "transpose": ((0,), lambda value: [list(each) for each in itertools.zip_longest(*value)]),
    "indices": ((1,), _indices), "tojson": ((0,), lambda value: dumped(value)), "fromjson": ((0,), _fromjson),
    "test": ((1, 2), lambda *call: bool(_matches(*call))), "_match": ((1, 2), _match), "_scan": ((1, 2), _scan),
    "now": ((0,), lambda _: time.time()), "todate": ((0,), _tojson_time), "todateiso8601": ((0,), _tojson_time),
    "gmtime": ((0,), lambda value: _broken(_as_time(value))), "mktime": ((0,), lambda value: int(_as_time(value).timestamp())),
    "strftime": ((1,), lambda value, form: _as_time(value).strftime(form)), "strflocaltime": ((1,), lambda value, form: _local_time(value).strftime(form)), "localtime": ((0,), lambda value: _broken(_local_time(value))),
    "strptime": ((1,), _strptime), "floor": ((0,), _mathematical(math.floor)), "ceil": ((0,), _mathematical(math.ceil)),
    "round": ((0,), _mathematical(lambda value: math.floor(abs(value) + 0.5) * (1 if value >= 0 else -1))), "fabs": ((0,), _mathematical(abs)),
    "abs": ((0,), _mathematical(abs)), "trunc": ((0,), _mathematical(math.trunc)), "infinite": ((0,), lambda _: math.inf), "nan": ((0,), lambda _: math.nan),
    "isinfinite": ((0,), _mathematical(math.isinf)), "isnan": ((0,), _mathematical(math.isnan)), "env": ((0,), lambda _: dict(os.environ)),
    "pow": ((2,), _mathematical(lambda first, second: float(first) ** second)),
    "input_line_number": ((0,), lambda _: 0),
    **{name: ((0,), _mathematical(getattr(math, name))) for name in ("sqrt", "exp", "exp2", "log", "log2", "log10", "sin", "cos", "tan", "asin", "acos", "atan")},
}  # fmt: skip

_LIBRARY = r"""
def map(f): [.[] | f]; def map_values(f): .[] |= f; def values: select(. != null); def nulls: select(. == null);
def add: reduce .[] as $x (null; . + $x); def add(f): reduce f as $x (null; . + $x);
def to_entries: [keys_unsorted[] as $k | {key: $k, value: .[$k]}];
def from_entries: reduce .[] as $x ({}; . + {($x | if type == "object" then (if has("key") then .key elif has("k") then .k elif has("name") then .name elif has("Name") then .Name elif has("Key") then .Key else .K end) else . end | if type == "string" then . elif . == null then "null" else tojson end): ($x | if has("value") then .value elif has("v") then .v elif has("Value") then .Value else .V end)});
def with_entries(f): to_entries | map(f) | from_entries;
def any: reduce .[] as $x (false; . or $x); def all: reduce .[] as $x (true; . and $x);
def any(f): reduce (.[] | f) as $x (false; . or $x); def all(f): reduce (.[] | f) as $x (true; . and $x);
def any(g; f): reduce (g | f) as $x (false; . or $x); def all(g; f): reduce (g | f) as $x (true; . and $x);
def in(o): . as $k | o | has($k); def first: .[0]; def last: .[-1]; def last(f): reduce f as $x (null; $x);
def nth($n): .[$n]; def nth($n; f): last(limit($n + 1; f));
def isempty(g): first((g | false), true); def isvalid(f): try (f | true) catch false;
def until(c; f): def r: if c then . else (f | r) end; r; def while(c; f): def r: if c then ., (f | r) else empty end; r;
def repeat(f): def r: ., (f | r); r; def recurse(f; c): def r: ., (f | select(c) | r); r;
def arrays: select(type == "array"); def objects: select(type == "object"); def iterables: select(type | . == "array" or . == "object");
def booleans: select(type == "boolean"); def numbers: select(type == "number"); def strings: select(type == "string");
def scalars: select(type | . != "array" and . != "object"); def isnormal: type == "number" and . != 0 and (isnan or isinfinite | not);
def paths: path(..) | select(length > 0); def paths(f): path(.. | select(f)) | select(length > 0); def leaf_paths: paths(scalars);
def index($i): indices($i) | .[0]; def rindex($i): indices($i) | .[-1:][0];
def match($re): _match($re)[]; def match($re; $flags): _match($re; $flags)[];
def capture($re): match($re) | [.captures[] | select(.name != null) | {key: .name, value: .string}] | from_entries;
def capture($re; $flags): match($re; $flags) | [.captures[] | select(.name != null) | {key: .name, value: .string}] | from_entries;
def scan($re): _scan($re)[]; def scan($re; $flags): _scan($re; $flags)[]; def splits($re): split($re; null)[]; def splits($re; $flags): split($re; $flags)[];
def fromdateiso8601: strptime("%Y-%m-%dT%H:%M:%SZ") | mktime; def fromdate: fromdateiso8601; def date: todate;
def fromdate($f): strptime($f) | mktime; def combinations: if length == 0 then [] else .[0][] as $x | (.[1:] | combinations) as $w | [$x] + $w end;
def combinations(n): . as $dot | [range(n)] | map($dot) | combinations;
def IN(s): any(s == .; .); def IN(src; s): any(src == s; .); def INDEX(stream; f): reduce stream as $row ({}; .[$row | f | tostring] |= $row);
def INDEX(f): INDEX(.[]; f); def debug(m): (m | debug | empty), .; def toarray: if type == "array" then . else [.] end;
def pick(f): . as $top | reduce path(f) as $p (null; setpath($p; $top | getpath($p))); 
def skip($n; f): foreach f as $x ($n; . - 1; if . < 0 then $x else empty end);
def finites: select(isinfinite or isnan | not); def normals: select(isnormal);

"""


@functools.lru_cache(maxsize=1)
def _library():
    """The functions that are written in the language itself."""
    found = {}
    for name, parameters, body in Parser(_LIBRARY).whole()[1]:
        found[name, len(parameters)] = (parameters, body)
    return found


# --- The command

_FLAGS = {"raw-output": "r", "compact-output": "c", "slurp": "s", "null-input": "n", "exit-status": "e", "join-output": "j", "ascii-output": "a", "sort-keys": "S", "raw-input": "R", "color-output": "C", "monochrome-output": "M", "tab": "tab"}


class _Order:
    """What a command line asks for."""

    def __init__(self, arguments):
        self.flags, self.indent, self.names, self.rest, self.filter = set(), 2, {}, [], None
        positional, rest = "files", list(arguments)
        while rest:
            each = rest.pop(0)
            if each in ("--arg", "--argjson", "--slurpfile", "--rawfile"):
                name, value = rest.pop(0), rest.pop(0)
                self.names[f"${name}"] = self._valued(each, name, value)
            elif each in ("-V", "--version"):
                self.filter, self.names, self.flags = '"jq-1.7"', {}, {"n", "r"}
                rest.clear()
            elif each == "--indent":
                self.indent = max(0, min(int(rest.pop(0)), 7))
            elif each in ("-f", "--from-file"):
                self.filter = _read(rest.pop(0))
            elif each in ("--args", "--jsonargs"):
                positional = each
            elif each.startswith("--") and len(each) > 2:
                if each[2:] not in _FLAGS:
                    raise Bad(f"Unknown arguments: {each}")
                self.flags.add(_FLAGS[each[2:]])
            elif each.startswith("-") and len(each) > 1:
                if set(each[1:]) - set(_FLAGS.values()):
                    raise Bad(f"Unknown arguments: {each}")
                self.flags.update(each[1:])
            elif self.filter is None:
                self.filter = each
            else:
                self.rest.append((positional, each))
        if self.filter is None:
            raise Bad("a filter is missing: jq FILTER [FILE...]")
        given = [text if kind == "--args" else json.loads(text) for kind, text in self.rest if kind != "files"]
        self.names["$ARGS"] = {"positional": given, "named": {name[1:]: value for name, value in self.names.items()}}
        self.files = [text for kind, text in self.rest if kind == "files"]

    @staticmethod
    def _valued(kind, name, value):
        if kind == "--arg":
            return value
        try:
            return json.loads(value) if kind == "--argjson" else _read(value) if kind == "--rawfile" else list(_documents(_read(value)))
        except ValueError:
            raise Bad(f"Invalid JSON text passed to --argjson: {name}") from None

    def shown(self, value):
        """A value as it is printed."""
        if isinstance(value, str) and self.flags & {"r", "j"}:
            return value
        options = {"sort_keys": "S" in self.flags, "ensure_ascii": "a" in self.flags}
        indent = None if "c" in self.flags else "\t" if "tab" in self.flags else self.indent or None
        return dumped(value, **options) if indent is None else dumped(value, **options, indent=indent, separators=(",", ": "))


def _read(name):
    with open(name, encoding="utf-8", errors="replace") as file:
        return file.read()


def _documents(text):
    """The values of a text, one behind the other."""
    decoder, at = json.JSONDecoder(), 0
    blank = re.compile(r"[\s\x1e\ufeff]*")
    while (at := blank.match(text, at).end()) < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except ValueError as error:
            line = text.count("\n", 0, error.pos) + 1
            raise ValueError(f"parse error: {error.msg} at line {line}, column {error.colno}") from None
        yield value


def _values(order, stdin):
    text = "".join(map(_read, order.files)) if order.files else stdin.buffer.read().decode("utf-8", "replace")
    if "R" in order.flags:
        return iter([text] if "s" in order.flags else text.splitlines())
    found = _documents(text)
    return iter([list(found)]) if "s" in order.flags else found


def command(arguments, stdin, out, err):
    """`jq`, as a command of the shell."""
    try:
        order = _Order(arguments)
    except Bad as error:
        err.write(f"jq: error: {error}\n")
        return 2
    try:
        tree = Parser(order.filter).whole()[0]
    except Bad as error:
        err.write(f"jq: error: {error} at <top-level>, line 1:\n{order.filter}\njq: 1 compile error\n")
        return 3
    scope = None
    inputs = _values(order, stdin)
    for name, value in {"inputs": inputs, "err": err, **order.names}.items():
        scope = _Scope(name, value, scope)
    for each in list(_outermost(scope)):
        each.outermost = scope
    status, last = 0, None
    end = "" if "j" in order.flags else "\n"
    try:
        for value in iter([None]) if "n" in order.flags else inputs:
            try:
                for last in run(tree, value, scope):
                    out.write(order.shown(last) + end)
            except Failed as error:
                err.write(f"jq: error (at {order.files[0] if order.files else '<stdin>'}): {error}\n")
                status = 5
            except _Left:
                err.write("jq: error: break\n")
                status = 5
            except RecursionError:
                err.write("jq: error: the filter or the value is nested too deep\n")
                status = 5
    except Bad as error:
        err.write(f"jq: error: {error} at <top-level>, line 1:\n{order.filter}\njq: 1 compile error\n")
        return 3
    except ValueError as error:
        err.write(f"jq: {error}\n")
        return 2
    return status or int("e" in order.flags and not _is_true(last))


def _outermost(scope):
    while scope is not None:
        yield scope
        scope = scope.around
