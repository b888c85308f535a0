"""A panel answers for the runs of a service: they are parked, and a worker holds the panel."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from batten.contract.envelope import timestamp
from batten.contract.errors import CallerError
from batten.contract.facts import (
    ApprovalRequested,
    ApprovalResolved,
    ApprovalTimedOut,
    MacpPanelConvened,
    PolicyToolDecided,
    RunQueued,
)
from batten.contract.ids import to_uuid
from batten.control.approvals import Answer, answer_approval
from batten.control.coordination.records import Keeping
from batten.control.coordination.runtime import Runtime
from batten.control.reconciler import Reconciler
from batten.coordination.session import Session
from batten.journal.contract import RequestRow, RunRow
from batten.redact.redactor import Redactor
from tests.control.coordination.panels import act, reviewed, scripted
from tests.control.given import Place

APPROVE = act("approve", reason="harmless")
NEVER = {"kind": "delay", "ms": 600_000}
PATIENCE_S = 30


def place(folder: Path, *turns: list[dict[str, Any]], **more: Any) -> Place:
    agents = {
        f"agent{number}": {"model": scripted(folder, f"agent{number}", turn)}
        for number, turn in enumerate(turns)
    }
    return reviewed(folder, agents=agents, **more)


def touching(at: Path, result: str = "success") -> str:
    return scripted(at, "worker", [act("bash", result, command="touch made")])


async def asked(at: Place, row: RunRow) -> RequestRow:
    """The run's question to the panel."""
    await at.reached(row, "approval.requested")
    [request] = await at.journal.requests(row.run_id)
    return request


async def session_of(at: Place, request: RequestRow) -> Session | None:
    """The panel's session, as another process sees it."""
    keeping = Keeping(at.journal, Redactor([]), at.tasks.seal_key)
    looking = Runtime(keeping, adopts=lambda session: False)
    return await looking.find(to_uuid(request.request_id))


async def until(at: Place, request: RequestRow, is_so: Callable[[Session], bool]) -> Session:
    """The panel's session, once that is so."""
    async with aclosing(at.journal.follow_feed()) as pages:
        async for _ in pages:
            session = await session_of(at, request)
            if session is not None and is_so(session):
                return session
    raise AssertionError("the journal was closed")


async def test_a_worker_holds_the_panel_of_a_parked_run(tmp_path: Path) -> None:
    at = place(tmp_path, [APPROVE], [APPROVE])
    async with at.working(runs=1):
        row = await at.ended(await at.started(touching(tmp_path)))
    facts = await at.facts(row)
    at.opener.close()
    assert (at.workspace / "made").exists()
    resolved = [fact for fact in facts if isinstance(fact, ApprovalResolved)]
    assert [(one.decision, one.by) for one in resolved] == [("approved", "panel:review")]
    assert resolved[0].comment.startswith("quorum.approved by batten: 2 of 2 approve")
    story = [
        type(fact).__name__
        for fact in facts
        if isinstance(
            fact, PolicyToolDecided | MacpPanelConvened | ApprovalRequested | ApprovalResolved
        )
        or (isinstance(fact, RunQueued) and fact is not facts[0])
    ]
    assert story == [
        "PolicyToolDecided",
        "MacpPanelConvened",
        "ApprovalRequested",
        "ApprovalResolved",
        "RunQueued",  # it was parked
        "PolicyToolDecided",
        "PolicyToolDecided",
    ]


async def test_a_waiting_run_has_no_worker_and_a_cancel_ends_its_panel(tmp_path: Path) -> None:
    at = place(tmp_path, [NEVER])
    async with asyncio.timeout(PATIENCE_S), at.working(runs=1):
        waiting = await at.started(touching(tmp_path))
        request = await asked(at, waiting)
        await until(at, request, lambda session: session.ordinal == 2)
        other = scripted(tmp_path, "other", [act("bash", command="true")])
        ended = await at.ended(await at.started(other))  # in the only slot
        parked = await at.journal.run(waiting.run_id)
        await at.tasks.cancel(waiting.task_id or "", waiting.run_id, by="ann", reason="enough")
        cancelled = await at.ended(waiting)
        session = await until(at, request, lambda session: session.is_terminal)
    at.opener.close()
    assert ended.status == "completed"
    assert parked is not None
    assert (parked.status, parked.worker_id) == ("awaiting_approval", "")
    assert (cancelled.status, session.state) == ("cancelled", "CANCELLED")


async def test_what_it_declines_is_told_to_the_model_and_the_run_goes_on(tmp_path: Path) -> None:
    reject = act("reject", reason="why?")
    at = place(tmp_path, [reject], [reject])
    async with at.working():
        row = await at.ended(await at.started(touching(tmp_path, "error")))
    at.opener.close()
    assert not (at.workspace / "made").exists()
    assert row.status == "completed"


async def test_what_is_not_decided_in_time_is_denied_and_the_run_goes_on(tmp_path: Path) -> None:
    at = place(tmp_path, [NEVER], timeout_s=2)
    async with asyncio.timeout(PATIENCE_S), at.working():
        row = await at.ended(await at.started(touching(tmp_path, "error")))
    [request] = await at.journal.requests(row.run_id)
    at.opener.close()
    assert not (at.workspace / "made").exists()
    assert row.status == "completed"
    # Closed by whoever held the panel, or by the run's worker before the run was parked.
    assert (request.decision, request.status) in [("rejected", "answered"), (None, "timed_out")]


async def test_a_question_that_no_worker_looks_after_is_denied_at_its_deadline(
    tmp_path: Path,
) -> None:
    at = place(tmp_path, [NEVER], timeout_s=3)  # enough for its worker to leave before
    async with asyncio.timeout(PATIENCE_S):
        async with at.working(holds_panels=False):
            row = await at.started(touching(tmp_path, "error"))
            request = await asked(at, row)
        await asyncio.sleep(3)
        assert request.deadline_at is not None
        assert request.deadline_at <= timestamp()
        assert await Reconciler(at.tasks, lambda worker_id: None).reconcile() == 1
        async with at.working(holds_panels=False):
            row = await at.ended(row)
    late = [fact for fact in await at.facts(row) if isinstance(fact, ApprovalTimedOut)]
    at.opener.close()
    assert (len(late), row.status) == (1, "completed")


async def test_a_worker_that_stops_leaves_the_panel_to_another_and_votes_count(
    tmp_path: Path,
) -> None:
    late = [{"kind": "delay", "ms": 1500}, APPROVE]
    at = place(tmp_path, [APPROVE], late, [])
    async with asyncio.timeout(PATIENCE_S):
        async with at.working():
            row = await at.started(touching(tmp_path))
            request = await asked(at, row)
            await until(at, request, lambda session: session.ordinal == 3)
        left = await session_of(at, request)
        async with at.working():
            row = await at.ended(row)
        session = await session_of(at, request)
    at.opener.close()
    assert left is not None
    assert (left.state, left.ordinal) == ("OPEN", 3)
    assert session is not None
    assert (row.status, session.state) == ("completed", "RESOLVED")
    assert session.activity["agent0"].message_count == 1


async def test_an_operator_cannot_answer_for_a_panel(tmp_path: Path) -> None:
    at = place(tmp_path, [NEVER])
    async with asyncio.timeout(PATIENCE_S), at.working():
        row = await at.started(touching(tmp_path))
        request = await asked(at, row)
        with pytest.raises(CallerError, match="it waits for: panel:review"):
            await answer_approval(
                at.tasks, row.task_id or "", request.request_id, Answer(granted=True, by="ann")
            )
        await at.tasks.cancel(row.task_id or "", row.run_id, by="ann", reason="enough")
        await at.ended(row)
    at.opener.close()
