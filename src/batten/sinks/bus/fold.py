"""Facts of a run, or of a session's own stream, as events of the catalogue.

Event ids are event ids of facts with the name of the event behind them: the same fact always gives
the same events, and JetStream drops repeats by them.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

from msgspec import UNSET, Struct

from batten import __version__
from batten.contract import facts
from batten.contract.envelope import Envelope
from batten.contract.facts.tool import ToolEnded
from batten.contract.outcomes import Outcome, ending_of
from batten.contract.tracing import identity_in
from batten.sinks.bus import payloads
from batten.sinks.bus.correlation import (
    correlation_of,
    merged,
    principal_of,
    runtime_mode_of,
    surface_of,
)
from batten.sinks.bus.envelope import encoded, event
from batten.sinks.contract import Message

TYPES = frozenset(
    kind.TYPE
    for kind in (
        facts.SessionOpened,
        facts.SessionClosed,
        facts.RunQueued,
        facts.RunFinished,
        facts.RunFailed,
        facts.RunCancelled,
        facts.AssistantToolCallProposed,
        facts.ApprovalRequested,
        facts.ApprovalResolved,
        facts.ApprovalTimedOut,
        facts.RequestOpened,
        facts.RequestClosed,
        facts.PolicyToolDecided,
        facts.PolicyToolBlocked,
        facts.ToolInvoked,
        facts.ToolCompleted,
        facts.ToolFailed,
        facts.ToolCancelled,
        facts.ToolTimedOut,
    )
)

_SANDBOX = frozenset(("workspace_violation", "read_only"))
_FIREWALL = frozenset(("address_refused", "redirect_refused", "too_many_redirects"))
_MUTATES = frozenset(("shell", "edit", "multi_edit", "file_write", "memory"))
_RISKS = {"shell": "HIGH", "edit": "MEDIUM", "multi_edit": "MEDIUM", "file_write": "MEDIUM"}
_CLOSES: dict[str, payloads.CloseReason] = {
    "interrupted": "USER_STOPPED",
    "cancelled": "USER_STOPPED",
    "idle_timeout": "IDLE_TIMEOUT",
    "ttl_expired": "TTL_EXPIRED",
    "error": "ERROR",
    "denied": "POLICY_DENIED",
}
_LONGEST = 200
"""Characters of a summary: events carry no whole arguments or outputs."""


class _Call(Struct):
    """A tool call, as far as it is known."""

    name: str
    step: int
    """The sequence of its proposal."""
    summary: str
    decided_by: str = ""
    approval_id: str | None = None
    input: Mapping[str, Any] = {}


class BusFold:
    """One stream of facts. `user` is the principal of sessions whose launcher names none."""

    def __init__(self, run_id: str, source: str, user: str = "") -> None:
        self._run_id = run_id
        self._source = source
        self._user = user
        self._identity: dict[str, str] = {}
        self._workspace = ""
        self._surface = ""
        self._calls: dict[str, _Call] = {}
        self._approvals: dict[str, str] = {}
        self._pending = 0
        self._skills: dict[str, _Call] = {}
        """Skills that were read, by name; they end with the run."""
        self._executor = ""

    def take(self, envelope: Envelope) -> Iterator[Message]:
        fact = envelope.data
        match fact:
            case facts.SessionOpened() | facts.SessionClosed():
                yield from self._session(envelope, fact)
            case facts.RunQueued():
                yield from self._queued(envelope, fact)
            case facts.AssistantToolCallProposed():
                self._propose(envelope, fact)
            case facts.PolicyToolDecided() if fact.tool_call_id in self._calls:
                self._calls[fact.tool_call_id].decided_by = fact.decided_by
                if fact.verdict == "allow":
                    yield self._hit(envelope, fact.tool_call_id, "AUTO_APPROVED", fact.reason)
            case facts.PolicyToolBlocked():
                yield from self._blocked(envelope, fact)
            case facts.ApprovalRequested():
                yield from self._asked(envelope, fact)
            case facts.RequestOpened():
                yield from self._waits(envelope)
            case facts.ApprovalResolved() | facts.ApprovalTimedOut():
                yield from self._answered(envelope, fact)
            case facts.RequestClosed():
                yield from self._goes_on(envelope)
            case facts.ToolInvoked():
                yield from self._attempt(envelope, fact)
            case ToolEnded():
                yield from self._ended(envelope, fact)
            case facts.RunFinished() | facts.RunFailed() | facts.RunCancelled():
                yield from self._outcomes(envelope, ending_of(fact).outcome)
            case _:
                return

    def _message(
        self,
        envelope: Envelope,
        event_type: str,
        data: Mapping[str, Any],
        *,
        step: str | None = None,
        name: str = "",
    ) -> Message:
        """`name` tells several events of one type and one fact apart."""
        event_id = f"{envelope.event_id}.{event_type.rpartition('.')[2]}{name}"
        run = "" if self._is_session(envelope) else envelope.run_id
        context = merged(
            correlation_of(
                self._identity, self._workspace or "unknown", envelope.session_id or "unknown", run
            ),
            {"agent_run_step_id": step},
        )
        made = event(
            event_type,
            data,
            context,
            event_id=event_id,
            time=envelope.occurred_at,
            source=self._source,
        )
        return Message(
            message_id=event_id,
            # Runs of a session and its own stream share an order: `closed` comes last.
            run_id=envelope.session_id or envelope.run_id,
            type=event_type,
            occurred_at=envelope.occurred_at,
            body=encoded(made),
        )

    def _is_session(self, envelope: Envelope) -> bool:
        """Whether this is the stream of a session's own facts."""
        session = envelope.session_id
        return isinstance(session, str) and session.partition("_")[2] in envelope.run_id

    def _lifecycle(self, envelope: Envelope, state: payloads.SessionState, **more: Any) -> Message:
        data = payloads.session(
            state,
            envelope.occurred_at,
            surface=surface_of(self._identity.get("surface") or self._surface),
            runtime_mode=runtime_mode_of(self._identity.get("runtime_mode") or "headless"),
            principal=principal_of(self._identity, self._user),
            workspace_root=self._workspace or None,
            runtime_version=__version__,
            **more,
        )
        return self._message(envelope, f"maestro.sessions.session.{state}", data)

    def _session(
        self, envelope: Envelope, fact: facts.SessionOpened | facts.SessionClosed
    ) -> Iterator[Message]:
        if isinstance(fact, facts.SessionOpened):
            self._identity = {} if fact.identity is UNSET else fact.identity
            self._workspace, self._surface = fact.workspace_path, fact.surface
            yield self._lifecycle(envelope, "started")
            return
        reason = _CLOSES.get(fact.reason.strip().lower(), "COMPLETED")
        yield self._lifecycle(
            envelope, "closed", close_reason=reason, close_message=fact.reason or None
        )

    def _queued(self, envelope: Envelope, fact: facts.RunQueued) -> Iterator[Message]:
        is_new = not self._workspace
        self._workspace = fact.workspace_path
        self._identity = identity_in(fact) or self._identity
        if is_new and fact.prior_run_id is not None and fact.parent_run_id is UNSET:
            yield self._lifecycle(envelope, "resumed")

    def _propose(self, envelope: Envelope, fact: facts.AssistantToolCallProposed) -> None:
        self._calls[fact.tool_call_id] = _Call(
            fact.tool_name,
            envelope.sequence,
            _summary(fact.tool_name, fact.input),
            input=fact.input,
        )

    def _step(self, tool_call_id: str) -> str | None:
        """The id of the step: the place of its proposal, never the call's own id."""
        call = self._calls.get(tool_call_id)
        return None if call is None else f"step_{self._run_id.partition('_')[2]}_{call.step}"

    def _execution(self, tool_call_id: str) -> str | None:
        call = self._calls.get(tool_call_id)
        return None if call is None else f"exec_{self._run_id.partition('_')[2]}_{call.step}"

    def _hit(
        self,
        envelope: Envelope,
        tool_call_id: str,
        mode: payloads.DecisionMode,
        reason: str,
        request_id: str | None = None,
    ) -> Message:
        call = self._calls.get(tool_call_id)
        data = payloads.approval_hit(
            call.name if call else "tool",
            mode,
            envelope.occurred_at,
            approval_request_id=request_id,
            command=call.summary if call else None,
            policy_id=(call.decided_by or None) if call else None,
            reason=reason or None,
        )
        return self._message(
            envelope, "maestro.events.approval_hit", data, step=self._step(tool_call_id)
        )

    def _blocked(self, envelope: Envelope, fact: facts.PolicyToolBlocked) -> Iterator[Message]:
        yield self._hit(envelope, fact.tool_call_id, "DENY", fact.reason)
        if fact.tool_call_id in self._calls:
            yield self._result(envelope, fact.tool_call_id, "DENIED", error_message=fact.reason)

    def _asked(self, envelope: Envelope, fact: facts.ApprovalRequested) -> Iterator[Message]:
        self._approvals[fact.approval_id] = fact.tool_call_id
        if fact.tool_call_id in self._calls:
            self._calls[fact.tool_call_id].approval_id = fact.approval_id
        yield self._hit(
            envelope, fact.tool_call_id, "REQUIRE_APPROVAL", fact.policy_reason, fact.approval_id
        )
        yield from self._waits(envelope)

    def _answered(
        self, envelope: Envelope, fact: facts.ApprovalResolved | facts.ApprovalTimedOut
    ) -> Iterator[Message]:
        call_id = self._approvals.pop(fact.approval_id, "")
        is_granted = isinstance(fact, facts.ApprovalResolved) and fact.decision == "approved"
        reason = fact.comment if isinstance(fact, facts.ApprovalResolved) else "timed out"
        mode: payloads.DecisionMode = "ALLOW" if is_granted else "DENY"
        yield self._hit(envelope, call_id, mode, reason, fact.approval_id)
        yield from self._goes_on(envelope)

    def _waits(self, envelope: Envelope) -> Iterator[Message]:
        self._pending += 1
        if self._pending == 1:
            yield self._lifecycle(envelope, "suspended")

    def _goes_on(self, envelope: Envelope) -> Iterator[Message]:
        was, self._pending = self._pending, max(0, self._pending - 1)
        if was == 1:
            yield self._lifecycle(envelope, "resumed")

    def _attempt(self, envelope: Envelope, fact: facts.ToolInvoked) -> Iterator[Message]:
        is_mcp = fact.mcp_server is not UNSET
        data = payloads.tool_attempt(
            fact.tool_call_id,
            fact.tool_name,
            envelope.occurred_at,
            tool_execution_id=self._execution(fact.tool_call_id),
            tool_namespace="mcp" if is_mcp else "builtin",
            connector_id=fact.mcp_server if is_mcp else None,
            mutates_resource=fact.kind in _MUTATES,
            risk_level=f"RISK_LEVEL_{_RISKS.get(fact.kind, 'LOW')}",
            safe_arguments=self._safe(fact.tool_call_id),
        )
        step = self._step(fact.tool_call_id)
        yield self._message(envelope, "maestro.events.tool_call.attempted", data, step=step)
        call = self._calls.get(fact.tool_call_id)
        if fact.tool_name == "skill" and call is not None and fact.tool_call_id not in self._skills:
            self._skills[fact.tool_call_id] = call
            invoked = payloads.skill_invocation(
                _skill(call),
                fact.tool_call_id,
                envelope.occurred_at,
                invocation_id=self._execution(fact.tool_call_id),
                tool_execution_id=self._execution(fact.tool_call_id),
            )
            yield self._message(envelope, "maestro.events.skill.invoked", invoked, step=step)

    def _safe(self, tool_call_id: str) -> dict[str, str] | None:
        call = self._calls.get(tool_call_id)
        return {"command_summary": call.summary} if call and call.summary else None

    def _result(
        self, envelope: Envelope, call_id: str, status: payloads.ToolStatus, **more: Any
    ) -> Message:
        call = self._calls.get(call_id)
        data = payloads.tool_result(
            call_id,
            status,
            envelope.occurred_at,
            tool_execution_id=self._execution(call_id),
            approval_request_id=call.approval_id if call else None,
            **more,
        )
        return self._message(
            envelope, "maestro.events.tool_call.completed", data, step=self._step(call_id)
        )

    def _ended(self, envelope: Envelope, fact: ToolEnded) -> Iterator[Message]:
        status: payloads.ToolStatus = "SUCCEEDED"
        problem: str | None = None
        if not isinstance(fact, facts.ToolCompleted):
            status = "CANCELLED" if isinstance(fact, facts.ToolCancelled) else "FAILED"
            problem = _cut(str(getattr(fact, "error", "")))
        kind = getattr(fact, "error_kind", UNSET)
        code = kind if isinstance(kind, str) else None
        yield self._result(
            envelope,
            fact.tool_call_id,
            status,
            duration_ms=fact.duration_ms,
            safe_output={"summary": _cut(fact.summary)} if fact.summary else None,
            error_code=code,
            error_message=problem or None,
        )
        step = self._step(fact.tool_call_id)
        call = self._calls.pop(fact.tool_call_id, None)
        if code in _SANDBOX:
            violation = payloads.sandbox_violation(
                fact.tool_name,
                call.summary if call else fact.tool_name,
                envelope.occurred_at,
                workspace_root=self._workspace or None,
                reason=problem or None,
            )
            yield self._message(envelope, "maestro.events.sandbox_violation", violation, step=step)
        if code in _FIREWALL:
            block = _firewall(fact, call, envelope.occurred_at, problem)
            yield self._message(envelope, "maestro.events.firewall_block", block, step=step)
        if isinstance(fact, facts.ToolCompleted) and fact.kind == "memory" and call is not None:
            learned = self._learned(fact, call, envelope)
            yield self._message(envelope, "maestro.events.context.learned", learned, step=step)

    def _learned(self, fact: ToolEnded, call: _Call, envelope: Envelope) -> Mapping[str, Any]:
        statement = str(call.input.get("content", ""))
        scope = str(call.input.get("scope", "project"))
        digest = sha256(f"{self._workspace}\0{scope}\0{statement}".encode()).hexdigest()
        return payloads.learned_context(
            f"learn_{digest[:32]}",
            statement,
            f"memory.{scope}",
            confidence_score=0.5,
            confidence_reason="the agent chose to remember it; nobody has checked it",
            evidence=[{"source": "tool_call", "source_id": fact.tool_call_id}],
            at=envelope.occurred_at,
            subject_key=self._workspace or None,
            tool_call_id=fact.tool_call_id,
            tool_execution_id=f"exec_{self._run_id.partition('_')[2]}_{call.step}",
        )

    def _outcomes(self, envelope: Envelope, outcome: Outcome) -> Iterator[Message]:
        """The outcome of each skill that the run used is the outcome of the run."""
        status: payloads.TurnStatus = "error"
        if outcome == "completed":
            status = "success"
        elif outcome in ("cancelled", "interrupted"):
            status = "aborted"
        for call_id, call in self._skills.items():
            event_type, data = payloads.skill_outcome(
                _skill(call),
                status,
                envelope.occurred_at,
                tool_call_id=call_id,
                error_category=None if status == "success" else outcome,
            )
            yield self._message(envelope, event_type, data, name=f".{call.step}")


def _skill(call: _Call) -> dict[str, Any]:
    name = str(call.input.get("name", "unknown"))
    return {"name": name, "hash": f"sha256:{sha256(name.encode()).hexdigest()}", "source": "local"}


def _firewall(fact: ToolEnded, call: _Call | None, at: str, problem: str | None) -> dict[str, Any]:
    url = str(call.input.get("url", "")) if call else ""
    try:
        parts = urlsplit(url)
        host, port, scheme = parts.hostname or "", parts.port, parts.scheme
    except ValueError:
        host, port, scheme = "", None, ""
    return payloads.firewall_block(
        fact.tool_name,
        host or fact.tool_name,
        at,
        protocol=scheme or None,
        port=port or {"https": 443, "http": 80}.get(scheme),
        reason=problem,
    )


def _summary(tool: str, arguments: Mapping[str, Any]) -> str:
    """A line about a call: its command, path, address or pattern, cut short."""
    for name in ("command", "file_path", "path", "url", "pattern", "query", "name"):
        value = arguments.get(name)
        if isinstance(value, str) and value.strip():
            return _cut(value)
    return tool


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
