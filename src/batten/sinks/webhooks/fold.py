"""Facts of a run as the bodies that a subscription wants."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from batten.contract import facts
from batten.contract.envelope import Envelope
from batten.contract.ids import SessionId, is_ulid, session_stream, to_uuid
from batten.contract.outcomes import Outcome, ending_of
from batten.protocols.macp.redaction import redact
from batten.sinks.contract import Message
from batten.sinks.webhooks.subscription import Subscription, WebhookEvent

TYPES = frozenset(
    kind.TYPE
    for kind in (
        facts.RunQueued,
        facts.RunStarted,
        facts.RunFinished,
        facts.RunFailed,
        facts.RunCancelled,
        facts.ApprovalRequested,
        facts.ApprovalResolved,
        facts.ApprovalTimedOut,
        facts.RequestOpened,
        facts.RequestClosed,
        facts.SessionOpened,
        facts.TaskCreated,
        facts.PolicyToolBlocked,
        facts.CostBudgetExceeded,
        facts.MacpRunDescribed,
        facts.MacpSessionBound,
        facts.MacpSessionChanged,
        facts.MacpFrameObserved,
    )
)
_STATUSES: dict[WebhookEvent, str] = {
    "run.queued": "queued",
    "run.started": "running",
    "run.suspended": "suspended",
    "run.resumed": "running",
    "run.completed": "completed",
    "run.failed": "failed",
    "run.cancelled": "cancelled",
    "approval.requested": "suspended",
    "task.created": "created",
}
_LEFT_OUT = ("identity", "sealed_artifact_id", "whole_artifact_id", "traceback")


class WebhookFold:
    """One run, or a session's own stream. How runs fare that other runs started is not told; what
    they ask, what is refused them and what they overspend is.
    """

    def __init__(self, run_id: str, subscription: Subscription) -> None:
        self._wanted = subscription
        self._workspace = ""
        self._task = ""
        self._kind = ""
        """Of the run; empty before it is queued."""
        self._is_child = False
        self._has_started = False
        self._status = ""
        self._pending = 0
        """Questions, and the suspension of a session, that the run waits for."""
        self._is_suspended = False
        self._hidden: list[str] = []
        """Patterns of texts that are not told."""

    def take(self, envelope: Envelope) -> Iterator[Message]:
        for event, outcome in self._events(envelope):
            self._status = _STATUSES.get(event, self._status)
            if self._is_wanted(event, outcome):
                yield self._message(envelope, event, outcome)

    def _events(self, envelope: Envelope) -> Iterator[tuple[WebhookEvent, Outcome | None]]:
        fact = envelope.data
        match fact:
            case facts.SessionOpened():
                self._workspace = fact.workspace_path
                self._task = fact.task_id
            case facts.RunQueued():
                is_first = not self._kind
                self._kind = fact.kind
                self._workspace = fact.workspace_path
                self._task = envelope.task_id or ""
                self._is_child = fact.parent_run_id is not UNSET
                if is_first:
                    yield "run.queued", None
            case facts.RunStarted() if self._kind != "coordination":
                yield from self._starts()
            case facts.MacpRunDescribed():
                self._hidden += fact.redact or []
            case facts.MacpSessionBound():
                self._hidden += fact.redact or []
                yield from self._starts()
            case facts.MacpFrameObserved() if fact.kind == "session_snapshot":
                yield from self._starts()
                state = str(fact.detail.get("state", "")).removeprefix("SESSION_STATE_")
                yield from self._session_is(state)
            case facts.MacpSessionChanged():
                yield from self._session_is(fact.state)
            case facts.RunFinished():
                yield "run.completed", "completed"
            case facts.RunFailed():
                yield "run.failed", ending_of(fact).outcome
            case facts.RunCancelled():
                yield "run.cancelled", ending_of(fact).outcome
            case facts.ApprovalRequested():
                yield "approval.requested", None
                yield from self._waits()
            case facts.RequestOpened():
                yield from self._waits()
            case facts.ApprovalResolved() | facts.ApprovalTimedOut():
                yield "approval.resolved", None
                yield from self._goes_on()
            case facts.RequestClosed():
                yield from self._goes_on()
            case facts.TaskCreated():
                yield "task.created", None
            case facts.PolicyToolBlocked():
                yield "policy.tool_blocked", None
            case facts.CostBudgetExceeded():
                yield "cost.budget_exceeded", None
            case _:
                pass

    def _starts(self) -> Iterator[tuple[WebhookEvent, Outcome | None]]:
        """A run that observes a session starts with the session."""
        if not self._has_started:
            self._has_started = True
            yield "run.started", None

    def _session_is(self, state: str) -> Iterator[tuple[WebhookEvent, Outcome | None]]:
        """The state of a coordination session was told; it may be the one it had."""
        was = self._is_suspended
        if state == "SUSPENDED" and not was:
            self._is_suspended = True
            yield from self._waits()
        elif state == "OPEN" and was:
            self._is_suspended = False
            yield from self._goes_on()

    def _waits(self) -> Iterator[tuple[WebhookEvent, Outcome | None]]:
        self._pending += 1
        if self._pending == 1:
            yield "run.suspended", None

    def _goes_on(self) -> Iterator[tuple[WebhookEvent, Outcome | None]]:
        was, self._pending = self._pending, max(0, self._pending - 1)
        if was == 1:
            yield "run.resumed", None

    def _is_wanted(self, event: WebhookEvent, outcome: Outcome | None) -> bool:
        wanted = self._wanted
        return (
            not (self._is_child and event.startswith("run."))
            and (not wanted.events or event in wanted.events)
            and (not wanted.tasks or self._task in wanted.tasks)
            and (not wanted.outcomes or outcome in wanted.outcomes)
            and (not wanted.workspaces or any(map(self._is_in, wanted.workspaces)))
        )

    def _is_in(self, directory: str) -> bool:
        return f"{self._workspace}/".startswith(f"{directory.rstrip('/')}/")

    def _message(self, envelope: Envelope, event: WebhookEvent, outcome: Outcome | None) -> Message:
        message_id = f"{envelope.event_id}.{event}"
        body: dict[str, Any] = {
            "event": event,
            "runId": _run_id(envelope),
            "status": self._status,
            "timestamp": envelope.occurred_at,
            "journalId": envelope.run_id,
        }
        if envelope.task_id or self._task:
            body["taskId"] = envelope.task_id or self._task
        if envelope.session_id:
            body["sessionId"] = envelope.session_id
        if self._wanted.body == "full":
            data = _data(envelope.data)
            if outcome is not None:
                data["outcome"] = outcome
            if isinstance(envelope.data, facts.RunFailed):
                data["error"] = envelope.data.message
            body["data"] = redact(data, self._hidden)
        return Message(
            message_id=message_id,
            run_id=envelope.run_id,
            type=event,
            occurred_at=envelope.occurred_at,
            body=msgspec.json.encode(body),
        )


def _run_id(envelope: Envelope) -> str | None:
    """The run's id as the control plane spells it; None for what a session has, and no run."""
    session, run_id = envelope.session_id, envelope.run_id
    if session and run_id == session_stream(SessionId(session)):
        return None
    return to_uuid(run_id) if is_ulid(run_id) else run_id


def _data(fact: facts.Fact) -> dict[str, Any]:
    if isinstance(fact, facts.MacpSessionBound | facts.MacpFrameObserved):
        return {"sessionId": fact.session_id, "modeName": _mode(fact)}
    data: dict[str, Any] = msgspec.to_builtins(fact)
    for name in _LEFT_OUT:
        data.pop(name, None)
    return data


def _mode(fact: facts.MacpSessionBound | facts.MacpFrameObserved) -> str:
    if isinstance(fact, facts.MacpSessionBound):
        return fact.mode
    return str(fact.detail.get("modeName") or "")
