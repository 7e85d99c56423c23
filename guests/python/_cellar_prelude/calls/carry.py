"""Functions of cells that ask a model or an agent, called so that other code goes on meanwhile.

An answer may take minutes, and an agent may want to run cells of its own in the very session that asks it. At the top level a
plain `agent(...)` is awaited; in a function it cannot be, and would hold the kernel. So what is known here is the names of
functions whose code asks, or calls what does. `rewrite` has a cell await their calls, which run in their second form, where
they have one, and else in a thread of their own.
"""

import ast
import asyncio
import contextvars
import functools
import inspect
import re
import threading
import types

import _cellar
from _cellar_prelude.calls.bridges import Bridge
from _cellar_prelude.platform.sandbox import is_user_file

# Names of the bridges that may take long.
_SLOW = frozenset({"agent", "llm"})
# More names than so many are not kept: later functions hold the kernel.
NAMES_MAX = 1000
# What these return is what asks, and not they themselves.
_LAZY = (map, filter, zip, enumerate, iter, reversed)
# Methods that a class runs when it is called.
_CONSTRUCTORS = frozenset({"__init__", "__new__", "__post_init__"})

# Names of functions that ask, and of those that return such functions.
_names, _makers = set(), set()
# Finds any of the names in a source: a list of one, which stays bound.
_patterns = []

# Of the library, which cells can change.
_Thread = threading.Thread
_set_running_loop = asyncio.events._set_running_loop


def forget():
    """Forgets all names."""
    _names.clear()
    _makers.clear()
    _patterns.clear()


def is_mentioned(source):
    """Whether a cell names a function that asks."""
    return bool(_patterns) and _patterns[0].search(source) is not None


def _is_slow(node):
    if isinstance(node, ast.Name):
        return node.id in _SLOW or node.id in _names
    return isinstance(node, ast.Attribute) and node.attr in _names


def _asks(node):
    """Whether code names a bridge or a function that asks."""
    return any(map(_is_slow, ast.walk(node)))


def _is_function(node):
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def _hands_on(node):
    """Whether an argument is, or has in it, something that asks when it is called or iterated."""
    if isinstance(node, (ast.Lambda, ast.GeneratorExp)):
        return _asks(node)
    if isinstance(node, ast.Call):
        return any(map(_hands_on, node.args)) or any(_hands_on(keyword.value) for keyword in node.keywords)
    return _is_slow(node) or any(map(_hands_on, ast.iter_child_nodes(node)))


def asks(call):
    """Whether a call at the top level of a cell may ask in a function."""
    return _is_slow(call.func) or _hands_on_any(call)


def _hands_on_any(call):
    return any(map(_hands_on, call.args)) or any(_hands_on(keyword.value) for keyword in call.keywords)


def _gives(value):
    """Whether the value of an expression is a function that asks, as far as can be seen."""
    if isinstance(value, ast.Lambda):
        return _asks(value)
    if isinstance(value, ast.Call):
        return getattr(value.func, "id", getattr(value.func, "attr", None)) in _makers or _hands_on_any(value)
    return _is_slow(value)


def _add(name, names):
    if len(names) < NAMES_MAX and not (name.startswith("__") and name.endswith("__")):
        names.add(name)


def _learn_from(node):
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        if any(map(_asks, node.body)):
            _add(node.name, _names)
            if any(_is_function(inner) and _asks(inner) for inner in ast.walk(node) if inner is not node):
                _add(node.name, _makers)
    elif isinstance(node, ast.ClassDef):
        asking = {method.name for method in node.body if _is_function(method) and _asks(method)}
        if asking & _CONSTRUCTORS:
            _add(node.name, _names)
        if "__call__" in asking:
            _add(node.name, _makers)
    elif isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)) and node.value is not None and _gives(node.value):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for each in ast.walk(target):
                if isinstance(each, ast.Name):
                    _add(each.id, _names)
                elif isinstance(each, ast.Attribute):
                    _add(each.attr, _names)


def learn(tree):
    """Takes over the names of functions that a cell's code defines."""
    count = -1
    while count != len(_names) + len(_makers):
        count = len(_names) + len(_makers)
        for node in ast.walk(tree):
            _learn_from(node)
    if _names or _makers:
        _patterns[:] = [re.compile(r"\b(?:%s)\b" % "|".join(map(re.escape, sorted(_names | _makers))))]


def is_of_cells(value):
    """Whether calling or iterating a value runs code of the session's own."""
    if isinstance(value, functools.partial):
        return any(map(is_of_cells, (value.func, *value.args, *value.keywords.values())))
    if isinstance(value, types.MethodType):
        return is_of_cells(value.__func__)
    if isinstance(value, types.FunctionType):
        return is_user_file(value.__code__.co_filename)
    if isinstance(value, types.GeneratorType):
        return is_user_file(value.gi_code.co_filename)
    if isinstance(value, type):
        made_by = inspect.getattr_static(value, "__init__", None), inspect.getattr_static(value, "__new__", None)
        return any(isinstance(each, types.FunctionType) and is_user_file(each.__code__.co_filename) for each in made_by)
    if isinstance(value, (map, filter, zip, enumerate, Bridge)):
        return True
    wrapped = inspect.getattr_static(value, "__wrapped__", None)
    if wrapped is not None:
        # As of `functools.cache`.
        return True
    called = inspect.getattr_static(type(value), "__call__", None)
    return isinstance(called, types.FunctionType) and is_user_file(called.__code__.co_filename)


async def carried(function, args, kwargs):
    """Calls a function in a thread; in this one, where there can be no more threads."""
    loop = asyncio.get_running_loop()
    context = contextvars.copy_context()
    ended = loop.create_future()

    def settle(value, error):
        if not ended.done():
            ended.set_result((value, error))

    def work():
        # As in the thread of cells, so that tasks can be made.
        _set_running_loop(loop)
        value = failure = None
        try:
            value = context.run(function, *args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - raised where the function was called
            failure = error
        loop.call_soon_threadsafe(settle, value, failure)

    try:
        _Thread(target=work).start()
    except RuntimeError:
        return function(*args, **kwargs)
    value, error = await ended
    for variable, bound in context.items():
        if variable is not _cellar.cell and variable.get(None) is not bound:
            variable.set(bound)
    if error is not None:
        try:
            raise error
        finally:
            # The frames of an error keep what they name alive.
            del error
    return value


async def run(function, args, kwargs):
    """Calls a function that may ask, wherever that lets other code go on."""
    if function in _LAZY or inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        return function(*args, **kwargs)
    if any(map(is_of_cells, (function, *args, *kwargs.values()))):
        return await carried(function, args, kwargs)
    return function(*args, **kwargs)
