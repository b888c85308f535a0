"""What leaves a store and what it sums up, in every journal."""

import asyncio
from typing import Any, cast

import pytest

from batten.contract.errors import Conflict, NotFound
from batten.contract.facts import ArtifactUpdated
from batten.contract.ids import new_session_id, session_stream
from batten.journal.contract import ArtifactRow, Journal
from batten.journal.removal import Bounds, Extent, Removable, RemovalLimits
from tests.journal.given import FINISHED, artifact, started
from tests.journal.opened import WithJournal
from tests.journal.sessions import ended_session

ALL = RemovalLimits(keep=0)
BODY = b"x" * 50_000
"""Large enough for a file of its own."""


def nothing(_one: Removable, _size: Extent) -> None:
    """Takes each session that goes."""


async def sessions(journal: Journal) -> set[str]:
    return {row.session_id for row in await journal.sessions(limit=1000)}


async def _runs(journal: Journal, session_id: str) -> list[str]:
    return [row.run_id for row in await journal.runs(session_id=session_id)]


class Removing(WithJournal):
    async def test_a_deleted_session_is_gone_with_its_facts_and_rows(
        self, journal: Journal
    ) -> None:
        gone, kept = await ended_session(journal, body=BODY), await ended_session(journal)
        [run_id] = await _runs(journal, gone)
        [row] = await journal.artifacts(run_id)
        await journal.delete_session(gone, only_ended=True)
        assert await sessions(journal) == {kept}
        assert await journal.run(run_id) is None
        assert await journal.run(session_stream(cast(Any, gone))) is None
        assert await journal.artifact(row.artifact_id) is None
        names = {stored.run_id for stored in await journal.feed(limit=1000)}
        assert names == {*await _runs(journal, kept), session_stream(cast(Any, kept))}
        with pytest.raises(NotFound):
            await journal.delete_session(gone)
        assert await journal.verify() == []

    async def test_a_session_in_use_or_unfinished_or_forked_is_not_deleted(
        self, journal: Journal
    ) -> None:
        with pytest.raises(NotFound):
            await journal.delete_session(new_session_id())
        working = await ended_session(journal, ends=False)
        with pytest.raises(Conflict, match="unfinished"):
            await journal.delete_session(working, only_ended=True)
        origin = await ended_session(journal)
        fork = await ended_session(journal, forked_from=origin)
        with pytest.raises(Conflict, match=f"session {fork} was forked"):
            await journal.delete_session(origin)
        held = await ended_session(journal)
        stream = session_stream(cast(Any, held))
        await journal.claim(stream, "worker-elsewhere", 600)
        with pytest.raises(Conflict, match="in use"):
            await journal.delete_session(held)
        assert await sessions(journal) == {working, origin, fork, held}

    async def test_what_is_planned_is_what_goes(self, journal: Journal) -> None:
        made = [await ended_session(journal, body=b"a") for _ in range(4)]
        pinned = await ended_session(journal)
        lease = await started(journal, session_id=pinned)
        await journal.append(lease.run_id, [artifact("art_pinned"), FINISHED], fence=lease.fence)
        pin = ArtifactUpdated("art_pinned", "pinned", False, True)
        await journal.append(lease.run_id, [pin], fence=None)
        told: list[str] = []
        planned = await journal.plan_removal(ALL, lambda one, _: told.append(one.name))
        assert {one.name for one in planned.removed} == set(told) == set(made)
        assert await sessions(journal) == {*made, pinned}
        result = await journal.remove_sessions(ALL, nothing)
        assert {one.name for one in result.removed} == set(made)
        assert [one.name for one, _ in result.spared] == [pinned]
        assert await sessions(journal) == {pinned}

    async def test_the_youngest_stay_and_a_limit_of_size_takes_the_oldest(
        self, journal: Journal
    ) -> None:
        made = [await ended_session(journal, facts=200) for _ in range(4)]
        result = await journal.remove_sessions(RemovalLimits(keep=2), nothing)
        assert len(result.removed) == 2
        assert await sessions(journal) == set(made[2:])
        assert result.after.total < result.before.total
        plan = await journal.plan_removal(RemovalLimits(max_bytes=0), nothing)
        assert [one.name for one in plan.removed] == made[2:]

    async def test_a_session_is_measured(self, journal: Journal) -> None:
        session_id = await ended_session(journal, body=BODY)
        [row] = await journal.sessions()
        size = await journal.extent(Removable(session_id, True, row.updated_at, "/work"))
        assert (size.runs, size.prompt) == (1, f"do {session_id}")
        assert len(BODY) < size.bytes < 2 * len(BODY)

    async def test_old_runs_are_named_until_what_is_left_is_within_the_bounds(
        self, journal: Journal
    ) -> None:
        made = [(await _runs(journal, await ended_session(journal)))[0] for _ in range(3)]
        assert [one async for one in journal.old_runs(Bounds(most=3))] == []
        named: list[str] = []
        async for run_id in journal.old_runs(Bounds(most=1)):
            named.append(run_id)
            row = await journal.run(run_id)
            assert row is not None
            await journal.prune(run_id, before=row.next_sequence, reason="age")
        assert named == made[:2]
        assert [one async for one in journal.old_runs(Bounds(since="2999-01-01"))] == made[2:]

    async def test_old_artifacts_are_those_beyond_the_bounds_and_never_pinned(
        self, journal: Journal
    ) -> None:
        runs = [
            (await _runs(journal, await ended_session(journal, body=b"a" * 9)))[0] for _ in range(3)
        ]
        rows = [(await journal.artifacts(run_id))[0] for run_id in runs]
        pin = ArtifactUpdated(rows[0].artifact_id, "pinned", False, True)
        await journal.append(runs[0], [pin], fence=None)
        old = await journal.old_artifacts(Bounds(since="2999-01-01"))
        assert [one.run_id for one in old] == sorted(runs[1:], key=lambda run_id: _id(rows, run_id))
        assert await journal.old_artifacts(Bounds(most=3)) == []
        assert len(await journal.old_artifacts(Bounds(most=2))) == 1

    async def test_usage_outlasts_the_sessions_that_are_removed_for_their_age(
        self, journal: Journal
    ) -> None:
        for cost in (100, 200, None):
            await ended_session(journal, cost=cost)
        groups: tuple[Any, ...] = ("all", "day", "model", "workspace")
        before = [await journal.usage(by, None, None) for by in groups]
        [total] = before[0]
        assert (total.runs, total.calls, total.cost_micros_usd) == (3, 3, 300)
        assert total.cost_unknown
        assert [one.name for one in before[2]] == ["p/m"]
        await journal.remove_sessions(RemovalLimits(keep=1), nothing)
        assert [await journal.usage(by, None, None) for by in groups] == before
        assert await journal.usage("all", "2999-01-01", None) == []

    async def test_of_equal_requests_one_appends(self, journal: Journal) -> None:
        lease = await started(journal)

        def is_it(row: ArtifactRow) -> bool:
            return row.metadata.get("target_path") == "a.py"

        made = await asyncio.gather(
            *(
                journal.append_unless(is_it, lease.run_id, [artifact(f"art_{number}")])
                for number in range(5)
            )
        )
        assert [row is None for row in made].count(True) == 1
        [row] = await journal.artifacts(lease.run_id)
        assert {one.artifact_id for one in made if one is not None} == {row.artifact_id}


def _id(rows: list[ArtifactRow], run_id: str) -> str:
    return next(row.artifact_id for row in rows if row.run_id == run_id)
