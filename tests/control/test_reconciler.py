"""Runs that lost their worker go on in another one, and are told as they were."""

import asyncio
import os
import subprocess

import pytest
from msgspec.structs import replace

from batten.contract import facts as f
from batten.contract.facts.assistant import MessageBlock, Usage
from batten.control.reconciler import Reconciler
from batten.journal.contract import RunRow
from batten.journal.sqlite.schema import connect
from batten.journal.workers import this_worker
from tests.control.given import Place, called, said
from tests.journal.given import QUEUED, new_run

ASKED = (
    f.TurnStarted(turn_index=1, model="m", provider="scripted", input_tokens_estimate=1),
    f.AssistantToolCallProposed(
        turn_index=1, tool_call_id="c1", tool_name="bash", input={"command": "true"}
    ),
    f.AssistantMessageComplete(
        turn_index=1,
        model="m",
        provider="scripted",
        blocks=[MessageBlock("tool_call", 0, "c1")],
        usage=Usage(),
        stop_reason="tool_use",
        cost_micros_usd=0,
        price_as_of=None,
        duration_ms=1,
        time_to_first_token_ms=None,
    ),
)
"""A turn whose call has not ended."""


@pytest.fixture
def hung() -> list[str]:
    return []


@pytest.fixture
def reconciler(place: Place, hung: list[str]) -> Reconciler:
    return Reconciler(place.tasks, hung.append)


def dead_worker() -> str:
    """The id of a worker on this machine whose process has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return this_worker().replace(f"-{os.getpid()}-", f"-{process.pid}-")


async def lost(place: Place, row: RunRow, *facts: f.Fact, worker: str = "worker-gone-1-1") -> None:
    """Let a worker elsewhere begin the run and never be heard of again."""
    lease = await place.journal.claim(row.run_id, worker, -1)
    began = f.RunStarted(worker_id=worker, lease_until=lease.until)
    await place.journal.append(row.run_id, [began, *facts], fence=lease.fence)


async def test_a_lost_run_is_queued_again_and_goes_on(
    place: Place, reconciler: Reconciler, hung: list[str]
) -> None:
    row = await place.started(place.model([said("Done.")]))
    await lost(place, row)
    assert await reconciler.reconcile() == 1
    assert await reconciler.reconcile() == 0
    assert hung == ["worker-gone-1-1"]
    async with place.working():
        ended = await place.ended(row)
    assert ended.outcome == "completed"
    facts = await place.facts(row)
    [gap] = [one for one in facts if isinstance(one, f.GapRunDisconnected)]
    assert (gap.reason, gap.since_sequence) == ("worker_lease_expired", 2)
    after = [one.type for one in facts][facts.index(gap) :]
    assert after[:3] == ["gap.run_disconnected", "run.queued", "run.started"]
    first, again = (one for one in facts if isinstance(one, f.RunQueued))
    assert again == first
    assert again.by == "somebody"


async def test_after_a_gap_a_living_worker_may_renew_its_lease_first(
    place: Place, reconciler: Reconciler, hung: list[str]
) -> None:
    row = await place.started(place.model([said("Done.")]))
    await lost(place, row)  # a worker elsewhere, whose lease has run out
    dead = await place.started(place.model([said("Done.")]))
    await lost(place, dead, worker=dead_worker())
    reconciler.forgive()
    assert await reconciler.reconcile() == 1
    assert hung == []
    [held] = await place.journal.held(surface="hecate")
    assert held.run_id == row.run_id


async def test_a_lost_run_is_found_behind_any_number_of_abandoned_ones_of_terminals(
    place: Place, reconciler: Reconciler
) -> None:
    await asyncio.gather(
        *(place.journal.create(new_run(worker_id="gone-1-1"), [QUEUED]) for _ in range(1000))
    )
    row = await place.started(place.model([said("Done.")]))
    await lost(place, row)
    assert await reconciler.reconcile() == 1


async def test_a_call_that_had_begun_is_told_as_unknown_and_not_run_again(
    place: Place, reconciler: Reconciler
) -> None:
    mark = place.workspace / "ran"
    row = await place.started(place.model([called(f"echo once >> {mark}")], [said("Done.")]))
    await lost(
        place,
        row,
        *ASKED,
        f.ToolInvoked(tool_call_id="c1", tool_name="bash", kind="shell", turn_index=1),
    )
    await reconciler.reconcile()
    async with place.working():
        await place.ended(row)
    failed = [one for one in await place.facts(row) if isinstance(one, f.ToolFailed)]
    assert [one.tool_call_id for one in failed] == ["c1"]
    assert not mark.exists()


async def test_a_run_that_keeps_losing_its_worker_is_ended(
    place: Place, reconciler: Reconciler
) -> None:
    row = await place.started(place.model([said("Done.")]))
    for _ in range(5):
        await lost(place, row)
        assert await reconciler.reconcile() == 1
    ended = await place.ended(row)
    assert ended.outcome == "interrupted"
    last = (await place.facts(row))[-1]
    assert isinstance(last, f.RunFailed | f.RunCancelled)
    assert await reconciler.reconcile() == 0


async def test_a_call_that_failed_or_an_answer_counts_as_progress(
    place: Place, reconciler: Reconciler
) -> None:
    failed = f.ToolFailed(
        tool_call_id="c1",
        tool_name="bash",
        kind="shell",
        duration_ms=1,
        summary="exited with status 1",
        output="",
    )
    asked = f.ApprovalRequested(
        approval_id="appr_1",
        tool_call_id="c2",
        kind="shell",
        summary="ls",
        policy_reason="asks",
        digest="d",
        resolvers=["operator"],
    )
    answered = f.ApprovalResolved(
        approval_id="appr_1", decision="approved", by="ann", comment="", scope="once"
    )
    unknown = replace(failed, tool_call_id="c3", error_kind="outcome_unknown")
    row = await place.started(place.model([said("Done.")]))
    for facts in ([], [], [], [failed], [], [], [], [asked, answered], [], [], [unknown], []):
        await lost(place, row, *facts)
        assert await reconciler.reconcile() == 1
        assert (await place.tasks.run(row.task_id or "", row.run_id)).status == "queued"
    await lost(place, row)
    assert await reconciler.reconcile() == 1
    assert (await place.ended(row)).outcome == "interrupted"


async def test_a_lost_run_whose_cancel_was_requested_ends(
    place: Place, reconciler: Reconciler
) -> None:
    row = await place.started(place.model([said("Done.")]), budget_micros_usd=50)
    await lost(place, row, *ASKED)
    asked = f.RunCancelRequested(by="ann", reason="too slow")
    await place.journal.append(row.run_id, [asked], fence=None)
    await reconciler.reconcile()
    assert (await place.ended(row)).outcome == "cancelled"
    completed, tick, last = (await place.facts(row))[-3:]
    assert isinstance(completed, f.TurnCompleted)
    assert isinstance(tick, f.CostTick)
    assert (tick.task_budget_micros_usd, tick.task_budget_remaining_micros_usd) == (50, 50)
    assert isinstance(last, f.RunCancelled)
    assert (last.by, last.reason) == ("ann", "too slow")


async def test_a_run_of_a_terminal_is_left_to_whoever_sits_there(
    place: Place, reconciler: Reconciler
) -> None:
    model = place.model([said("Done.")])
    opened = await place.opener.open(
        replace(place.base, cwd=str(place.workspace), surface="print", models=(model,))
    )
    run_id = await opened.session.queue("go")
    await opened.session.leave()
    await opened.close()
    row = await place.journal.run(run_id)
    assert row is not None
    await lost(place, row)
    assert await reconciler.reconcile() == 0


async def test_a_lost_run_that_cannot_be_read_does_not_keep_the_others(
    place: Place, reconciler: Reconciler
) -> None:
    model = place.model([said("Done.")])
    rows = [await place.started(model) for _ in range(2)]
    for row in rows:
        await lost(place, row)
    path = os.path.join(place.opener.home, "journal.db")
    db = connect(path, patience_s=10, writing=True)
    db.execute(
        "UPDATE events SET body = x'00' WHERE sequence = 0 AND run ="
        " (SELECT key FROM runs WHERE run_id = ?)",
        (rows[0].run_id,),
    )
    db.close()
    assert await reconciler.reconcile() == 1
    assert (await place.tasks.run(rows[1].task_id or "", rows[1].run_id)).status == "queued"
