"""`GET /runs/:id/metrics`: counts, tokens and cost of a run, folded from its events."""

from datetime import datetime

from msgspec import UNSET, Struct, UnsetType

from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.llm import cost_nanos, dollars

_COUNTS: dict[str, str] = {
    "message": "message_count",
    "proposal": "proposal_count",
    "tool": "tool_call_count",
    "decision": "decision_count",
}
"""The count that events with this first word raise."""


class Metrics(Struct, kw_only=True):
    """The counts so far."""

    event_count: int = 0
    message_count: int = 0
    signal_count: int = 0
    proposal_count: int = 0
    tool_call_count: int = 0
    decision_count: int = 0
    stream_reconnect_count: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    cost_nanos: int = 0
    first_event_at: str = ""
    last_event_at: str = ""
    session_state: str = ""
    is_over: bool = False


class RunMetrics(Struct, frozen=True, kw_only=True, rename="camel"):
    run_id: str
    event_count: int
    message_count: int
    signal_count: int
    proposal_count: int
    tool_call_count: int
    decision_count: int
    stream_reconnect_count: int
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    estimated_cost_usd: float
    first_event_at: str | UnsetType = UNSET
    last_event_at: str | UnsetType = UNSET
    duration_ms: int | UnsetType = UNSET
    session_state: str | UnsetType = UNSET


def measure(metrics: Metrics, event: CanonicalEvent) -> None:
    """Count the run's next event. Tokens come from `llm.call.completed` alone: once a message."""
    metrics.event_count += 1
    name = _COUNTS.get(event.type.partition(".")[0])
    if name is not None:
        setattr(metrics, name, getattr(metrics, name) + 1)
    metrics.first_event_at = metrics.first_event_at or event.ts
    if not metrics.is_over:
        metrics.last_event_at = event.ts
    match event.type:
        case "signal.emitted":
            metrics.signal_count += 1
        case "session.stream.opened":
            metrics.stream_reconnect_count += event.data["status"] == "reconnecting"
        case "session.state.changed":
            metrics.session_state = event.data["state"]
        case "llm.call.completed":
            call = event.data["decodedPayload"]
            metrics.prompt_tokens += call["promptTokens"]
            metrics.completion_tokens += call["completionTokens"]
            metrics.total_tokens += call["totalTokens"]
            metrics.cost_nanos += cost_nanos(call)
        case "run.completed" | "run.failed" | "run.cancelled":
            metrics.is_over = True
        case _:
            pass


def metrics_of(run_id: str, metrics: Metrics) -> RunMetrics:
    return RunMetrics(
        run_id=run_id,
        event_count=metrics.event_count,
        message_count=metrics.message_count,
        signal_count=metrics.signal_count,
        proposal_count=metrics.proposal_count,
        tool_call_count=metrics.tool_call_count,
        decision_count=metrics.decision_count,
        stream_reconnect_count=metrics.stream_reconnect_count,
        prompt_tokens=metrics.prompt_tokens,
        completion_tokens=metrics.completion_tokens,
        total_tokens=metrics.total_tokens,
        estimated_cost_usd=dollars(metrics.cost_nanos),
        first_event_at=metrics.first_event_at or UNSET,
        last_event_at=metrics.last_event_at or UNSET,
        duration_ms=milliseconds(metrics.first_event_at, metrics.last_event_at)
        if metrics.first_event_at
        else UNSET,
        session_state=metrics.session_state or UNSET,
    )


def unix_ms(instant: str) -> int:
    """An instant of an event in milliseconds of the epoch."""
    return round(datetime.fromisoformat(instant).timestamp() * 1000)


def milliseconds(start: str, end: str) -> int:
    return unix_ms(end) - unix_ms(start)
