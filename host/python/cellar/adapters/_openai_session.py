"""A session of the sandboxes of OpenAI's Agents SDK: see `openai_sandbox`."""

import io
import shlex
from pathlib import Path
from typing import Any, Literal

from agents.sandbox.session import SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.types import ExecResult

from ..aio import AsyncSandbox
from ._parts import command, ended

_TAR = "/tmp/workspace.tar"
_PACK = f"with __import__('tarfile').open('{_TAR}', 'w') as tar: tar.add('/workspace', '.')"
_UNPACK = f"with __import__('tarfile').open('{_TAR}') as tar: tar.extractall('/workspace', filter='data')"


class CellarSessionState(SandboxSessionState):
    type: Literal["cellar"] = "cellar"


class CellarSession(BaseSandboxSession):
    """Commands and files of one sandbox."""

    def __init__(self, state: CellarSessionState, sandbox: AsyncSandbox) -> None:
        self.state, self.sandbox = state, sandbox

    async def _exec_internal(self, *argv: str | Path, timeout: float | None = None) -> ExecResult:
        words = [str(word) for word in argv]
        text = words[2] if len(words) == 3 and words[:2] in (["sh", "-lc"], ["sh", "-c"]) else shlex.join(words)
        seconds = None if timeout is None else max(1, round(timeout))
        output, errors, code = ended(await self.sandbox.run(command(text), language="py", timeout=seconds))
        return ExecResult(stdout=output.encode(), stderr=errors.encode(), exit_code=code)

    async def read(self, path: Path, *, user: Any = None) -> io.IOBase:
        return io.BytesIO(await self.sandbox.files.read(str(path)))

    async def write(self, path: Path, data: io.IOBase, *, user: Any = None) -> None:
        await self.sandbox.files.write(str(path), data.read())

    async def running(self) -> bool:
        return True

    async def persist_workspace(self) -> io.IOBase:
        (await self.sandbox.run(_PACK)).check()
        return await self.read(Path(_TAR))

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        await self.write(Path(_TAR), data)
        (await self.sandbox.run(_UNPACK)).check()
