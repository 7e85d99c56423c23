"""`multiprocessing` and `ProcessPoolExecutor`: functions that are called in processes; see `processes`, and `sharing` for what
these have in common.

A process is no copy of this kernel: functions and arguments are pickled, as the library does it, and what they name in the
namespace of cells goes with them. Definitions are run again from their source, modules are imported, values are pickled.
What is sent back is pickled as well.
"""

import ast
import base64
import builtins
import functools
import io
import linecache
import marshal
import pickle
import queue
import sys
import time
import types

import _cellar
from _cellar_prelude.calls import bridges
from _cellar_prelude.platform import absent, faults
from _cellar_prelude.platform.sandbox import SandboxError
from _cellar_prelude.processes import channels, processes, program

# Processes that a pool has at once, whatever it asks for: as many as the host runs.
WORKERS_MAX = 8
# Calls that are handed to one process together, when there are many.
_BATCH_MAX = 100


# --- What goes with a function


class _Noting(pickle.Pickler):
    """Pickles as the library does, and notes which names of cells that needs."""

    def __init__(self, file, needed):
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._needed = needed

    def reducer_override(self, value):
        if getattr(value, "__module__", None) == "__main__" and isinstance(getattr(value, "__qualname__", None), str):
            self._needed.add(value.__qualname__.partition(".")[0])
        elif getattr(type(value), "__module__", None) == "__main__":
            self._needed.add(type(value).__qualname__.partition(".")[0])
        return NotImplemented


class _ByValue(_Noting):
    """Pickles functions without a name of their own as well, by their code."""

    def reducer_override(self, value):
        if isinstance(value, types.FunctionType) and not _is_named(value):
            self._needed.update(_names_of(value.__code__))
            cells = None if value.__closure__ is None else tuple(cell.cell_contents for cell in value.__closure__)
            parts = marshal.dumps(value.__code__), value.__name__, value.__defaults__, cells, value.__kwdefaults__
            return _make_function, parts
        if isinstance(value, type) and "<locals>" in value.__qualname__ and value.__module__ == "__main__":
            body = {name: each for name, each in vars(value).items() if name not in ("__dict__", "__weakref__")}
            return _make_class, (type(value), value.__name__, value.__bases__, body)
        return super().reducer_override(value)


def _is_named(function):
    module = sys.modules.get(function.__module__)
    found = module
    for part in function.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is function


def _names_of(code):
    names = set(code.co_names)
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            names |= _names_of(each)
    return names


def _make_function(code, name, defaults, cells, keywords):
    closure = None if cells is None else tuple(types.CellType(each) for each in cells)
    made = types.FunctionType(marshal.loads(code), sys.modules["__main__"].__dict__, name, defaults, closure)
    made.__kwdefaults__ = keywords
    return made


def _make_class(kind, name, bases, body):
    return kind(name, bases, body)


for _each in (_make_function, _make_class):
    _each.__module__ = "multiprocessing.spawn"


def _definitions():
    """(file, source, statement) of the functions and classes of the namespace of cells, by their names."""
    found = {}
    files = [name for name in linecache.cache if name.startswith("<cell ") or name in ("<string>", "<stdin>")]
    main = sys.modules["__main__"].__dict__.get("__file__")
    for file in [*files, *([main] if main else [])]:
        source = "".join(linecache.getlines(file))
        try:
            tree = ast.parse(source)
        except SyntaxError:
            continue
        open_nodes = list(reversed(tree.body))
        while open_nodes:
            node = open_nodes.pop()
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found[node.name] = file, source, node
            elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
                open_nodes.extend(reversed([each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)]))
    return found


def _shipped(needed):
    """What makes these names of cells elsewhere: a list of steps, in their order."""
    names, definitions = sys.modules["__main__"].__dict__, None
    steps, seen, files = [], set(), {}

    def add(name):
        nonlocal definitions
        if name in seen or name not in names or hasattr(builtins, name) or name.startswith("__"):
            return
        seen.add(name)
        value = names[name]
        if str(getattr(value, "__module__", None) or type(value).__module__).startswith("_cellar"):
            return
        if isinstance(value, types.ModuleType):
            steps.append(("import", name, value.__name__))
            return
        if getattr(value, "__module__", None) == "__main__" and getattr(value, "__qualname__", None) == name:
            if definitions is None:
                definitions = _definitions()
            if name in definitions:
                file, source, node = definitions[name]
                for each in ast.walk(node):
                    if isinstance(each, ast.Name):
                        add(each.id)
                files[file] = source
                steps.append(("define", name, file))
                return
        inner, file = set(), io.BytesIO()
        try:
            _ByValue(file, inner).dump(value)
        except Exception:  # noqa: BLE001 - what cannot go is missing there, and said to be when it is used
            return
        for each in sorted(inner):
            add(each)
        steps.append(("value", name, file.getvalue()))

    for each in sorted(needed):
        add(each)
    return files, steps


def pack(value, pickler=_Noting):
    """A text that `unpack` makes the value of, in another kernel."""
    needed, file = set(), io.BytesIO()
    pickler(file, needed).dump(value)
    return base64.b64encode(pickle.dumps((sys.path, _shipped(needed), file.getvalue()))).decode("ascii")


def unpack(text):
    """The value of a text that `pack` has made."""
    sys.path[:], (files, steps), data = pickle.loads(base64.b64decode(text))
    names = sys.modules["__main__"].__dict__
    for file, source in files.items():
        faults.remember(file, source)
    for kind, name, what in steps:
        if kind == "import":
            __import__(what)
            names[name] = sys.modules[what]
        elif kind == "value":
            names[name] = pickle.loads(what)
        else:
            exec(_definition(files[what], what, name), names)
    return pickle.loads(data)


def _definition(source, file, name):
    tree = ast.parse(source)
    nodes = [
        each for each in ast.walk(tree)
        if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and each.name == name
    ]
    outer = [each for each in tree.body if each in nodes] or nodes
    return compile(ast.Module([outer[-1]], []), file, "exec")


# --- Calls in processes


def _reply(value):
    _cellar.process_reply(base64.b64encode(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)).decode("ascii"))


def call_all(initializer, initargs, calls):
    """Makes calls in one process; a list of (whether it returned, value or exception)."""
    more = {"kind": "calls", "data": pack((initializer, initargs, calls))}
    running = processes.start(["python", "-"], more=more)
    running.wait()
    status, output, reply = running.result()
    processes.show(output)
    if reply is None:
        raise _broken(f"A process in the process pool was terminated abruptly: it ended with the status {status}")
    return pickle.loads(base64.b64decode(reply))


def _broken(message):
    import concurrent.futures.process

    return concurrent.futures.process.BrokenProcessPool(message)


def _run_calls(more):
    """What a process does with calls."""
    from multiprocessing.pool import ExceptionWithTraceback, MaybeEncodingError

    _is_process[0] = True
    initializer, initargs, calls = unpack(more["data"])
    if initializer is not None:
        initializer(*initargs)
    answers = []
    for function, args, kwargs in calls:
        try:
            answer = True, function(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - raised where the call was made
            trace = error.__traceback__
            answer = False, ExceptionWithTraceback(error, trace)
            answer[1].tb = f'\n"""\n{faults.format_exception(error)}"""'
        try:
            pickle.dumps(answer)
        except Exception as error:  # noqa: BLE001 - as the library has it
            answer = False, MaybeEncodingError(error, answer[1])
        answers.append(answer)
    _reply(answers)
    return 0


def call_one(initializer, initargs, function, args, kwargs):
    """Makes one call in a process."""
    ((ok, value),) = call_all(initializer, initargs, [(function, args, kwargs)])
    if ok:
        return value
    raise value


# --- multiprocessing.Process


class _Popen:
    """The process of a `multiprocessing.Process`."""

    method = "fork"

    def __init__(self, process):
        from multiprocessing import context

        context.set_spawning_popen(self)
        try:
            # As with a fork, functions without names go too.
            data = pack(process, _ByValue)
        finally:
            context.set_spawning_popen(None)
        self.returncode = None
        self._readers = [(channels.PipeReader(pipe), name) for pipe, name in zip(channels.make_pipes(2), ("stdout", "stderr"))]
        pipes = dict(zip(("out", "err"), (reader.pipe for reader, _ in self._readers)))
        self._running = processes.start(["python", "-"], pipes=pipes, more={"kind": "process", "data": data})
        self.pid = self.sentinel = self._running.pid
        _started.append(self)

    def poll(self, _flag=0):
        """Its exit status, or None while it runs."""
        return self.wait(0)

    def wait(self, timeout=None):
        """Waits for its end; its exit status, or None."""
        if self.returncode is None:
            until = None if timeout is None else time.monotonic() + timeout
            # While somebody waits, what it prints is shown.
            while not self.has_ended() and (until is None or time.monotonic() < until):
                self.show(time.monotonic() + 0.05 if until is None else min(until, time.monotonic() + 0.05))
            if self.has_ended() or self._running.poll():
                self._end()
        return self.returncode

    def has_ended(self):
        """Whether it has, as far as is known."""
        for completion in _cellar.take_completions():
            bridges.complete(*completion)
        return self._running.done()

    def open_readers(self):
        """What it prints to, by the numbers of the pipes."""
        return {reader.pipe: (reader, name) for reader, name in self._readers if not reader.has_ended()}

    def show(self, until):
        """Shows what it has printed, once there is something; whether that goes on."""
        readers = self.open_readers()
        if not readers:
            self._running.wait(until)
            return False
        _, found = channels.transfer(out_of=list(readers), until=until)
        for pipe, data, has_ended in found:
            readers[pipe][0].take_in(b"", has_ended)
            if data:
                getattr(sys, readers[pipe][1]).write(data.decode("utf-8", "replace"))
        return bool(found)

    def _end(self):
        if self in _started:
            _started.remove(self)
        while self.open_readers() and self.show(time.monotonic()):
            pass
        self.returncode, output, _ = self._running.result()
        processes.show(output)

    def terminate(self):
        """Ends it."""
        self._running.kill(15)

    def kill(self):
        """Ends it."""
        self._running.kill(9)

    interrupt = terminate

    def close(self):
        """Nothing is held."""

    @staticmethod
    def duplicate_for_child(descriptor):
        """Descriptors are those of a kernel."""
        return descriptor


# Those that have not ended, as far as is known.
_started = []
_is_process = [False]


def started():
    """Those that have not ended, as far as is known."""
    return list(_started)


def has_processes():
    """Whether one runs."""
    return bool(_started)


def is_process():
    """Whether this kernel is one."""
    return _is_process[0]


def collect():
    """Shows what processes have printed, and takes in which have ended."""
    for each in started():
        each.show(time.monotonic())
        if each.has_ended():
            each.wait(0)


def _run_process(more):
    """What a process does with a `multiprocessing.Process`."""
    _is_process[0] = True
    return unpack(more["data"])._bootstrap()


# --- Pools


def _work(inqueue, outqueue, initializer=None, initargs=(), maxtasks=None, wrap_exception=False, workers=1):
    """What a thread of a pool does: it hands tasks to processes, several at once when many wait."""
    while (task := inqueue.get()) is not None:
        batch = [task]
        for _ in range(min(inqueue.qsize() // (4 * workers), _BATCH_MAX)):
            task = inqueue.get()
            if task is None:
                inqueue.put(None)
                break
            batch.append(task)
        try:
            answers = call_all(initializer, initargs, [task[2:] for task in batch])
        except Exception as error:  # noqa: BLE001 - raised where the result is asked for
            answers = [(False, error)] * len(batch)
        for (job, number, *_), answer in zip(batch, answers):
            outqueue.put((job, number, answer))


def change_pool(module):
    """Makes `multiprocessing.pool.Pool` a pool of threads that hand their tasks to processes."""
    original = module.Pool.__init__

    class Notifier(queue.SimpleQueue):
        """What wakes the thread that looks after the workers of a pool, in the place of a pipe."""

        _reader = None

    class Context:
        SimpleQueue = Notifier

    class ProcessPool(module.ThreadPool):
        """A pool of processes."""

        @staticmethod
        def Process(ctx, *args, **kwargs):
            kwargs["target"] = functools.partial(_work, workers=ctx.workers)
            return module.ThreadPool.Process(ctx, *args, **kwargs)

    ProcessPool.__name__ = ProcessPool.__qualname__ = "Pool"
    ProcessPool.__module__ = "multiprocessing.pool"

    def init(self, processes=None, initializer=None, initargs=(), maxtasksperchild=None, context=None):
        own = Context()
        if not isinstance(self, module.ThreadPool):
            self.__class__ = ProcessPool
            processes = min(processes or WORKERS_MAX, WORKERS_MAX) if processes is None or processes > 0 else processes
            own.workers = processes
        original(self, processes, initializer, initargs, maxtasksperchild, own)

    def wait(_sentinels, notifier, timeout=None):
        notifier.get(timeout=timeout)
        while not notifier.empty():
            notifier.get()

    module.Pool.__init__ = init
    module.Pool._wait_for_updates = staticmethod(wait)


def change_context(module):
    """Makes the processes of `multiprocessing` kernels."""
    for name in ("Process", "ForkProcess", "SpawnProcess", "ForkServerProcess"):
        if hasattr(module, name):
            getattr(module, name)._Popen = staticmethod(_Popen)


def _refusing(name):
    def refuse(*_args, **_kwargs):
        raise SandboxError(
            f"multiprocessing.{name} cannot be used: processes are kernels, which have no memory in common; use "
            "multiprocessing.Value, Array, Queue or Manager, or threading, whose threads share all"
        )

    return refuse


def change_executor(module):
    """Makes `ProcessPoolExecutor` one of threads that hand their calls to processes."""
    import concurrent.futures.thread

    original = module.ProcessPoolExecutor

    class ProcessPoolExecutor(concurrent.futures.thread.ThreadPoolExecutor):
        __doc__ = original.__doc__

        def __init__(self, max_workers=None, mp_context=None, initializer=None, initargs=(), *, max_tasks_per_child=None):
            if max_workers is not None and max_workers <= 0:
                raise ValueError("max_workers must be greater than 0")
            if initializer is not None and not callable(initializer):
                raise TypeError("initializer must be a callable")
            super().__init__(min(max_workers or WORKERS_MAX, WORKERS_MAX))
            self._begins = initializer, initargs

        def submit(self, fn, /, *args, **kwargs):
            """Has a function called in a process."""
            return super().submit(call_one, *self._begins, fn, args, kwargs)

        def map(self, fn, *iterables, timeout=None, chunksize=1):
            """Calls a function with each set of arguments; an iterator over the results, in order."""
            if chunksize < 1:
                raise ValueError("chunksize must be >= 1.")
            rows = list(zip(*iterables))
            chunksize = max(chunksize, len(rows) // (4 * self._max_workers))
            chunks = [rows[at : at + chunksize] for at in range(0, len(rows), chunksize)]
            results = super().map(functools.partial(module._process_chunk, fn), chunks, timeout=timeout)
            return module._chain_from_iterable_of_lists(results)

    ProcessPoolExecutor.__module__ = "concurrent.futures.process"
    ProcessPoolExecutor.__qualname__ = "ProcessPoolExecutor"
    module.ProcessPoolExecutor = ProcessPoolExecutor


def _native_part():
    """`_multiprocessing`, which modules of the library import: what it has is refused."""
    module = types.ModuleType("_multiprocessing")
    refuse = _refusing("Lock")
    module.SemLock = type("SemLock", (), {"__module__": "_multiprocessing", "__init__": refuse, "SEM_VALUE_MAX": 2**31 - 1})
    module.sem_unlink = refuse
    module.flags = {}
    return module


def _shared_memory_part():
    """`_posixshmem`, likewise."""
    module = types.ModuleType("_posixshmem")
    module.shm_open = module.shm_unlink = _refusing("shared_memory")
    return module


absent.CHANGED.update({
    "concurrent.futures.process": change_executor,
    "multiprocessing.pool": change_pool,
})
sys.modules["_multiprocessing"] = _native_part()
sys.modules["_posixshmem"] = _shared_memory_part()


def install():
    """Lets processes be what these are."""
    import multiprocessing.spawn

    multiprocessing.spawn._make_function, multiprocessing.spawn._make_class = _make_function, _make_class
    program.MORE.update(calls=_run_calls, process=_run_process)
