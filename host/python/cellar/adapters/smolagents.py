"""smolagents: the executor of a `CodeAgent`.

    agent = CodeAgent(tools=[...], model=model, executor=CellarExecutor())
"""

from __future__ import annotations

from typing import Any

from smolagents.local_python_executor import CodeOutput, PythonExecutor
from typing_extensions import Unpack

from ..cells import Options
from ..events import Display, Stderr, Stdout
from ..sandbox import Sandbox
from ._parts import Functions

_FINAL = """
class FinalAnswer(BaseException): "ends the cell"
def final_answer(*args, **named):
    tool.call_program(name="final_answer", args=list(args), named=named)
    raise FinalAnswer()
"""


class CellarExecutor(PythonExecutor):
    """Runs the code of an agent in a sandbox with these options. Tools run in the program."""

    def __init__(self, **options: Unpack[Options]) -> None:
        self._functions = Functions()
        options["tools"] = [*options.get("tools", ()), self._functions.tool]
        self.sandbox = Sandbox(**options)
        self._answer: list[Any] = []

    def send_tools(self, tools: dict[str, Any]) -> None:
        final = tools.get("final_answer", lambda answer: answer)
        self._functions.define(self.sandbox, {name: one for name, one in tools.items() if name != "final_answer"})
        self._functions.known["final_answer"] = lambda *args, **named: self._answer.append(final(*args, **named))
        self.sandbox.run(_FINAL).check()

    def send_variables(self, variables: dict[str, Any]) -> None:
        for name, value in variables.items():
            self.sandbox[name] = value

    def __call__(self, code_action: str) -> CodeOutput:
        run, logs, output = self.sandbox.stream(code_action), "", None
        for event in run:
            if isinstance(event, (Stdout, Stderr)):
                logs += event.text
            elif isinstance(event, Display) and event.is_value:
                output = event.data.get("application/json", event.data.get("text/plain"))
        if self._answer:
            return CodeOutput(output=self._answer.pop(), logs=logs, is_final_answer=True)
        if run.result.error is not None:
            raise RuntimeError(f"{logs}{run.result.error.traceback or run.result.error.summary}")
        return CodeOutput(output=output, logs=logs, is_final_answer=False)

    def cleanup(self) -> None:
        self.sandbox.close()
