"""Sandboxes of the tests: in this process, and on a server."""

import os
import re
import shutil
import subprocess
from contextlib import contextmanager

import pytest

from cellar import Sandbox
from cellar.engine import command


@contextmanager
def served(folder, *options):
    """A server of the command that came with the package: its address and a token."""
    arguments = [command() or shutil.which("cellar")]
    if "CELLAR_GUESTS" in os.environ:
        arguments += ["--guests", os.environ["CELLAR_GUESTS"]]
    arguments += ["--store", str(folder), "serve", "--listen", "127.0.0.1:0", *options]
    # Nobody reads what it says later.
    quiet = os.environ | {"CELLAR_LOG": "error"}
    piped = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(arguments, env=quiet, **piped) as process:
        try:
            said, url, token = "", None, None
            for line in process.stdout:
                said += line
                url = url or next(iter(re.findall(r"http://127\.0\.0\.1:\d+", line)), None)
                token = token or next(iter(re.findall(r"cel_\w+", line)), None)
                if url and token:
                    break
            assert url and token, said
            yield url, token
        finally:
            process.terminate()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with served(tmp_path_factory.mktemp("server")) as at:
        yield at


@pytest.fixture(params=["here", "server"])
def opened(request):
    """Opens sandboxes, in both places one after the other."""
    if request.param == "here":
        return Sandbox
    at = request.getfixturevalue("server")
    return lambda **options: Sandbox.connect(*at, **options)
