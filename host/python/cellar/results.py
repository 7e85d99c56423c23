"""Results of runs."""

from __future__ import annotations

from binascii import a2b_base64
from typing import Any, NamedTuple

from .errors import CellFailed

__all__ = ["CellError", "CellResult", "Image", "Result", "Usage"]

Json = Any


class CellError(NamedTuple):
    """Failure of a cell."""

    kind: str
    """`raised`, `timeout`, `interrupted`, `fuel`, `memory`, `output`, `stdin` or `trap`."""
    name: str
    """The type of the exception, such as `ZeroDivisionError`."""
    message: str
    line: int | None
    """The line of the cell, from 1 on."""
    column: int | None
    snippet: str | None
    """The source of that line."""
    pointer: str | None
    """A line of carets for below it."""
    summary: str
    traceback: str
    """The frames of the program alone."""
    code: str | None
    """A word for programs where the cell was stopped for a reason that is not its own, such as `busy` or `lost`."""
    state_kept: bool
    """True if the session keeps all that its cells made."""

    @classmethod
    def _of(cls, value: dict[str, Json]) -> CellError:
        return cls(
            value["kind"], value["type"], value["message"], value["line"], value["column"], value["snippet"],
            value["pointer"], value["summary"], value["traceback"], value.get("code"), value.get("stateKept", True),
        )


class Image(NamedTuple):
    """An image that a cell displayed."""

    mime_type: str
    data: bytes

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Json]:
        return {self.mime_type: self.data}


class Usage(NamedTuple):
    """Resources that a cell used."""

    fuel: int | None
    """Instructions, where they are counted."""
    cpu_ms: float
    memory_peak_bytes: int

    @classmethod
    def _of(cls, value: dict[str, Json] | None) -> Usage | None:
        return None if value is None else cls(value["fuel"], value["cpuMs"], value["memoryPeakBytes"])


class CellResult(NamedTuple):
    """One cell of a run."""

    cell_index: int
    title: str | None
    language: str
    code: str
    status: str
    """`complete`, `error`, or `pending` for one that was not run."""
    text: str
    duration_ms: float | None
    usage: Usage | None
    error: CellError | None


class Result:
    """Result of a run.

    >>> from cellar import Sandbox
    >>> with Sandbox() as s:
    ...     result = s.run("print('hi'); {'n': 6 * 7}")
    >>> result.json
    {'n': 42}
    >>> result.is_error
    False
    """

    __slots__ = ("_details", "_value")

    def __init__(self, value: dict[str, Json]) -> None:
        self._value = value
        self._details: dict[str, Json] = value["details"]

    @property
    def text(self) -> str:
        """Everything that a reader of the run sees, as one text."""
        text: str = self._value["content"][0]["text"]
        return text

    @property
    def json(self) -> Json:
        """The last value that was displayed as JSON; `None` if there is none."""
        outputs = self._details["jsonOutputs"]
        return outputs[-1] if outputs else None

    @property
    def json_outputs(self) -> list[Json]:
        """Values that were displayed as JSON."""
        outputs: list[Json] = self._details["jsonOutputs"]
        return outputs

    @property
    def images(self) -> list[Image]:
        """The images that were displayed."""
        return [Image(image["mimeType"], a2b_base64(image["data"])) for image in self._details["images"]]

    @property
    def is_error(self) -> bool:
        """True if a cell failed."""
        return bool(self._value["isError"])

    @property
    def error(self) -> CellError | None:
        """Failure of the first cell that failed; `None` if none did."""
        return next((cell.error for cell in self.cells if cell.error is not None), None)

    @property
    def cells(self) -> list[CellResult]:
        """The cells, in order."""
        return [
            CellResult(
                cell["index"], cell["title"], cell["language"], cell["code"], cell["status"], cell["output"],
                cell["durationMs"], Usage._of(cell["usage"]),
                CellError._of(cell["error"]) if cell.get("error") else None,
            )
            for cell in self._details["cells"]
        ]

    @property
    def details(self) -> dict[str, Json]:
        """Everything that the engine says of the run, as JSON."""
        return self._details

    def check(self) -> Result:
        """Returns the result itself, or raises `CellFailed` if a cell failed."""
        error = self.error
        if error is not None:
            raise CellFailed(error)
        return self

    def to_llm(self) -> list[dict[str, Json]]:
        """Blocks of text and images for a model: `{"type": "text", ...}` and `{"type": "image", "data", "mimeType"}`."""
        blocks: list[dict[str, Json]] = self._value["content"]
        return blocks

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Json]:
        bundle: dict[str, Json] = {"text/plain": self.text}
        if self._details["jsonOutputs"]:
            bundle["application/json"] = self.json
        for image in self.images:
            bundle.setdefault(image.mime_type, image.data.decode() if image.mime_type == "image/svg+xml" else image.data)
        return bundle

    def __repr__(self) -> str:
        return f"Result({self.text!r}, is_error={self.is_error})"

    def __str__(self) -> str:
        return self.text
