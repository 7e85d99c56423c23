"""Exceptions of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results import CellError

__all__ = ["CellFailed", "SandboxError"]


class SandboxError(Exception):
    """A request that was refused: a wrong grant, a sandbox that is closed, a server that cannot be reached.

    A cell that raises is no such error: it is the `error` of its result.
    """

    code: str
    """A stable word for programs, such as `usage`, `closed` or `quota`."""
    hint: str | None
    """A remedy, in words."""

    def __init__(self, message: str, code: str = "usage", hint: str | None = None) -> None:
        super().__init__(message if hint is None else f"{message} ({hint})")
        self.code = code
        self.hint = hint


class CellFailed(Exception):
    """A cell that failed, where a value of it was wanted."""

    error: CellError

    def __init__(self, error: CellError) -> None:
        super().__init__(error.traceback or error.summary)
        self.error = error
