"""Followers beside the writer: given what is durable, whole and in order, and little of it held."""

import asyncio
import gc
import threading
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

import pytest

from batten.journal.contract import Stored
from batten.journal.followers import Follower
from batten.journal.sqlite import SqliteJournal
from tests.journal.given import CANCEL, FINISHED, started, text

PATIENCE_S = 20
MEGABYTE = 1 << 20


async def _next(pages: AsyncGenerator[list[Stored], None]) -> list[Stored]:
    async with asyncio.timeout(PATIENCE_S):
        return await anext(pages)


async def _until(pages: AsyncGenerator[list[Stored], None], last: int) -> list[Stored]:
    """Everything up to a sequence."""
    seen: list[Stored] = []
    while not seen or seen[-1].sequence < last:
        seen += await _next(pages)
    return seen


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncGenerator[SqliteJournal, None]:
    journal = SqliteJournal.open(tmp_path)
    yield journal
    journal.close()


async def test_a_follower_beside_the_writer_is_given_the_very_facts_that_were_committed(
    journal: SqliteJournal,
) -> None:
    lease = await started(journal)
    async with aclosing(journal.follow(lease.run_id, after=1)) as pages:
        waiting = asyncio.ensure_future(_next(pages))
        await asyncio.sleep(0)
        [sent] = await journal.append(lease.run_id, [text("a")], fence=lease.fence)
        assert (await waiting)[0] is sent
    [read] = await journal.read(lease.run_id, after=1)
    assert read == sent
    assert read is not sent


async def test_a_follower_that_does_not_take_is_held_little_for_and_misses_nothing(
    journal: SqliteJournal,
) -> None:
    lease = await started(journal)
    async with aclosing(journal.follow(lease.run_id)) as pages:
        assert len(await _next(pages)) == 2
        tracemalloc.start()
        for number in range(200):
            await journal.append(
                lease.run_id, [text(f"{number} " + "x" * 50_000)], fence=lease.fence
            )
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        await journal.append(lease.run_id, [FINISHED], fence=lease.fence)
        seen = await _until(pages, 202)
    assert held < MEGABYTE
    assert seen == await journal.read(lease.run_id, after=1)


async def test_what_guests_say_through_another_handle_is_seen_in_its_place(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    lease = await started(journal)
    guest = SqliteJournal.open(tmp_path)
    rounds = 30

    async def follow() -> list[Stored]:
        async with aclosing(journal.follow(lease.run_id)) as pages:
            return await _until(pages, 2 * rounds + 1)

    following = asyncio.ensure_future(follow())
    for number in range(rounds):
        ours = journal.append(lease.run_id, [text(str(number))], fence=lease.fence)
        if number % 3:
            await ours
        await guest.append(lease.run_id, [CANCEL], fence=None)
    seen = await following
    guest.close()
    assert seen == await journal.read(lease.run_id)
    assert [stored.sequence for stored in seen] == list(range(2 * rounds + 2))


async def test_a_guest_is_heard_by_whoever_executes_a_run_and_does_nothing_else(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    lease = await started(journal)
    guest = SqliteJournal.open(tmp_path)
    async with aclosing(journal.follow(lease.run_id, after=1)) as pages:
        for _ in range(3):
            waiting = asyncio.ensure_future(_next(pages))
            await asyncio.sleep(0)
            sent = await guest.append(lease.run_id, [CANCEL], fence=None)
            assert await waiting == sent
    guest.close()


async def test_a_run_is_followed_on_after_it_was_given_up_and_taken_over_elsewhere(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    lease = await started(journal)
    other = SqliteJournal.open(tmp_path)
    async with aclosing(journal.follow(lease.run_id, after=1)) as pages:
        waiting = asyncio.ensure_future(_next(pages))
        await asyncio.sleep(0)
        await journal.release(lease)
        taken = await other.claim(lease.run_id, "elsewhere")
        sent = await other.append(lease.run_id, [text("on")], fence=taken.fence)
        assert await waiting == sent
    other.close()


async def test_facts_of_a_refused_append_reach_no_follower(journal: SqliteJournal) -> None:
    lease = await started(journal)
    async with aclosing(journal.follow(lease.run_id, after=1)) as pages:
        waiting = asyncio.ensure_future(_next(pages))
        await asyncio.sleep(0)
        refused = journal.append(lease.run_id, [text("no")], fence=lease.fence + 1)
        sent = await journal.append(lease.run_id, [text("yes")], fence=lease.fence)
        assert await waiting == sent
        with pytest.raises(Exception, match="fence"):
            await refused


async def test_a_page_that_does_not_follow_on_sends_the_follower_to_the_store() -> None:
    follower = Follower(asyncio.get_running_loop(), threading.Lock(), "sequence", -1, None)
    facts = [Stored(number, "run_1", number, "x", b"{}") for number in range(9)]
    assert follower.take() is None  # it has seen nothing yet
    assert follower.give(facts[:4]) == facts[:4]
    follower.offer((2, 4, facts[2:5]), 6)
    assert follower.take() == facts[4:5]
    follower.offer((6, 8, facts[6:9]), 6)
    assert follower.take() is None
    assert follower.give(facts[5:9]) == facts[5:9]
    assert follower.take() == []
