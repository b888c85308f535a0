"""Waits of requests: they last as asked for, unless the server stops."""

import asyncio

from batten.serve.http.waits import Waits

PATIENCE_S = 20


async def test_a_wait_ends_when_its_time_is_over() -> None:
    async with asyncio.timeout(PATIENCE_S), Waits().at_most(0.01):
        await asyncio.Event().wait()


async def test_open_waits_and_later_ones_end_with_the_server() -> None:
    waits, begun = Waits(), asyncio.Event()

    async def wait() -> str:
        async with waits.at_most(1000):
            begun.set()
            await asyncio.Event().wait()
        return "left"

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        waiting = group.create_task(wait())
        await begun.wait()
        waits.end()
        assert await waiting == "left"
        assert await wait() == "left"


async def test_a_result_within_the_time_is_kept_and_a_cancel_is_none() -> None:
    waits = Waits()

    async def found() -> int:
        async with waits.at_most(1000):
            return 1

    async def wait() -> None:
        async with waits.at_most(1000):
            await asyncio.Event().wait()

    assert await found() == 1
    waiting = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    waiting.cancel()
    done, _ = await asyncio.wait([waiting], timeout=PATIENCE_S)
    assert waiting in done
    assert waiting.cancelled()
    waits.end()
