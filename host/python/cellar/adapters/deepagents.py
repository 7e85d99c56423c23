"""LangChain Deep Agents: a backend whose files and commands are those of a sandbox.

    agent = create_deep_agent(model=model, backend=CellarBackend(sandbox))
"""

from __future__ import annotations

from deepagents.backends.protocol import ExecuteResponse, FileDownloadResponse, FileUploadResponse
from deepagents.backends.sandbox import BaseSandbox

from ..errors import SandboxError
from ..sandbox import Sandbox
from ._parts import command as shell_command
from ._parts import ended


class CellarBackend(BaseSandbox):
    """A sandbox as the files and the shell of an agent. Its folder is `/workspace`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox

    @property
    def id(self) -> str:
        return self.sandbox.name

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        output, errors, code = ended(self.sandbox.run(shell_command(command), language="py", timeout=timeout or None))
        return ExecuteResponse(output=output + errors, exit_code=code)

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path=path, error=self._write(path, content)) for path, content in files]

    def _write(self, path: str, content: bytes) -> str | None:
        try:
            self.sandbox.files.write(path, content)
        except (OSError, SandboxError) as error:
            return _word(error)
        return None

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [self._read(path) for path in paths]

    def _read(self, path: str) -> FileDownloadResponse:
        try:
            return FileDownloadResponse(path=path, content=self.sandbox.files.read(path))
        except (OSError, SandboxError) as error:
            return FileDownloadResponse(path=path, error=_word(error))


def _word(error: Exception) -> str:
    words = {FileNotFoundError: "file_not_found", IsADirectoryError: "is_directory", PermissionError: "permission_denied"}
    return words.get(type(error), str(error))
