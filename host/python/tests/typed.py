"""A program with types, for type checkers in their strict modes. It is not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellar import AsyncSandbox, CellError, Image, Result, Sandbox, Snapshot, events

if TYPE_CHECKING:
    from typing import assert_type


def add(a: int, b: int) -> int:
    return a + b


def program() -> str:
    with Sandbox(tools=[add], limits={"timeout": 5}, mounts={"/data": "."}) as s:
        result = s.run(["x = 1", "x"])
        assert_type(result, Result)
        assert_type(result.error, "CellError | None")
        assert_type(result.images, "list[Image]")

        @s.cell
        def double(n: int) -> int:
            return 2 * n

        assert_type(double(2), int)
        for event in s.stream("1"):
            if isinstance(event, events.Stdout):
                assert_type(event.text, str)
        assert_type(s.snapshot(), Snapshot)
        return s.fork().run("x").text


async def asynchronous() -> CellError | None:
    async with AsyncSandbox(tools=[add]) as s:
        async for event in await s.stream("1"):
            print(event)
        await s.files.write("a", b"b")
        result = await s.run("1/0")
        return result.error
