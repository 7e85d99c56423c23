"""Events of a run."""

from __future__ import annotations

from typing import Any, NamedTuple, Union

from .results import CellError, Usage

__all__ = [
    "Background", "CallFinished", "CallStarted", "CellFinished", "CellStarted", "ClearOutput", "Display", "Event",
    "InputRequest", "Other", "RunFinished", "RunStarted", "Status", "Stderr", "Stdout", "UpdateDisplay",
]

Json = Any


class RunStarted(NamedTuple):
    """A run begins. It is the first event."""

    seq: int
    session: str
    cells: list[dict[str, Json]]


class CellStarted(NamedTuple):
    """A cell begins."""

    seq: int
    cell_index: int
    cell: int
    """The number of the cell in its session."""


class Stdout(NamedTuple):
    """Text was written to standard output."""

    seq: int
    cell_index: int
    text: str


class Stderr(NamedTuple):
    """Text was written to standard error."""

    seq: int
    cell_index: int
    text: str


class Display(NamedTuple):
    """A value was displayed."""

    seq: int
    cell_index: int
    data: dict[str, Json]
    """By MIME type; binary data as base64."""
    display_id: str | None
    is_value: bool
    """True for the value of the cell's last expression."""


class UpdateDisplay(NamedTuple):
    """A value was displayed in the place of an earlier one."""

    seq: int
    cell_index: int
    data: dict[str, Json]
    display_id: str


class ClearOutput(NamedTuple):
    """Removal of everything that was displayed so far."""

    seq: int
    cell_index: int
    wait: bool


class Status(NamedTuple):
    """A helper or the engine says what it did."""

    seq: int
    cell_index: int
    status: dict[str, Json]


class CallStarted(NamedTuple):
    """A cell calls a tool, a model, an agent, a connector or a host."""

    seq: int
    cell_index: int
    call: int
    bridge: str
    name: str


class CallFinished(NamedTuple):
    """A call came back."""

    seq: int
    cell_index: int
    call: int
    duration_ms: float
    error: str | None


class InputRequest(NamedTuple):
    """A cell asks for a line of input."""

    seq: int
    cell_index: int
    request_id: str
    prompt: str
    idle_timeout_seconds: int


class CellFinished(NamedTuple):
    """A cell has ended."""

    seq: int
    cell_index: int
    status: str
    duration_ms: float
    usage: Usage | None
    error: CellError | None


class Background(NamedTuple):
    """Code that outlived its cell wrote text."""

    seq: int
    cell_index: int
    cell: int
    stream: str
    text: str


class RunFinished(NamedTuple):
    """A run has ended. It is the last event."""

    seq: int
    is_error: bool


class Other(NamedTuple):
    """An event of another kind: `fork`, `fetched`, `bound`."""

    seq: int
    type: str
    value: dict[str, Json]


Event = Union[
    RunStarted, CellStarted, Stdout, Stderr, Display, UpdateDisplay, ClearOutput, Status, CallStarted, CallFinished,
    InputRequest, CellFinished, Background, RunFinished, Other,
]


def event_of(value: dict[str, Json]) -> Event:
    """Makes an event of its JSON."""
    kind = value["type"]
    if kind == "stdout":
        return Stdout(value["seq"], value["index"], value["text"])
    if kind == "stderr":
        return Stderr(value["seq"], value["index"], value["text"])
    if kind == "run_started":
        return RunStarted(value["seq"], value["session"], value["cells"])
    if kind == "cell_started":
        return CellStarted(value["seq"], value["index"], value["cell"])
    if kind == "display":
        is_value = value.get("isValue", False)
        return Display(value["seq"], value["index"], value["data"], value.get("displayId"), is_value)
    if kind == "update_display":
        return UpdateDisplay(value["seq"], value["index"], value["data"], value["displayId"])
    if kind == "clear_output":
        return ClearOutput(value["seq"], value["index"], value["wait"])
    if kind == "status":
        return Status(value["seq"], value["index"], value["status"])
    if kind == "call_started":
        return CallStarted(value["seq"], value["index"], value["call"], value["bridge"], value["name"])
    if kind == "call_finished":
        return CallFinished(value["seq"], value["index"], value["call"], value["durationMs"], value.get("error"))
    if kind == "input_request":
        return InputRequest(
            value["seq"], value["index"], value["request_id"], value["prompt"], value["idle_timeout_seconds"]
        )
    if kind == "cell_finished":
        error = CellError._of(value["error"]) if value.get("error") else None
        return CellFinished(
            value["seq"], value["index"], value["status"], value["durationMs"], Usage._of(value["usage"]), error
        )
    if kind == "background":
        return Background(value["seq"], value["index"], value["cell"], value["stream"], value["text"])
    if kind == "run_finished":
        return RunFinished(value["seq"], value["isError"])
    return Other(value["seq"], kind, value)
