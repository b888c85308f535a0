"""Laws that hold for any facts in any order."""

import asyncio
import os
import tempfile

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

from batten.contract.errors import CallerError
from batten.contract.facts import Fact
from batten.journal.contract import Stored
from batten.journal.sqlite import SqliteJournal
from tests.journal.given import all_facts, facts, own_ids, rebuilt, started

RUNS = 3
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""These are many small stores, and no disk is needed to check them."""

appends = st.lists(st.tuples(st.integers(0, RUNS - 1), st.lists(facts, max_size=4)), max_size=25)


async def _append_all(
    journal: SqliteJournal, sent: list[tuple[int, list[Fact]]]
) -> dict[str, list[Stored]]:
    """Append to several runs without waiting in between; what each run was told is stored."""
    leases = [await started(journal) for _ in range(RUNS)]
    told = {lease.run_id: await journal.read(lease.run_id) for lease in leases}
    receipts = [
        (
            leases[number].run_id,
            journal.append(
                leases[number].run_id,
                [own_ids(leases[number].run_id, fact) for fact in given],
                fence=leases[number].fence,
            ),
        )
        for number, given in sent
    ]
    for run_id, receipt in receipts:
        try:
            told[run_id] += await receipt
        except CallerError:
            continue
    return told


@settings(max_examples=40, deadline=None)
@given(appends, st.integers(1, 9))
def test_interleaved_appends_are_gap_free_and_pages_give_back_the_appended_bytes(
    sent: list[tuple[int, list[Fact]]], limit: int
) -> None:
    async def check(home: str) -> None:
        journal = SqliteJournal.open(home)
        told = await _append_all(journal, sent)
        for run_id, stored in told.items():
            pages: list[Stored] = []
            while page := await journal.read(
                run_id, after=pages[-1].sequence if pages else -1, limit=limit
            ):
                pages += page
            assert pages == stored
            assert [item.sequence for item in stored] == list(range(len(stored)))
        feed = await all_facts(journal)
        assert len(feed) == sum(map(len, told.values()))
        assert [item.position for item in feed] == list(range(1, len(feed) + 1))
        assert await journal.verify() == []
        journal.close()

    with tempfile.TemporaryDirectory(dir=MEMORY) as home:
        asyncio.run(check(home))


@settings(max_examples=40, deadline=None)
@given(appends)
def test_rows_are_a_fold_of_the_facts_also_when_some_were_refused(
    sent: list[tuple[int, list[Fact]]],
) -> None:
    async def check(home: str) -> None:
        journal = SqliteJournal.open(home)
        told = await _append_all(journal, sent)
        runs, changes = await rebuilt(journal)
        for run_id in told:
            row = await journal.run(run_id)
            assert row is not None
            folded = asdict(runs[run_id])
            pending = [item for item in await journal.requests(run_id) if item.status == "pending"]
            assert folded.pop("pending") == len(pending)
            stored = asdict(row)
            assert folded == {name: stored[name] for name in folded}
        requests = [row for run_id in told for row in await journal.requests(run_id)]
        assert {row.request_id: row for row in requests} == changes.requests
        artifacts = [row for run_id in told for row in await journal.artifacts(run_id)]
        assert {row.artifact_id: row for row in artifacts} == changes.artifacts
        ledger = [row for run_id in told for row in await journal.ledger(run_id)]
        assert sorted(ledger, key=lambda row: (row.run_id, row.sequence)) == sorted(
            changes.ledger, key=lambda row: (row.run_id, row.sequence)
        )
        journal.close()

    with tempfile.TemporaryDirectory(dir=MEMORY) as home:
        asyncio.run(check(home))


@settings(max_examples=25, deadline=None)
@given(st.lists(facts, max_size=20), st.data())
def test_the_base_of_a_pruned_run_continues_to_the_same_rows(
    sent: list[Fact], data: st.DataObject
) -> None:
    async def check(home: str) -> None:
        from batten.contract.envelope import decode
        from batten.journal.rows import FactContext, fold

        journal = SqliteJournal.open(home)
        [run_id, *_] = await _append_all(journal, [(0, [fact]) for fact in sent])
        before = data.draw(st.integers(1, len(await journal.read(run_id))))
        await journal.prune(run_id, before=before, reason="age", base_state=b"kept")
        base = await journal.base(run_id)
        assert base is not None
        assert (base.sequence, base.state) == (before, b"kept")
        folded, changes = base.rows.fold, base.rows.changes()
        for stored in await journal.read(run_id):
            envelope = decode(stored.body)
            place = FactContext(
                run_id, envelope.task_id or None, None, stored.sequence, envelope.occurred_at
            )
            folded = fold(folded, changes, place, envelope.data)
        row = await journal.run(run_id)
        assert row is not None
        expected = asdict(row)
        values = asdict(folded)
        del values["pending"]
        assert values == {name: expected[name] for name in values}
        assert sorted(changes.requests) == [
            row.request_id for row in await journal.requests(run_id)
        ]
        assert list(changes.requests.values()) == [
            row for key in changes.requests for row in [await journal.request(key)]
        ]
        assert changes.ledger == await journal.ledger(run_id)
        assert await journal.verify() == []
        journal.close()

    with tempfile.TemporaryDirectory(dir=MEMORY) as home:
        asyncio.run(check(home))
