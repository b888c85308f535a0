"""Facts of a run, or of a session's own stream, as events of the catalogue.

Event ids are event ids of facts with the name of the event behind them: the same fact always gives
the same events, and JetStream drops repeats by them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec
from msgspec import UNSET

from batten import __version__
from batten.contract import facts
from batten.contract.calls import Call, CallChanged, CallEnd, CallEnded, CallStarted, RunEnded
from batten.contract.envelope import Envelope
from batten.contract.errors import CallerError
from batten.contract.facts.tool import ToolEnded
from batten.contract.identity import BUS_OFF
from batten.contract.outcomes import Outcome, ending_of
from batten.contract.reports import (
    REPORTS,
    AmbientPlan,
    EvalScore,
    LearnedContext,
    PromptVariant,
    read_report,
)
from batten.contract.tracing import identity_in
from batten.sinks.bus import payloads
from batten.sinks.bus.calls import (
    MUTATES,
    RISKS,
    KnownCalls,
    cut_short,
    how_it_ended,
    learned,
    left_workspace,
    refused_address,
    summary,
)
from batten.sinks.bus.correlation import (
    correlation_of,
    merged,
    principal_of,
    runtime_mode_of,
    surface_of,
)
from batten.sinks.bus.envelope import encoded, event
from batten.sinks.bus.lifecycle import SOURCE as AMBIENT_SOURCE
from batten.sinks.bus.skills import UsedSkill, prompt_of, skill_metadata, skill_status
from batten.sinks.contract import Message
from batten.sinks.sessions import SessionBefore

TYPES = frozenset(REPORTS) | frozenset(
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
_BOUNDS = "bounds:"
"""Policies of the bounds of a tool begin with it; the code of the refusal follows."""
_FIREWALL = frozenset(("address_refused", "redirect_refused", "too_many_redirects"))


class BusFold:
    """One stream of facts. `user` is the principal of sessions whose launcher names none."""

    def __init__(self, run_id: str, source: str, user: str = "") -> None:
        self._run_id = run_id
        self._source = source
        self._user = user
        self._identity: dict[str, str] = {}
        self._workspace = ""
        self._surface = ""
        self._is_reopened = False
        self._calls = KnownCalls(run_id)
        self._pending = 0
        self._opened_at = ""
        self._prompt: dict[str, Any] | None = None
        self._skills: dict[str, UsedSkill] = {}
        """Skills that were read, by their calls; they end with the run."""
        self._skill: UsedSkill | None = None
        """The skill that was read last: what follows is its work."""
        self._status: payloads.TurnStatus | None = None
        """How the run ended."""

    def join(self, session: SessionBefore) -> None:
        """Take what is known of the session of a run."""
        self._surface, self._is_reopened = session.surface, session.is_closed

    def take(self, envelope: Envelope) -> Iterator[Message]:
        for message in self._events(envelope):
            if BUS_OFF not in self._identity:
                yield message

    def _events(self, envelope: Envelope) -> Iterator[Message]:
        fact = envelope.data
        match change := self._calls.take(fact, envelope.sequence):
            case CallStarted(call):
                yield self._attempt(envelope, fact, call)
            case CallEnded(call, end) if end.status == "denied":
                yield from self._blocked(envelope, fact, call, end)
            case CallEnded(call, end):
                yield from self._ended(envelope, fact, call, end)
            case RunEnded(calls=calls):
                yield from self._outcomes(envelope, fact, calls)
            case CallChanged(call) if isinstance(fact, facts.PolicyToolDecided):
                if call.sequence >= 0 and call.verdict == "allow" and not call.answer:
                    # Who is asked whether to try again decides without an approval.
                    is_asked = call.decided_by.startswith("resolver:")
                    mode: payloads.DecisionMode = "ALLOW" if is_asked else "AUTO_APPROVED"
                    yield self._hit(envelope, call.id, mode, fact.reason)
            case _:
                asked = change.call.id if isinstance(change, CallChanged) else ""
                yield from self._others(envelope, fact, asked)

    def _others(self, envelope: Envelope, fact: facts.Fact, asked: str) -> Iterator[Message]:
        """`asked`: the call of the approval that the fact answers."""
        match fact:
            case facts.SessionOpened() | facts.SessionClosed():
                yield from self._session(envelope, fact)
            case facts.RunQueued():
                yield from self._queued(envelope, fact)
            case facts.ApprovalRequested():
                yield self._hit(
                    envelope,
                    fact.tool_call_id,
                    "REQUIRE_APPROVAL",
                    fact.policy_reason,
                    fact.approval_id,
                )
                yield from self._waits(envelope)
            case facts.RequestOpened():
                yield from self._waits(envelope)
            case facts.ApprovalResolved() | facts.ApprovalTimedOut():
                yield from self._answered(envelope, fact, asked)
            case facts.RequestClosed():
                yield from self._goes_on(envelope)
            case facts.Unknown():
                yield from self._reported(envelope, fact)
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
        source: str = "",
    ) -> Message:
        """`name` tells several events of one type and one fact apart."""
        event_id = f"{envelope.event_id}.{event_type.rpartition('.')[2]}{name}"
        run = "" if self._is_session(envelope) else envelope.run_id
        context = merged(
            correlation_of(
                self._identity, self._workspace or "unknown", envelope.session_id or "unknown", run
            ),
            {"agent_run_step_id": self._identity.get("agent_run_step_id") or step},
        )
        made = event(
            event_type,
            data,
            context,
            event_id=event_id,
            time=envelope.occurred_at,
            source=source or self._source,
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
            self._opened_at = envelope.occurred_at
            yield self._lifecycle(envelope, "started")
            return
        outcome: Outcome = "completed" if fact.outcome is UNSET else fact.outcome
        yield self._lifecycle(
            envelope,
            "closed",
            close_reason=payloads.close_reason(fact.reason, outcome),
            close_message=fact.reason or None,
            metadata={"outcome": outcome, **payloads.lasted(self._opened_at, envelope.occurred_at)},
        )

    def _queued(self, envelope: Envelope, fact: facts.RunQueued) -> Iterator[Message]:
        is_new = not self._workspace
        self._workspace = fact.workspace_path
        self._identity = identity_in(fact) or self._identity
        if is_new and self._is_reopened and fact.parent_run_id is UNSET:
            yield self._lifecycle(envelope, "resumed")
        if is_new and (variant := prompt_of(self._identity)) is not None:
            yield self._select(envelope, variant)

    def _select(self, envelope: Envelope, variant: PromptVariant) -> Message:
        self._prompt = msgspec.to_builtins(variant)
        data = payloads.prompt_variant(cast("dict[str, Any]", self._prompt), envelope.occurred_at)
        return self._message(envelope, "maestro.events.prompt_variant.selected", data)

    def _reported(self, envelope: Envelope, fact: facts.Unknown) -> Iterator[Message]:
        try:
            report = read_report(fact.type, fact.data)
        except CallerError:  # the surfaces refuse it; an imported session may have it all the same
            return
        match report:
            case PromptVariant():
                yield self._select(envelope, report)
            case EvalScore():
                yield from self._scored(envelope, report)
            case LearnedContext():
                call_id = report.tool_call_id or ""
                data = payloads.learned_context(
                    **msgspec.to_builtins(report),
                    at=envelope.occurred_at,
                    tool_execution_id=self._calls.execution(call_id),
                )
                step = self._calls.step(call_id)
                yield self._message(envelope, "maestro.events.context.learned", data, step=step)
            case AmbientPlan():
                name = fact.type.removeprefix("external.")
                data = payloads.ambient_plan(
                    name, msgspec.to_builtins(report), envelope.occurred_at
                )
                yield self._message(envelope, f"maestro.{name}", data, source=AMBIENT_SOURCE)
            case None:
                return

    def _scored(self, envelope: Envelope, report: EvalScore) -> Iterator[Message]:
        call_id = report.tool_call_id
        call, execution = self._calls.known(call_id), self._calls.execution(call_id)
        skill = self._skills.get(call_id, self._skill)
        given: dict[str, Any] = msgspec.to_builtins(report) | {"passed": report.is_passed}
        data = payloads.eval_score(
            given.pop("tool_call_id"),
            envelope.occurred_at,
            tool_execution_id=execution,
            tool_name=call.name if call else None,
            prompt_metadata=self._prompt,
            skill_metadata=skill.metadata if skill else None,
            **given,
        )
        step = self._calls.step(call_id)
        yield self._message(envelope, "maestro.events.eval.scored", data, step=step)
        if skill is not None and report.is_passed is False:
            skill.evaluate(report, call.name if call else None, execution)
            if self._status == "success":  # the run ended before anybody judged it
                yield self._outcome(envelope, skill, "evaluation_failed")

    def _hit(
        self,
        envelope: Envelope,
        tool_call_id: str,
        mode: payloads.DecisionMode,
        reason: str,
        request_id: str | None = None,
    ) -> Message:
        call = self._calls.known(tool_call_id)
        data = payloads.approval_hit(
            call.name if call else "tool",
            mode,
            envelope.occurred_at,
            approval_request_id=request_id,
            command=summary(call) if call else None,
            policy_id=(call.decided_by or None) if call else None,
            reason=reason or None,
        )
        return self._message(
            envelope, "maestro.events.approval_hit", data, step=self._calls.step(tool_call_id)
        )

    def _blocked(
        self, envelope: Envelope, fact: facts.PolicyToolBlocked, call: Call, end: CallEnd
    ) -> Iterator[Message]:
        if call.answer in ("", "approved"):
            yield self._hit(envelope, call.id, "DENY", fact.reason)
        if call.sequence >= 0:
            yield self._result(envelope, call.id, "DENIED", error_message=fact.reason)
        code = end.by.removeprefix(_BOUNDS) if end.by.startswith(_BOUNDS) else None
        yield from self._crossed(envelope, fact, code, fact.reason)

    def _answered(
        self,
        envelope: Envelope,
        fact: facts.ApprovalResolved | facts.ApprovalTimedOut,
        call_id: str,
    ) -> Iterator[Message]:
        is_granted = isinstance(fact, facts.ApprovalResolved) and fact.decision == "approved"
        reason = "timed out"
        if isinstance(fact, facts.ApprovalResolved):
            reason = fact.comment or ("cancelled" if fact.decision == "cancelled" else "")
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

    def _attempt(self, envelope: Envelope, fact: facts.ToolInvoked, call: Call) -> Message:
        is_mcp = fact.mcp_server is not UNSET
        data = payloads.tool_attempt(
            call.id,
            fact.tool_name,
            envelope.occurred_at,
            tool_execution_id=self._calls.execution(call.id),
            tool_namespace="mcp" if is_mcp else "builtin",
            connector_id=fact.mcp_server if is_mcp else None,
            mutates_resource=fact.kind in MUTATES,
            risk_level=f"RISK_LEVEL_{RISKS.get(fact.kind, 'LOW')}",
            safe_arguments={"command_summary": summary(call)} if call.sequence >= 0 else None,
            **self._identities(),
        )
        step = self._calls.step(call.id)
        return self._message(envelope, "maestro.events.tool_call.attempted", data, step=step)

    def _identities(self) -> dict[str, Any]:
        """The prompt and the skill that a call works with."""
        skill = self._skill.metadata if self._skill else None
        return {"prompt_metadata": self._prompt, "skill_metadata": skill}

    def _invoked(self, envelope: Envelope, skill: UsedSkill) -> Message:
        data = payloads.skill_invocation(
            skill.metadata,
            skill.tool_call_id,
            envelope.occurred_at,
            prompt_metadata=self._prompt,
            invocation_id=skill.execution_id,
            tool_execution_id=skill.execution_id,
        )
        step = self._calls.step(skill.tool_call_id)
        return self._message(envelope, "maestro.events.skill.invoked", data, step=step)

    def _result(
        self, envelope: Envelope, call_id: str, status: payloads.ToolStatus, **more: Any
    ) -> Message:
        call = self._calls.known(call_id)
        data = payloads.tool_result(
            call_id,
            status,
            envelope.occurred_at,
            tool_execution_id=self._calls.execution(call_id),
            approval_request_id=(call.approval_id or None) if call else None,
            **self._identities(),
            **more,
        )
        return self._message(
            envelope, "maestro.events.tool_call.completed", data, step=self._calls.step(call_id)
        )

    def _ended(
        self, envelope: Envelope, fact: ToolEnded, call: Call, end: CallEnd
    ) -> Iterator[Message]:
        status, code, problem = how_it_ended(end)
        read = self._read_skill(call, end)
        yield self._result(
            envelope,
            call.id,
            status,
            duration_ms=end.duration_ms,
            safe_output={"summary": cut_short(end.summary)} if end.summary else None,
            error_code=code,
            error_message=problem,
        )
        if read is not None:
            yield self._invoked(envelope, read)
        yield from self._crossed(envelope, fact, code, problem)
        if end.status == "completed" and fact.kind == "memory" and call.sequence >= 0:
            execution, step = self._calls.execution(call.id), self._calls.step(call.id)
            data = learned(call, call.id, execution, envelope.occurred_at, self._workspace)
            yield self._message(envelope, "maestro.events.context.learned", data, step=step)

    def _crossed(
        self,
        envelope: Envelope,
        fact: ToolEnded | facts.PolicyToolBlocked,
        code: str | None,
        why: str | None,
    ) -> Iterator[Message]:
        """A call wanted to leave the workspace, or an address that is refused: `code` says so."""
        at, tool, step = envelope.occurred_at, fact.tool_name, self._calls.step(fact.tool_call_id)
        call = self._calls.known(fact.tool_call_id)
        policy = fact.policy_id if isinstance(fact, facts.PolicyToolBlocked) else None
        named = policy if isinstance(policy, str) else None
        if code in _SANDBOX:
            data = left_workspace(tool, call, at, self._workspace, named, why or None)
            yield self._message(envelope, "maestro.events.sandbox_violation", data, step=step)
        if code in _FIREWALL:
            data = refused_address(tool, call, at, named, why or None)
            yield self._message(envelope, "maestro.events.firewall_block", data, step=step)

    def _read_skill(self, call: Call, end: CallEnd) -> UsedSkill | None:
        """The skill whose instructions the model got by this call."""
        if call.tool != "skill" or end.status != "completed" or call.sequence < 0:
            return None
        metadata = skill_metadata(str(call.begun_input.get("name", "unknown")), end.text)
        execution = self._calls.execution(call.id)
        self._skill = UsedSkill(metadata, call.id, execution, call.sequence)
        self._skills[call.id] = self._skill
        return self._skill

    def _outcomes(
        self,
        envelope: Envelope,
        fact: facts.RunFinished | facts.RunFailed | facts.RunCancelled,
        calls: Iterable[Call],
    ) -> Iterator[Message]:
        """Calls that were decided on and did not begin end with the run. The outcome of each skill
        that it used is the outcome of the run, unless it was found to be bad.
        """
        for call in calls:
            if call.sequence >= 0 and call.decided_by and call.ends == 1:
                yield self._result(envelope, call.id, "CANCELLED")
        self._status = skill_status(fact)
        problem = cut_short(fact.message) if isinstance(fact, facts.RunFailed) else None
        for skill in self._skills.values():
            is_bad = self._status == "success" and skill.evaluation
            yield self._outcome(
                envelope,
                skill,
                "evaluation_failed" if is_bad else self._status,
                error_category=None if self._status == "success" else ending_of(fact).outcome,
                error_message=problem,
            )

    def _outcome(
        self, envelope: Envelope, skill: UsedSkill, status: payloads.TurnStatus, **more: Any
    ) -> Message:
        found = skill.evaluation if status == "evaluation_failed" else {}
        event_type, data = payloads.skill_outcome(
            skill.metadata,
            status,
            envelope.occurred_at,
            prompt_metadata=self._prompt,
            invocation_id=skill.execution_id,
            tool_call_id=skill.tool_call_id,
            tool_execution_id=skill.execution_id,
            **{**more, **found},
        )
        return self._message(envelope, event_type, data, name=f".{skill.step}")
