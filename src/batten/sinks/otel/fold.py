"""Facts of a run as spans and measurements, by the GenAI semantic conventions. No content: ids,
names, counts, times and codes only.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct

from batten.contract import facts
from batten.contract.calls import end_of
from batten.contract.envelope import Envelope
from batten.contract.facts.tool import ToolEnded
from batten.contract.outcomes import ending_of
from batten.contract.tracing import caller_of, identity_in, place_of, span_of, trace_of
from batten.sinks.bus.correlation import correlation_of, span_attributes, surface_of
from batten.sinks.contract import Message
from batten.sinks.otel.encoding import (
    CLIENT,
    Attributes,
    Point,
    Span,
    metrics,
    nanoseconds,
    resource_of,
    traces,
)
from batten.sinks.otel.measurements import (
    CALL_DURATION,
    RUN_DURATION,
    RUNS,
    TOKEN_USAGE,
    TOOL_DURATION,
)

if TYPE_CHECKING:  # loaded with the first session
    from batten.sinks.otel.session_spans import SessionFold

TYPES = frozenset(
    kind.TYPE
    for kind in (
        facts.RunQueued,
        facts.RunFinished,
        facts.RunFailed,
        facts.RunCancelled,
        facts.TurnStarted,
        facts.TurnCompleted,
        facts.TurnFailed,
        facts.AssistantMessageComplete,
        facts.ToolInvoked,
        facts.ToolCompleted,
        facts.ToolFailed,
        facts.ToolCancelled,
        facts.ToolTimedOut,
        facts.ApprovalRequested,
        facts.ApprovalResolved,
        facts.ApprovalTimedOut,
        facts.RequestOpened,
        facts.RequestClosed,
        facts.PolicyToolBlocked,
        facts.GapRunDisconnected,
        facts.RunStarted,
        facts.ArtifactCreated,
        facts.MacpRunDescribed,
        facts.MacpSessionBound,
        facts.MacpMessageAccepted,
        facts.MacpCommitmentEvaluated,
        facts.MacpSessionChanged,
        facts.MacpFrameObserved,
    )
)
_PROVIDERS = {"google": "gcp.gemini", "openai-chat": "openai", "xai": "x_ai"}
"""Providers that the conventions call by another name."""
_MOST = 400
"""Spans of one message; a run with more is exported in several."""
_MOST_OF_SESSION = 50
"""The same for a session, which has no turns to end with."""
_MOST_POINTS = 50
_MOST_EVENTS = 100


class _Begun(Struct):
    at_ns: int
    parent_id: str
    attributes: dict[str, Any]
    attempt: int = 1


class OtelFold:
    """One run. A session's own stream has no spans."""

    def __init__(
        self,
        run_id: str,
        service: str,
        plane: str = "",
        *,
        has_traces: bool = True,
        has_metrics: bool = True,
        resource: Attributes | None = None,
    ) -> None:
        """`plane`: the service that coordination sessions are told of; empty for the same.
        `resource`: what else is said of it.
        """
        self._run_id = run_id
        self._resource = resource_of(service, resource or {})
        self._plane = plane or service
        self._has_traces = has_traces
        self._has_metrics = has_metrics
        self._trace_id = trace_of(run_id)
        self._trace_state = ""
        self._is_sampled = True
        """Whether the caller wants the spans of its trace."""
        self._root = span_of(run_id)
        self._parent = ""
        self._began_ns = 0
        self._common: dict[str, Any] = {"batten.run_id": run_id}
        self._run: dict[str, Any] = {}
        self._turn: tuple[int, int] | None = None
        """The number of the current turn, and when it began."""
        self._asked: facts.TurnStarted | None = None
        """The turn whose model call has not been answered."""
        self._calls: dict[str, _Begun] = {}
        self._questions: dict[str, _Begun] = {}
        self._session: SessionFold | None = None
        self._events: list[tuple[str, int, Attributes]] = []
        self._spans: list[Span] = []
        self._points: list[Point] = []

    def take(self, envelope: Envelope) -> Iterator[Message]:
        fact, at = envelope.data, nanoseconds(envelope.occurred_at)
        is_due = is_last = False
        match fact:
            case facts.RunQueued():
                self._queued(envelope, fact, at)
            case facts.TurnStarted():
                self._turn, self._asked = (fact.turn_index, at), fact
            case facts.AssistantMessageComplete():
                self._called(fact, at)
            case facts.TurnCompleted() | facts.TurnFailed():
                self._end_turn(fact, at)
                is_due = True
            case facts.ToolInvoked():
                attempt = 1 if fact.attempt is UNSET else fact.attempt
                about = {"gen_ai.tool.type": "extension" if fact.mcp_server else "function"}
                self._calls[fact.tool_call_id] = _Begun(at, self._inside(), about, attempt)
            case ToolEnded():
                self._end_call(fact, at)
            case facts.ApprovalRequested():
                about = {"batten.request.class": "approval", "gen_ai.tool.name": fact.kind}
                self._questions[fact.approval_id] = _Begun(at, self._inside(), about)
            case facts.RequestOpened():
                about = {"batten.request.class": fact.request_class}
                self._questions[fact.request_id] = _Begun(at, self._inside(), about)
            case facts.ApprovalResolved() | facts.ApprovalTimedOut() | facts.RequestClosed():
                self._answered(fact, at)
            case facts.PolicyToolBlocked():
                self._note("policy.denied", at, {"gen_ai.tool.name": fact.tool_name})
            case facts.GapRunDisconnected():
                self._note("run.disconnected", at, {"reason": fact.reason})
            case facts.RunFinished() | facts.RunFailed() | facts.RunCancelled():
                self._ended(fact, at)
                is_due = is_last = True
            case _ if self._session is None:
                return
            case _:
                pass
        if self._session is not None:
            self._told(self._session, envelope, at)
        if is_due or len(self._spans) >= (_MOST if self._session is None else _MOST_OF_SESSION):
            yield from self._messages(envelope, is_last=is_last)

    def _messages(self, envelope: Envelope, *, is_last: bool) -> Iterator[Message]:
        """Spans turn by turn, so that a run can be watched; measurements when there are some."""
        spans, self._spans = self._spans, []
        if spans and self._has_traces and self._is_sampled:
            yield self._message(envelope, "traces", traces(spans, self._resource))
        if self._points and (is_last or len(self._points) >= _MOST_POINTS):
            points, self._points = self._points, []
            if self._has_metrics:
                yield self._message(envelope, "metrics", metrics(points, self._resource))

    def _message(self, envelope: Envelope, kind: str, body: bytes) -> Message:
        return Message(
            message_id=f"{envelope.event_id}.{kind}",
            run_id=envelope.run_id,
            type=kind,
            occurred_at=envelope.occurred_at,
            body=body,
        )

    def _queued(self, envelope: Envelope, fact: facts.RunQueued, at: int) -> None:
        if self._began_ns:
            return
        self._began_ns = at
        identity = identity_in(fact)
        place = place_of(self._run_id, fact)
        self._trace_id, self._parent = place.trace_id, place.span_id
        self._is_sampled = place.is_sampled
        if caller_of(identity) is not None:
            self._trace_state = identity.get("tracestate", "")
        session = envelope.session_id or "unknown"
        context = correlation_of(identity, fact.workspace_path, session, self._run_id)
        surface = surface_of(identity["surface"]) if identity.get("surface") else ""
        self._common |= span_attributes(context, surface)
        if envelope.session_id:
            self._common["gen_ai.conversation.id"] = envelope.session_id
        if envelope.task_id:
            self._common["batten.task_id"] = envelope.task_id
        if fact.kind == "coordination":
            from batten.sinks.otel.session_spans import SessionFold

            self._session = SessionFold()
            self._resource = {**self._resource, "service.name": self._plane}
            self._run = {"batten.run.kind": fact.kind}
            return
        self._run = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "batten",
            "run_id": self._run_id,
            "execution_mode": "live" if fact.executor_type is UNSET else fact.executor_type,
            "batten.run.kind": fact.kind,
        }
        if fact.provider:
            self._run["gen_ai.provider.name"] = _provider(fact.provider)
        if fact.model:
            self._run["gen_ai.request.model"] = fact.model

    def _told(self, session: "SessionFold", envelope: Envelope, at: int) -> None:
        """Add what a fact of a coordination session means."""
        spans, notes = session.take(envelope)
        self._run |= session.run_attributes
        for span in spans:
            span_id = span_of(self._run_id, span.part, envelope.sequence)
            self._add(span_id, self._root, span.name, at, at, span.attributes)
        for name, attributes in notes:
            self._note(name, at, attributes)

    def _inside(self) -> str:
        """The span that contains what happens now."""
        return self._root if self._turn is None else span_of(self._run_id, "turn", self._turn[0])

    def _add(
        self,
        span_id: str,
        parent_id: str,
        name: str,
        start_ns: int,
        end_ns: int,
        attributes: dict[str, Any],
        **more: Any,
    ) -> None:
        self._spans.append(
            Span(
                trace_id=self._trace_id,
                span_id=span_id,
                parent_id=parent_id,
                name=name,
                start_ns=start_ns,
                end_ns=end_ns,
                attributes={**attributes, **self._common},
                trace_state=self._trace_state,
                **more,
            )
        )

    def _called(self, fact: facts.AssistantMessageComplete, at: int) -> None:
        self._asked = None
        usage, start = fact.usage, at - fact.duration_ms * 1_000_000
        answered = fact.model if fact.answered_by is UNSET else fact.answered_by
        model: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _provider(fact.provider),
            "gen_ai.request.model": fact.model,
            "gen_ai.response.model": answered,
        }
        about: dict[str, Any] = {
            **model,
            "gen_ai.response.finish_reasons": [fact.stop_reason],
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
        }
        if fact.message_id is not UNSET:
            about["gen_ai.response.id"] = fact.message_id
        if fact.cost_micros_usd is not None:
            about["batten.cost_micros_usd"] = fact.cost_micros_usd
        if fact.time_to_first_token_ms is not None:
            about["batten.time_to_first_token_ms"] = fact.time_to_first_token_ms
        self._add(
            span_of(self._run_id, "chat", fact.turn_index, at),
            self._inside(),
            f"chat {fact.model}",
            start,
            at,
            about,
            kind=CLIENT,
        )
        for kind, count in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            typed = {**model, "gen_ai.token.type": kind}
            self._points.append(TOKEN_USAGE.point(float(count), (start, at), typed))
        self._points.append(CALL_DURATION.point(fact.duration_ms / 1000, (start, at), model))

    def _end_turn(self, fact: facts.Fact, at: int) -> None:
        """End the current turn, if there is one: with its own fact or with the run."""
        begun, self._turn = self._turn, None
        asked, self._asked = self._asked, None
        if begun is None:
            return
        number, start = begun
        about: dict[str, Any] = {"batten.turn": number}
        error: str | None = None
        if isinstance(fact, facts.TurnFailed):
            error = about["error.type"] = fact.code
            if asked is not None:
                self._failed_call(asked, fact, start, at)
        self._add(
            span_of(self._run_id, "turn", number),
            self._root,
            "agent.turn",
            start,
            at,
            about,
            error=error,
        )

    def _failed_call(
        self, asked: facts.TurnStarted, fact: facts.TurnFailed, start: int, at: int
    ) -> None:
        """A model call, with its retries, that gave no whole message."""
        about: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _provider(fact.provider or asked.provider),
            "gen_ai.request.model": asked.model,
            "error.type": fact.code,
        }
        self._add(
            span_of(self._run_id, "chat", asked.turn_index, at),
            span_of(self._run_id, "turn", asked.turn_index),
            f"chat {asked.model}",
            start,
            at,
            about,
            kind=CLIENT,
            error=fact.code,
        )
        self._points.append(CALL_DURATION.point((at - start) / 1e9, (start, at), about))

    def _end_call(self, fact: ToolEnded, at: int) -> None:
        begun = self._calls.pop(fact.tool_call_id, None)
        start = at - fact.duration_ms * 1_000_000 if begun is None else begun.at_ns
        attempt = 1 if begun is None else begun.attempt
        about: dict[str, Any] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": fact.tool_name,
            "gen_ai.tool.call.id": fact.tool_call_id,
            "batten.tool.kind": fact.kind,
            **({} if begun is None else begun.attributes),
        }
        end = end_of(fact)
        error = end.code or end.status if end.is_error else None
        if error:
            about["error.type"] = error
        self._add(
            span_of(self._run_id, "tool", fact.tool_call_id, attempt),
            self._inside() if begun is None else begun.parent_id,
            f"execute_tool {fact.tool_name}",
            start,
            at,
            about,
            error=error,
        )
        named = {"gen_ai.tool.name": fact.tool_name, **({"error.type": error} if error else {})}
        self._points.append(TOOL_DURATION.point(fact.duration_ms / 1000, (start, at), named))

    def _answered(
        self, fact: facts.ApprovalResolved | facts.ApprovalTimedOut | facts.RequestClosed, at: int
    ) -> None:
        is_request = isinstance(fact, facts.RequestClosed)
        request_id = fact.request_id if isinstance(fact, facts.RequestClosed) else fact.approval_id
        begun = self._questions.pop(request_id, None)
        if begun is None:
            return
        decision = "timed_out"
        if isinstance(fact, facts.ApprovalResolved):
            decision = fact.decision
        elif isinstance(fact, facts.RequestClosed):
            decision = fact.resolution
        self._add(
            span_of(self._run_id, "request", request_id),
            begun.parent_id,
            "agent.request" if is_request else "agent.approval",
            begun.at_ns,
            at,
            {**begun.attributes, "batten.request.decision": decision},
        )

    def _note(self, name: str, at: int, attributes: Attributes) -> None:
        """An annotation of the run's span."""
        if len(self._events) < _MOST_EVENTS:
            self._events.append((name, at, attributes))

    def _ended(
        self, fact: facts.RunFinished | facts.RunFailed | facts.RunCancelled, at: int
    ) -> None:
        self._end_turn(fact, at)
        ending = ending_of(fact)
        status = {"run.finished": "completed", "run.failed": "failed"}.get(fact.type, "cancelled")
        about: dict[str, Any] = {
            **self._run,
            "run.terminal_status": status,
            "batten.outcome": ending.outcome,
        }
        for name in ("turns", "cost_micros_usd"):
            value = getattr(fact, name)
            if isinstance(value, int):
                about[f"batten.{name}"] = value
        error = None
        if isinstance(fact, facts.RunFailed):
            error = about["error.type"] = fact.code
        self._add(
            self._root,
            self._parent,
            "run.lifecycle",
            self._began_ns or at,
            at,
            about,
            error=error,
            events=tuple(self._events),
        )
        self._events = []
        times = (self._began_ns or at, at)
        named: dict[str, Any] = {"batten.outcome": ending.outcome}
        self._points.append(RUNS.point(1.0, times, named))
        self._points.append(RUN_DURATION.point((times[1] - times[0]) / 1e9, times, named))


def _provider(name: str) -> str:
    return _PROVIDERS.get(name, name)
