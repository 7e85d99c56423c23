"""Cellar: runs the Python and JavaScript that agents write, in WebAssembly sandboxes inside this process.

>>> from cellar import Sandbox
>>> def add(a: int, b: int) -> int:
...     '''Adds two numbers.'''
...     return a + b
>>> with Sandbox(tools=[add]) as s:
...     s.run("tool.add(a=40, b=2)").text
'42'
"""

from __future__ import annotations

from . import events
from .aio import AsyncRun, AsyncSandbox
from .cells import Cell, Options, Snapshot, State
from .engine import configure
from .errors import CellFailed, SandboxError
from .functions import HttpRequest, HttpResponse
from .results import CellError, CellResult, Image, Result, Usage
from .sandbox import Entry, Run, Sandbox, SandboxFunction, Variable, replay
from .tools import Tool

__all__ = [
    "AsyncRun", "AsyncSandbox", "Cell", "CellError", "CellFailed", "CellResult", "Entry", "HttpRequest", "HttpResponse", "Image", "Options", "Result", "Run",
    "Sandbox", "SandboxError", "SandboxFunction", "Snapshot", "State", "Tool", "Usage", "Variable", "configure", "events", "replay",
]
