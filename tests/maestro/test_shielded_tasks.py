"""Work that goes on when its caller is cancelled, and ends with its group."""

import asyncio
import inspect

import pytest

from batten.contract.errors import NotReady
from batten.serve.maestro.shielded_tasks import ShieldedTasks


async def _work() -> int:
    return 1


async def test_work_that_never_began_is_closed_and_told() -> None:
    """Its group fails in the turn in which it is started."""
    never, late = _work(), _work()

    async def fail() -> None:
        raise OSError("it fails")

    async def use() -> None:
        async with asyncio.TaskGroup() as group:
            tasks = ShieldedTasks(group)
            group.create_task(fail())
            await asyncio.sleep(0)  # it has failed, and the group is told in the next turn
            begun = tasks.begin(never)
            try:
                await begun.result()
            finally:
                with pytest.raises(NotReady):
                    tasks.begin(late)

    with pytest.raises(ExceptionGroup):
        await use()
    assert {inspect.getcoroutinestate(one) for one in (never, late)} == {inspect.CORO_CLOSED}
