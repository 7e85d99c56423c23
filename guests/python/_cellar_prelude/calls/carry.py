"""Functions of cells in threads of their own, for `parallel` and `pipeline`, which have several of them wait at once."""

import asyncio
import contextvars
import functools
import inspect
import threading
import types

import _cellar
from _cellar_prelude.calls.bridges import Bridge
from _cellar_prelude.platform.sandbox import is_user_file

# What these return is what asks, and not they themselves.
_LAZY = (map, filter, zip, enumerate, iter, reversed)

# Of the library, which cells can change.
_Thread = threading.Thread
_set_running_loop = asyncio.events._set_running_loop


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
    """Calls a function that may wait, wherever that lets others go on."""
    if function in _LAZY or inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        return function(*args, **kwargs)
    if any(map(is_of_cells, (function, *args, *kwargs.values()))):
        return await carried(function, args, kwargs)
    return function(*args, **kwargs)
