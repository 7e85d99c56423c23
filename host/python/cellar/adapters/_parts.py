"""Parts that adapters share: functions of the program that change from run to run, commands of the shell, and texts for models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..results import Result
from ..sandbox import Sandbox
from ..tools import Tool

_DEFINITION = """
def {name}(*args, **named):
    return tool.call_program(name={name!r}, args=list(args), named=named)
"""
_COMMAND = (
    "(lambda ended: {{'output': ended.stdout, 'errors': ended.stderr, 'code': ended.returncode}})(__import__('subprocess').run("
    "{command!r}, shell=True, capture_output=True, text=True, errors='replace'))"
)


class Functions:
    """Functions of the program, which cells call by their bare names. They may be changed while the sandbox is open."""

    def __init__(self) -> None:
        self.known: dict[str, Callable[..., Any]] = {}

    @property
    def tool(self) -> Tool:
        """The tool by which cells reach them."""

        def call_program(name: str, args: list[Any], named: dict[str, Any]) -> Any:
            return self.known[name](*args, **named)

        return Tool(call_program)

    def define(self, sandbox: Sandbox, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Gives cells these functions."""
        self.known.update(functions)
        definitions = [_DEFINITION.format(name=name) for name in functions if name.isidentifier()]
        sandbox.run("".join(definitions), language="py").check()


def command(text: str) -> str:
    """The source of a cell that runs a command in the shell of the sandbox, for `ended`."""
    return _COMMAND.format(command=text)


def ended(result: Result) -> tuple[str, str, int]:
    """The output of such a command, its errors and its exit code."""
    if result.error is not None:
        return "", result.error.summary, 124 if result.error.kind == "timeout" else 1
    value = result.json
    return value["output"], value["errors"], value["code"]


def said(result: Result) -> str:
    """The result of a run as text for a model."""
    return result.text or "(no output)"


def about(sandbox: Sandbox, language: str = "py") -> str:
    """What a model is told of a tool that runs code."""
    title = {"py": "Python", "js": "JavaScript"}[language]
    stubs = sandbox.stubs(language)
    return f"Runs {title} in a sandbox. Names and files stay from call to call; the value of the last expression is shown.\n{stubs}".strip()
