"""Sandboxes for programs with an event loop."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .cells import (
    Cells, Options, Snapshot, State, language_code, path_of_snapshot, settings_of, state_named, states_of,
)
from .errors import SandboxError
from .events import Event, InputRequest
from .frames import binding, feather_of, frame_of, giving_out, is_frame, new_path, shown, taking_in
from .results import Result
from .sandbox import Entry, RunUnderWay, Sandbox, Variable, _check_name, _run_members, opened_link

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Unpack

    from ._cellar import Mailbox
    from .link import Link

__all__ = ["AsyncRun", "AsyncSandbox"]

Json = Any
T = TypeVar("T")


async def _answer(mailbox: Mailbox) -> dict[str, Json]:
    """Waits for the next answer without a thread of this program."""
    import asyncio

    from .link import answer_of

    loop = asyncio.get_running_loop()
    waiting: asyncio.Future[bytes | None] = loop.create_future()

    def set_it(line: bytes | None) -> None:
        if not waiting.done():
            waiting.set_result(line)

    mailbox.take_soon(lambda line: loop.call_soon_threadsafe(set_it, line))
    return answer_of(await waiting)


class AsyncSandbox:
    """A `Sandbox` whose methods are awaited. It is opened by `async with`, or when it is first used.

    A run that is cancelled, as by `asyncio.timeout`, stops its cell and keeps what that has made. Tools that are coroutine functions
    run on the event loop, and others on threads.

    >>> import asyncio
    >>> from cellar import AsyncSandbox
    >>> async def main():
    ...     async with AsyncSandbox() as s:
    ...         return (await s.run("6 * 7")).text
    >>> asyncio.run(main())
    '42'
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        self._settings = settings_of(options)
        self.language: str = self._settings.language
        self.name: str = self._settings.opening["session"]
        self._server: tuple[str, str] | None = None
        self._link: Link | None = None
        self._is_closed = False
        self._opened: Any = None

    @classmethod
    def connect(cls, url: str, token: str, **options: Unpack[Options]) -> AsyncSandbox:
        """A sandbox on a server: see `Sandbox.connect`."""
        made = cls(**options)
        made._server = (url, token)
        return made

    async def open(self) -> AsyncSandbox:
        """Opens it. Whoever comes meanwhile waits."""
        import asyncio

        if self._is_closed:
            raise SandboxError("the sandbox is closed", "closed")
        if self._opened is None:
            self._opened = asyncio.ensure_future(self._begin())
        await asyncio.shield(self._opened)
        return self

    async def _begin(self) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        made = await asyncio.to_thread(opened_link, self._settings, self._server, loop)
        try:
            _, mailbox = made.request("open", **self._settings.opening)
            made.note_opened(await _answer(mailbox))
        except BaseException:
            made.release()
            raise
        self._link = made

    async def _ready(self) -> Link:
        if self._link is None:
            await self.open()
        assert self._link is not None
        return self._link

    async def _ask(self, kind: str, **members: Json) -> dict[str, Json]:
        link = await self._ready()
        _, mailbox = link.request(kind, **members)
        return await _answer(mailbox)

    async def run(
        self, cells: Cells, *, language: str | None = None, timeout: int | None = None, keep_going: bool = False,
        producer: str | None = None,
    ) -> Result:
        """Runs cells: see `Sandbox.run`."""
        import asyncio

        link = await self._ready()
        if link.input is not None:
            run = await self.stream(cells, language=language, timeout=timeout, keep_going=keep_going, producer=producer)
            return await run.result()
        members = _run_members(self.name, cells, language or self.language, timeout, keep_going, producer)
        name, mailbox = link.request("run", **members)
        try:
            return Result((await _answer(mailbox))["result"])
        except asyncio.CancelledError:
            link.cancel(name)
            raise

    async def stream(
        self, cells: Cells, *, language: str | None = None, timeout: int | None = None, keep_going: bool = False,
        producer: str | None = None,
    ) -> AsyncRun:
        """Runs cells, and gives their events: `async for event in await s.stream(...)`."""
        link = await self._ready()
        members = _run_members(self.name, cells, language or self.language, timeout, keep_going, producer)
        return AsyncRun(link, self.name, members)

    async def get(self, name: str, *, frame: str | None = None) -> Any:
        """The value of a name: see `Sandbox.get`."""
        import asyncio

        _check_name(name)
        path = new_path()
        found = shown(name, (await self.run(giving_out(name, path), language="py")).check().json)
        if "file" not in found:
            return found["value"]
        data = await self.files.read(path)
        await self.files.remove(path)
        return await asyncio.to_thread(frame_of, data, found["file"], frame)

    async def set(self, name: str, value: Any) -> None:
        """Binds a name: see `Sandbox.__setitem__`."""
        import asyncio

        _check_name(name)
        if is_frame(value):
            path = new_path()
            await self.files.write(path, await asyncio.to_thread(feather_of, value))
            (await self.run(taking_in(name, path), language="py")).check()
        else:
            (await self.run(binding(name, value), language="py")).check()

    @property
    def files(self) -> AsyncFolder:
        """Its files."""
        return AsyncFolder(self)

    async def variables(self, language: str | None = None) -> list[Variable]:
        """Its names."""
        return await self._on_a_thread(lambda same: same.variables(language))

    async def stubs(self, language: str | None = None, *, all: bool = False) -> str:  # noqa: A002 - the word of the protocol
        """Text that tells a model what cells may call: see `Sandbox.stubs`."""
        asked = language_code(language or self.language)
        answer = await self._ask("stubs", session=self.name, language=asked, all=all)
        text: str = answer["text"]
        return text

    async def complete(self, code: str, cursor: int | None = None, *, language: str | None = None) -> list[str]:
        """Completions of a text at a cursor."""
        return await self._on_a_thread(lambda same: same.complete(code, cursor, language=language))

    async def hibernate(self) -> None:
        """Gives its memory back until it is used again."""
        await self._on_a_thread(lambda same: same.hibernate())

    async def _on_a_thread(self, ask: Callable[[Sandbox], T]) -> T:
        import asyncio

        same = object.__new__(Sandbox)
        same.language, same.name, same._link = self.language, self.name, await self._ready()
        return await asyncio.to_thread(ask, same)

    async def reset(self, language: str | None = None) -> None:
        """Gives a language, or all, a fresh interpreter."""
        members = {} if language is None else {"language": language_code(language)}
        await self._ask("reset", session=self.name, **members)

    async def fork(self, name: str | None = None) -> AsyncSandbox:
        """A sandbox that begins with the state of this one: see `Sandbox.fork`."""
        return await self._forked(name)

    async def _forked(self, name: str | None, **members: Json) -> AsyncSandbox:
        if name is not None:
            members["new"] = name
        opened = await self._ask("fork", session=self.name, **members)
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.name = opened["session"]
        assert self._link is not None
        self._link.note_opened(opened)
        self._link.users += 1
        return made

    async def snapshot(self, path: str | os.PathLike[str] | None = None) -> Snapshot:
        """Writes its state into a file: see `Sandbox.snapshot`."""
        link = await self._ready()
        if path is None and not link.is_local:
            path = f"{self.name}-{os.urandom(4).hex()}"
        snapshot = Snapshot._temporary() if path is None else Snapshot(path)
        await self._ask("snapshot", session=self.name, file=snapshot.path)
        return snapshot

    async def rewind(self, snapshot: Snapshot | str | os.PathLike[str]) -> None:
        """Takes it back to a snapshot."""
        await self._ask("restore", session=self.name, file=path_of_snapshot(snapshot))

    async def states(self) -> list[State]:
        """The states that are kept: see `Sandbox.states`."""
        return states_of(await self._ask("states", session=self.name))

    async def back(self, state: State | int | str = "~1") -> None:
        """Takes it back to a state, with its files: see `Sandbox.back`."""
        await self._ask("back", session=self.name, state=state_named(state))

    async def branch(self, state: State | int | str, name: str | None = None) -> AsyncSandbox:
        """A sandbox that begins with a state of this one, and with the files of that instant."""
        return await self._forked(name, state=state_named(state))

    async def close(self) -> None:
        """Ends it and its runs."""
        self._is_closed = True
        link, self._link = self._link, None
        if link is None:
            return
        try:
            _, mailbox = link.request("close", session=self.name)
            await _answer(mailbox)
        finally:
            link.release()

    async def __aenter__(self) -> AsyncSandbox:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}{' (closed)' if self._is_closed else ''}>"


class AsyncFolder:
    """Files of a sandbox: see `Sandbox.files`."""

    __slots__ = ("_sandbox",)

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self._sandbox = sandbox

    async def read(self, path: str | os.PathLike[str]) -> bytes:
        """The bytes of a file."""
        return await self._sandbox._on_a_thread(lambda same: same.files.read(path))

    async def write(self, path: str | os.PathLike[str], content: bytes | str) -> None:
        """Writes a file, and makes the folders that it is in."""
        await self._sandbox._on_a_thread(lambda same: same.files.write(path, content))

    async def list(self, path: str | os.PathLike[str] = "/workspace") -> list[Entry]:
        """The entries of a folder, by name."""
        return await self._sandbox._on_a_thread(lambda same: same.files.list(path))

    async def remove(self, path: str | os.PathLike[str]) -> None:
        """Removes a file, or a folder that is empty."""
        await self._sandbox._on_a_thread(lambda same: same.files.remove(path))

    async def upload(self, folder: str | os.PathLike[str], path: str | os.PathLike[str] = "/workspace") -> None:
        """Copies a folder of the host with all in it."""
        await self._sandbox._on_a_thread(lambda same: same.files.upload(folder, path))

    async def download(self, folder: str | os.PathLike[str], path: str | os.PathLike[str] = "/workspace") -> None:
        """Copies a folder of the sandbox with all in it to the host."""
        await self._sandbox._on_a_thread(lambda same: same.files.download(folder, path))


class AsyncRun(RunUnderWay):
    """A run under way: an asynchronous iterator of its events."""

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        import asyncio
        import inspect

        if self._result is not None:
            raise StopAsyncIteration
        try:
            answer = await _answer(self._mailbox)
        except asyncio.CancelledError:
            self.cancel()
            raise
        event = self._next(answer)
        if event is None:
            raise StopAsyncIteration
        if isinstance(event, InputRequest) and self._link.input is not None:
            value = self._link.input(event.prompt)
            self.answer(event, await value if inspect.isawaitable(value) else value)
        return event

    async def result(self) -> Result:
        """Result of the run. Reads the events that are left."""
        async for _ in self:
            pass
        assert self._result is not None
        return self._result
