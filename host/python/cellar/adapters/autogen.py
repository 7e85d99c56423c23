"""AutoGen: an executor of code blocks.

    agent = CodeExecutorAgent("coder", code_executor=CellarCodeExecutor(), model_client=model)
"""

from __future__ import annotations

import asyncio

from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from typing_extensions import Unpack

from ..aio import AsyncSandbox
from ..cells import Options
from ._parts import command, ended

_LANGUAGES = {"": "py", "python": "py", "py": "py", "javascript": "js", "js": "js", "typescript": "js", "ts": "js"}


class CellarCodeExecutor(CodeExecutor):
    """Runs code blocks of Python, JavaScript and the shell in a sandbox with these options, whose names stay from block to block."""

    def __init__(self, **options: Unpack[Options]) -> None:
        self._options = options
        self.sandbox = AsyncSandbox(**options)

    async def start(self) -> None:
        """Does nothing: the sandbox is opened when it is first used."""

    async def stop(self) -> None:
        await self.sandbox.close()

    async def restart(self) -> None:
        await self.sandbox.close()
        self.sandbox = AsyncSandbox(**self._options)

    async def execute_code_blocks(self, code_blocks: list[CodeBlock], cancellation_token: CancellationToken) -> CodeResult:
        output = ""
        for block in code_blocks:
            work = asyncio.ensure_future(self._run(block.language.lower(), block.code))
            cancellation_token.link_future(work)
            said, code = await work
            output += said
            if code != 0:
                return CodeResult(exit_code=code, output=output)
        return CodeResult(exit_code=0, output=output)

    async def _run(self, language: str, code: str) -> tuple[str, int]:
        if language in ("sh", "bash", "shell"):
            output, errors, status = ended(await self.sandbox.run(command(code), language="py"))
            return output + errors, status
        result = await self.sandbox.run(code, language=_LANGUAGES.get(language, language))
        return f"{result.text}\n" if result.text else "", int(result.is_error)
