"""The entry points that the native shim calls, and what is done once, while the guest is baked."""

import asyncio
import gc
import getpass
import os
import random
import sys
import time
import types

import _cellar
from _cellar_prelude import additions, warm
from _cellar_prelude.calls import bridges, connectors, network, pools, primitives
from _cellar_prelude.cells import cells, editor, helpers, threads
from _cellar_prelude.notebook import history, ipython, markdown
from _cellar_prelude.platform import absent, credentials, faults, likeness, modules, sandbox, streams, zones
from _cellar_prelude.processes import asyncprocesses, pooling, popen, processes, sharing

# --- Bridges and names of every cell

streams.install(bridges.input_)
time.sleep = _cellar.sleep
time.process_time = time.thread_time = _cellar.process_time
time.process_time_ns = time.thread_time_ns = _cellar.process_time_ns

# Another descriptor of an open file: its place in the file is its own.
os.dup = _cellar.duplicate

import builtins  # noqa: E402

builtins.input = bridges.input_


def _ask_secret(prompt="Password: ", stream=None):
    """Asks for a line. There is no terminal that could hide it."""
    return bridges.input_(prompt)


def _end_cell(status):
    """Ends the cell: there is no process to end."""
    raise SystemExit(status)


getpass.getpass = _ask_secret
_end_cell.__name__ = _end_cell.__qualname__ = "_exit"
_end_cell.__module__ = "os"
os._exit = _end_cell

_GLOBALS = {
    "print": print,
    "input": bridges.input_,
    "display": ipython.display,
    "read": helpers.read,
    "write": helpers.write,
    "append": helpers.append,
    "sort": helpers.sort,
    "uniq": helpers.uniq,
    "counter": helpers.counter,
    "diff": helpers.diff,
    "tree": helpers.tree,
    "env": helpers.env,
    "output": helpers.make_output(bridges.tool),
    "tool": bridges.tool,
    "llm": bridges.llm,
    "agent": bridges.agent,
    "parallel": pools.parallel,
    "pipeline": pools.pipeline,
    "runtime": primitives.runtime,
    "tools": primitives.tools,
    "connectors": connectors.connectors,
}


def _fresh_names():
    """What the namespace of cells begins with."""
    return {
        "__name__": "__main__",
        "__doc__": None,
        "__package__": None,
        "__loader__": None,
        "__spec__": None,
        "__annotations__": {},
        "__builtins__": builtins,
        **history.fresh_names(),
        **_GLOBALS,
        **connectors.names(),
    }


start = cells.start
go_on = cells.go_on
interrupt = cells.interrupt
recover = cells.recover
complete = editor.complete
is_complete = editor.is_complete
inspect = editor.inspect
value = editor.value


# Where sessions work unless they are told otherwise; what is configured as it was baked costs nothing.
_FOLDER = "/workspace"


# The native half of `random.seed`; the other half is a value kept back by `random.gauss`.
_seed_random = super(random.Random, random._inst).seed


def reseed(seed):
    """Makes random numbers others than those that would have come."""
    _seed_random(seed)
    additions.reseed(seed)
    if random._inst.gauss_next is not None:
        random._inst.gauss_next = None
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        # Names of temporary files must differ between sessions.
        tempfile._name_sequence = None


def configure(seed, environment, folder, packages, granted):
    """Makes the kernel belong to a session. What is as it was baked is not written: the pages it lies on stay shared."""
    arguments = environment.pop("CELLAR_ARGUMENTS", None)
    if arguments is not None:
        import json

        # What a program is given to read, with its own name before it.
        sys.argv = json.loads(arguments)
    environment.setdefault("HOME", folder)
    # Nothing is looked for there; programs take it for granted that it is set.
    environment.setdefault("PATH", "/usr/local/bin:/usr/bin:/bin")
    if os.environ._data != {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}:
        os.environ.clear()
        os.environ.update(environment)
        zones.configure()
    paths = [path for path in environment.get("PYTHONPATH", "").split(":") if path]
    sandbox.set_places([folder, *paths, sandbox.LIBRARY, *packages])
    sys.path_importer_cache.clear()
    tempfile = sys.modules.get("tempfile")
    if tempfile is not None:
        # Where temporary files go depends on the environment.
        tempfile.tempdir = None
    connectors.grant(granted, cells.names)
    reseed(seed)


def seed(bindings, cell, source):
    """Binds names to JSON values, then runs the source that makes the other names of a fresh session."""
    import json
    import keyword

    for name, text in bindings:
        if not name.isidentifier() or keyword.iskeyword(name):
            return cells.fail(cell, ValueError(f"the binding {name!r} is not a name that Python can assign to"))
        try:
            cells.names[name] = json.loads(text)
        except ValueError as error:
            return cells.fail(cell, ValueError(f"the binding {name!r} is not JSON: {error}"))
    return cells.start(cell, source)


def _warm_up(sources):
    """Runs cells whose output goes nowhere; what failed, as pairs of source and outcome."""
    failed = [(source, outcome) for source in sources for _, outcome in cells.start(0, source)[0] if outcome]
    cells.forget_cells(_fresh_names())
    return failed


def note_visit(begins):
    """Begins, or ends, the work of a thread that stands in for the main one, which is away."""
    threads.note_visit(begins, cells.loop)


def resume(completions):
    """Delivers answers and runs due timers."""
    for number, ok, answer in completions:
        bridges.complete(number, ok, answer)
    return cells.go_on()


def reset():
    """Forgets the session's names and tasks; bridges and grants stay."""
    bridges.forget_calls()
    cells.reset(_fresh_names(), _baked_modules)


def variables():
    """What cells bound."""
    return editor.variables(_GLOBALS | history.fresh_names() | connectors.names())


def renew():
    """Makes anew what every cell writes to: objects that are made when memory is sealed lie side by side."""
    faults.renew()
    history.renew()
    cells.renew()
    cells.forget_cells(_fresh_names())
    del sys.modules[__name__]


# --- Baking

absent.install_changes()
warm.import_modules()
sandbox.install_builtins()
sandbox.install_paths()
sandbox.install_inspect(history.sources)
sandbox.install_recursion_limit()
likeness.install(bridges.ask_session)
zones.install()
absent.install()
credentials.install()
processes.install()
popen.install()
asyncprocesses.install()
pooling.install()
sharing.install()
network.install()
threads.install()
modules.install()
_GLOBALS.update(additions.names())
cells.forget_cells(_fresh_names())
for _ in range(warm.ROUNDS):
    configure(0, {}, _FOLDER, [], [])
    for _source, _failure in _warm_up(["", *warm.FIRST_CELLS, *warm.CELLS, *additions.CELLS]):
        # What fails here would fail for everybody, or cost every session its first time: nobody else would see it.
        raise RuntimeError(f"a cell of the image failed: {_source!r}: {_failure[-1]}")
random.seed(0)
likeness.install_last()
sandbox.note_finders()


def _members(kinds):
    """Functions that these classes, and properties of theirs, are made of."""
    for kind in kinds:
        for member in vars(kind).values():
            for each in (member, getattr(member, "__func__", None), getattr(member, "fget", None)):
                if isinstance(each, types.FunctionType):
                    yield each


def _guard():
    """Remembers all that is baked, so that it can be put back, and takes the prelude out of cells' sight."""
    own = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in ("_cellar", "_cellar_prelude")}
    for name in own:
        del sys.modules[name]
    mine = [vars(module) for module in own.values()]
    kinds = {each for names in mine for each in names.values() if isinstance(each, type)}
    sealed = [each for each in kinds if each.__module__ in own]
    functions = {each for names in mine for each in names.values() if isinstance(each, types.FunctionType)}
    functions = [each for each in {*functions, *_members(sealed)} if each.__module__ in own]
    # Those that run with every cell come first.
    vital = {f"_cellar_prelude.{name}" for name in ("entry", "cells.cells", "notebook.history", "platform.loop", "platform.streams", "notebook.display")}
    functions.sort(key=lambda each: (each.__module__ not in vital, each.__module__, each.__qualname__))
    library = [*sys.modules.values(), *markdown.modules()]
    shared = {id(each) for each in library if isinstance(each, types.ModuleType)}
    library = [each for each in library if id(each) in shared and each not in (builtins, cells.main)]
    leant = ("asyncio", "json", "traceback", "linecache", "ast", "re", "contextlib", "tokenize", "IPython", "bs4", "markdownify")
    classes = {
        each
        for module in library
        if module.__name__.partition(".")[0] in leant
        for each in list(vars(module).values())
        if isinstance(each, type) and each.__module__ == module.__name__
    }
    classes = sorted(
        (each for each in classes if each.__flags__ & _HEAP_TYPE and not each.__flags__ & _IMMUTABLE_TYPE),
        key=lambda each: (each.__module__, each.__qualname__),
    )
    sealed += [asyncio.Handle, asyncio.TimerHandle]
    sealed.sort(key=lambda each: (each.__module__, each.__qualname__))
    dicts = list({id(vars(module)): vars(module) for module in library}.values())
    _cellar.guard(
        [*mine, globals()["__builtins__"]], [vars(builtins)], [*dicts, sys.modules], sealed, classes, functions,
        sum(each.__module__ in vital for each in functions),
    )
    # Whoever runs this file looks for it there.
    sys.modules[__name__] = own[__name__]


_HEAP_TYPE, _IMMUTABLE_TYPE = 1 << 9, 1 << 8

_baked_modules = frozenset(name for name in sys.modules if name.partition(".")[0] not in ("_cellar", "_cellar_prelude"))
gc.collect()
_guard()
_cellar.immortalize(gc.get_objects())
gc.freeze()
