"""Appends of several senders wait for each other and share a commit; one alone does not wait."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial

import pytest
from msgspec.structs import replace

from batten.contract.envelope import decode_fact
from batten.contract.errors import FenceLost, JournalError
from batten.control.coordination.commits import Append, Commits
from batten.journal.contract import Lease
from batten.journal.memory import MemoryJournal
from tests.journal.given import started, text

FOREVER_S = 3600.0
PATIENCE_S = 10


@pytest.fixture
async def journal() -> AsyncIterator[MemoryJournal]:
    made = MemoryJournal()
    yield made
    made.close()


@pytest.fixture
async def lease(journal: MemoryJournal) -> Lease:
    return await started(journal)


def waiting(*, here: bool = False) -> Commits:
    """Waits for others as long as it takes."""
    return Commits(here=here, longest_s=FOREVER_S, pause_s=FOREVER_S)


Settled = Callable[[BaseException | None], object]


def ignore(error: BaseException | None) -> None:
    """Nobody is told."""


def said(
    journal: MemoryJournal, lease: Lease, words: str = "hello", settled: Settled = ignore
) -> Append:
    submit = partial(journal.append, lease.run_id, [text(words)], fence=lease.fence)
    return Append(submit, settled)


async def words_of(journal: MemoryJournal, lease: Lease) -> list[object]:
    return [decode_fact(one.body) for one in await journal.read(lease.run_id, after=1)]


@pytest.mark.parametrize("here", [False, True])
async def test_one_sender_alone_never_waits(
    journal: MemoryJournal, lease: Lease, here: bool
) -> None:
    commits = waiting(here=here)
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(100):
            await commits.add(said(journal, lease), "ann")
    assert len(await words_of(journal, lease)) == 100


@pytest.mark.parametrize("here", [False, True])
async def test_an_append_waits_until_those_heard_a_moment_ago_are_heard_again(
    journal: MemoryJournal, lease: Lease, here: bool
) -> None:
    commits = waiting(here=here)
    async with asyncio.timeout(PATIENCE_S):
        await commits.add(said(journal, lease, "1"), "ann")
        first = commits.add(said(journal, lease, "2"), "ben")
        waited = await words_of(journal, lease)
        await commits.add(said(journal, lease, "3"), "ann")
        await first
    assert waited == [text("1")]
    assert await words_of(journal, lease) == [text("1"), text("2"), text("3")]


@pytest.mark.parametrize(("longest_s", "pause_s"), [(0.001, FOREVER_S), (FOREVER_S, 0.001)])
async def test_nobody_waits_longer_than_a_moment(
    journal: MemoryJournal, lease: Lease, longest_s: float, pause_s: float
) -> None:
    commits = Commits(longest_s=longest_s, pause_s=pause_s)
    async with asyncio.timeout(PATIENCE_S):
        await commits.add(said(journal, lease), "ann")
        await commits.add(said(journal, lease), "ben")
        await commits.add(said(journal, lease), "ben")


async def test_an_append_without_a_sender_takes_along_those_before_it(
    journal: MemoryJournal, lease: Lease
) -> None:
    commits = waiting()
    async with asyncio.timeout(PATIENCE_S):
        await commits.add(said(journal, lease, "1"), "ann")
        first = commits.add(said(journal, lease, "2"), "ben")
        await commits.add(said(journal, lease, "3"))
        await first
    assert await words_of(journal, lease) == [text("1"), text("2"), text("3")]


@pytest.mark.parametrize("here", [False, True])
async def test_a_failed_append_fails_alone(
    journal: MemoryJournal, lease: Lease, here: bool
) -> None:
    commits, outcomes = waiting(here=here), list[BaseException | None]()
    other = await started(journal)
    async with asyncio.timeout(PATIENCE_S):
        await commits.add(said(journal, lease), "ann")
        bad = commits.add(
            said(journal, replace(other, fence=other.fence + 1), settled=outcomes.append), "ben"
        )
        await commits.add(said(journal, lease), "ann")
        for _ in range(2):
            with pytest.raises(FenceLost):
                await bad
    assert [type(outcome) for outcome in outcomes] == [FenceLost]
    assert len(await words_of(journal, lease)) == 2
    assert await words_of(journal, other) == []


async def test_an_append_goes_on_when_its_waiter_is_cancelled(
    journal: MemoryJournal, lease: Lease
) -> None:
    commits, outcomes = waiting(), list[BaseException | None]()
    await commits.add(said(journal, lease, "1"), "ann")
    append = said(journal, lease, "2", outcomes.append)

    async def wait() -> None:
        await append

    commits.add(append, "ben")
    waiter = asyncio.create_task(wait())
    await asyncio.sleep(0)
    waiter.cancel()
    with suppress(asyncio.CancelledError):
        await waiter
    async with asyncio.timeout(PATIENCE_S):
        await commits.add(said(journal, lease, "3"), "ann")
        await append
    assert outcomes == [None]
    assert await words_of(journal, lease) == [text("1"), text("2"), text("3")]


@pytest.mark.parametrize("here", [False, True])
async def test_whoever_finishes_waits_for_all(
    journal: MemoryJournal, lease: Lease, here: bool
) -> None:
    commits = waiting(here=here)
    await commits.finish()
    await commits.add(said(journal, lease, "1"), "ann")
    commits.add(said(journal, lease, "2"), "ben")
    await commits.finish()
    assert await words_of(journal, lease) == [text("1"), text("2")]


async def test_a_closed_journal_is_told_to_all(journal: MemoryJournal, lease: Lease) -> None:
    commits = waiting()
    await commits.add(said(journal, lease), "ann")
    first = commits.add(said(journal, lease), "ben")
    journal.close()
    for append in (commits.add(said(journal, lease), "ann"), first):
        with pytest.raises(JournalError):
            await append
