"""What a kernel does that is a process: it reads its order, and runs a program as its only cell.

The program has the namespace `__main__`, arguments, a folder, input that ends, and no running event loop, as it would have
anywhere else. What ends it ends as its exit status.
"""

import asyncio
import atexit
import builtins
import functools
import io
import json
import os
import runpy
import sys
import threading

import _cellar
from _cellar_prelude.platform import faults, streams
from _cellar_prelude.platform.sandbox import CellStopped, ProcessEnded
from _cellar_prelude.processes import channels, processes, terminal
from _cellar_prelude.shell import commands, shell
from _cellar_prelude.shell.lines import Stream

# Options of Python's command line that change nothing here, and those that have a value.
_FLAGS = frozenset("-u -B -E -s -S -I -O -OO -P -q -b -bb -d -v -x -R".split())
_VALUED = frozenset(("-W", "-X", "--check-hash-based-pycs"))

# Number and names of standard input.
_INPUT = (0, b"/dev/stdin", b"/dev/fd/0", b"/proc/self/fd/0")

# What runs an order of a certain kind, besides a program: see `pooling`.
MORE = {}


def main():
    """Runs the order of this kernel."""
    order = json.loads(_cellar.process_order())
    os.getpid, os.getppid = (lambda: order["pid"]), (lambda: order["ppid"])
    os.chdir(order["cwd"])
    os.environ["PWD"] = order["cwd"]
    _cellar.write_exactly()
    streams.OUT.is_exact = streams.ERR.is_exact = True
    if order["program"] == "terminal":
        data = terminal.Typed(order["input"])
    elif "input" in order:
        data = channels.PipeReader(order["input"], "<stdin>")
    else:
        data = io.BytesIO(channels.bytes_of(order["stdin"]))
        data.name = "<stdin>"
    sys.stdin = io.TextIOWrapper(io.BufferedReader(data), encoding="utf-8", errors="surrogateescape")
    _name_input(sys.stdin.buffer)
    loop = asyncio.events._get_running_loop()
    # There is none until the program makes one.
    asyncio.events._set_running_loop(None)
    asyncio.set_event_loop(None)
    try:
        status = _run(order)
    finally:
        asyncio.set_event_loop(loop)
        asyncio.events._set_running_loop(loop)
    if status:
        raise ProcessEnded(status)


class _Input(io.RawIOBase):
    """Standard input for whoever opens it once more: what one has read the others do not read."""

    name = "<stdin>"

    def __init__(self, stdin):
        self._stdin = stdin

    def readable(self):
        return True

    def readinto(self, buffer):
        data = self._stdin.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _name_input(stdin):
    """Has the number and the names of standard input lead to that of this process: WASI's is whoever watches the run."""
    own_read, own_open = os.read, io.open

    @functools.wraps(own_read)
    def read(fd, length, /):
        return stdin.read1(length) if fd == 0 else own_read(fd, length)

    @functools.wraps(own_open)
    def open(file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, closefd=True, opener=None):
        name = file if isinstance(file, int) else os.fsencode(file)
        if name not in _INPUT or not set(mode) <= set("rbt"):
            return own_open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = _Input(stdin)
        if "b" in mode:
            return raw if buffering == 0 else io.BufferedReader(raw)
        return io.TextIOWrapper(io.BufferedReader(raw), encoding, errors, newline)

    os.read, io.open, builtins.open = read, open, open


def _run(order):
    arguments = order["argv"]
    if "more" in order:
        return _ended(lambda: MORE[order["more"]["kind"]](order["more"]))
    if order.get("live"):
        processes.live.append(True)
    if order["program"] == "shell":
        # As any shell, it becomes the only command of its line.
        only = processes.only_command(arguments)
        if only and processes.kind_of(only[0]) == "python":
            return _ended(lambda: _python(only[1:]))
        return _ended(lambda: shell.run_shell(arguments[1:], *_streams()))
    if order["program"] == "terminal":
        return _ended(lambda: terminal.run(order, *_streams()))
    if order["program"] == "command":
        return commands.run_words(arguments, *_streams())
    return _ended(lambda: _python(arguments[1:]))


def _streams():
    """Standard input, output and error, as commands have them."""
    return [Stream(each.buffer) for each in (sys.stdin, sys.stdout, sys.stderr)]


def _ended(run):
    """Runs a program to its end; its exit status."""
    try:
        try:
            status = run()
        finally:
            for thread in threading.enumerate():
                if not thread.daemon and thread is not threading.current_thread():
                    thread.join()
            atexit._run_exitfuncs()
    except SystemExit as end:
        status = end.code
        if status is not None and not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    except (CellStopped, MemoryError):
        raise
    except BaseException as error:  # noqa: BLE001 - what it raised is its end
        sys.stderr.write(faults.format_exception(error).rstrip("\n") + "\n")
        status = 1
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):
            continue
    return (status or 0) & 0xFF


def _python(arguments):
    """`python`: options, then what to run."""
    arguments = list(arguments)
    while arguments and arguments[0] in _FLAGS | _VALUED:
        del arguments[: 2 if arguments[0] in _VALUED else 1]
    first = arguments[0] if arguments else "-"
    if first in ("--version", "-V", "-VV"):
        print(f"Python {sys.version.split()[0]}")
        return 0
    names = sys.modules["__main__"].__dict__
    if first.startswith("-W") or first.startswith("-X"):
        return _python(arguments[1:])
    if first == "-c" or first.startswith("-c"):
        source, rest = (arguments[1], arguments[2:]) if first == "-c" else (first[2:], arguments[1:])
        return _source(source, "<string>", ["-c", *rest], "", names)
    if first == "-m":
        if arguments[1] in ("pip", "pip3"):
            return commands.run_words(arguments[1:], *_streams())
        sys.argv = list(arguments[1:])
        sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(arguments[1])
        return 0
    if first == "-":
        return _source(sys.stdin.read(), "<stdin>", ["-", *arguments[1:]] if arguments else [""], "", names)
    if first.startswith("-"):
        print(f"Unknown option: {first}\nusage: python [-c CODE | -m MODULE | FILE | -] [argument ...]", file=sys.stderr)
        return 2
    return _file(first, arguments, names)


def _source(source, filename, arguments, folder, names):
    sys.argv = arguments
    sys.path.insert(0, folder)
    faults.remember(filename, source)
    exec(compile(source, filename, "exec"), names)


def _file(path, arguments, names):
    if os.path.isdir(path) or path.endswith((".zip", ".pyz")):
        sys.argv = list(arguments)
        sys.path.insert(0, path)
        runpy._run_module_as_main("__main__", alter_argv=False)
        return 0
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        place = os.path.abspath(path)
        print(f"{processes.PYTHON}: can't open file {place!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr)
        return 2
    sys.argv = list(arguments)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    names["__file__"] = path
    exec(compile(source, path, "exec"), names)
