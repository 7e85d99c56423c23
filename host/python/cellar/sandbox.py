"""Sandboxes for programs without an event loop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from .cells import (
    Cells, Options, Settings, Snapshot, State, call_of, cells_of, language_code, path_of, path_of_snapshot,
    settings_of, source_of, state_named, states_of,
)
from .errors import SandboxError
from .events import Event, InputRequest, event_of
from .frames import binding, feather_of, frame_of, giving_out, is_frame, new_path, shown, taking_in
from .results import Result

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from types import TracebackType

    from typing_extensions import Unpack

    from ._cellar import Connection, Files, Sessions
    from .link import Link
    from .remote import RemoteFiles, RemoteSessions

__all__ = ["Entry", "Folder", "Run", "Sandbox", "SandboxFunction", "Variable", "replay"]

Json = Any
T = TypeVar("T")


class Variable(NamedTuple):
    """A name of a sandbox, and what it has."""

    name: str
    type: str
    size: int | None
    preview: str


class Entry(NamedTuple):
    """An entry of a folder."""

    name: str
    kind: str
    """`file`, `folder`, `link` or `other`."""
    size: int | None
    modified_at: int | None
    """Seconds since the Unix epoch."""


def opened_link(settings: Settings, server: tuple[str, str] | None, loop: AbstractEventLoop | None = None) -> Link:
    """A connection to the engine of this process, or to a server."""
    from .engine import engine
    from .link import Link, refused
    from .remote import unsupported
    from ._cellar import EngineError

    try:
        found = engine()
    except EngineError as error:
        raise refused(error) from None

    def connect(
        handler: Callable[[bytes], object], tools: Callable[[str, str, str], bytes | str | None]
    ) -> Connection:
        if server is not None:
            if settings.functions:
                raise SandboxError(f"a server answers `{'`, `'.join(settings.functions)}` itself", "usage")
            for what, given in (("recordings", settings.record), ("stores", settings.store), ("a `cellar.toml`", settings.config)):
                if given is not None:
                    raise unsupported(what)
            return found.connect(handler, *server)
        return found.open((handler, tools), settings.store, settings.record, settings.config, list(settings.functions))

    return Link(connect, settings.tools, loop, settings.input, settings.functions)


class Sandbox:
    """A sandbox whose names and files live on from cell to cell.

    >>> from cellar import Sandbox
    >>> with Sandbox() as s:
    ...     s.run("x = 6 * 7; x").text
    ...     s.run("1/0").error.name
    ...     s.run("[1, 2].map((n) => n * 2)", language="js").json
    '42'
    'ZeroDivisionError'
    [2, 4]

    `Options` says what it may be granted: without any, an empty private folder.
    """

    language: str
    name: str

    def __init__(self, **options: Unpack[Options]) -> None:
        self._begin(None, options)

    @classmethod
    def connect(cls, url: str, token: str, **options: Unpack[Options]) -> Sandbox:
        """Opens a sandbox on a server, with the same methods. Of the options it has those that the server allows.

        It ends with this object.
        """
        made = cls.__new__(cls)
        made._begin((url, token), options)
        return made

    def _begin(self, server: tuple[str, str] | None, options: Options) -> None:
        settings = settings_of(options)
        self.language, self.name = settings.language, settings.opening["session"]
        self._link: Link | None = opened_link(settings, server)
        try:
            self._link.note_opened(self._ask("open", **settings.opening))
        except BaseException:
            self._link.release()
            self._link = None
            raise

    def _open(self) -> Link:
        if self._link is None:
            raise SandboxError("the sandbox is closed", "closed")
        return self._link

    def _ask(self, kind: str, **members: Json) -> dict[str, Json]:
        from .link import answer_of

        _, mailbox = self._open().request(kind, **members)
        return answer_of(mailbox.take())

    def run(
        self, cells: Cells, *, language: str | None = None, timeout: int | None = None, keep_going: bool = False,
        producer: str | None = None,
    ) -> Result:
        """Runs cells, and returns what they come to. A cell that raises is no exception here: see `Result.check`.

        `timeout` is in seconds, 30 unless given. `keep_going` runs the cells after one that fails too. Ctrl-C stops the cell and
        keeps what it has made.

        >>> from cellar import Sandbox
        >>> with Sandbox() as s:
        ...     s.run(["n = 20", "n + 1"]).cells[1].text
        '21'
        """
        link = self._open()
        if link.input is not None:
            run = self.stream(cells, language=language, timeout=timeout, keep_going=keep_going, producer=producer)
            for _ in run:
                pass
            return run.result
        members = _run_members(self.name, cells, language or self.language, timeout, keep_going, producer)
        return Result(link.run(members)["result"])

    def stream(
        self, cells: Cells, *, language: str | None = None, timeout: int | None = None, keep_going: bool = False,
        producer: str | None = None,
    ) -> Run:
        """Runs cells, and gives their events as they happen. What is not read holds up the cells.

        >>> from cellar import Sandbox, events
        >>> with Sandbox() as s:
        ...     for event in s.stream("for n in range(2): print(n)"):
        ...         if isinstance(event, events.Stdout):
        ...             print(event.text.split())
        ['0', '1']
        """
        members = _run_members(self.name, cells, language or self.language, timeout, keep_going, producer)
        return Run(self._open(), self.name, members)

    def cell(self, function: Callable[..., T]) -> SandboxFunction[T]:
        """Makes a function run in this sandbox: its source goes there once, its arguments and its result as JSON.

        >>> from cellar import Sandbox
        >>> s = Sandbox()
        >>> @s.cell
        ... def double(n: int) -> int:
        ...     return n * 2
        >>> double(21)
        42
        >>> s.close()
        """
        return SandboxFunction(self, function)

    def __getitem__(self, name: str) -> Any:
        """The value of a name: a frame of pandas or polars for a table, and otherwise what JSON has for it."""
        return self.get(name)

    def get(self, name: str, *, frame: str | None = None) -> Any:
        """The same; `frame` says what a table becomes: `pandas`, `polars` or `pyarrow`.

        >>> from cellar import Sandbox
        >>> with Sandbox() as s:
        ...     s["x"] = {"n": [1, 2]}
        ...     s["x"]
        {'n': [1, 2]}
        """
        _check_name(name)
        path = new_path()
        found = shown(name, self.run(giving_out(name, path), language="py").check().json)
        if "file" not in found:
            return found["value"]
        data = self._files().read(self.name, path)
        self._files().remove(self.name, path)
        return frame_of(data, found["file"], frame)

    def __setitem__(self, name: str, value: Any) -> None:
        """Binds a name: tables, by the Arrow C data interface, become DataFrames, and all else crosses as JSON."""
        _check_name(name)
        if is_frame(value):
            path = new_path()
            self._files().write(self.name, path, feather_of(value))
            self.run(taking_in(name, path), language="py").check()
        else:
            self.run(binding(name, value), language="py").check()

    def _files(self) -> Files | RemoteFiles:
        return self._open().files()

    def _sessions(self) -> Sessions | RemoteSessions:
        return self._open().sessions()

    @property
    def files(self) -> Folder:
        """Its files."""
        return Folder(self)

    def variables(self, language: str | None = None) -> list[Variable]:
        """Its names, each with a preview of what it has."""
        found = _engine(lambda: self._sessions().variables(self.name, language_code(language or self.language)))
        return [Variable(*one) for one in found]

    def complete(self, code: str, cursor: int | None = None, *, language: str | None = None) -> list[str]:
        """Completions of a text at a cursor, which is at its end unless given."""
        at = len(code) if cursor is None else cursor
        return _engine(lambda: self._sessions().complete(self.name, language_code(language or self.language), code, at))

    def stubs(self, language: str | None = None, *, all: bool = False) -> str:  # noqa: A002 - the word of the protocol
        """Text that tells a model what cells may call: a `.pyi` or a `.d.ts` of tools, packs and connectors.

        From 20 functions on it says how cells search for them instead, unless `all` are wanted.

        >>> from cellar import Sandbox
        >>> def add(a: int, b: int = 1) -> int:
        ...     '''Adds two numbers.'''
        ...     return a + b
        >>> with Sandbox(tools=[add]) as s:
        ...     print(s.stubs("js"))
        declare const tool: {
          /** Adds two numbers. */
          add(args: { a: number; b?: number }): Promise<any>;
        };
        <BLANKLINE>
        """
        asked = language_code(language or self.language)
        text: str = self._ask("stubs", session=self.name, language=asked, all=all)["text"]
        return text

    def reset(self, language: str | None = None) -> None:
        """Gives a language, or all, a fresh interpreter. Files stay."""
        members = {} if language is None else {"language": language_code(language)}
        self._ask("reset", session=self.name, **members)

    def fork(self, name: str | None = None) -> Sandbox:
        """A sandbox of its own that begins with the state of this one: names, open generators, files.

        >>> from cellar import Sandbox
        >>> with Sandbox() as s:
        ...     _ = s.run("squares = (n * n for n in range(9)); next(squares)")
        ...     with s.fork() as f:
        ...         f.run("next(squares), next(squares)").text
        ...     s.run("next(squares)").text
        '(1, 4)'
        '1'
        """
        return self._forked(name)

    def _forked(self, name: str | None, **members: Json) -> Sandbox:
        link = self._open()
        if name is not None:
            members["new"] = name
        opened = self._ask("fork", session=self.name, **members)
        link.note_opened(opened)
        made = object.__new__(type(self))
        made.language, made.name, made._link = self.language, opened["session"], link
        link.users += 1
        return made

    def snapshot(self, path: str | os.PathLike[str] | None = None) -> Snapshot:
        """Writes its state into a file: one of its own that goes with the snapshot, unless a path is given.

        >>> from cellar import Sandbox
        >>> with Sandbox() as s:
        ...     _ = s.run("x = 1")
        ...     state = s.snapshot()
        ...     _ = s.run("x = 2")
        ...     s.rewind(state)
        ...     s["x"]
        1
        """
        if path is None and not self._open().is_local:
            path = f"{self.name}-{os.urandom(4).hex()}"
        snapshot = Snapshot._temporary() if path is None else Snapshot(path)
        self._ask("snapshot", session=self.name, file=snapshot.path)
        return snapshot

    def rewind(self, snapshot: Snapshot | str | os.PathLike[str]) -> None:
        """Takes it back to a snapshot. Files stay as they are."""
        self._ask("restore", session=self.name, file=path_of_snapshot(snapshot))

    def states(self) -> list[State]:
        """The states that are kept, the oldest first: every end of a cell is one, with the files of that instant.

        >>> from cellar import Sandbox
        >>> with Sandbox(history=10) as s:
        ...     _ = s.run(["x = 1", "open('f', 'w').write('one')", "x = 2"])
        ...     [(state.state, state.parent) for state in s.states()]
        ...     s.back(2)
        ...     s["x"], s.run("open('f').read()").text
        [(1, None), (2, 1), (3, 2)]
        (1, "'one'")
        """
        return states_of(self._ask("states", session=self.name))

    def back(self, state: State | int | str = "~1") -> None:
        """Takes it back to a state, with its files: by number, by name, or one state back. Granted folders stay as they are."""
        self._ask("back", session=self.name, state=state_named(state))

    def branch(self, state: State | int | str, name: str | None = None) -> Sandbox:
        """A sandbox of its own that begins with a state of this one, and with the files of that instant."""
        return self._forked(name, state=state_named(state))

    def hibernate(self) -> None:
        """Gives its memory back until it is used again."""
        _engine(lambda: self._sessions().hibernate(self.name))

    def end_recording(self) -> None:
        """Ends the recording, which closing it does as well."""
        _engine(lambda: self._sessions().end_recording(self.name))

    def close(self) -> None:
        """Ends it and its runs. What is kept in a store is on the disk when this returns."""
        link, self._link = self._link, None
        if link is None:
            return
        from .link import answer_of

        try:
            _, mailbox = link.request("close", session=self.name)
            answer_of(mailbox.take())
        finally:
            link.release()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}{'' if self._link else ' (closed)'}>"


class RunUnderWay:
    """Base of runs, however one waits for their events."""

    def __init__(self, link: Link, session: str, members: dict[str, Json]) -> None:
        self._link = link
        self._session = session
        self._result: Result | None = None
        self._id, self._mailbox = link.request("run", events=True, **members)

    def _next(self, answer: dict[str, Any]) -> Event | None:
        """The event of an answer; none if it is the result, which is kept."""
        if answer["type"] == "result":
            self._result = Result(answer["result"])
            return None
        return event_of(answer["event"])

    def answer(self, request: InputRequest, value: str | None) -> None:
        """Answers a request for input; `None` is the end of the input."""
        self._link.tell(type="submit_input", session=self._session, request_id=request.request_id, value=value)

    def cancel(self) -> None:
        """Stops the run, which goes on to its proper end; what its cells have made stays."""
        self._link.cancel(self._id)


class Run(RunUnderWay):
    """A run under way: an iterator of its events. Afterwards `result` has what it came to."""

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        from .link import answer_of

        if self._result is not None:
            raise StopIteration
        try:
            answer = answer_of(self._mailbox.take())
        except KeyboardInterrupt:
            self.cancel()
            raise
        event = self._next(answer)
        if event is None:
            raise StopIteration
        if isinstance(event, InputRequest) and self._link.input is not None:
            self.answer(event, self._link.input(event.prompt))
        return event

    @property
    def result(self) -> Result:
        """Result of the run. Reads the events that are left."""
        for _ in self:
            pass
        assert self._result is not None
        return self._result

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._result is None:
            self.cancel()


class SandboxFunction(Generic[T]):
    """A function that runs in a sandbox."""

    def __init__(self, sandbox: Sandbox, function: Callable[..., T]) -> None:
        self._sandbox = sandbox
        self._function = function
        self.__name__: str = function.__name__
        self.__doc__ = function.__doc__
        sandbox.run(source_of(function), language="py").check()

    def __call__(self, *arguments: Any, **named: Any) -> T:
        value: T = self.run(*arguments, **named).check().json["value"]
        return value

    def run(self, *arguments: Any, **named: Any) -> Result:
        """The same, with the whole result."""
        return self._sandbox.run(call_of(self._function, arguments, named), language="py")


class Folder:
    """Files of a sandbox. Paths are below `/workspace` unless they begin with a slash.

    >>> from cellar import Sandbox
    >>> with Sandbox() as s:
    ...     s.files.write("notes/a.txt", "hello")
    ...     s.run("open('notes/a.txt').read()").text
    ...     s.files.read("notes/a.txt"), [entry.name for entry in s.files.list("notes")]
    "'hello'"
    (b'hello', ['a.txt'])
    """

    __slots__ = ("_sandbox",)

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def read(self, path: str | os.PathLike[str]) -> bytes:
        """The bytes of a file."""
        return self._sandbox._files().read(self._sandbox.name, path_of(path))

    def write(self, path: str | os.PathLike[str], content: bytes | str) -> None:
        """Writes a file, and makes the folders that it is in."""
        data = content.encode() if isinstance(content, str) else content
        self._sandbox._files().write(self._sandbox.name, path_of(path), data)

    def list(self, path: str | os.PathLike[str] = "/workspace") -> list[Entry]:
        """The entries of a folder, by name."""
        found = self._sandbox._files().list(self._sandbox.name, path_of(path))
        return sorted(Entry(*one) for one in found)

    def remove(self, path: str | os.PathLike[str]) -> None:
        """Removes a file, or a folder that is empty."""
        self._sandbox._files().remove(self._sandbox.name, path_of(path))

    def upload(self, folder: str | os.PathLike[str], path: str | os.PathLike[str] = "/workspace") -> None:
        """Copies a folder of the host with all in it. Links in it are not followed."""
        target = path_of(path).rstrip("/")
        for place, _, names in os.walk(folder):
            below = os.path.relpath(place, folder)
            for name in names:
                source = os.path.join(place, name)
                if os.path.islink(source):
                    continue
                with open(source, "rb") as file:
                    self.write("/".join([target, *([] if below == "." else [below]), name]), file.read())

    def download(self, folder: str | os.PathLike[str], path: str | os.PathLike[str] = "/workspace") -> None:
        """Copies a folder of the sandbox with all in it to the host. Links in it are not followed.

        >>> from cellar import Sandbox
        >>> from tempfile import TemporaryDirectory
        >>> with Sandbox() as s, TemporaryDirectory() as folder:
        ...     s.files.write("out/a.txt", "hello")
        ...     s.files.download(folder, "out")
        ...     open(folder + "/a.txt").read()
        'hello'
        """
        os.makedirs(folder, exist_ok=True)
        for entry in self.list(path):
            # The names are the sandbox's.
            if entry.name in ("", ".", "..") or "/" in entry.name or "\0" in entry.name:
                raise SandboxError(f"{entry.name!r} is no name of a file")
            source, target = f"{path_of(path).rstrip('/')}/{entry.name}", os.path.join(folder, entry.name)
            if os.path.islink(target):
                raise SandboxError(f"`{target}` is a link, which is not followed")
            if entry.kind == "folder":
                self.download(target, source)
            elif entry.kind == "file":
                with open(target, "wb") as file:
                    file.write(self.read(source))


def replay(path: str | os.PathLike[str]) -> list[Event]:
    """Plays a recording again, in this process and with nothing granted, and returns its events, which are those of then."""
    import json

    from .engine import engine

    played = _engine(lambda: engine().replay(path))
    return [event_of(json.loads(one)["event"]) for one in played]


def _engine(ask: Callable[[], T]) -> T:
    from ._cellar import EngineError
    from .link import refused

    try:
        return ask()
    except EngineError as error:
        raise refused(error) from None


def _run_members(
    session: str, cells: Cells, language: str, timeout: int | None, keep_going: bool, producer: str | None
) -> dict[str, Json]:
    members: dict[str, Json] = {"session": session, "cells": cells_of(cells, language, timeout)}
    if keep_going:
        members["keep_going"] = True
    if producer is not None:
        members["producer"] = producer
    return members


def _check_name(name: str) -> None:
    if not name.isidentifier():
        raise ValueError(f"{name!r} is no name of Python")
