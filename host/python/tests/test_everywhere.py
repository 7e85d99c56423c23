"""What sandboxes do in this process and on a server alike."""

import threading
import time

import pytest

from cellar import SandboxError


def test_files_are_written_read_listed_and_removed(opened):
    with opened() as s:
        s.files.write("notes/über & so.txt", "hello")
        assert s.run("open('notes/über & so.txt').read()").text == "'hello'"
        s.run("open('notes/b.bin', 'wb').write(bytes(range(256)))").check()
        assert s.files.read("/workspace/notes/b.bin") == bytes(range(256))
        assert [(one.name, one.kind, one.size) for one in s.files.list("notes")] == [
            ("b.bin", "file", 256), ("über & so.txt", "file", 5),
        ]
        assert [one.name for one in s.files.list()] == ["notes"]
        s.files.remove("notes/b.bin")
        assert [one.name for one in s.files.list("notes")] == ["über & so.txt"]
        with pytest.raises(FileNotFoundError):
            s.files.read("notes/b.bin")
        with pytest.raises(IsADirectoryError):
            s.files.read("notes")
        with pytest.raises(OSError):
            s.files.list("notes/über & so.txt")


def test_folders_go_up_and_come_down(opened, tmp_path):
    (tmp_path / "up/deep").mkdir(parents=True)
    (tmp_path / "up/a.txt").write_text("a")
    (tmp_path / "up/deep/b.bin").write_bytes(b"\0\xff")
    (tmp_path / "up/link").symlink_to("/etc/hostname")
    with opened() as s:
        s.files.upload(tmp_path / "up", "there")
        assert s.run("import os; sorted(os.listdir('there'))").text == "['a.txt', 'deep']"
        s.run("os.symlink('a.txt', 'there/link')").check()
        s.files.download(tmp_path / "down", "there")
    assert sorted(path.name for path in (tmp_path / "down").rglob("*")) == ["a.txt", "b.bin", "deep"]
    assert (tmp_path / "down/deep/b.bin").read_bytes() == b"\0\xff"


def test_a_download_does_not_write_through_links_of_the_host(opened, tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    with opened() as s:
        s.files.write("out", "x")
        with pytest.raises(SandboxError, match="link"):
            s.files.download(tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_names_have_values_and_are_listed_and_completed(opened):
    with opened() as s:
        s["numbers"] = {"n": [1, 2, None], "big": 2**53}
        assert s["numbers"] == {"n": [1, 2, None], "big": 2**53}
        assert [(one.name, one.type) for one in s.variables()] == [("numbers", "dict")]
        assert s.complete("numb") == ["numbers"]


def test_what_was_put_to_sleep_goes_on(opened):
    with opened() as s:
        s.run("squares = (n * n for n in range(9)); next(squares)").check()
        s.hibernate()
        assert s.run("next(squares), next(squares)").text == "(1, 4)"
        with s.fork() as f:
            f.files.write("of-the-fork.txt", "")
            assert f.run("next(squares)").text == "9"
            assert [one.name for one in f.files.list()] == ["of-the-fork.txt"]
        assert s.files.list() == []


def test_tools_that_wait_for_one_another_run_at_once(opened):
    barrier = threading.Barrier(3, timeout=60)

    def meet(quick: bool) -> str:
        if not quick:
            barrier.wait()
        return threading.current_thread().name

    with opened(tools=[meet]) as s:
        # Those that were quick are called by the thread that waits for the cell.
        s.run("for _ in range(20): tool.meet(quick=True)").check()
        code = "(await Promise.all([1, 2, 3].map(() => tool.meet({ quick: false })))).length"
        assert s.run(code, language="js").check().text == "3"


def test_a_tool_may_use_the_sandbox_that_called_it(opened):
    def other(code: str) -> str:
        return s.run(code, language="js").check().text

    with opened(tools=[other]) as s:
        assert s.run("[tool.other(code=f'{n} * 2') for n in range(5)]").check().json == ["0", "2", "4", "6", "8"]


def test_a_tool_that_raises_fails_its_call_alone(opened):
    def odd(n: int) -> int:
        if n % 2 == 0:
            raise ValueError(f"{n} is even")
        return n

    with opened(tools=[odd]) as s:
        assert s.run("[tool.odd(n=1) for _ in range(5)]").check().json == [1] * 5
        assert "ValueError: 2 is even" in s.run("tool.odd(n=2)").error.message
        assert s.run("tool.odd(n=3)").text == "3"


def test_a_cell_ends_at_its_deadline_whatever_it_does(opened):
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        time.sleep(seconds)

    with opened(tools=[nap]) as s:
        assert s.run("while True: pass", timeout=1).error.kind == "timeout"
        assert s.run("import time; time.sleep(60)", timeout=1).error.kind == "timeout"
        # One that has been quick and is not any more holds up its caller, and not the end of its cell.
        s.run("for _ in range(5): tool.nap(seconds=0)").check()
        failed = s.run("tool.nap(seconds=3)", timeout=1)
        assert failed.error.kind == "timeout"
        assert s.run("'on'").text == "'on'"
    assert naps == [0] * 5 + [3]
