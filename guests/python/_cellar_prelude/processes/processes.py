"""Processes: further kernels of the session, which run Python, Node and the shell commands that there are.

What a process is to do is its order, which the host hands on to it; see `program`. One call of the host runs it from its
beginning to its end, and brings what it has printed that went into no pipe; see `channels`. It ends with the cell that
started it.
"""

import errno
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import sys
import time
import _thread

import _cellar
from _cellar_prelude.calls import bridges
from _cellar_prelude.platform import packages
from _cellar_prelude.platform.sandbox import CallError, CellStopped, SandboxError
from _cellar_prelude.processes import channels, npm
from _cellar_prelude.processes.channels import bytes_of, text_of
from _cellar_prelude.shell import commands

# The cells that read an order, by language.
ENTRIES = {"py": "%%process", "js": 'await require("node:cellar").main()'}
# Where `sys.executable` says that Python is.
PYTHON = "/usr/bin/python3"

_PYTHON = re.compile(r"(?:python|pypy)(?:\d(?:\.\d+)?)?t?\Z")
_NODE = frozenset(("node", "nodejs"))
_SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "ash"))
_OPERATORS = re.compile(r"[|&;<>()$`*?\[\]{}~#\n=!]")

# Kinds of failures of the host's, and the error numbers that they come as.
_AGAIN = 11
_KILLED, _TERMINATED = 9, 15

# Has something in it where what processes print is handed on as it comes: in commands that the host has started.
live = []

_last = [0]
# Those that run, by their numbers.
_running = {}

_own_which = shutil.which


# --- What to run


def order_of(arguments, shell, folder):
    """(language, order) of what a program asks for: a list of arguments, or with `shell` a line of commands first.

    Raises FileNotFoundError, which names what there is, when it is none of that.
    """
    if shell:
        line = arguments[0]
        words = _plain_words(line)
        if len(arguments) == 1 and words and kind_of(words[0]) in ("python", "node"):
            return order_of(words, False, folder)
        return "py", {"program": "shell", "argv": ["sh", "-c", *arguments]}
    kind = kind_of(arguments[0])
    if kind is None:
        kind, arguments = _script(arguments, folder)
    elif kind == "package":
        kind, arguments = "python", [PYTHON, "-c", packages.program(arguments[0].rpartition("/")[2]), *arguments[1:]]
    return ("js" if kind == "node" else "py"), {"program": kind, "argv": arguments}


def kind_of(name):
    """What runs a program of this name; None when nothing does."""
    if name == sys.executable:
        return "python"
    base = name.rpartition("/")[2]
    if "/" in name and name.rpartition("/")[0] not in ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin"):
        return None
    if _PYTHON.match(base):
        return "python"
    if base in _NODE:
        return "node"
    if base in _SHELLS:
        return "shell"
    return "command" if commands.has(base) else "package" if commands.is_known(base) else None


def _script(arguments, folder):
    """How a file is run that says in its first line what runs it."""
    name = arguments[0]
    try:
        with open(os.path.join(folder, name), "rb") as file:
            first = file.readline(200)
    except OSError:
        first = b""
    if "/" in name and first.startswith(b"#!"):
        words = first[2:].decode("utf-8", "replace").split()
        if words and words[0].endswith("/env"):
            words = [each for each in words[1:] if not each.startswith("-")]
        kind = kind_of(words[0]) if words else None
        if kind not in (None, "command", "package"):
            return kind, [*words, *arguments]
    raise FileNotFoundError(2, f"No such file or directory ({commands.remedy(name.rpartition('/')[2])})", name)


def _plain_words(line):
    """The words of a line that is one command without anything that a shell would change; else None."""
    if _OPERATORS.search(re.sub(r"'[^']*'", "", line)):
        return None
    try:
        return shlex.split(line)
    except ValueError:
        return None


def only_command(arguments):
    """The words of the one command that a shell is given after `-c`, when there is nothing else for it to do."""
    return _plain_words(arguments[-1]) if len(arguments) > 2 and arguments[-2] == "-c" else None


# --- What runs


class Running:
    """A process that was started. It stands among the calls that the kernel has begun; see `bridges.complete`."""

    def __init__(self, language, order, folder, environment, data, pipes):
        _last[0] += 1
        self.pid = os.getpid() + _last[0]
        order = {**order, "cwd": folder, "stdin": text_of(data), "pid": self.pid, "ppid": os.getpid()}
        if "input" in pipes:
            order["input"] = pipes["input"]
        pairs = [(str(name), str(value)) for name, value in environment.items()]
        self._pipes = pipes
        self._ended = self._killed = None
        self._waits = _thread.allocate_lock()
        self._heard = []
        ends = (pipes.get(name) for name in ("input", "out", "err"))
        self._number = _cellar.start(
            _cellar.PROCESSES_RUN, language, ENTRIES[language], json.dumps(order), pairs, None, *ends,
        )
        bridges._pending[self._number] = self
        _running[self.pid] = self

    def done(self):
        """Whether it has ended."""
        return self._ended is not None

    def set_result(self, answer):
        """Takes in how it ended."""
        _tag, ended = answer
        self._end(*ended)

    def set_exception(self, error):
        """Takes in why the host has ended it, or did not start it."""
        kind, message = error.args
        self._end(refusal=(kind, message))
        # It may never have begun, and then nobody else closes its ends.
        channels.close_all(self._pipes)

    def _end(self, status=None, output=(), failure=None, reply=None, refusal=None):
        if self._ended is None:
            self._ended = status, output, failure, reply, refusal
            _running.pop(self.pid, None)
            heard, self._heard = self._heard, []
            for each in heard:
                each()

    def when_done(self, function):
        """Has a function called when it has ended."""
        if self.done():
            function()
        else:
            self._heard.append(function)

    def wait(self, until=None):
        """Waits until it has ended, or until a moment of `time.monotonic`; whether it has."""
        for completion in _cellar.take_completions():
            bridges.complete(*completion)
        left = -1 if until is None else max(0.0, until - time.monotonic())
        if self.done() or not self._waits.acquire(timeout=left):
            return self.done()
        try:
            if not self.done():
                moment = None if until is None else max(0, int(until * 1e9))
                completion = _cellar.wait_call(self._number, moment)
                if completion is not None:
                    bridges.complete(*completion)
        except CellStopped:
            # How it ended may have been handed over when the cell was stopped, and would be waited for in vain.
            self.kill(9)
            raise
        finally:
            self._waits.release()
        return self.done()

    def poll(self):
        """Whether it has ended, which takes a moment to know."""
        return self.done() or self.wait(time.monotonic() + 0.001)

    def kill(self, number):
        """Ends it by a signal."""
        if not self.done():
            self._killed = number
            # First what cannot be stopped: a cell that is stopped comes no further.
            self._end()
            bridges._pending.pop(self._number, None)
            _cellar.cancel(self._number)
            channels.close_all(self._pipes)

    def result(self):
        """(exit status, pieces of output, reply) of one that has ended. A status below 0 is that of a signal.

        Raises OSError when it was not started, or printed more than it may.
        """
        _cellar.raise_if_stopped()
        status, output, failure, reply, refusal = self._ended
        if refusal is not None and refusal[0] != "cancelled":
            raise OSError(_AGAIN, f"Resource temporarily unavailable ({refusal[1]})")
        if failure is not None:
            kind, message = failure
            if kind == "output":
                raise SandboxError(f"{message}, and was ended; let it write to a file")
            if kind == "not-started":
                raise OSError(_AGAIN, f"Resource temporarily unavailable ({message})")
            output = [*output, (2, f"Killed: {message}\n")]
        return -(self._killed or _KILLED) if status is None else status, output, reply


def start(arguments, *, shell=False, folder=None, environment=None, data=b"", pipes=None, more=None):
    """Starts a process. `pipes` are those that are its `input`, `out` and `err`, as far as there are any."""
    folder = os.getcwd() if folder is None else os.path.abspath(folder)
    if not os.path.isdir(folder):
        raise FileNotFoundError(2, "No such file or directory", folder)
    language, order = order_of(arguments, shell, folder)
    if more is not None:
        order["more"] = more
    try:
        return Running(language, order, folder, os.environ if environment is None else environment, data, pipes or {})
    except CallError as error:
        raise OSError(_AGAIN, f"Resource temporarily unavailable ({error.args[1]})") from None


def run_in_line(arguments, stdin, out, err):
    """Runs a program as a command of a line; see `commands`."""
    raw = getattr(stdin.buffer, "raw", None)
    if live:
        return _run_live(arguments, raw, stdin, out, err)
    # It reads from a pipe what this process would have read, if none of that has been.
    pipe = raw.lend() if isinstance(raw, channels.PipeReader) else None
    running = start(arguments, data=stdin.buffer.read()) if pipe is None else start(arguments, pipes={"input": pipe})
    running.wait()
    status, output, _ = running.result()
    for stream, text in output:
        (out if stream == 1 else err).buffer.write(bytes_of(text))
    return status if status >= 0 else 128 - status


def _run_live(arguments, raw, stdin, out, err):
    """The same, with what it prints handed on as it comes, and what is typed at a terminal as well."""
    typed = raw if hasattr(raw, "has_piece") else None
    lent = raw.lend() if isinstance(raw, channels.PipeReader) else None
    made = channels.make_pipes(2 if typed is None else 3)
    pipes = {"out": made[0], "err": made[1], **({"input": lent} if lent is not None else {"input": made[2]} if typed is not None else {})}
    running = start(arguments, data=b"" if "input" in pipes else stdin.buffer.read(), pipes=pipes)
    targets = {made[0]: out, made[1]: err}
    into = None if typed is None else made[2]
    try:
        while targets:
            while into is not None and typed.has_piece():
                into = _type(into, typed.piece())
            if into is not None and typed.has_ended:
                into = _type(into, b"")
            reads_more = into is not None and not typed.has_ended
            _, found = channels.transfer(out_of=[*targets, *([typed.pipe] if reads_more else [])])
            for pipe, data, has_ended in found:
                if pipe not in targets:
                    typed.take_in(data, has_ended)
                    continue
                targets[pipe].buffer.write(data)
                if has_ended:
                    del targets[pipe]
        running.wait()
    except BaseException:
        running.kill(9)
        raise
    status, output, _ = running.result()
    for stream, text in output:
        (out if stream == 1 else err).buffer.write(bytes_of(text))
    return status if status >= 0 else 128 - status


def _type(pipe, data):
    """Writes to a program what was typed, or closes its input; the pipe, while there is more to write."""
    try:
        while data:
            data, _ = channels.transfer(data, pipe)
            if not data:
                return pipe
        channels.ask(_cellar.close_pipe, pipe, False)
    except OSError:
        pass
    return None


def show(output, streams=None):
    """Writes what processes have printed to streams of text, `sys.stdout` and `sys.stderr` if no others are named."""
    targets = streams or {1: sys.stdout, 2: sys.stderr}
    # A character may lie in two pieces.
    for number, pieces in itertools.groupby(output, lambda piece: piece[0]):
        data, stream = b"".join(bytes_of(text) for _, text in pieces), targets[number]
        if hasattr(stream, "buffer"):
            stream.flush()
            stream.buffer.write(data)
        else:
            stream.write(data.decode("utf-8", "replace"))


# --- `os`


def _system(command):
    """Runs a line of commands, and returns its status as `os.wait` would."""
    line = os.fsdecode(command)
    running = start([line], shell=True)
    running.wait()
    status, output, _ = running.result()
    show(output)
    return status << 8 if status >= 0 else -status


class _Pipe:
    """What `os.popen` gives: the stream to or from a line of commands."""

    def __init__(self, stream, process):
        self._stream, self._process = stream, process

    def close(self):
        """Waits for the end; None, or the status as `os.wait` would tell it."""
        self._stream.close()
        status = self._process.wait()
        return None if status == 0 else status << 8 if status > 0 else -status

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self.close()

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def __iter__(self):
        return iter(self._stream)


def _popen(cmd, mode="r", buffering=-1):
    """Opens a pipe to or from a line of commands."""
    import subprocess

    if not isinstance(cmd, str):
        raise TypeError(f"invalid cmd type ({type(cmd)}, expected string)")
    if mode not in ("r", "w"):
        raise ValueError(f"invalid mode {mode!r}")
    if mode == "r":
        process = subprocess.Popen(cmd, shell=True, text=True, stdout=subprocess.PIPE)
        return _Pipe(process.stdout, process)
    process = subprocess.Popen(cmd, shell=True, text=True, stdin=subprocess.PIPE)
    return _Pipe(process.stdin, process)


def _kill(pid, number, /):
    """Ends a process that this kernel has started, or raises a signal in the kernel itself."""
    if pid == os.getpid():
        signal.raise_signal(number)
        return
    running = _running.get(pid)
    if running is None:
        raise ProcessLookupError(3, "No such process")
    if number:
        running.kill(int(number))


def _waitpid(_pid, _options, /):
    """There is never a child that nobody has waited for: `Popen` does that itself."""
    raise ChildProcessError(errno.ECHILD, "No child processes")


def _waitstatus_to_exitcode(status):
    """The exit status, or the negated number of the signal, in what `waitpid` would give."""
    signal_number = status & 0x7F
    return -signal_number if signal_number else status >> 8 & 0xFF


def _which(cmd, mode=os.F_OK | os.X_OK, path=None):
    """Where a program is: those that there are lie nowhere among the files."""
    found = _own_which(cmd, mode, path)
    name = os.fsdecode(cmd)
    if found is None and path is None and "/" not in name and kind_of(name) is not None:
        place = PYTHON if name in ("python", "python3") else f"/usr/bin/{name}"
        return os.fsencode(place) if isinstance(cmd, bytes) else place
    return found


def install():
    """Makes the library start processes as they are here."""
    sys.executable = sys._base_executable = PYTHON
    commands.add_programs(run_in_line, ("python", "python3", "node"))
    commands.add("npm", npm.command)
    os.WNOHANG = 1
    own = {"system": _system, "popen": _popen, "kill": _kill, "waitpid": _waitpid, "waitstatus_to_exitcode": _waitstatus_to_exitcode}
    vars(os).update(own)
    for name, function in own.items():
        function.__name__ = function.__qualname__ = name
        function.__module__ = "os"
    _which.__name__ = _which.__qualname__ = "which"
    _which.__module__ = "shutil"
    shutil.which = _which
