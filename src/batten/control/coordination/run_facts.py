"""The facts around a session's messages: how its run begins, is taken over and ends."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from batten.contract import facts
from batten.contract.facts import Fact
from batten.contract.ids import new_task_id, session_stream
from batten.control.coordination.ids import SURFACE, journal_session
from batten.control.coordination.records import Keeping, bound
from batten.coordination.engine import Accepted, Changed, Event
from batten.coordination.session import Session
from batten.journal.appending import lease_end
from batten.journal.contract import NewRun, RunRow
from batten.journal.workers import has_exited, is_abandoned
from batten.redact.redactor import Redactor

LEASE_S = 60.0
_LONGEST_INTENT = 4000
"""Characters of the intent in the run's prompt; the message has all of it."""


def new_stream(
    session_id: str, identity: dict[str, str] | None = None
) -> tuple[NewRun, list[Fact]]:
    """The stream of a coordination session that the journal does not have, and its facts."""
    chat, task_id = journal_session(session_id), new_task_id()
    new = NewRun(run_id=session_stream(chat), kind="session", task_id=task_id, session_id=chat)
    return new, [
        facts.SessionOpened("", task_id, SURFACE, identity=identity or UNSET),
        facts.SessionConfigured(settings={"macp_session_id": session_id}),
    ]


def queued(
    by: str = "", traceparent: str = "", identity: dict[str, str] | None = None
) -> facts.RunQueued:
    """The first fact of a session's run."""
    return facts.RunQueued(
        kind="coordination",
        model=None,
        provider=None,
        workspace_path="",
        workspace_mode="in_place",
        prior_run_id=None,
        executor_type="live",
        by=by or UNSET,
        traceparent=traceparent or UNSET,
        identity=identity or UNSET,
    )


def opening_facts(session: Session, worker_id: str, keeping: Keeping) -> list[Fact]:
    """The facts between the run's first one and SessionStart."""
    intent = keeping.redactor.authored.text(session.intent or session.descriptor.title)
    return [
        _started(worker_id),
        facts.UserMessage(turn_index=0, text=intent[:_LONGEST_INTENT]),
        bound(session, keeping),
    ]


def taken_over(row: RunRow, worker_id: str, lease_s: float = LEASE_S) -> list[Fact]:
    """The facts of who goes on with a session; `row` is its run as it was before."""
    taken: list[Fact] = []
    if is_abandoned(row):
        taken.append(
            facts.GapRunDisconnected(
                since_sequence=row.next_sequence - 1,
                since_at=row.lease_until,
                reason="worker_lease_expired",
                prior_worker_id=row.worker_id or UNSET,
                worker_exited=has_exited(row) or UNSET,
            )
        )
    return [*taken, _started(worker_id, lease_s)]


def _started(worker_id: str, lease_s: float = LEASE_S) -> facts.RunStarted:
    return facts.RunStarted(worker_id=worker_id, lease_until=lease_end(lease_s))


def ending_facts(session: Session, events: Sequence[Event], redactor: Redactor) -> list[Fact]:
    """The terminal fact of the run, if these events end the session."""
    if not events or not session.is_terminal:
        return []
    last = events[-1]
    lasted: dict[str, Any] = {
        "turns": 0,
        "cost_micros_usd": 0,
        "duration_ms": max(0, last.at_ms - session.started_at_ms),
    }
    match last:
        case Accepted():
            return [facts.RunFinished(final_status="completed", **lasted)]
        case Changed(state="CANCELLED", by=by, reason=reason):
            clean = redactor.authored.text(reason)
            return [facts.RunCancelled(by=by, reason=clean, outcome="cancelled", **lasted)]
        case Changed(reason=reason):
            return [
                facts.RunFailed(
                    code="SESSION_EXPIRED",
                    message=f"the session expired: {reason}",
                    retriable=False,
                    outcome="timeout",
                    **lasted,
                )
            ]
