"""Requests and answers of one sandbox and its forks, and the calls of its cells."""

from __future__ import annotations

import inspect
import json
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from ._cellar import EngineError
from .errors import SandboxError
from .functions import Function
from .tools import Tool, plain

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

    from ._cellar import Connection, Files, Mailbox, Server, Sessions
    from .remote import RemoteFiles, RemoteSessions

Json = Any

_loads = json.JSONDecoder().decode
# What tools and functions return: no NaN, which is no JSON.
_returned = json.JSONEncoder(separators=(",", ":"), default=plain, allow_nan=False).encode
_dumps = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False).encode


def refused(error: EngineError) -> SandboxError:
    """The exception of this package for one of the engine."""
    code, message, hint = error.args
    return SandboxError(message, code, hint)


class Link:
    """A connection, and what answers the calls of its cells."""

    def __init__(
        self,
        connect: Callable[[Callable[[bytes], object], Callable[[str, str, str], bytes | str | None]], Connection],
        tools: Mapping[str, Tool],
        loop: asyncio.AbstractEventLoop | None = None,
        input: Callable[[str], Any] | None = None,  # noqa: A002 - the name that cells have for it
        functions: Mapping[str, Function] | None = None,
    ) -> None:
        self.tools = tools
        self.functions: Mapping[str, Function] = functions or {}
        self.loop = loop
        self.input = input
        self.users = 1
        self._ids = count(1)
        # The server's names of sessions, by those that they have here.
        self._names: dict[str, str] = {}
        # Calls under way: those of coroutines with what cancels them. Lines are handled on several threads, in any order.
        self._calls: dict[str, Future[None] | None] = {}
        self._cancelled: set[str] = set()
        self._lock = threading.Lock()
        # The engine must not keep what holds the connection.
        answer = weakref.WeakMethod(self._handle)

        def handler(line: bytes) -> None:
            found = answer()
            if found is not None:
                found(line)

        answer_tool = weakref.WeakMethod(self._tool)

        def tool(call: str, name: str, arguments: str) -> bytes | str | None:
            found = answer_tool()
            return "the sandbox has gone" if found is None else found(call, name, arguments)

        try:
            self.connection = connect(handler, tool)
        except EngineError as error:
            raise refused(error) from None
        self.is_local: bool = self.connection.server is None

    def note_opened(self, answer: dict[str, Json]) -> None:
        """Takes in the answer that a session is open."""
        session: str = answer["session"]
        self._names[session] = answer.get("name") or session

    def files(self) -> Files | RemoteFiles:
        """Files of its sessions."""
        if (files := self.connection.files) is not None:
            return files
        from .remote import RemoteFiles

        return RemoteFiles(self._server(), self._names)

    def sessions(self) -> Sessions | RemoteSessions:
        """State of its sessions."""
        if (sessions := self.connection.sessions) is not None:
            return sessions
        from .remote import RemoteSessions

        return RemoteSessions(self._server(), self._names)

    def _server(self) -> Server:
        server = self.connection.server
        if server is None:
            raise SandboxError("the sandbox is closed", "closed")
        return server

    def request(self, kind: str, events: bool = False, **members: Json) -> tuple[str, Mailbox]:
        """Sends a request, and returns its id and the mailbox of its answers."""
        name = str(next(self._ids))
        members["type"], members["id"] = kind, name
        try:
            return name, self.connection.request(name, _dumps(members).encode("utf-8", "surrogatepass"), events)
        except EngineError as error:
            raise refused(error) from None

    def run(self, members: dict[str, Json]) -> dict[str, Json]:
        """Sends a request for a run, and waits for its result. Ctrl-C stops the run."""
        if not self.is_local:
            name, mailbox = self.request("run", **members)
            try:
                return answer_of(mailbox.take())
            except KeyboardInterrupt:
                self.cancel(name)
                raise
        members["type"], members["id"] = "run", str(next(self._ids))
        try:
            return answer_of(self.connection.run(_dumps(members).encode("utf-8", "surrogatepass")))
        except EngineError as error:
            raise refused(error) from None

    def tell(self, **members: Json) -> None:
        """Sends a request that nobody waits for the answer of. One that has been closed hears nothing."""
        try:
            self.connection.send(_dumps(members).encode("utf-8", "surrogatepass"))
        except EngineError:
            pass

    def cancel(self, run: str) -> None:
        """Stops a run."""
        self.tell(type="cancel", id=run)

    def release(self) -> None:
        """Gives up one use of the connection, which ends with the last."""
        self.users -= 1
        if self.users <= 0:
            self.connection.close()

    def _handle(self, line: bytes) -> None:
        message = json.loads(line)
        kind = message["type"]
        if kind == "call":
            self._call(message)
        elif kind == "call_cancelled":
            call = message["call"]
            with self._lock:
                if call not in self._calls:
                    self._cancelled.add(call)
                    return
                pending = self._calls.pop(call)
            if pending is not None:
                pending.cancel()

    def _call(self, message: dict[str, Json]) -> None:
        call: str = message["call"]
        if "bridge" in message:
            tool: Tool | Function | None = self.functions.get(message["bridge"])
        else:
            tool = self.tools.get(message["tool"])
        with self._lock:
            if call in self._cancelled:
                self._cancelled.discard(call)
                return
            self._calls[call] = None
        if tool is None:
            self._reply(call, error="there is no such function")
            return
        try:
            if tool.is_async:
                self._later(call, tool.call(message["arguments"]), self.loop or background_loop())
            else:
                self._reply(call, result=tool.call(message["arguments"]))
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is the cell's to see
            self._reply(call, error=said(error))

    def _tool(self, call: str, name: str, arguments: str) -> bytes | str | None:
        """Answers a call of a tool, or begins to."""
        tool = self.tools[name]
        try:
            if tool.is_async:
                with self._lock:
                    self._calls[call] = None
                self._later(call, tool.call(_loads(arguments)), self.loop or background_loop())
                return None
            result = tool.call(_loads(arguments))
        except Exception as error:  # noqa: BLE001 - whatever a tool raises is the cell's to see
            return said(error)
        try:
            return _returned(result).encode()
        except (TypeError, ValueError) as wrong:
            return f"its result is no JSON: {wrong}"

    def _later(self, call: str, awaitable: Awaitable[Any], loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        async def answer() -> None:
            try:
                result = await awaitable
            except Exception as error:  # noqa: BLE001
                self._reply(call, error=said(error))
            else:
                self._reply(call, result=result)

        with self._lock:
            if call in self._calls:
                self._calls[call] = asyncio.run_coroutine_threadsafe(answer(), loop)
            elif inspect.iscoroutine(awaitable):
                awaitable.close()

    def _reply(self, call: str, *, result: Any = None, error: str | None = None) -> None:
        with self._lock:
            if self._calls.pop(call, self) is self:
                # Nobody waits for it any more.
                return
        text = "null"
        if error is None:
            try:
                text = _returned(result)
            except (TypeError, ValueError) as wrong:
                error = f"its result is no JSON: {wrong}"
        try:
            if call.startswith("own-"):
                self.connection.answer(call, text.encode("utf-8", "surrogatepass"), error)
                return
            given = f'"error":{_dumps(error)}' if error is not None else f'"result":{text}'
            line = f'{{"type":"reply","call":{_dumps(call)},{given}}}'
            self.connection.send(line.encode("utf-8", "surrogatepass"))
        except EngineError:
            pass


def said(error: BaseException) -> str:
    """Text of an exception, as a cell is told of it."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def answer_of(line: bytes | None) -> dict[str, Json]:
    """Reads an answer.

    Raises `SandboxError` for a refusal, and when the connection has ended.
    """
    if line is None:
        raise SandboxError("the connection has ended", "closed")
    answer: dict[str, Json] = json.loads(line)
    if answer["type"] == "error":
        error = answer["error"]
        raise SandboxError(error["message"], error["code"], error.get("hint"))
    return answer


_loops: dict[int, asyncio.AbstractEventLoop] = {}
_starting = threading.Lock()


def background_loop() -> asyncio.AbstractEventLoop:
    """The event loop of asynchronous tools in programs that have none."""
    import asyncio

    with _starting:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="cellar-tools", daemon=True).start()
        return loop


def _renewed() -> None:
    global _starting
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_renewed)
