"""Messages of several senders wait for each other; one alone does not."""

import asyncio

from batten.control.coordination.together import Together

FOREVER_S = 3600.0
PATIENCE_S = 10


async def test_one_sender_alone_never_waits() -> None:
    together = Together(FOREVER_S)
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(100):
            await together.gather("ann")


async def test_a_message_waits_until_those_heard_a_moment_ago_are_heard_again() -> None:
    together = Together(FOREVER_S)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        await together.gather("ann")
        first = group.create_task(together.gather("ben"))
        await asyncio.sleep(0)
        waited = not first.done()
        await together.gather("ann")
    assert waited
    assert first.done()


async def test_nobody_waits_longer_than_a_moment() -> None:
    together = Together(0.001)
    async with asyncio.timeout(PATIENCE_S):
        await together.gather("ann")
        await together.gather("ben")
        await together.gather("ben")
