"""`parallel` and `pipeline`: many calls at once, in bounds.

What runs at once are coroutines. Async functions give them; so do the lambdas and the functions of cells that call
bridges plainly, whose second form `rewrite` makes. Other functions of cells run in threads.
"""

import asyncio
import functools
import inspect
import weakref

from _cellar_prelude.calls import carry
from _cellar_prelude.calls.bridges import Bridge

CONCURRENCY = 4
CONCURRENCY_MAX = 16

# Functions of cells with the coroutine functions that do the same and let others run while they wait.
_waiting_forms = weakref.WeakKeyDictionary()


def set_waiting_form(function, form):
    """Notes that `form`, a coroutine function, does what `function` does."""
    _waiting_forms[function] = form


def waiting_form(function):
    """The coroutine function that does what a function does, or None."""
    if isinstance(function, functools.partial):
        form = waiting_form(function.func)
        return None if form is None else functools.partial(form, *function.args, **function.keywords)
    return _waiting_forms.get(function) if inspect.isfunction(function) else None


async def _call(function, *args):
    form = waiting_form(function)
    return await _value(await carry.run(function, args, {}) if form is None else form(*args))


def _limit(concurrency):
    if not isinstance(concurrency, int) or concurrency < 1:
        raise ValueError("concurrency must be a positive integer")
    return min(concurrency, CONCURRENCY_MAX)


async def _value(made):
    """The value of what a thunk or stage returned: it may be awaitable."""
    return await made if inspect.isawaitable(made) else made


async def _pool(jobs, concurrency):
    """Runs coroutine functions, at most `concurrency` at once; results in order. The first error cancels the rest."""
    results = [None] * len(jobs)
    waiting = iter(enumerate(jobs))

    async def work():
        for index, job in waiting:
            results[index] = await job()

    workers = [asyncio.ensure_future(work()) for _ in range(min(concurrency, len(jobs)))]
    try:
        await asyncio.gather(*workers)
    except BaseException:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise
    return results


def _now(made, name):
    """The same in synchronous code, where nothing can be awaited."""
    if inspect.isawaitable(made):
        if inspect.iscoroutine(made):
            made.close()
        raise RuntimeError(
            f"{name}() was given something to await in a function that is not async: make it `async def` and use "
            f"`await {name}(...)`"
        )
    return made


class Parallel:
    """`parallel`."""

    __name__ = __qualname__ = "parallel"

    def __call__(self, thunks, *, concurrency=CONCURRENCY):
        """Calls functions without arguments and returns their results in order.

        At the top level of a cell and awaited in `async` code, up to `concurrency` (16 at most) of them wait for the host
        at once. In synchronous functions they run one after the other.
        """
        _limit(concurrency)
        return [_now(thunk(), "parallel") for thunk in thunks]

    async def aio(self, thunks, *, concurrency=CONCURRENCY):
        """The awaitable form."""

        def job(thunk):
            if inspect.isawaitable(thunk):
                return lambda: _value(thunk)
            if not callable(thunk):
                raise TypeError(f"parallel() takes functions, not {type(thunk).__name__}")
            return lambda: _call(thunk)

        return await _pool([job(thunk) for thunk in thunks], _limit(concurrency))

    def __repr__(self):
        return "<function parallel>"


class Pipeline:
    """`pipeline`."""

    __name__ = __qualname__ = "pipeline"

    def __call__(self, items, *stages, concurrency=CONCURRENCY):
        """Sends each item through all stages and returns the results in order; see `parallel`."""
        _limit(concurrency)
        results = []
        for item in items:
            for stage in stages:
                item = _now(stage(item), "pipeline")
            results.append(item)
        return results

    async def aio(self, items, *stages, concurrency=CONCURRENCY):
        """The awaitable form."""

        async def through(item):
            for stage in stages:
                item = await _call(stage, item)
            return item

        return await _pool([lambda item=item: through(item) for item in items], _limit(concurrency))

    def __repr__(self):
        return "<function pipeline>"


for each in (Parallel, Pipeline):
    # As they are called in complaints about their arguments.
    each.aio.__qualname__ = each.__call__.__qualname__ = each.__name__.lower()

parallel = Parallel()
pipeline = Pipeline()

# What has an `.aio` form; see `rewrite`.
_AWAITABLE = (Bridge, Parallel, Pipeline)


def awaitable_form(function):
    """What a rewritten plain call calls, to be awaited: any function will do, for the name may have been rebound."""
    if isinstance(function, _AWAITABLE):
        return function.aio
    form = waiting_form(function)
    if form is not None:
        return form

    async def call(*args, **kwargs):
        return function(*args, **kwargs)

    return call


def awaited_form(function):
    """What `await f(...)` calls instead of `f`."""
    return function.aio if isinstance(function, _AWAITABLE) else function
