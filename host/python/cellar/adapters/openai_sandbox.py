"""OpenAI Agents SDK: the client of sandboxes for its `SandboxAgent`.

    RunConfig(sandbox=SandboxRunConfig(client=CellarSandboxClient()))
"""

import uuid
from typing import Any

from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSessionState
from agents.sandbox.session.sandbox_client import BaseSandboxClient
from agents.sandbox.session.sandbox_session import SandboxSession
from agents.sandbox.snapshot import resolve_snapshot

from ..aio import AsyncSandbox
from ._openai_session import CellarSession, CellarSessionState


class CellarSandboxClient(BaseSandboxClient[None]):
    """Opens a sandbox with these options for each session."""

    backend_id = "cellar"
    supports_default_options = True

    def __init__(self, **options: Any) -> None:
        self._options = options

    async def create(self, *, snapshot: Any = None, manifest: Manifest | None = None, options: None = None) -> SandboxSession:
        number = uuid.uuid4()
        state = CellarSessionState(session_id=number, manifest=manifest or Manifest(), snapshot=resolve_snapshot(snapshot, str(number)))
        return await self.resume(state)

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        return self._wrap_session(CellarSession(CellarSessionState.model_validate(state), AsyncSandbox(**self._options)))

    async def delete(self, session: SandboxSession) -> SandboxSession:
        await session._inner.sandbox.close()
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return CellarSessionState.model_validate(payload)
