"""Files and names of sandboxes that a server has, by its operations of `/v1`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .errors import SandboxError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ._cellar import Server

Json = Any

_WORKSPACE = "/workspace"
_BYTES = "application/octet-stream"
# Statuses of refusals, where the same in this process raises an exception of Python.
_OF_FILES: dict[int, type[OSError]] = {403: PermissionError, 404: FileNotFoundError, 409: OSError, 413: OSError, 507: OSError}


class _Operations:
    """Operations of the sessions of one connection."""

    __slots__ = ("_names", "_server")

    def __init__(self, server: Server, names: Mapping[str, str]) -> None:
        self._server = server
        self._names = names

    def _call(
        self, method: str, session: str, path: str, body: bytes | None = None, kind: str | None = None
    ) -> tuple[int, str, bytes]:
        name = quote(self._names.get(session, session), safe="")
        return self._server.call(method, f"/v1/sessions/{name}/{path}", body, kind)

    def _json(self, method: str, session: str, path: str, body: Json = None) -> Json:
        sent = None if body is None else json.dumps(body).encode()
        status, _, answer = self._call(method, session, path, sent, "application/json")
        if status >= 400:
            raise _refusal(status, answer)
        return json.loads(answer) if answer else None


class RemoteFiles(_Operations):
    """Files of sessions on a server: those of their workspaces."""

    __slots__ = ()

    def read(self, session: str, path: str) -> bytes:
        """The bytes of a file."""
        kind, content = self._file("GET", session, path)
        if kind != _BYTES:
            raise IsADirectoryError(f"is a directory: `{path}`")
        return content

    def write(self, session: str, path: str, bytes: bytes) -> None:  # noqa: A002 - as the one in this process
        """Writes a file, and makes the folders that it is in."""
        self._file("PUT", session, path, bytes)

    def list(self, session: str, path: str) -> list[tuple[str, str, int | None, int | None]]:
        """The entries of a folder."""
        kind, content = self._file("GET", session, path)
        if kind == _BYTES:
            raise NotADirectoryError(f"not a directory: `{path}`")
        entries = json.loads(content)["entries"]
        return [(one["name"], one["kind"], one["size"], one["modifiedAt"]) for one in entries]

    def remove(self, session: str, path: str) -> None:
        """Removes a file, or a folder that is empty."""
        self._file("DELETE", session, path)

    def _file(self, method: str, session: str, path: str, body: bytes | None = None) -> tuple[str, bytes]:
        if path != _WORKSPACE and not path.startswith(f"{_WORKSPACE}/"):
            raise SandboxError(f"a server has files of {_WORKSPACE} alone, not `{path}`", "unsupported")
        below = quote(path[len(_WORKSPACE) :].strip("/"))
        kind = None if body is None else _BYTES
        status, kind, content = self._call(method, session, f"files/{below}", body, kind)
        if status < 400:
            return kind, content
        refused = _refusal(status, content)
        raised = None if refused.code not in ("file", "unknown") else _OF_FILES.get(status)
        raise refused if raised is None else raised(f"{refused}: `{path}`")


class RemoteSessions(_Operations):
    """State of sessions on a server."""

    __slots__ = ()

    def variables(self, session: str, language: str) -> list[tuple[str, str, int | None, str]]:
        """The names of a session: each with its type, its size and a preview."""
        found = self._json("GET", session, f"variables?language={language}")["variables"]
        return [(one["name"], one["type"], one["size"], one["preview"]) for one in found]

    def complete(self, session: str, language: str, code: str, cursor: int) -> list[str]:
        """Completions at a cursor."""
        found = self._json("POST", session, "complete", {"language": language, "code": code, "cursor": cursor})
        return [one["text"] for one in found["items"]]

    def hibernate(self, session: str) -> None:
        """Gives the memory of a session back until it is used again."""
        self._json("POST", session, "hibernate")

    def end_recording(self, session: str) -> None:
        """Refuses: there are none."""
        raise unsupported("recordings")


def unsupported(what: str) -> SandboxError:
    """The exception for what a server has no operation for."""
    return SandboxError(f"a server has no operation for {what}", "unsupported")


def _refusal(status: int, answer: bytes) -> SandboxError:
    try:
        problem = json.loads(answer)
        return SandboxError(problem["detail"], problem["code"], problem.get("hint"))
    except (ValueError, KeyError, TypeError):
        return SandboxError(f"the server answered {status}", "connect")
