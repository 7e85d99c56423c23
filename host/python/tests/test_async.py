"""The same for programs with an event loop."""

import asyncio

import pytest

from cellar import AsyncSandbox, SandboxError, events


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 300))


def test_runs_tools_and_forks():
    async def main():
        loop = asyncio.get_running_loop()

        async def where() -> bool:
            return asyncio.get_running_loop() is loop

        def plain(n: int) -> int:
            return n + 1

        async with AsyncSandbox(tools=[where, plain]) as s:
            assert (await s.run("tool.where(), tool.plain(n=1)")).text == "(True, 2)"
            await s.set("x", [1, 2])
            fork = await s.fork()
            await fork.run("x.append(3)")
            assert (await s.get("x"), await fork.get("x")) == ([1, 2], [1, 2, 3])
            state = await s.snapshot()
            await s.run("x = None")
            await s.rewind(state)
            assert await s.get("x") == [1, 2]
            await s.files.write("a.txt", "text")
            assert [entry.name for entry in await s.files.list()] == ["a.txt"]
            assert {one.name for one in await s.variables()} >= {"x"}
            await fork.close()
        with pytest.raises(SandboxError, match="closed"):
            await s.run("1")

    run(main())


def test_many_runs_at_once_need_no_threads():
    async def main():
        async with AsyncSandbox() as s:
            await s.run("import asyncio\ngate = asyncio.Event()")
            waiting = [asyncio.ensure_future(s.run(f"await gate.wait()\n{n}")) for n in range(20)]
            await s.run("gate.set()")
            assert [result.text for result in await asyncio.gather(*waiting)] == [str(n) for n in range(20)]

    run(main())


def test_a_cancelled_run_stops_its_cell_and_keeps_the_state():
    async def main():
        async with AsyncSandbox() as s:
            events_seen = await s.stream("x = 1\nprint('on', flush=True)\nwhile True: pass")

            async def read():
                async for event in events_seen:
                    if isinstance(event, events.Stdout):
                        started.set()

            started = asyncio.Event()
            reading = asyncio.ensure_future(read())
            await started.wait()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert await s.get("x") == 1
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(s.run("x = 2\nwhile True: pass"), 0.5)
            assert (await s.run("x")).text in ("1", "2")

    run(main())


def test_a_cancelled_call_cancels_its_tool():
    async def main():
        began, ended = asyncio.Event(), asyncio.Event()

        async def never() -> None:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        async with AsyncSandbox(tools=[never]) as s:
            running = asyncio.ensure_future(s.run("tool.never()"))
            await began.wait()
            running.cancel()
            await ended.wait()

    run(main())


def test_input_is_answered_by_a_coroutine():
    async def main():
        async def answer(prompt):
            return prompt.upper()

        async with AsyncSandbox(input=answer) as s:
            assert (await s.run("input('a')")).text == "'A'"

    run(main())
