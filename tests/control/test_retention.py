"""Retention: what is beyond the limits goes, with a marker; what is pinned or unfinished stays."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from batten.contract import facts as f
from batten.contract.envelope import decode
from batten.contract.ids import SessionId, new_artifact_id
from batten.control.retention import Keep, Retention, RetentionPolicy, shown_age
from batten.control.retention_log import RetentionLog
from batten.journal.contract import RunRow
from batten.journal.opening import removal_lock
from batten.journal.sqlite import SqliteJournal
from batten.protocols.hecate.system import RetentionRun
from batten.redact.seal import SealKey
from batten.session.history import prompts_of
from tests.control.given import Place, called, said
from tests.journal.given import artifact
from tests.journal.sessions import age, ended_session

PATIENCE_S = 30
DAY_S = 86400


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal.open(tmp_path)
    yield journal
    journal.close()


async def applied(home: Path, policy: RetentionPolicy) -> RetentionRun:
    """One removal on request."""
    retention = Retention(str(home), lambda: SealKey.load(str(home)), policy)
    async with asyncio.TaskGroup() as group:
        duty = group.create_task(retention.run())
        async with asyncio.timeout(PATIENCE_S):
            done = await retention.apply((), actor="ada", request_id="req_1")
        duty.cancel()
    return done


async def run_of(journal: SqliteJournal, session_id: str) -> RunRow:
    [row] = await prompts_of(journal, SessionId(session_id))
    return row


async def is_pruned(journal: SqliteJournal, session_id: str) -> bool:
    """Whether nothing of the session's run is left but a marker that names what was there."""
    row = await run_of(journal, session_id)
    stored = await journal.read(row.run_id)
    first = decode(stored[0].body).data
    if not isinstance(first, f.GapEventsPruned):
        assert stored[0].sequence == 0
        return False
    assert [one.sequence for one in stored] == [row.base_sequence]
    assert row.base_sequence > 0
    pruned = (first.first_pruned_sequence, first.last_pruned_sequence, first.reason)
    assert pruned == (0, row.base_sequence - 1, "retention_window")
    assert (row.outcome, row.status) == ("completed", "completed")
    return True


async def pruned(journal: SqliteJournal, sessions: list[str]) -> list[bool]:
    return [await is_pruned(journal, session_id) for session_id in sessions]


async def test_runs_beyond_the_count_go_oldest_first(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    sessions = [await ended_session(journal) for _ in range(5)]
    for number, session_id in enumerate(sessions):
        age(tmp_path, session_id, f"2026-01-0{number + 1}T00:00:00.000Z")

    done = await applied(tmp_path, RetentionPolicy(runs=Keep(max_count=2)))

    assert await pruned(journal, sessions) == [True, True, True, False, False]
    [runs, artifacts] = done.results
    assert (runs.name, runs.deleted, runs.max_count, runs.error) == ("runs", 3, 2, "")
    assert (artifacts.name, artifacts.skipped) == ("artifacts", True)
    assert (done.trigger, done.actor, done.request_id) == ("manual", "ada", "req_1")
    again = await applied(tmp_path, RetentionPolicy(runs=Keep(max_count=2)))
    assert again.results[0].deleted == 0


async def test_runs_older_than_the_limit_go_and_the_store_stays_sound(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    old, new = await ended_session(journal), await ended_session(journal)
    age(tmp_path, old)

    done = await applied(tmp_path, RetentionPolicy(runs=Keep(max_age_s=30 * DAY_S)))

    assert await pruned(journal, [old, new]) == [True, False]
    assert (done.results[0].deleted, done.results[0].max_age) == (1, "30d")


async def test_the_oldest_runs_go_until_the_journal_is_small_enough(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    sessions = [await ended_session(journal, facts=200) for _ in range(6)]
    most = (tmp_path / "journal.db").stat().st_size // 2

    await applied(tmp_path, RetentionPolicy(runs=Keep(max_bytes=most)))

    gone = await pruned(journal, sessions)
    assert gone == sorted(gone, reverse=True)
    assert 0 < sum(gone) < 6
    assert await journal.verify() == []


async def test_an_unfinished_run_stays(journal: SqliteJournal, tmp_path: Path) -> None:
    session_id = await ended_session(journal, ends=False)
    done = await applied(
        tmp_path, RetentionPolicy(runs=Keep(max_bytes=1), artifacts=Keep(max_bytes=1))
    )
    assert [result.deleted for result in done.results] == [0, 0]
    assert not await is_pruned(journal, session_id)


@pytest.mark.parametrize("keep", [Keep(max_count=1), Keep(max_bytes=70_000)])
async def test_artifacts_beyond_the_limit_go_with_their_bodies_but_pinned_ones_stay(
    journal: SqliteJournal, tmp_path: Path, keep: Keep
) -> None:
    bodies = [bytes([number]) * 60_000 for number in range(4)]
    sessions = [await ended_session(journal) for _ in bodies]
    ids = [new_artifact_id() for _ in bodies]
    rows = [await run_of(journal, session_id) for session_id in sessions]
    for id_, row, data in zip(ids, rows, bodies, strict=True):
        body = journal.inline(data)
        made = replace(artifact(id_, body.sha256), size_bytes=body.size)
        await journal.append(row.run_id, [made], fence=None, bodies=[body])
    pin = f.ArtifactUpdated(ids[1], "pinned", False, True, by="ada")
    await journal.append(rows[1].run_id, [pin], fence=None)

    done = await applied(tmp_path, RetentionPolicy(artifacts=keep))

    found = [await journal.artifact(one) for one in ids]
    kept = [row is not None and row.deleted_at is None for row in found]
    # The pinned one takes the only place, so that every other one goes.
    assert kept == [False, True, False, False]
    assert done.results[1].deleted == 3
    sha = [row.sha256 for row in found if row is not None]
    assert await journal.body(sha[1]) == bodies[1]
    held = await journal.public_artifacts()
    assert [row.artifact_id for row in held] == [ids[1]]
    for number in (0, 2, 3):
        first = decode((await journal.read(rows[number].run_id))[0].body)
        assert first.sequence > 0
    assert (await journal.read(rows[1].run_id))[0].sequence == 0
    assert await journal.verify() == []


async def test_a_pruned_run_hides_its_artifacts_and_keeps_pinned_ones(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    session_id = await ended_session(journal, body=b"plain")
    row = await run_of(journal, session_id)
    second = journal.inline(b"pinned")
    made = artifact("art_pinned", second.sha256)
    await journal.append(row.run_id, [made], fence=None, bodies=[second])
    pin = f.ArtifactUpdated("art_pinned", "pinned", False, True, by="ada")
    await journal.append(row.run_id, [pin], fence=None)

    await applied(tmp_path, RetentionPolicy(runs=Keep(max_bytes=1)))

    assert await is_pruned(journal, session_id)
    assert [one.artifact_id for one in await journal.public_artifacts()] == ["art_pinned"]
    assert await journal.body(second.sha256) == b"pinned"
    assert await journal.verify() == []


async def test_a_pruned_conversation_can_be_continued(place: Place) -> None:
    model = place.model([called("echo hello")], [said("Done.")], [said("Still here.")])
    row = await place.started(model)
    async with place.working():
        await place.ended(row)
    home = Path(place.opener.home)
    policy = RetentionPolicy(runs=Keep(max_bytes=1))
    assert (await applied(home, policy)).results[0].deleted == 1
    again = await place.tasks.go_on(row.task_id or "", row.run_id, "and now?", by="ada")
    async with place.working():
        ended = await place.ended(again)
    assert ended.outcome == "completed"


async def test_a_removal_waits_for_no_other_upkeep(journal: SqliteJournal, tmp_path: Path) -> None:
    session_id = await ended_session(journal)
    with removal_lock(str(tmp_path)):
        done = await applied(tmp_path, RetentionPolicy(runs=Keep(max_bytes=1)))
    assert done.results[0].error == "store_busy: see the log"
    assert not await is_pruned(journal, session_id)


async def test_the_schedule_removes_without_being_asked_and_keeps_a_record(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    session_id = await ended_session(journal)
    row = await run_of(journal, session_id)
    policy = RetentionPolicy(runs=Keep(max_bytes=1), every_s=0.01)
    retention = Retention(str(tmp_path), lambda: SealKey.load(str(tmp_path)), policy)
    marks = frozenset({f.GapEventsPruned.TYPE})
    async with asyncio.TaskGroup() as group:
        duty = group.create_task(retention.run())
        async with asyncio.timeout(PATIENCE_S):
            async for _ in journal.follow(row.run_id, types=marks):
                break
            # Comes after the scheduled one, and leaves nothing to do.
            await retention.apply((), actor="ada", request_id="")
        duty.cancel()
    [asked, done] = RetentionLog(str(tmp_path)).latest(20)
    assert (asked.trigger, asked.results[0].deleted) == ("manual", 0)
    assert (done.trigger, done.actor) == ("scheduled", "retention")
    assert done.results[0].deleted == 1


async def test_without_limits_nothing_goes(journal: SqliteJournal, tmp_path: Path) -> None:
    session_id = await ended_session(journal)
    done = await applied(tmp_path, RetentionPolicy())
    assert [result.skipped for result in done.results] == [True, True]
    assert not await is_pruned(journal, session_id)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, ""), (7 * DAY_S, "7d"), (36 * 3600, "36h"), (90, "90s"), (60, "1m")]
)
def test_an_age_is_shown_in_its_largest_unit(seconds: int, shown: str) -> None:
    assert shown_age(seconds) == shown
