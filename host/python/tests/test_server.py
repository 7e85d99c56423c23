"""The same API against a server."""

import os
import re
import shutil
import subprocess

import pytest

from cellar import Sandbox, SandboxError
from cellar.engine import command


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    program = command() or shutil.which("cellar")
    arguments = [program]
    if "CELLAR_GUESTS" in os.environ:
        arguments += ["--guests", os.environ["CELLAR_GUESTS"]]
    folder = tmp_path_factory.mktemp("server")
    arguments += ["--store", str(folder), "serve", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said, url, token = "", None, None
    for line in process.stdout:
        said += line
        url = url or next(iter(re.findall(r"http://127\.0\.0\.1:\d+", line)), None)
        token = token or next(iter(re.findall(r"cel_\w+", line)), None)
        if url and token:
            break
    assert url and token, said
    yield url, token
    process.terminate()
    process.wait(120)


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
