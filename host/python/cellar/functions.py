"""Functions of the program in the place of models, agents and hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .tools import is_async

__all__ = ["HttpRequest", "HttpResponse"]

Json = Any


class HttpRequest(NamedTuple):
    """A request of a cell, for the function `http` of its sandbox."""

    method: str
    url: str
    headers: list[tuple[str, str]]
    body: bytes | None
    timeout: float | None
    """Seconds."""


class HttpResponse(NamedTuple):
    """Answer of such a function."""

    status: int
    body: bytes | str = b""
    headers: Mapping[str, str] = {}


class Function:
    """A function that answers calls of a bridge."""

    __slots__ = ("_accepts", "_bridge", "function", "is_async")

    def __init__(self, bridge: str, function: Callable[..., Any]) -> None:
        from inspect import signature

        self._bridge = bridge
        self.function = function
        self.is_async: bool = is_async(function)
        parameters = signature(function).parameters.values()
        is_open = any(one.kind is one.VAR_KEYWORD for one in parameters)
        # A function that wants no more than the prompt is given no more.
        self._accepts: frozenset[str] | None = None if is_open else frozenset(one.name for one in parameters)

    def call(self, given: dict[str, Json]) -> Any:
        """Calls the function; one that is asynchronous gives what is to be awaited."""
        if self._bridge == "http":
            body = given["body"]
            headers = [(name, value) for name, value in given["headers"]]
            request = HttpRequest(
                given["method"], given["url"], headers, None if body is None else bytes(body), given["timeout"]
            )
            answer = self.function(request)
            return _answered(answer) if self.is_async else _response(answer)
        prompt = given.pop("prompt")
        more = {name: value for name, value in given.items() if self._accepts is None or name in self._accepts}
        return self.function(prompt, **more)


async def _answered(answer: Any) -> Json:
    return _response(await answer)


def _response(answer: HttpResponse) -> Json:
    body = answer.body.encode() if isinstance(answer.body, str) else answer.body
    return {"status": answer.status, "headers": list(answer.headers.items()), "body": list(body)}


def functions_of(**given: Any) -> dict[str, Function]:
    """The functions that were given, by their bridges."""
    return {bridge: Function(bridge, function) for bridge, function in given.items() if callable(function)}
