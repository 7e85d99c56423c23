"""Pydantic AI: tools that run code and reach the files of a sandbox.

    agent = Agent(model, toolsets=[CellarToolset(sandbox)])
"""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic_ai import FunctionToolset

from ..sandbox import Sandbox
from ._parts import about, said


class CellarToolset(FunctionToolset[Any]):
    """`run_python`, and `read_file` and `write_file` for what its code reads and writes."""

    def __init__(self, sandbox: Sandbox, id: str = "cellar") -> None:  # noqa: A002 - the word of the framework
        super().__init__(id=id, sequential=True)
        self.sandbox = sandbox
        self.add_function(self.run_python, description=about(sandbox))
        self.add_function(self.read_file)
        self.add_function(self.write_file)

    async def run_python(self, code: str) -> str:
        return said(await asyncio.to_thread(self.sandbox.run, code, language="py"))

    async def read_file(self, path: str) -> str:
        """Reads a text file of the sandbox; paths are below `/workspace`."""
        return (await asyncio.to_thread(self.sandbox.files.read, path)).decode(errors="replace")

    async def write_file(self, path: str, content: str) -> str:
        """Writes a text file of the sandbox; paths are below `/workspace`."""
        await asyncio.to_thread(self.sandbox.files.write, path, content)
        return f"{path} has {len(content)} characters"
