"""Writes that wait for each other, so that one commit holds them."""

import asyncio

import pytest
from msgspec.structs import replace

from batten.contract.facts import TaskCreated
from batten.control.gathering import Gathering
from batten.control.tasks import Tasks
from batten.journal.contract import RunRow
from tests.control.given import Place, said

_LONG_S = 60.0


async def _turns() -> None:
    """Let every task do what it can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_request_alone_does_not_wait() -> None:
    gathering = Gathering(_LONG_S)
    await gathering.wait()
    gathering.begin()
    await gathering.wait()


async def test_writes_wait_until_all_requests_in_work_have_written() -> None:
    gathering = Gathering(_LONG_S)
    for _ in range(3):
        gathering.begin()
    first, second = (asyncio.create_task(gathering.wait()) for _ in range(2))
    await _turns()
    assert not first.done()
    assert not second.done()
    await gathering.wait()
    await asyncio.gather(first, second)


async def test_requests_that_arrive_together_write_together() -> None:
    gathering = Gathering(_LONG_S)
    begun = 0
    seen: list[int] = []

    async def write() -> None:
        nonlocal begun
        begun += 1
        gathering.begin()
        await gathering.wait()
        seen.append(begun)

    await asyncio.gather(*(write() for _ in range(3)))
    assert seen == [3, 3, 3]


async def test_a_request_that_ends_without_a_write_is_not_waited_for() -> None:
    gathering = Gathering(_LONG_S)
    gathering.begin()
    gathering.begin()
    first = asyncio.create_task(gathering.wait())
    await _turns()
    assert not first.done()
    gathering.end()
    await first


async def test_a_slow_request_is_waited_for_only_for_a_moment() -> None:
    gathering = Gathering(0.01)
    gathering.begin()
    gathering.begin()
    await gathering.wait()
    await gathering.wait()


async def test_a_cancelled_write_is_no_longer_counted() -> None:
    gathering = Gathering(_LONG_S)
    for _ in range(3):
        gathering.begin()
    gone = asyncio.create_task(gathering.wait())
    await _turns()
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    stays = asyncio.create_task(gathering.wait())
    await _turns()
    assert not stays.done()  # two are in work beside it, and only one of them left
    gathering.end()
    await gathering.wait()
    await stays


async def test_tasks_created_and_started_together_are_all_stored(place: Place) -> None:
    gathering = Gathering(_LONG_S)
    tasks = Tasks(place.journal, place.opener.home, place.base, gathering)
    model = place.model([said("Done.")])

    async def make(task: TaskCreated) -> str:
        gathering.begin()
        try:
            return (await tasks.create(task)).task_id
        finally:
            gathering.end()

    async def start(task_id: str) -> str:
        gathering.begin()
        try:
            return (await tasks.start(task_id, by="somebody")).run_id
        finally:
            gathering.end()

    wanted = [place.described(model, title=f"task {number}") for number in range(16)]
    task_ids = await asyncio.gather(*map(make, wanted))
    run_ids = await asyncio.gather(*map(start, task_ids))
    for task_id, run_id, task in zip(task_ids, run_ids, wanted, strict=True):
        session = await tasks.find(task_id)
        assert (await tasks.described(session), session.last_run_id) == (task, run_id)
    assert await place.journal.verify() == []


async def test_the_rows_of_a_new_task_and_run_are_those_that_are_stored(place: Place) -> None:
    tasks = place.tasks
    session = await tasks.create(place.described(place.model([said("Done.")])))
    assert await place.journal.session(session.session_id) == session
    row = await tasks.start(session.task_id, by="somebody")
    stored = await place.journal.run(row.run_id)
    assert stored is not None
    assert _without_lease(row) == _without_lease(stored)


def _without_lease(row: RunRow) -> RunRow:
    """All but the time when it was queued, which may be a millisecond off."""
    return replace(row, lease_until="")


async def test_a_sealed_task_is_told_as_it_is_stored(place: Place) -> None:
    task = place.described(place.model([said("Done.")]), prompt="long " * 40_000)
    session, told = await place.tasks.create_described(task)
    assert await place.journal.session(session.session_id) == session
    assert isinstance(told.sealed_artifact_id, str)
    assert len(told.prompt or "") < len(task.prompt or "")
    assert await place.tasks.described(session) == task
