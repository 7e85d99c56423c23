"""Sandboxes in the process of the program."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from typing import Annotated, Literal, Optional

import pytest

import cellar
from cellar import Cell, CellFailed, Sandbox, SandboxError, Tool, events


@pytest.fixture(scope="module")
def shared():
    with Sandbox() as s:
        yield s


def test_a_value_an_error_and_another_language(shared):
    assert shared.run("x = 6 * 7; x").text == "42"
    result = shared.run("1/0")
    assert (result.error.name, result.error.kind, result.error.line, result.is_error) == (
        "ZeroDivisionError", "raised", 1, True)
    with pytest.raises(CellFailed, match="division by zero"):
        result.check()
    assert shared.run("[1, 2].map((n) => n * 2)", language="js").json == [2, 4]


def test_lists_of_cells_stop_at_the_first_that_fails(shared):
    result = shared.run(["a = 1", "1/0", Cell("a + 1", title="last")])
    assert [cell.status for cell in result.cells] == ["complete", "error", "pending"]
    result = shared.run(["1/0", Cell("6 * 7", language="js")], keep_going=True)
    assert (result.cells[1].language, result.cells[1].text) == ("js", "42")


def test_functions_run_in_the_sandbox(shared):
    @shared.cell
    def where(name: str, *, times: int = 1) -> list:
        import platform

        return [platform.machine()] + [name] * times

    assert where("é'\"\n", times=2) == ["wasm32", "é'\"\n", "é'\"\n"]

    @shared.cell
    async def later(n):
        import asyncio

        await asyncio.sleep(0)
        return {"n": n}

    assert later(3) == {"n": 3}

    @shared.cell
    def fails():
        raise ValueError("on purpose")

    with pytest.raises(CellFailed, match="on purpose"):
        fails()


def test_events_come_as_they_happen(shared):
    opened = threading.Event()
    run = shared.stream("print('first', flush=True)\ntry:\n    while True: pass\nexcept KeyboardInterrupt:\n    print('last')\n    raise")
    for event in run:
        if isinstance(event, events.Stdout) and "first" in event.text:
            opened.set()
            run.cancel()
    assert opened.is_set()
    assert run.result.error.kind == "interrupted"
    assert "last" in run.result.text
    kinds = [type(event) for event in shared.stream("1")]
    assert (kinds[0], kinds[-1]) == (events.RunStarted, events.RunFinished)


def test_what_is_displayed(shared):
    code = """
import base64
class Dot:
    def _repr_png_(self):
        return base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==')
display(Dot())
{"n": [1, 2]}
"""
    result = shared.run(code)
    assert result.images[0].mime_type == "image/png"
    assert result.images[0].data.startswith(b"\x89PNG")
    assert result.json == {"n": [1, 2]}
    bundle = result._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "application/json", "image/png"}
    assert [block["type"] for block in result.to_llm()] == ["text", "image"]


def test_tools_have_the_schema_of_their_annotations():
    def find(
        text: Annotated[str, "the words"], limit: int = 3, kind: Literal["a", "b"] = "a", tags: Optional[list[str]] = None
    ):
        """Finds things.

        Args:
            limit: the most that
                there may be
        """
        return [text, limit, kind, tags]

    schema = Tool(find).schema
    assert schema["properties"]["text"] == {"type": "string", "description": "the words"}
    assert schema["properties"]["limit"] == {"type": "integer", "description": "the most that there may be", "default": 3}
    assert schema["properties"]["kind"] == {"enum": ["a", "b"], "default": "a"}
    assert schema["properties"]["tags"] == {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]}
    assert (schema["required"], Tool(find).description) == (["text"], "Finds things.")
    with Sandbox(tools=[find]) as s:
        assert s.run("tool.find(text='x', tags=['t'])").json == ["x", 3, "a", ["t"]]
        assert "expected integer" in s.run("tool.find(text='x', limit='y')").error.message
        assert s.run("tool.find.spec()['description']").text == "'Finds things.'"
        assert s.run("await tool.find({text: 'j'})", language="js").json == ["j", 3, "a", None]


def test_tools_with_models_of_pydantic():
    pydantic = pytest.importorskip("pydantic")

    class Point(pydantic.BaseModel):
        x: int
        y: int = 0

    class Line(pydantic.BaseModel):
        begin: Point
        end: Point

    def move(line: Line, by: int) -> Line:
        assert isinstance(line.begin, Point)
        return Line(begin=Point(x=line.begin.x + by), end=line.end)

    move.__annotations__ = {"line": Line, "by": int, "return": Line}
    with Sandbox(tools=[move]) as s:
        moved = s.run("tool.move(line={'begin': {'x': 1}, 'end': {'x': 5}}, by=2)").json
        assert moved == {"begin": {"x": 3, "y": 0}, "end": {"x": 5, "y": 0}}
        assert "expected" in s.run("tool.move(line={'begin': {'x': 'no'}, 'end': {'x': 5}}, by=2)").error.message


def test_tools_fail_run_at_once_and_may_be_asynchronous():
    everybody = threading.Barrier(4, timeout=60)

    def meet(n: int) -> int:
        everybody.wait()
        return n

    def fail():
        raise ValueError("on purpose")

    async def later(n: int) -> int:
        import asyncio

        await asyncio.sleep(0)
        return n + 1

    def odd():
        return object()

    with Sandbox(tools=[meet, fail, later, odd]) as s:
        code = "import asyncio\n[*await asyncio.gather(*(tool.meet.aio(n=n) for n in range(4)))]"
        assert s.run(code).json == [0, 1, 2, 3]
        assert s.run("tool.fail()").error.message == "tool `fail` failed: ValueError: on purpose"
        assert s.run("tool.later(n=1)").text == "2"
        assert "is no JSON" in s.run("tool.odd()").error.message


def test_a_tool_may_use_the_sandbox_that_called_it():
    def inner() -> str:
        return s.run("seen + 1").text

    with Sandbox(tools=[inner]) as s:
        assert s.run("seen = 1\nawait tool.inner.aio()").text == "'2'"


def test_input_is_answered():
    asked = []

    def answer(prompt):
        asked.append(prompt)
        return "Ada" if len(asked) == 1 else None

    with Sandbox(input=answer) as s:
        assert s.run("input('name? ')[::-1]").text == "'adA'"
        assert s.run("input()").error.name == "EOFError"
    assert asked == ["name? ", ""]


def test_grants(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "a.txt").write_text("granted")
    mounts = {"/in": tmp_path / "in", "/out": {"host": str(tmp_path / "out"), "write": True}}
    with Sandbox(mounts=mounts, environment={"WHO": "me"}, limits={"timeout": 1}, bindings={"n": 3}) as s:
        assert s.run("import os; open('/in/a.txt').read(), os.environ['WHO'], n").text == "('granted', 'me', 3)"
        assert s.run("open('/in/a.txt', 'w')").is_error
        s.run("open('/out/b.txt', 'w').write('made')").check()
        assert (tmp_path / "out" / "b.txt").read_text() == "made"
        assert s.run("kept = 1\nwhile True: pass").error.kind == "timeout"
        assert s["kept"] == 1
    with pytest.raises(SandboxError, match="did you mean `limits`") as caught:
        Sandbox(config={"limit": {}})
    assert caught.value.code == "invalid"


def test_files(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "b.bin").write_bytes(bytes(range(256)))
    with Sandbox() as s:
        s.files.write("deep/er/a.txt", "hello")
        s.files.upload(tmp_path, "up")
        assert s.run("open('deep/er/a.txt').read(), len(open('up/below/b.bin', 'rb').read())").text == "('hello', 256)"
        s.run("open('c.txt', 'w').write('c' * 3_000_000)").check()
        assert s.files.read("/workspace/c.txt") == b"c" * 3_000_000
        assert [(entry.name, entry.kind) for entry in s.files.list()] == [
            ("c.txt", "file"), ("deep", "folder"), ("up", "folder")]
        s.files.remove("c.txt")
        with pytest.raises(FileNotFoundError):
            s.files.read("c.txt")
        with pytest.raises(OSError):
            s.files.read("../../etc/passwd")


def test_forks_snapshots_and_sleep(tmp_path):
    def add(a: int, b: int) -> int:
        return a + b

    with Sandbox(tools=[add]) as s:
        s.run("squares = (n * n for n in range(9)); next(squares)")
        state = s.snapshot()
        with s.fork() as f:
            assert f.run("next(squares), tool.add(a=1, b=2)").text == "(1, 3)"
            assert f.run("next(squares)").text == "4"
        assert s.run("next(squares)").text == "1"
        s.rewind(state)
        s.hibernate()
        assert s.run("next(squares)").text == "1"
        s.snapshot(tmp_path / "state")
    with Sandbox(snapshot=tmp_path / "state") as other:
        assert other.run("next(squares)").text == "4"
    assert not state.bytes() == b""


def test_what_is_kept_wakes_in_another_process(tmp_path):
    with Sandbox(name="kept", store=tmp_path) as s:
        s.run("numbers = iter(range(9)); next(numbers)")
        s.files.write("a.txt", "still here")
    code = "from cellar import Sandbox\nwith Sandbox(name='kept', store=%r) as s: print(s.run('next(numbers), open(\"a.txt\").read()').text)"
    done = subprocess.run([sys.executable, "-c", code % str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.strip() == "(1, 'still here')", done.stderr


def test_recordings_are_played_again(tmp_path):
    file = tmp_path / "a.recording"
    with Sandbox(record=file) as s:
        drawn = s.run("import random, time; (random.random(), time.time())").text
    played = cellar.replay(file)
    [shown] = [event for event in played if isinstance(event, events.Display)]
    assert shown.data["text/plain"] == drawn


def test_names_are_seen_and_completed(shared):
    shared.run("answer = {'a': 1}")
    found = {one.name: one for one in shared.variables()}
    assert (found["answer"].type, found["answer"].preview) == ("dict", "{'a': 1}")
    assert "answer" in shared.complete("answ")
    shared.reset("py")
    assert "answer" not in {one.name for one in shared.variables()}


def test_values_cross_both_ways(shared):
    for value in [1, 2.5, "é\n'", None, True, [1, [2]], {"a": {"b": []}}]:
        shared["value"] = value
        assert shared["value"] == value
    with pytest.raises(ValueError):
        shared["a b"] = 1


def test_threads_run_side_by_side_and_cells_do_not_hold_the_lock():
    beats = 0
    with Sandbox() as one, Sandbox() as two:
        stop = threading.Event()
        def beat():
            nonlocal beats
            while not stop.wait(0.001):
                beats += 1
        threads = [threading.Thread(target=beat)]
        results = {}
        for s in (one, two):
            run = lambda s=s: results.update({s.name: s.run("sum(range(3_000_000))").text})
            threads.append(threading.Thread(target=run))
        for thread in threads:
            thread.start()
        for thread in threads[1:]:
            thread.join()
        stop.set()
        threads[0].join()
        assert set(results.values()) == {str(sum(range(3_000_000)))}
    assert beats > 3


def test_many_sandboxes_at_once():
    many = [Sandbox() for _ in range(50)]
    for number, s in enumerate(many):
        s.run(f"n = {number}")
    assert [s["n"] for s in many] == list(range(50))
    for s in many:
        s.close()


def test_what_is_closed_says_so():
    s = Sandbox()
    s.close()
    s.close()
    with pytest.raises(SandboxError, match="closed"):
        s.run("1")


def script(code, **more):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def test_control_c_stops_the_cell_and_keeps_the_state():
    process = script("""
        from cellar import Sandbox, events
        s = Sandbox()
        s.run("x = 1")
        try:
            for event in s.stream("x = 2\\nprint('looping', flush=True)\\nwhile True: pass"):
                if isinstance(event, events.Stdout):
                    print("ready", flush=True)
        except KeyboardInterrupt:
            print(s.run("x").text, flush=True)
    """)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (out, process.returncode) == ("2\n", 0), err


def test_control_c_stops_a_run_that_its_own_thread_drives():
    process = script("""
        from cellar import Sandbox
        def ready():
            print("ready", flush=True)
        s = Sandbox(tools=[ready])
        try:
            s.run("x = 2\\ntool.ready()\\nwhile True: pass")
        except KeyboardInterrupt:
            print(s.run("x").text, flush=True)
    """)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (out, process.returncode) == ("2\n", 0), err


def test_control_c_in_a_tool_stops_the_run_that_called_it():
    process = script("""
        import time
        from cellar import Sandbox
        def nap(seconds: float):
            if seconds:
                print("ready", flush=True)
            time.sleep(seconds)
        s = Sandbox(tools=[nap])
        s.run("for _ in range(9): tool.nap(seconds=0)").check()
        began = time.monotonic()
        try:
            s.run("x = 2\\ntool.nap(seconds=300)\\nx = 3", timeout=600)
        except KeyboardInterrupt:
            print(s.run("x").text, time.monotonic() - began < 200, flush=True)
    """)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=400)
    assert (out, process.returncode) == ("2 True\n", 0), err


def test_a_forked_process_has_an_engine_of_its_own():
    process = script("""
        import os, sys
        from cellar import Sandbox, SandboxError
        before = Sandbox()
        before.run("x = 1")
        child = os.fork()
        if child == 0:
            try:
                before.run("x")
            except SandboxError as error:
                print(error.code, flush=True)
            with Sandbox() as s:
                print(s.run("'child'").text, flush=True)
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(before.run("x").text)
    """)
    out, err = process.communicate(timeout=120)
    assert (out.split(), process.returncode) == (["forked", "'child'", "1"], 0), err


def test_no_handler_of_signals_of_the_program_is_taken():
    process = script("""
        import signal
        mine = lambda *_: None
        numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP, signal.SIGUSR1, signal.SIGPIPE]
        before = [signal.getsignal(number) for number in numbers]
        masks = [line for line in open("/proc/self/status") if line.startswith("Sig")]
        from cellar import Sandbox
        with Sandbox() as s:
            s.run("1")
        after = [line for line in open("/proc/self/status") if line.startswith("Sig")]
        assert before == [signal.getsignal(number) for number in numbers]
        caught = lambda lines: int(next(line for line in lines if line.startswith("SigCgt")).split()[1], 16)
        new = caught(after) & ~caught(masks)
        # Those of faults of machine code, which WebAssembly needs; what they do not know goes to who was there before.
        faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGTRAP}
        print(sorted(number for number in range(1, 32) if new >> (number - 1) & 1 and number not in faults))
    """)
    out, err = process.communicate(timeout=120)
    assert (out, process.returncode) == ("[]\n", 0), err


def test_a_program_that_closes_nothing_ends():
    process = script("from cellar import Sandbox\ns = Sandbox()\nprint(s.run('1').text)\nrun = s.stream('while True: pass')\nnext(run)")
    out, err = process.communicate(timeout=120)
    assert (out, process.returncode, err) == ("1\n", 0, "")
