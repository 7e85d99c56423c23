"""Cells, grants and values, as requests have them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypedDict, Union

from .errors import SandboxError
from .functions import Function, HttpRequest, functions_of
from .tools import Tool, plain, tool_of

__all__ = ["Cell", "Cells", "Language", "Options", "Settings", "Snapshot", "State"]

Json = Any
Language = Literal["py", "js", "python", "javascript"]

_LANGUAGES = {"py": "py", "js": "js", "python": "py", "javascript": "js"}


class Cell(NamedTuple):
    """A cell with more than its source."""

    code: str
    language: Language | None = None
    title: str | None = None
    timeout: int | None = None
    """Seconds that it may take."""
    reset: bool = False
    """True if its language begins with a fresh interpreter."""


Cells = Union[str, Cell, Sequence[Union[str, Cell]]]


def language_code(language: str) -> str:
    """`py` or `js`."""
    try:
        return _LANGUAGES[language]
    except KeyError:
        raise ValueError(f"{language!r} is no language of cells; say 'py' or 'js'") from None


def cells_of(cells: Cells, language: str, timeout: int | None) -> list[dict[str, Json]]:
    """Cells as a request has them."""
    if isinstance(cells, (str, Cell)):
        cells = [cells]
    made: list[dict[str, Json]] = []
    for cell in cells:
        if isinstance(cell, str):
            cell = Cell(cell)
        one: dict[str, Json] = {"language": language_code(cell.language or language), "code": cell.code}
        if cell.title is not None:
            one["title"] = cell.title
        if cell.timeout is not None or timeout is not None:
            one["timeout"] = cell.timeout if cell.timeout is not None else timeout
        if cell.reset:
            one["reset"] = True
        made.append(one)
    return made


class Options(TypedDict, total=False):
    """Options of a sandbox. It is granted nothing but what is said here."""

    language: Language
    """The language of cells that name none: Python, unless given."""
    data: bool
    """True for Python with NumPy, pandas and Matplotlib."""
    tools: Iterable[Callable[..., Any] | Tool]
    """Functions that cells call as `tool.NAME(...)`: on threads of the engine, and quick ones on the thread that waits for the cell."""
    mounts: Mapping[str, str | os.PathLike[str] | Mapping[str, Json]]
    """Folders: `{"/data": "./data", "/out": {"host": "./out", "write": True}}`."""
    workspace: str | os.PathLike[str]
    """A folder of the host that cells see as `/workspace` and write to; a private one otherwise."""
    environment: Mapping[str, str]
    limits: Mapping[str, int]
    """`[limits]` of a `cellar.toml`, such as `{"timeout": 5, "memory_mib": 256}`."""
    packages: Sequence[str]
    connectors: Mapping[str, Json]
    llm: Callable[..., Any] | Mapping[str, Json]
    """Answers `llm(prompt)`: a function, `llm(prompt, *, model, system, schema)` of which it may take less, or `[llm]`."""
    agent: Callable[..., Any] | Mapping[str, Json]
    """Answers `agent(prompt)`: a function, `agent(prompt, *, agent_type, model, context, label, schema, depth)`, or tables."""
    http: Callable[[HttpRequest], Any] | Mapping[str, Json] | Sequence[Mapping[str, Json]]
    """Rules for hosts, or a function that answers every request itself."""
    input: Callable[[str], Any]
    """Answers `input()` of cells; `None` is the end of the input."""
    bindings: Mapping[str, Json]
    """Names that Python begins with, and their values."""
    config: Mapping[str, Json] | str | os.PathLike[str]
    """More of a `cellar.toml`, or the path of one in the place of all other grants."""
    snapshot: Snapshot | str | os.PathLike[str]
    """The state that it begins with."""
    history: int
    """The latest states that are kept, each the end of a cell: see `Sandbox.states`. None are unless given."""
    name: str
    store: str | os.PathLike[str]
    """A folder in which its state is kept, by its name, when it is closed, and from which it goes on when it is opened again."""
    record: str | os.PathLike[str]
    """A file for `cellar.replay`."""


class Settings(NamedTuple):
    """Options, as they are used."""

    language: str
    opening: dict[str, Json]
    """The request that opens the session."""
    tools: dict[str, Tool]
    functions: dict[str, Function]
    input: Callable[[str], Any] | None
    store: str | os.PathLike[str] | None
    record: str | os.PathLike[str] | None
    config: str | os.PathLike[str] | None


def settings_of(options: Options) -> Settings:
    """Checks options.

    Raises `TypeError` for one that there is not, and `SandboxError` for grants that are given twice.
    """
    unknown = options.keys() - Options.__annotations__.keys()
    if unknown:
        raise TypeError(f"a sandbox has no option {', '.join(sorted(map(repr, unknown)))}")
    config = options.get("config")
    granted = _grants(options)
    opening: dict[str, Json] = {"session": options.get("name") or f"s-{os.urandom(8).hex()}"}
    if config is not None and not isinstance(config, Mapping):
        if granted:
            raise SandboxError("grants are given twice", "usage", "say them all in the file `config`, or none")
    elif granted:
        opening["grants"] = granted
    if "workspace" in options:
        opening["workspace"] = os.fspath(options["workspace"])
    tools = {tool.name: tool for tool in map(tool_of, options.get("tools", ()))}
    if tools:
        opening["tools"] = [
            {"name": tool.name, "description": tool.description, "schema": tool.schema} for tool in tools.values()
        ]
    if "input" in options:
        opening["input"] = True
    snapshot = options.get("snapshot")
    if snapshot is not None:
        opening["snapshot"] = path_of_snapshot(snapshot)
    functions = functions_of(llm=options.get("llm"), agent=options.get("agent"), http=options.get("http"))
    return Settings(
        language_code(options.get("language", "py")), opening, tools, functions, options.get("input"), options.get("store"),
        options.get("record"), None if isinstance(config, Mapping) else config,
    )


def _grants(options: Options) -> dict[str, Json]:
    """The `cellar.toml` that options stand for, as JSON."""
    config = options.get("config")
    granted: dict[str, Json] = dict(config) if isinstance(config, Mapping) else {}
    if "mounts" in options:
        granted["mounts"] = {
            guest: dict(host) if isinstance(host, Mapping) else os.fspath(host) for guest, host in options["mounts"].items()
        }
    if "packages" in options:
        granted["packages"] = list(options["packages"])
    http = options.get("http")
    if http is not None and not callable(http):
        granted["http"] = dict(http) if isinstance(http, Mapping) else {"allow": [dict(rule) for rule in http]}
    tables: dict[str, Any] = {
        "environment": options.get("environment"), "limits": options.get("limits"), "connectors": options.get("connectors"),
        "llm": options.get("llm"), "agents": options.get("agent"),
    }
    granted.update({key: dict(table) for key, table in tables.items() if table is not None and not callable(table)})
    session: dict[str, Json] = dict(granted.get("session", {}))
    if options.get("data"):
        session["guests"] = ["python-data"]
    if "history" in options:
        session["history"] = options["history"]
    if "bindings" in options:
        session["python"] = {**session.get("python", {}), "bindings": dict(options["bindings"])}
    if session:
        granted["session"] = session
    return granted


class State(NamedTuple):
    """A state of a sandbox that is kept: the end of a cell, memory and files of one instant."""

    state: int
    """Its number."""
    parent: int | None
    """The state that it came from, or the nearest one before that is still kept."""
    time: int
    """Seconds since the Unix epoch."""
    cell: int | None
    language: str | None
    size: int
    """Bytes of its memory and its files."""
    name: str | None
    is_current: bool
    """True if the sandbox is at it."""


def states_of(answer: Mapping[str, Json]) -> list[State]:
    """The states that an answer tells of, the oldest first."""
    return [
        State(
            one["state"], one["parent"], one["time"], one["cell"], one["language"], one["bytes"], one["name"],
            one["state"] == answer["current"],
        )
        for one in answer["states"]
    ]


def state_named(state: State | int | str) -> str:
    """A state as a request names it."""
    return str(state.state if isinstance(state, State) else state)


class Snapshot:
    """The state of a sandbox, in a file; or on a server, by a name. A file that was made for it goes with it."""

    __slots__ = ("__weakref__", "_folder", "path")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: str = os.fspath(path)
        self._folder: Any = None

    @classmethod
    def _temporary(cls) -> Snapshot:
        import tempfile

        folder = tempfile.TemporaryDirectory(prefix="cellar-")
        made = cls(os.path.join(folder.name, "state.snapshot"))
        made._folder = folder
        return made

    def bytes(self) -> bytes:
        """The whole snapshot, to be kept elsewhere."""
        with open(self.path, "rb") as file:
            return file.read()

    def __repr__(self) -> str:
        return f"Snapshot({self.path!r})"


def path_of_snapshot(snapshot: Snapshot | str | os.PathLike[str]) -> str:
    """The path of a snapshot, or its name on a server."""
    return snapshot.path if isinstance(snapshot, Snapshot) else os.fspath(snapshot)


def source_of(function: Callable[..., Any]) -> str:
    """The source of a function, without its decorators."""
    import ast
    import inspect
    import textwrap

    text = textwrap.dedent(inspect.getsource(function))
    [definition] = ast.parse(text).body
    if not isinstance(definition, (ast.FunctionDef, ast.AsyncFunctionDef)):
        raise TypeError(f"{function!r} is no function that was written with `def`")
    return "".join(text.splitlines(keepends=True)[definition.lineno - 1 :])


def call_of(function: Callable[..., Any], arguments: tuple[Any, ...], named: Mapping[str, Any]) -> str:
    """The source of a cell that calls a function with these arguments, and displays what it returns as JSON."""
    import json

    from .tools import is_async

    text = json.dumps([list(arguments), dict(named)], default=plain)
    call = f"{function.__name__}(*arguments[0], **arguments[1])"
    if is_async(function):
        call = f"await {call}"
    given = f"for arguments in [__import__('json').loads({text!r})]: break\n"
    return f"{given}{{'value': {call}}}"


def path_of(path: str | os.PathLike[str]) -> str:
    """The path of a file in the sandbox; relative ones are below `/workspace`."""
    text = os.fspath(path)
    return text if text.startswith("/") else f"/workspace/{text}"
