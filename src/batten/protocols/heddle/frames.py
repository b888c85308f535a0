"""One send as Heddle's events and result, folded from the facts of its run."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from batten.contract import calls, facts
from batten.contract.calls import Call, CallEnd
from batten.contract.marks import exact
from batten.contract.outcomes import Outcome
from batten.protocols.heddle import failures, messages, usage
from batten.protocols.heddle.approval import ApprovalMode, allows, reason_of
from batten.protocols.heddle.echoes import Routed
from batten.protocols.heddle.variables import LOOP_THRESHOLD
from batten.protocols.heddle.versions import Spoken

State = Literal["queued", "running", "cancelling", "completed"]

PREVIEW = 500
"""Characters shown of a tool's result."""
_MOST_ENDED = 256
"""Ended calls whose arguments are known if they are tried again."""


class Correlation(Struct, frozen=True, kw_only=True):
    """Fields that every event and result of a session repeats."""

    session_id: str
    task_id: str | UnsetType = UNSET
    worker_id: str | UnsetType = UNSET


class SendFrames:
    """Folds one send. After a cancel it shows only the result."""

    def __init__(
        self,
        send_id: str,
        correlation: Correlation,
        spoken: Spoken,
        mode: ApprovalMode | None = None,
        routed: Routed | None = None,
        *,
        answers: bool = False,
        loop_threshold: int = LOOP_THRESHOLD,
    ) -> None:
        """`answers`: the client answers permission requests."""
        self.send_id = send_id
        self.routed = routed or Routed()
        """The routing observed in this send and before it."""
        self.messages = 0
        """Messages that this send added to the conversation."""
        self.ended = False
        self._correlation = correlation
        self._spoken = spoken
        self._mode: ApprovalMode | None = mode
        self._answers = answers
        self._trail = failures.Trail(loop_threshold)
        self._next = 0
        self._cancelled = False
        self._fold = calls.CallFold(_MOST_ENDED, turns=True)
        self._overlapping: dict[str, list[messages.ToolStart | messages.ToolEnd]] = {}
        """Calls that have begun and were not shown to their end, in order, with the events to show.
        """
        self._usages: list[messages.Usage] = []
        self._is_streaming = False
        """Deltas of the current answer were shown."""
        self._response = ""
        self._model_ms = 0
        self._tool_ms = 0
        self._total_ms: int | UnsetType = UNSET
        self._error: messages.ErrorEnvelope | None = None

    def queued(self) -> list[messages.Event]:
        return self._state("queued")

    def heartbeat(self, duration_ms: int) -> list[messages.Event]:
        return self._say(messages.Heartbeat(duration_ms))

    def cancel(self) -> list[messages.Event]:
        """Handle the client's cancel: later events are not shown."""
        events = [] if self._cancelled else self._state("cancelling")
        self._cancelled = True
        return events

    def feed(self, fact: facts.Fact) -> list[messages.Event]:
        match self._fold.take(fact):
            case calls.CallProposed(call):
                self._trail.proposed = call
            case calls.AnswerRetracted(reason=reason):
                return self._retracted(reason)
            case calls.TurnAnswered(message, text):
                self._response = text
                return self._answered(message)
            case calls.CallStarted(call):
                return self._started(call)
            case calls.CallEnded(call, end):
                self.messages += 1
                return self._denial(call, end) if end.status == "denied" else self._end(call, end)
            case calls.RunEnded(end, duration_ms=duration_ms):
                self._total_ms = duration_ms
                if end.outcome != "completed":
                    return self.fail(end.outcome, end.message)
                self.ended = True
                return self._state("completed")
            case _:
                return self._other(fact)
        return []

    def _other(self, fact: facts.Fact) -> list[messages.Event]:
        match fact:
            case facts.RunStarted():
                return [] if self._cancelled else self._state("running")
            case facts.AssistantTextDelta() if fact.delta:
                self._is_streaming = True
                return self._say(messages.ContentDelta(fact.delta))
            case facts.PolicyToolDecided(verdict="ask") if not self._answers:
                reason = reason_of(fact.tool_name, fact.reason, self._mode)
                return self._say(messages.PermissionRequest(fact.tool_name, reason))
            case facts.ApprovalRequested() if self._answers:
                return self._approval(fact)
            case facts.ContextPruned():
                pruned = len(fact.tool_call_ids)
                return self._say(
                    messages.ContextPrune(pruned, fact.tokens_before, fact.tokens_after)
                )
            case facts.ContextCompacted() | facts.CostCallUnfinished():
                return self._used(fact)
            case facts.AssistantFinalAnswer() if self._mode == "plan" and self._response:
                return self._say(messages.PlanComplete(self._response))
            case facts.UserMessage():
                self.messages += 1
            case facts.TurnFailed():
                self._trail.fault = failures.fault_of(fact)
                self._model_ms += fact.duration_ms or 0
            case facts.RunCancelRequested():
                return self.cancel()
            case _:
                pass
        return []

    def result(self, **echoed: Any) -> messages.Result:
        """The result; call it after the end. `echoed` has the fields that repeat the config."""
        assert self.ended
        error = self._error
        failure: Any = UNSET
        if error is not None and self._spoken.has("0.4.0"):
            failure = failures.failure(error, self._trail, self._spoken)
        return messages.Result(
            id=self.send_id,
            status="ok" if error is None else "error",
            response=self._response if error is None else UNSET,
            tool_calls_made=self._trail.calls,
            usage=usage.total(self._usages) if self._usages else UNSET,
            iterations=self._trail.iterations,
            error=UNSET if error is None else error,
            failure=failure,
            session_id=self._correlation.session_id,
            task_id=self._correlation.task_id,
            worker_id=self._correlation.worker_id,
            **self._latencies(),
            **echoed,
        )

    def _latencies(self) -> dict[str, Any]:
        if self._total_ms is UNSET:
            return {}
        return {
            "model_latency_ms": self._model_ms,
            "tool_latency_ms": self._tool_ms,
            # Each part is rounded on its own, and their sum may exceed the whole.
            "total_latency_ms": max(self._total_ms, self._model_ms + self._tool_ms),
        }

    def _state(self, state: State) -> list[messages.Event]:
        return self._event(messages.TurnState(state)) if self._spoken.has("0.5.0") else []

    def _say(self, payload: messages.Payload) -> list[messages.Event]:
        return [] if self._cancelled else self._event(payload)

    def _event(self, payload: messages.Payload) -> list[messages.Event]:
        event = messages.Event(
            event=payload,
            event_seq=self._next,
            send_id=self.send_id,
            session_id=self._correlation.session_id,
            task_id=self._correlation.task_id,
            worker_id=self._correlation.worker_id,
        )
        self._next += 1
        return [event]

    def _retracted(self, reason: str) -> list[messages.Event]:
        """Void the deltas so far. The only event of Heddle for that is an error."""
        self._trail.proposed = None
        shown, self._is_streaming = self._is_streaming, False
        return self._say(failures.restart(reason)) if shown else []

    def _answered(self, fact: facts.AssistantMessageComplete) -> list[messages.Event]:
        self._trail.iterations += 1
        self.messages += 1
        self._is_streaming = False
        self._trail.fault = None  # the provider answers again
        self._model_ms += fact.duration_ms
        return [*self._routed(fact), *self._used(fact)]

    def _used(
        self,
        fact: facts.AssistantMessageComplete | facts.ContextCompacted | facts.CostCallUnfinished,
    ) -> list[messages.Event]:
        """Count the tokens of a model call."""
        used = usage.usage_of(fact, self._spoken)
        if used is None:
            return []
        self._usages.append(used)
        return self._say(usage.event_of(used))

    def _routed(self, fact: facts.AssistantMessageComplete) -> list[messages.Event]:
        before, self.routed = self.routed, self.routed.after(fact)
        events: list[messages.Event] = []
        if self.routed.model != before.model and self._spoken.has("0.3.0"):
            events += self._say(messages.RoutedModel(self.routed.model))
        if self.routed.upstream != before.upstream and self._spoken.has("0.5.0"):
            events += self._say(messages.UpstreamProvider(self.routed.upstream))
        return events

    def _is_refused(self, tool: str) -> bool:
        """Whether plan mode did not offer the tool, so that there was nothing to run."""
        return self._mode == "plan" and not allows(self._mode, tool)

    def _started(self, call: Call) -> list[messages.Event]:
        if self._is_refused(call.tool):
            reason = reason_of(call.tool, "", self._mode)
            return self._say(messages.PermissionDenied(call.tool, reason))
        named = call.id if self._spoken.has("0.5.0") else UNSET
        self._trail.calls.append(messages.CallMade(call.tool, call.arguments, named))
        return self._in_turn(call.id, messages.ToolStart(call.tool, call.arguments))

    def _end(self, call: Call, end: CallEnd) -> list[messages.Event]:
        if self._is_refused(call.tool):
            return []
        self._tool_ms += end.duration_ms
        return self._in_turn(call.id, messages.ToolEnd(call.tool, end.text[:PREVIEW]))

    def _in_turn(
        self, call_id: str, payload: messages.ToolStart | messages.ToolEnd
    ) -> list[messages.Event]:
        """Show calls that overlap one after the other: their events do not name the call."""
        self._overlapping.setdefault(call_id, []).append(payload)
        events: list[messages.Event] = []
        while self._overlapping:
            first = next(iter(self._overlapping))
            held = self._overlapping[first]
            ended = any(isinstance(one, messages.ToolEnd) for one in held)
            events += [event for one in held for event in self._say(one)]
            held.clear()
            if not ended:
                break
            del self._overlapping[first]
        return events

    def _denial(self, call: Call, end: CallEnd) -> list[messages.Event]:
        # Heddle's table is the reason, unless a person, a hook or a rule that denies is.
        is_stated = end.by == "resolver:operator" or end.by.startswith(("hook:", "rule:"))
        is_stated = is_stated or (self._answers and end.is_by_answer)
        reason = end.summary if is_stated else reason_of(call.tool, end.summary, self._mode)
        self._trail.denied = {"name": call.tool, "call_id": call.id, "reason": reason}
        return self._say(messages.PermissionDenied(call.tool, reason))

    def _approval(self, fact: facts.ApprovalRequested) -> list[messages.Event]:
        reason = exact(reason_of(fact.kind, fact.policy_reason, self._mode))
        request = messages.PermissionRequest(fact.kind, reason, fact.approval_id, fact.deadline_at)
        return self._say(request)

    def fail(self, outcome: Outcome, message: str) -> list[messages.Event]:
        """End the send with an error."""
        self.ended = True
        if failures.is_cancel(outcome):
            self._error = messages.cancellation()
            return self._state("completed")
        if outcome == "timeout":
            self._trail.fault = None  # our own limit ended the call
        error = failures.envelope(
            outcome, message, self._trail.fault, self._spoken, self._trail.iterations
        )
        self._error = error
        return [*self._say(failures.event_of(error, self._trail.fault)), *self._state("completed")]
