"""A program with types, for type checkers in their strict modes. It is not run."""

from __future__ import annotations

from cellar import AsyncSandbox, CellError, Image, Result, Sandbox, Snapshot, events


def add(a: int, b: int) -> int:
    return a + b


def program() -> str:
    with Sandbox(tools=[add], limits={"timeout": 5}, mounts={"/data": "."}) as s:
        result: Result = s.run(["x = 1", "x"])
        error: CellError | None = result.error
        images: list[Image] = result.images
        print(error, images)

        @s.cell
        def double(n: int) -> int:
            return 2 * n

        four: int = double(2)
        print(four)
        for event in s.stream("1"):
            if isinstance(event, events.Stdout):
                text: str = event.text
                print(text)
        state: Snapshot = s.snapshot()
        s.rewind(state)
        return s.fork().run("x").text


async def asynchronous() -> CellError | None:
    async with AsyncSandbox(tools=[add]) as s:
        async for event in await s.stream("1"):
            print(event)
        await s.files.write("a", b"b")
        result = await s.run("1/0")
        return result.error
