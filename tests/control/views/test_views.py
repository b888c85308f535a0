"""Views are folds: kept, dropped or read from the middle, they are the same."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from batten.contract import facts as f
from batten.contract.envelope import Envelope
from batten.contract.errors import NotFound
from batten.contract.ids import RunId, from_uuid, new_run_id
from batten.control.coordination.ids import journal_session
from batten.control.coordination.run_facts import new_stream
from batten.control.views import file as file_module
from batten.control.views import folding as module
from batten.control.views.dashboard import range_query
from batten.control.views.folds import STATES, VIEWS, View
from batten.control.views.listing import RunQuery
from batten.control.views.store import EventFilter, ViewStore
from batten.control.views.views import Views
from batten.journal.contract import NewRun
from batten.journal.sqlite import SqliteJournal
from batten.journal.sqlite.database import new_connection
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.projection import state_of
from tests.contract.journals import GOLDEN, OF_SESSIONS
from tests.contract.journals import envelopes as golden
from tests.control.coordination.given import open_runtime
from tests.control.views.sessions import DECISION, play
from tests.coordination.given import SESSION_ID
from tests.examples import examples
from tests.protocols.macp.making import (
    envelopes,
    failed,
    finished,
    json_text,
    observed,
    projected,
    said,
)

TABLES = ("events", "snapshots", "runs", "marks", "shares", "agents")


def folded(view: View[Any], facts: Sequence[Envelope], cuts: Sequence[int] = ()) -> bytes:
    """The state after all facts; at each cut it is stored and read again."""
    state = view.state()
    for number, envelope in enumerate(facts):
        if number in cuts:
            state = view.decode(view.encode(state))
        view.step(state, envelope)
    return view.encode(state)


def long_session() -> list[f.Fact]:
    usage = {"promptTokens": 100, "completionTokens": 10, "model": "gpt-4o", "latencyMs": 3}
    return observed(
        said("lead", "Proposal", proposal_id="p1", option="a", rationale="why"),
        said("ann", "Evaluation", json_text(proposalId="p1", confidence=1, tokenUsage=usage)),
        said("ann", "Progress", progress=1.0, message="done"),
        said("zoe", "Signal", signal_type="risk", confidence=0.5),
        said("zoe", "Signal", json_text(signalType="risk", confidence=1)),
        said("ann", "Vote", proposal_id="p1", vote="APPROVE"),
        said("lead", "Commitment", json_text(action="decision.selected", confidence=1)),
        finished(),
    )


RUNS_TO_FOLD = {name: golden(name) for name in GOLDEN if name not in OF_SESSIONS} | {
    "long": envelopes(long_session())
}


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.name)
@given(name=st.sampled_from(sorted(RUNS_TO_FOLD)), cuts=st.lists(st.integers(0, 40), max_size=6))
@settings(max_examples=examples(60), deadline=None)
def test_a_fold_stored_anywhere_and_gone_on_with_is_the_fold_of_all(
    view: View[Any], name: str, cuts: list[int]
) -> None:
    facts = RUNS_TO_FOLD[name]
    assert folded(view, facts, cuts) == folded(view, facts)


@asynccontextmanager
async def opened(home: Path) -> AsyncGenerator[tuple[SqliteJournal, ViewStore, Views]]:
    journal, store = SqliteJournal.open(home), ViewStore.open(home)
    views = Views(journal, store)
    try:
        yield journal, store, views
    finally:
        views.close()
        journal.close()


def contents(store: ViewStore) -> list[Any]:
    """All that the file holds."""
    return [*(store.all_kept(view.name) for view in VIEWS), *map(store.rows, TABLES)]


async def stored_run(
    journal: SqliteJournal, facts: Sequence[f.Fact], given: RunId | None = None
) -> str:
    """A run without a session; with a given id, one of the session `SESSION_ID`."""
    run_id = given or new_run_id()
    new = NewRun(run_id=run_id, kind="coordination", worker_id="w-1")
    if given is not None:
        stream, first = new_stream(SESSION_ID)
        await journal.create(stream, first)
        new = replace(new, task_id=stream.task_id, session_id=stream.session_id)
    lease, _ = await journal.create(new, facts[:3])
    assert lease is not None
    for start in range(3, len(facts), 200):
        await journal.append(run_id, facts[start : start + 200], fence=lease.fence)
    return run_id


async def answers(views: Views, run_id: str) -> list[bytes]:
    """Everything a reader can ask of a run, and of all runs."""
    query = range_query(0, 1_767_225_600_000, 4_070_908_800_000)
    shown = [
        await views.state(run_id),
        await views.state_at(run_id, 7),
        await views.record(run_id),
        await views.metrics(run_id),
        [row.body for row in (await views.events(run_id, EventFilter(), 1000)).rows],
        await views.events(run_id, EventFilter(types=frozenset({"no.such"})), 1),
        await views.board.events(EventFilter(), 1000),
        await views.board.runs(RunQuery()),
        await views.board.numbers(query),
        await views.board.agents(),
    ]
    return [msgspec.json.encode(one) for one in shown]


async def test_answers_are_equal_before_and_after_keeping_and_dropping(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, store, views):
        run_id = await stored_run(journal, long_session())
        await stored_run(journal, observed(failed()))
        unkept = await answers(views, run_id)
        await views.catch_up()
        assert store.position("states") == await journal.position()
        assert await answers(views, run_id) == unkept
        kept = contents(store)
        for view in VIEWS:
            store.drop(view.name)
            assert await answers(views, run_id) == unkept
            await views.catch_up()
            assert contents(store) == kept
            assert await answers(views, run_id) == unkept
    (tmp_path / "views.db").unlink()
    async with opened(tmp_path) as (_, store, views):
        assert await answers(views, run_id) == unkept
        await views.catch_up()
        assert contents(store) == kept


async def test_a_read_folds_what_is_not_kept_yet(tmp_path: Path) -> None:
    facts = long_session()
    async with opened(tmp_path) as (journal, _, views):
        run_id = new_run_id()
        new = NewRun(run_id=run_id, kind="coordination", worker_id="w-1")
        lease, _ = await journal.create(new, facts[:6])
        assert lease is not None
        await views.catch_up()
        await journal.append(run_id, facts[6:], fence=lease.fence)
        fresh = await answers(views, run_id)
        await views.catch_up()
        assert await answers(views, run_id) == fresh
        state = await views.state(run_id)
        assert state.run.status == "completed"
        assert (await views.record(run_id)).metadata["finalAction"] == "decision.selected"


async def test_reads_are_right_and_have_their_turns_while_views_are_made(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, store, views):
        notes = [said("ann", "Signal", signal_type="x") for _ in range(5_000)]
        long = await stored_run(journal, observed(*notes, finished()))
        short = await stored_run(journal, observed(finished()))
        record = await views.record(short)
        reads = 0
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            making = group.create_task(views.catch_up())
            while not making.done():
                assert await views.record(short) == record
                reads += 1
                await asyncio.sleep(0)
        assert reads > 10
        assert store.position("runs") == await journal.position()
        assert (await views.metrics(long)).signal_count == 5_000


async def test_a_list_far_behind_keeps_what_it_folds(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, store, views):
        notes = [said("ann", "Signal", signal_type="x") for _ in range(3_000)]
        run_id = await stored_run(journal, observed(*notes))
        assert await known(views) == [run_id]
        assert store.position("runs") == await journal.position()
        assert store.position("states") == 0
        assert (await views.board.agents())[0].signals == 3_000


async def test_a_list_is_read_although_nothing_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "_BUSY_MS", 1)
    async with opened(tmp_path) as (journal, store, views):
        with closing(new_connection(str(tmp_path / "views.db"))) as other:
            notes = [said("ann", "Signal", signal_type="x") for _ in range(2_500)]
            run_id = await stored_run(journal, observed(*notes))
            other.execute("BEGIN IMMEDIATE")
            assert await known(views) == [run_id]
            assert store.position("runs") == 0
            other.execute("COMMIT")
        await views.catch_up()
        assert await known(views) == [run_id]


async def test_two_keepers_do_not_count_twice(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, store, views):
        other_store = ViewStore.open(tmp_path)
        other = Views(journal, other_store)
        run_id = await stored_run(journal, observed())
        await views.catch_up()
        await other.catch_up()
        again = await stored_run(journal, long_session())
        await other.catch_up()
        await views.catch_up()
        assert (await views.metrics(run_id)).event_count == 8
        assert contents(store) == contents(other_store)
        assert (await views.state(again)).timeline == (await other.state(again)).timeline
        other.close()


async def test_state_at_any_event_is_the_fold_up_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SNAPSHOT_EVERY", 10)
    facts = observed(*(said("ann", "Signal", signal_type="x") for _ in range(60)), finished())
    async with opened(tmp_path) as (journal, store, views):
        run_id = await stored_run(journal, facts)
        await views.catch_up()
        assert len(store.snapshots(run_id)) > 10
        rows = (await views.events(run_id, EventFilter(), 1000)).rows
        events = [msgspec.json.decode(row.body, type=CanonicalEvent) for row in rows]
        for seq in (1, 5, 9, 10, 11, 64, len(events)):
            assert await views.state_at(run_id, seq) == projected(events[:seq])
        kept = store.snapshots(run_id)
        store.drop("states")
        await views.catch_up()
        assert store.snapshots(run_id) == kept
        for _, body in kept:
            assert state_of(STATES.decode(body).projection).timeline.latest_seq <= len(events)


async def test_a_rebuilt_run_has_the_rows_it_had_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SNAPSHOT_EVERY", 10)
    facts = observed(*(said("ann", "Signal", signal_type="x") for _ in range(250)), finished())
    async with opened(tmp_path) as (journal, store, views):
        run_id = await stored_run(journal, facts)
        await stored_run(journal, long_session())
        await views.catch_up()
        kept = [store.all_kept(view.name) for view in VIEWS]
        snapshots, unkept = store.snapshots(run_id), await answers(views, run_id)
        # Another process: a second library in this one would drop SQLite's locks.
        spoil = "; ".join(
            f"UPDATE {table} SET body = '{{}}' WHERE run_id = '{run_id}'"
            for table in ("kept", "events", "snapshots")
        )
        script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript(sys.argv[2])"
        command = [sys.executable, "-c", script, str(tmp_path / "views.db"), spoil]
        await asyncio.to_thread(subprocess.run, command, check=True, timeout=30)
        again = Views(journal, store)
        state = await again.rebuild(run_id)
        assert msgspec.json.encode(state) == unkept[0]
        assert [store.all_kept(view.name) for view in VIEWS] == kept
        assert store.snapshots(run_id) == snapshots
        assert await answers(again, run_id) == unkept
        await journal.append(run_id, [f.MacpRunArchived(by="ann")], fence=None)
        await again.catch_up()
        record = await again.record(run_id)
        assert (record.tags[-1], record.archived_at) == ("archived", record.updated_at)
        assert record.last_event_seq == state.timeline.latest_seq


async def test_a_late_state_reads_only_the_facts_after_its_snapshot(tmp_path: Path) -> None:
    facts = observed(*(said("ann", "Note", b"x") for _ in range(5_000)))
    async with opened(tmp_path) as (journal, store, views):
        run_id = await stored_run(journal, facts)
        await views.catch_up()
        body = store.snapshot(run_id, 4_900)
        assert body is not None
        assert 4_900 - STATES.decode(body).seq <= module.SNAPSHOT_EVERY
        assert (await views.state_at(run_id, 4_900)).timeline.latest_seq == 4_900


async def test_events_are_filtered_counted_and_ordered(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, _, views):
        first = await stored_run(journal, long_session())
        await views.catch_up()
        second = await stored_run(journal, observed())
        page = await views.events(first, EventFilter(after_seq=3), 2)
        assert [row.seq for row in page.rows] == [4, 5]
        bound = EventFilter(types=frozenset({"session.bound"}))
        found = await views.board.events(bound, 10)
        assert ([row.run_id for row in found.rows], found.total) == ([first, second], 2)
        late = EventFilter(after_ts=found.rows[1].ts)
        assert {row.run_id for row in (await views.board.events(late, 500)).rows} >= {second}
        none = EventFilter(before_ts="2000-01-01T00:00:00Z")
        assert (await views.events(first, none, 10)).total == 0


async def test_an_unknown_run_is_named(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, _, views):
        for read in (views.state, views.record, views.metrics):
            with pytest.raises(NotFound) as caught:
                await read(new_run_id())
            assert caught.value.code == "RUN_NOT_FOUND"
        with pytest.raises(NotFound):
            await views.state_at(new_run_id(), 3)


async def test_a_deleted_run_is_in_no_view(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        gone = await play(runtime, DECISION)
    async with opened(tmp_path) as (journal, store, views):
        kept = await stored_run(journal, observed(said("ann", "Note", b"x"), finished()))
        await views.catch_up()
        assert (await views.board.runs(RunQuery())).total == 2
        await journal.delete_session(journal_session(SESSION_ID))
        views.forget([gone])
        assert await known(views) == [kept]
        assert [one.participant_id for one in await views.board.agents()] == ["ann"]
        rows = (await views.board.events(EventFilter(), 500)).rows
        assert {row.run_id for row in rows} == {kept}
        assert [row.run_id for row in store.all_kept("states")] == [kept]
        with pytest.raises(NotFound):
            await views.state(gone)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_run_that_is_deleted_while_its_events_are_read_does_not_end_as_if_it_were_whole(
    tmp_path: Path, is_kept: bool
) -> None:
    async with open_runtime(tmp_path) as runtime:
        gone = await play(runtime, DECISION)
    async with opened(tmp_path) as (journal, _, views):
        if is_kept:
            await views.catch_up()
        async with aclosing(views.run_events(gone).pages(size=3)) as pages:
            assert (await anext(pages))[0].seq == 1
            await journal.delete_session(journal_session(SESSION_ID))
            views.forget([gone])
            with pytest.raises(NotFound):
                async for _ in pages:
                    pass


async def known(views: Views) -> list[str]:
    """The runs of the list, by the journal's ids."""
    found = await views.board.runs(RunQuery(sort_order="asc"))
    assert found.total == len(found.records)
    return [from_uuid(record.id, "run") for record in found.records]


@pytest.mark.parametrize("is_kept", [True, False])
async def test_the_next_read_lacks_runs_that_another_process_removed(
    tmp_path: Path, is_kept: bool
) -> None:
    async with open_runtime(tmp_path) as runtime:
        deleted = await play(runtime, DECISION)
    async with opened(tmp_path) as (journal, store, views):
        pruned, kept = [
            await stored_run(journal, observed(said("ann", "Note", b"x"), finished()))
            for _ in range(2)
        ]
        if is_kept:
            await views.catch_up()
        assert await known(views) == [deleted, pruned, kept]
        await journal.delete_session(journal_session(SESSION_ID))
        assert await known(views) == [pruned, kept]
        assert await journal.prune(pruned, before=3, reason="age") is not None
        assert await known(views) == [kept]
        rows = (await views.board.events(EventFilter(), 500)).rows
        assert {row.run_id for row in rows} == {kept}
        assert [one.runs for one in await views.board.agents()] == [1]
        for run_id in (deleted, pruned):
            with pytest.raises(NotFound):
                await views.record(run_id)
        await views.catch_up()
        assert await known(views) == [kept]
        assert {row.run_id for row in store.events(EventFilter(), 500)} == {kept}


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("is_longer", [True, False])
async def test_a_run_with_the_id_of_a_deleted_one_has_nothing_of_it(
    tmp_path: Path, is_kept: bool, is_longer: bool
) -> None:
    short = observed(said("zoe", "Signal", signal_type="risk", confidence=0.5), finished())
    facts = (short, long_session()) if is_longer else (long_session(), short)
    run_id = new_run_id()
    fresh_store = ViewStore.open(tmp_path / "fresh")
    async with opened(tmp_path) as (journal, store, views):
        await stored_run(journal, facts[0], run_id)
        if is_kept:
            await views.catch_up()
        await answers(views, run_id)
        await journal.delete_session(journal_session(SESSION_ID))  # as by another process
        await stored_run(journal, facts[1], run_id)
        with closing(Views(journal, fresh_store)) as fresh:
            for _ in range(2):
                seen = await answers(views, run_id)
                assert seen == await answers(fresh, run_id)
                rows = [row async for page in views.run_events(run_id).pages() for row in page]
                found = await fresh.events(run_id, EventFilter(), 99)
                assert [row.body for row in rows] == [row.body for row in found.rows]
                await views.catch_up()
                await fresh.catch_up()
            assert contents(store) == contents(fresh_store)


async def test_a_view_made_after_pruning_equals_one_made_before(tmp_path: Path) -> None:
    async with opened(tmp_path) as (journal, store, views):
        pruned = await stored_run(journal, observed(said("ann", "Note", b"x"), finished()))
        await stored_run(journal, long_session())
        await views.catch_up()
        assert await journal.prune(pruned, before=3, reason="age") is not None
        await views.catch_up()
        before = contents(store)
        for view in VIEWS:
            store.drop(view.name)
        await views.catch_up()
        assert contents(store) == before
