"""The same API against a server."""

import pytest

from cellar import Sandbox, SandboxError


def test_runs_tools_forks_and_snapshots(server):
    def add(a: int, b: int) -> int:
        return a + b

    with Sandbox.connect(*server, tools=[add]) as s:
        assert s.run("x = 6 * 7; tool.add(a=x, b=1)").text == "43"
        assert s.run("1/0").error.name == "ZeroDivisionError"
        state = s.snapshot()
        with s.fork() as f:
            assert f.run("x += 1; x").text == "43"
        s.run("x = 0")
        s.rewind(state)
        assert s["x"] == 42
        run = s.stream("print('on', flush=True)\nwhile True: pass")
        for event in run:
            if getattr(event, "text", None):
                run.cancel()
        assert run.result.error.kind == "interrupted"


def test_what_is_refused(server):
    url, token = server
    with pytest.raises(SandboxError):
        Sandbox.connect(url, "cel_wrong_" + "a" * 40)
    with pytest.raises(SandboxError, match="only the operator"):
        Sandbox.connect(url, token, mounts={"/etc": "/etc"})
    with pytest.raises(SandboxError):
        Sandbox.connect("http://127.0.0.1:1", token)


def test_what_a_server_has_no_operation_for_is_named(server, tmp_path):
    for option, what in (("record", "recordings"), ("store", "stores"), ("config", "cellar.toml")):
        with pytest.raises(SandboxError, match=what) as refused:
            Sandbox.connect(*server, **{option: str(tmp_path / "x")})
        assert refused.value.code == "unsupported"
    with Sandbox.connect(*server) as s:
        with pytest.raises(SandboxError, match="recordings"):
            s.end_recording()
        with pytest.raises(SandboxError, match="/etc"):
            s.files.read("/etc/passwd")
