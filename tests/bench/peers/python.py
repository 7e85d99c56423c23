"""Answers what `peers.rs` asks of a sandbox that is a package of Python: `python.py NAME`.

A line of standard input is a question, a JSON object with `do`; a line of standard output is its answer. Times are in
microseconds, memory in bytes. What a sandbox does not have is answered with `{"lacks": why}`.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

# What an endless loop may take.
LIMIT_SECONDS = 1


def stopwatch(action):
    """The time that an action takes, and what it returns."""
    began = time.perf_counter()
    result = action()
    return (time.perf_counter() - began) * 1e6, result


class Eryx:
    """CPython on wasmtime, in this process."""

    def __init__(self):
        import eryx

        self.eryx = eryx

    def open(self, seconds=120):
        callbacks = [{"name": "echo", "fn": lambda value: value, "description": "Returns its argument"}]
        return self.eryx.Session(callbacks=callbacks, execution_timeout_ms=seconds * 1000)

    endless, kept = "while True: pass", "kept = 41"

    def run(self, session, code):
        return session.execute(code).stdout_text.strip()

    def print(self, expression):
        return f"print({expression})"

    def calls(self, count):
        return f"for each in range({count}):\n    await echo(value=each)"

    def close(self, session):
        """It ends when nobody has it."""


class Monty:
    """An interpreter of a part of Python, in a process of its own for each session."""

    def __init__(self):
        import pydantic_monty

        self.pool = pydantic_monty.Monty(max_processes=64).__enter__()

    def open(self, seconds=120):
        return self.pool.checkout(limits={"max_feed_duration_secs": float(seconds)}).__enter__()

    endless, kept = "while True: pass", "kept = 41"

    def run(self, session, code):
        return str(session.feed_run(code, external_lookup={"echo": lambda value: value}))

    def print(self, expression):
        return expression

    def calls(self, count):
        return f"for each in range({count}):\n    echo(each)"

    def close(self, session):
        session.__exit__(None, None, None)


class QuickJs:
    """QuickJS on wasmtime, in this process."""

    def __init__(self):
        import quickjs_rs

        self.runtimes = {}
        self.quickjs = quickjs_rs

    def open(self, seconds=120):
        runtime = self.quickjs.Runtime().__enter__()
        context = runtime.new_context(timeout=seconds).__enter__()
        context.function(lambda value: value, name="echo")
        self.runtimes[id(context)] = runtime
        return context

    endless, kept = "while (true);", "var kept = 41"

    def run(self, session, code):
        return str(session.eval(code))

    def print(self, expression):
        return expression

    def calls(self, count):
        return f"for (let each = 0; each < {count}; each++) echo(each); 0"

    def close(self, session):
        session.__exit__(None, None, None)
        self.runtimes.pop(id(session)).__exit__(None, None, None)


class Package:
    """Cellar's own package of Python, in this process, as the workspace has been compiled."""

    def __init__(self, language):
        root = Path(__file__).resolve().parents[3]
        self.folder = tempfile.TemporaryDirectory()
        package = Path(self.folder.name) / "cellar"
        package.mkdir()
        for path in (root / "host/python/cellar").glob("*.py"):
            package.joinpath(path.name).symlink_to(path)
        package.joinpath("_cellar.abi3.so").symlink_to(root / "target/release/libcellar_python.so")
        sys.path.insert(0, self.folder.name)
        import cellar

        cellar.configure(guests=os.environ.get("CELLAR_GUESTS") or root / "target/guests")
        self.cellar, self.language = cellar, language
        self.endless, self.kept = ("while True: pass", "kept = 41") if language == "py" else ("while (true);", "var kept = 41")

    def open(self, seconds=120):
        tool = self.cellar.Tool(lambda value: value, name="echo")
        return self.cellar.Sandbox(tools=[tool], language=self.language, limits={"timeout": seconds})

    def run(self, session, code):
        return session.run(code).check().text.strip()

    def print(self, expression):
        return expression

    def calls(self, count):
        if self.language == "py":
            return f"for each in range({count}):\n    tool.echo(value=each)"
        return f"for (let each = 0; each < {count}; each++) await tool.echo({{ value: each }})"

    def close(self, session):
        session.close()


def total(measure):
    """What this process and its children have of something."""
    own, found = os.getpid(), 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int(process.joinpath("stat").read_text().rpartition(")")[2].split()[1])
            if own in (int(process.name), parent):
                found += measure(process)
        except (OSError, ValueError):
            # It ended meanwhile.
            continue
    return found


def processor_time():
    """Microseconds that this process and its children have computed for."""
    return total(
        lambda process: sum(
            int(thread.joinpath("schedstat").read_text().split()[0]) for thread in process.joinpath("task").iterdir()
        )
    ) / 1e3


def private_memory():
    """Bytes of private memory of this process and its children."""
    return total(
        lambda process: sum(
            int(line.split()[1]) * 1024
            for line in process.joinpath("smaps_rollup").read_text().splitlines()
            if line.startswith("Private_Dirty")
        )
    )


class Answers:
    """One method for each question."""

    def __init__(self, sandbox):
        self.sandbox = sandbox
        self.session = None

    def live(self):
        if self.session is None:
            self.session = self.sandbox.open()
        return self.session

    def first_result(self, count):
        """From nothing to the first result."""
        times = []
        for _ in range(count):
            session = None

            def first():
                nonlocal session
                session = self.sandbox.open()
                return self.sandbox.run(session, self.sandbox.print("1+1"))

            taken, result = stopwatch(first)
            assert result == "2", result
            times.append(taken)
            self.sandbox.close(session)
        return {"times": times}

    def next_cell(self, count):
        session, code = self.live(), self.sandbox.print("1+1")
        return {"times": [stopwatch(lambda: self.sandbox.run(session, code))[0] for _ in range(count)]}

    def imports(self, count, code):
        """In sessions of their own, which have run a cell."""
        times = []
        for _ in range(count):
            session = self.sandbox.open()
            self.sandbox.run(session, self.sandbox.print("1+1"))
            times.append(stopwatch(lambda: self.sandbox.run(session, code))[0])
            self.sandbox.close(session)
        return {"times": times}

    def calls(self, count, each):
        """Of a function of the host, so many in a cell."""
        session, code = self.live(), self.sandbox.calls(each)
        return {"times": [stopwatch(lambda: self.sandbox.run(session, code))[0] / each for _ in range(count)]}

    def memory(self, count):
        """Of idle sessions that have run a cell."""
        sessions = [self.sandbox.open()]
        self.sandbox.run(sessions[0], self.sandbox.print("1+1"))
        before = private_memory()
        for _ in range(count):
            sessions.append(self.sandbox.open())
            self.sandbox.run(sessions[-1], self.sandbox.print("1+1"))
        taken = (private_memory() - before) / count
        for session in sessions:
            self.sandbox.close(session)
        return {"bytes": taken}

    def load(self, source):
        """Takes the loops."""
        self.sandbox.run(self.live(), source)
        return {}

    def loop(self, name):
        before = processor_time()
        result = self.sandbox.run(self.live(), self.sandbox.print(f"LOOPS['{name}']()"))
        return {"times": [processor_time() - before], "result": result}

    def stop(self):
        """How late an endless loop ends, and whether its session is as it was."""
        session = self.sandbox.open(LIMIT_SECONDS)
        self.sandbox.run(session, self.sandbox.kept)
        taken, _ = stopwatch(lambda: self.fails(session, self.sandbox.endless))
        is_kept = not self.fails(session, self.sandbox.print("kept + 1"))
        try:
            self.sandbox.close(session)
        except Exception:
            # One that was stopped may be gone.
            pass
        return {"times": [taken - LIMIT_SECONDS * 1e6], "kept": is_kept}

    def fails(self, session, code):
        try:
            self.sandbox.run(session, code)
        except Exception:
            return True
        return False


def main():
    package = {"package, Python": lambda: Package("py"), "package, JavaScript": lambda: Package("js")}
    answers = Answers({"eryx": Eryx, "monty": Monty, "quickjs-rs": QuickJs, **package}[sys.argv[1]]())
    for line in sys.stdin:
        question = json.loads(line)
        try:
            answer = getattr(answers, question.pop("do"))(**question)
        except Exception as error:
            answer = {"lacks": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        print(json.dumps(answer), flush=True)


main()
