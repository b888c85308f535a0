"""Pruning and deleting whole sessions, beside processes that write, and killed in between."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import apsw
import pytest
from msgspec.structs import replace

from batten.contract.errors import Conflict, NotFound, StoreBusy
from batten.contract.facts import ArtifactUpdated
from batten.contract.ids import new_session_id, session_stream
from batten.journal.contract import Journal
from batten.journal.opening import removal_lock
from batten.journal.removal import Extent, Removable, Removal, RemovalLimits
from batten.journal.sqlite import SqliteJournal
from batten.journal.sqlite.reclaiming import size_of
from batten.journal.sqlite.removing import delete
from tests.journal.given import (
    FINISHED,
    QUEUED,
    STARTED,
    all_facts,
    artifact,
    new_run,
    started,
    text,
)
from tests.journal.process import start
from tests.journal.sessions import age, ended_session

OLD = RemovalLimits(used_before="2021-01-01T00:00:00.000Z")
ALL = RemovalLimits(keep=0)


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal.open(tmp_path)
    yield journal
    journal.close()


def nothing(one: Removable, size: Extent) -> None:
    """Is told of each session that goes."""


async def sessions(journal: Journal) -> set[str]:
    return {row.session_id for row in await journal.sessions(limit=1000)}


def names(result: Removal) -> set[str]:
    return {one.name for one in result.removed}


async def test_old_sessions_go_and_newer_ones_stay_byte_for_byte(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    old = [await ended_session(journal) for _ in range(3)]
    new = [await ended_session(journal) for _ in range(2)]
    for session_id in old:
        age(tmp_path, session_id)
    kept = {session_stream(cast(Any, session_id)) for session_id in new}
    before = await all_facts(journal)
    rows = {row.run_id: row for row in await journal.runs(limit=100) if row.session_id in new}
    result = await journal.remove_sessions(OLD, nothing)
    assert names(result) == set(old)
    assert await sessions(journal) == set(new)
    assert {row.run_id: row for row in await journal.runs(limit=100)} == rows
    assert await all_facts(journal) == [
        fact for fact in before if fact.run_id in rows or fact.run_id in kept
    ]
    assert await journal.verify() == []


async def test_the_most_recently_used_stay(journal: SqliteJournal) -> None:
    made = [await ended_session(journal) for _ in range(4)]
    result = await journal.remove_sessions(RemovalLimits(keep=1), nothing)
    assert names(result) == set(made[:3])
    assert await sessions(journal) == {made[3]}


async def test_keep_protects_sessions_that_are_old_enough_to_go(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    first, second = await ended_session(journal), await ended_session(journal)
    age(tmp_path, first, "2019-01-01T00:00:00.000Z")
    age(tmp_path, second)
    limits = RemovalLimits(used_before="2021-01-01T00:00:00.000Z", keep=1)
    assert names(await journal.remove_sessions(limits, nothing)) == {first}


async def test_the_oldest_go_until_the_store_is_small_enough(journal: SqliteJournal) -> None:
    made = [await ended_session(journal, facts=200) for _ in range(6)]
    size = size_of(journal.reader).total
    limit = size * 2 // 3
    result = await journal.remove_sessions(RemovalLimits(max_bytes=limit), nothing)
    assert result.before.total == size
    assert result.after.total <= limit < size
    gone = names(result)
    assert 0 < len(gone) < 6
    assert gone == set(made[: len(gone)])


async def test_the_space_is_given_back_to_the_disk(journal: SqliteJournal, tmp_path: Path) -> None:
    for number in range(4):
        await ended_session(journal, facts=2000, body=b"%d" % number * 40_000)
    files = [path for path in (tmp_path / "artifacts").rglob("*") if path.is_file()]
    for path in files:
        os.utime(path, (0, 0))
    assert len(files) == 4
    with apsw.Connection(str(tmp_path / "journal.db")) as db:
        cast(Any, db).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    before = (tmp_path / "journal.db").stat().st_size
    result = await journal.remove_sessions(ALL, nothing)
    assert result.young_bodies == 0
    assert (tmp_path / "journal.db").stat().st_size < before / 10
    assert [path for path in (tmp_path / "artifacts").rglob("*") if path.is_file()] == []


async def test_a_plan_changes_nothing_and_names_what_pruning_removes(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    for _ in range(3):
        age(tmp_path, await ended_session(journal))
    await ended_session(journal)
    before = await all_facts(journal)
    planned = await journal.plan_removal(OLD, nothing)
    assert planned.after.total < planned.before.total
    assert await all_facts(journal) == before
    assert names(planned) == names(await journal.remove_sessions(OLD, nothing))


async def test_unfinished_runs_and_sessions_in_use_are_never_pruned(
    journal: SqliteJournal,
) -> None:
    unfinished = await ended_session(journal, ends=False)
    used = await ended_session(journal)
    await journal.claim(session_stream(cast(Any, used)), "worker-elsewhere", 600)
    other = await ended_session(journal)
    planned, result = (
        await journal.plan_removal(ALL, nothing),
        await journal.remove_sessions(ALL, nothing),
    )
    for one in (planned, result):
        assert names(one) == {other}
        reasons = {stretch.name: reason for stretch, reason in one.spared}
        assert "is unfinished" in reasons[unfinished]
        assert "worker-elsewhere holds" in reasons[used]
    assert await sessions(journal) == {unfinished, used}


async def test_a_pin_keeps_a_body_through_pruning(journal: SqliteJournal) -> None:
    lease = await started(journal)
    pinned, other = journal.inline(b"pinned"), journal.inline(b"other")
    await journal.append(
        lease.run_id,
        [artifact("art_1", pinned.sha256), artifact("art_2", other.sha256)],
        fence=lease.fence,
        bodies=[pinned, other],
    )
    await journal.append(
        lease.run_id, [ArtifactUpdated("art_1", "pinned", False, True, by="ann")], fence=None
    )
    await journal.prune(lease.run_id, before=4, reason="age")
    await journal.collect_bodies(grace_s=-1)

    assert await journal.body(pinned.sha256) == b"pinned"
    with pytest.raises(NotFound):
        await journal.body(other.sha256)
    assert await journal.verify() == []
    await journal.append(
        lease.run_id, [ArtifactUpdated("art_1", "pinned", True, False)], fence=None
    )
    await journal.prune(lease.run_id, before=5, reason="age")
    await journal.collect_bodies(grace_s=-1)
    with pytest.raises(NotFound):
        await journal.body(pinned.sha256)
    assert await journal.verify() == []


async def test_a_session_with_a_pinned_artifact_is_never_pruned(journal: SqliteJournal) -> None:
    pinned, other = await ended_session(journal), await ended_session(journal)
    row = await journal.session(pinned)
    assert row is not None
    assert row.last_run_id is not None
    pin = ArtifactUpdated("art_1", "pinned", False, True)
    await journal.append(row.last_run_id, [artifact(), pin], fence=None)

    result = await journal.remove_sessions(ALL, nothing)

    assert names(result) == {other}
    assert [reason for _, reason in result.spared] == ["its artifact art_1 is pinned"]
    await journal.append(
        row.last_run_id, [ArtifactUpdated("art_1", "pinned", True, False)], fence=None
    )
    assert names(await journal.remove_sessions(ALL, nothing)) == {pinned}


async def test_a_run_without_a_session_is_pruned_with_its_children(journal: SqliteJournal) -> None:
    parent = await started(journal)
    child = replace(QUEUED, parent_run_id=parent.run_id)
    lease, _ = await journal.create(new_run(), [child, STARTED, FINISHED])
    assert lease is not None
    assert [one.name for one in (await journal.remove_sessions(ALL, nothing)).removed] == []
    await journal.append(parent.run_id, [FINISHED], fence=parent.fence)
    assert names(await journal.remove_sessions(ALL, nothing)) == {parent.run_id}
    assert await journal.runs() == []
    assert await journal.verify() == []


async def test_a_session_stays_while_a_fork_reads_it(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    origin = await ended_session(journal)
    fork = await ended_session(journal, forked_from=origin)
    age(tmp_path, origin)
    result = await journal.remove_sessions(OLD, nothing)
    assert [(one.name, fork in reason) for one, reason in result.spared] == [(origin, True)]
    with pytest.raises(Conflict, match=f"session {fork} was forked from"):
        await journal.delete_session(origin)
    age(tmp_path, fork, "2018-01-01T00:00:00.000Z")  # older than its origin: it goes first anyway
    assert names(await journal.remove_sessions(OLD, nothing)) == {origin, fork}
    assert await journal.verify() == []


async def test_no_position_and_no_key_of_a_deleted_session_is_used_again(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    session_id = await ended_session(journal)
    last = (await all_facts(journal))[-1].position
    await journal.delete_session(session_id)
    assert await all_facts(journal) == []
    assert await journal.verify() == []
    journal.close()
    again = SqliteJournal.open(tmp_path)
    await ended_session(again)
    assert (await all_facts(again))[0].position == last + 1
    assert await again.verify() == []
    again.close()


async def test_a_reader_that_knew_a_deleted_run_finds_nothing_of_another(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    reader = SqliteJournal.open(tmp_path, read_only=True)
    session_id = await ended_session(journal)
    stream = session_stream(cast(Any, session_id))
    assert await reader.read(stream) != []
    await journal.delete_session(session_id)
    await ended_session(journal)
    with pytest.raises(NotFound):
        await reader.read(stream)
    reader.close()


async def test_who_follows_a_run_is_told_that_it_was_deleted(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    reader = SqliteJournal.open(tmp_path, read_only=True)
    session_id = await ended_session(journal, ends=False)
    [run] = await journal.runs(session_id=session_id)
    async with aclosing(reader.follow(run.run_id)) as pages:
        assert len(await anext(pages)) == run.next_sequence
        waiting = asyncio.ensure_future(anext(pages))
        await asyncio.sleep(0)
        command = SqliteJournal.open(tmp_path)
        await command.delete_session(session_id)
        with pytest.raises(NotFound):
            await asyncio.wait_for(waiting, 20)
        command.close()
    reader.close()


async def test_a_deletion_that_was_interrupted_is_invisible_and_completed_by_the_next(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    gone, kept = await ended_session(journal, facts=1000), await ended_session(journal)
    facts = [fact for fact in await all_facts(journal) if kept.encode() in fact.body]
    await journal.work(lambda batch: delete(batch, gone, is_session=True, prune=False))
    other = SqliteJournal.open(tmp_path, read_only=True)
    assert await all_facts(other) == facts
    assert await other.verify() == []
    other.close()
    await journal.remove_sessions(OLD, nothing)
    db = cast(Any, apsw.Connection(str(tmp_path / "journal.db")))
    assert db.execute("SELECT count(*) FROM events").get == len(facts)
    assert db.execute("SELECT count(*) FROM removals").get == 0
    db.close()


async def test_a_deleted_session_leaves_no_row_and_no_old_body(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    session_id = await ended_session(journal, body=b"small")
    await journal.delete_session(session_id)
    db = cast(Any, apsw.Connection(str(tmp_path / "journal.db")))
    tables = ("runs", "events", "sessions", "artifacts", "bodies", "ledger", "requests", "removals")
    counts = {table: db.execute(f"SELECT count(*) FROM {table}").get for table in tables}
    assert counts == dict.fromkeys(tables, 0)
    db.close()
    with pytest.raises(NotFound):
        await journal.delete_session(session_id)


async def test_a_body_that_another_session_needs_stays(journal: SqliteJournal) -> None:
    first = await ended_session(journal, body=b"the same")
    await ended_session(journal, body=b"the same")
    await journal.delete_session(first)
    assert await journal.verify() == []


async def test_a_body_that_was_just_written_stays_until_the_next_time(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    """Another process may have written the same body for a fact that it has not committed yet."""
    session_id = await ended_session(journal, body=b"x" * 40_000)
    assert await journal.delete_session(session_id) == 1
    (path,) = [path for path in (tmp_path / "artifacts").rglob("*") if path.is_file()]
    assert path.read_bytes() == b"x" * 40_000
    assert await journal.collect_bodies(grace_s=0) == 1
    assert not path.exists()


async def test_pruned_sessions_count_in_the_statistics_and_deleted_ones_do_not(
    journal: SqliteJournal,
) -> None:
    made = [await ended_session(journal, cost=cost) for cost in (100, 20, None)]
    before = [await journal.usage(by, None, None) for by in ("all", "day", "model", "workspace")]
    ((whole,), *_) = before
    assert (whole.runs, whole.calls, whole.cost_micros_usd) == (3, 3, 120)
    assert (whole.input_tokens, whole.cache_read_tokens, whole.cost_unknown) == (30, 6, True)
    await journal.remove_sessions(RemovalLimits(keep=1), nothing)
    assert await sessions(journal) == {made[2]}
    after = [await journal.usage(by, None, None) for by in ("all", "day", "model", "workspace")]
    assert after == before
    await journal.delete_session(made[2])
    assert (await journal.usage("all", None, None))[0].runs == 2
    assert await journal.usage("all", "2999-01-01", None) == []


async def test_only_one_process_prunes_at_a_time(tmp_path: Path) -> None:
    home = str(tmp_path)
    with removal_lock(home), pytest.raises(StoreBusy, match="another"), removal_lock(home):
        pass
    with removal_lock(str(tmp_path)):
        pass


async def test_processes_that_write_are_not_disturbed_by_pruning(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path)
    for _ in range(4):
        await ended_session(journal, facts=3000)
    mine = await started(journal)
    writers = [start("write_many", tmp_path, "50") for _ in range(2)]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    pruner = start("prune_all", tmp_path)
    while pruner.poll() is None:
        await journal.append(mine.run_id, [text("beside")], fence=mine.fence)
        await asyncio.sleep(0)
    assert pruner.communicate()[0].endswith("done\n")
    runs = [writer.communicate(timeout=60)[0].strip() for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    left = {row.run_id for row in await journal.runs(limit=100)}
    assert mine.run_id in left
    for run_id in set(runs) & left:  # one that ended in time was pruned
        assert len(await journal.read(run_id, limit=1000)) == 53
    assert await sessions(journal) == set()
    assert await journal.verify() == []
    journal.close()


@pytest.mark.parametrize("after", [0, 1, 3, 7])
async def test_a_pruner_that_is_killed_leaves_a_sound_store(tmp_path: Path, after: int) -> None:
    with start("fill", tmp_path, "10") as filler:
        made = filler.communicate()[0].split()
    with start("prune_all", tmp_path) as pruner:
        assert pruner.stdout is not None
        told = [pruner.stdout.readline().strip() for _ in range(after)]
        os.kill(pruner.pid, signal.SIGKILL)
    journal = SqliteJournal.open(tmp_path)
    assert await journal.verify() == []
    left = await sessions(journal)
    assert left <= set(made) - set(told)
    await ended_session(journal)
    assert (await journal.remove_sessions(ALL, nothing)).spared == []
    assert await journal.verify() == []
    assert await all_facts(journal) == []
    journal.close()


async def test_an_unknown_session_is_not_found(journal: SqliteJournal) -> None:
    with pytest.raises(NotFound):
        await journal.delete_session(new_session_id())
