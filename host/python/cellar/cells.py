"""Cells, grants and values, as requests have them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Union

from .tools import Tool, plain, tool_of

__all__ = ["Cell", "Cells", "Grants", "Language"]

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
    """Whether its language begins with a fresh interpreter."""


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


class Grants(NamedTuple):
    """What a sandbox is opened with."""

    opening: dict[str, Json]
    tools: dict[str, Tool]


def grants_of(
    *,
    name: str | None,
    tools: Iterable[Callable[..., Any] | Tool],
    data: bool,
    workspace: str | os.PathLike[str] | None,
    mounts: Mapping[str, str | os.PathLike[str] | Mapping[str, Json]] | None,
    environment: Mapping[str, str] | None,
    limits: Mapping[str, int] | None,
    packages: Sequence[str] | None,
    connectors: Mapping[str, Json] | None,
    http: Mapping[str, Json] | Sequence[Mapping[str, Json]] | None,
    llm: Mapping[str, Json] | None,
    agents: Mapping[str, Json] | None,
    bindings: Mapping[str, Json] | None,
    config: Mapping[str, Json] | None,
    snapshot: str | None,
    has_input: bool,
) -> Grants:
    """The request that opens a session, and the tools that its cells call."""
    known = {tool.name: tool for tool in map(tool_of, tools)}
    granted: dict[str, Json] = {key: value for key, value in (config or {}).items()}
    if mounts is not None:
        granted["mounts"] = {
            guest: dict(host) if isinstance(host, Mapping) else os.fspath(host) for guest, host in mounts.items()
        }
    for key, given in (("environment", environment), ("limits", limits), ("connectors", connectors), ("llm", llm), ("agents", agents)):
        if given is not None:
            granted[key] = dict(given)
    if packages is not None:
        granted["packages"] = list(packages)
    if http is not None:
        granted["http"] = dict(http) if isinstance(http, Mapping) else {"allow": [dict(rule) for rule in http]}
    session: dict[str, Json] = dict(granted.get("session", {}))
    if data:
        session["guests"] = ["python-data"]
    if bindings is not None:
        session["python"] = {**session.get("python", {}), "bindings": dict(bindings)}
    if session:
        granted["session"] = session
    opening: dict[str, Json] = {"session": name or f"s-{os.urandom(8).hex()}"}
    if granted:
        opening["grants"] = granted
    if workspace is not None:
        opening["workspace"] = os.fspath(workspace)
    if known:
        opening["tools"] = [
            {"name": tool.name, "description": tool.description, "schema": tool.schema} for tool in known.values()
        ]
    if has_input:
        opening["input"] = True
    if snapshot is not None:
        opening["snapshot"] = snapshot
    return Grants(opening, known)


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
