"""OpenAI Agents SDK: a tool that runs code, with names and files that stay from call to call.

    agent = Agent(name="analyst", tools=[code_interpreter(sandbox)])
"""

from __future__ import annotations

import asyncio

from agents import FunctionTool, function_tool

from ..sandbox import Sandbox
from ._parts import about, said


def code_interpreter(sandbox: Sandbox, language: str = "py", name: str | None = None) -> FunctionTool:
    """A tool that runs a language in a sandbox. Its description has the signatures of the functions that cells may call."""

    async def run(code: str) -> str:
        return said(await asyncio.to_thread(sandbox.run, code, language=language))

    title = name or {"py": "run_python", "js": "run_javascript"}[language]
    return function_tool(run, name_override=title, description_override=about(sandbox, language))
