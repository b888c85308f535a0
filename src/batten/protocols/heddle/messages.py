"""Messages of a Heddle server. Fields without a value are omitted."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

Code = Literal[
    "provider_error",
    "protocol_error",
    "protocol_version_mismatch",
    "tool_error",
    "loop_detected",
    "cancelled",
    "max_iterations",
]


class ErrorEnvelope(Struct, frozen=True, kw_only=True):
    """An error, and whether a retry may help."""

    code: str
    message: str
    retryable: bool
    details: Any = UNSET


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens: of one model call in an event, of all calls in a result."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cost_micros: int | UnsetType = UNSET
    cost_currency: str | UnsetType = UNSET
    cached_tokens: int | UnsetType = UNSET
    cache_write_tokens: int | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET
    generation_id: str | UnsetType = UNSET


class ContentDelta(Struct, frozen=True, tag="content_delta", tag_field="event"):
    """A piece of the model's text."""

    text: str


class ToolStart(Struct, frozen=True, tag="tool_start", tag_field="event"):
    """A tool begins; a refused call has no such event."""

    name: str
    args: dict[str, Any]


class ToolEnd(Struct, frozen=True, tag="tool_end", tag_field="event"):
    """A tool ended, with the first 500 characters of its result."""

    name: str
    result_preview: str


class UsageEvent(Usage, frozen=True, tag="usage", tag_field="event"):
    """The tokens of one model call."""


class ErrorEvent(ErrorEnvelope, frozen=True, tag="error", tag_field="event"):
    """A failure; the result that follows reports the same. A `provider_error` before the end of a
    send voids the deltas of the current answer, which starts again."""

    provider: str | UnsetType = UNSET


class PermissionRequest(Struct, frozen=True, tag="permission_request", tag_field="event"):
    """A tool call needs approval. Clients that give it also receive the fields for the answer."""

    name: str
    reason: str
    request_id: str | UnsetType = UNSET
    deadline_at: str | UnsetType = UNSET


class PermissionDenied(Struct, frozen=True, tag="permission_denied", tag_field="event"):
    """A tool call was denied; the model sees the denial."""

    name: str
    reason: str


class PlanComplete(Struct, frozen=True, tag="plan_complete", tag_field="event"):
    """The answer of a send in plan mode."""

    plan: str


class ContextPrune(Struct, frozen=True, tag="context_prune", tag_field="event"):
    """The model no longer sees old tool results."""

    messages_pruned: int
    tokens_before: int
    tokens_after: int


class ContextCompact(Struct, frozen=True, tag="context_compact", tag_field="event"):
    """Reserved; not sent."""


class ContextHandoff(Struct, frozen=True, tag="context_handoff", tag_field="event"):
    """Reserved; not sent."""


class Heartbeat(Struct, frozen=True, tag="heartbeat", tag_field="event"):
    """The send is alive, this long after its start."""

    duration_ms: int


class RoutedModel(Struct, frozen=True, tag="routed_model", tag_field="event"):
    """The model that answers, sent when it changes; since 0.3."""

    model: str


class TurnState(Struct, frozen=True, tag="turn_state", tag_field="event"):
    """The phase of the send; since 0.5."""

    state: Literal["queued", "running", "cancelling", "completed"]


class UpstreamProvider(Struct, frozen=True, tag="upstream_provider", tag_field="event"):
    """The upstream provider that answers, sent when it changes; since 0.5."""

    provider: str


Payload = (
    ContentDelta
    | ToolStart
    | ToolEnd
    | UsageEvent
    | ErrorEvent
    | PermissionRequest
    | PermissionDenied
    | PlanComplete
    | ContextPrune
    | ContextCompact
    | ContextHandoff
    | Heartbeat
    | RoutedModel
    | TurnState
    | UpstreamProvider
)


class InitOk(Struct, frozen=True, kw_only=True, tag="init_ok", tag_field="type"):
    """The session, or, with an `error`, why it failed to open."""

    id: str
    session_id: str
    protocol_version: str
    error: ErrorEnvelope | UnsetType = UNSET
    capabilities: dict[str, Any] | UnsetType = UNSET
    profile: dict[str, Any] | UnsetType = UNSET
    runtime: dict[str, Any] | UnsetType = UNSET
    routing: dict[str, Any] | UnsetType = UNSET
    requested_routing: dict[str, Any] | UnsetType = UNSET
    effective_routing: dict[str, Any] | UnsetType = UNSET


class Event(Struct, frozen=True, kw_only=True, tag="event", tag_field="type"):
    """An event of a send."""

    event: Payload
    event_seq: int
    send_id: str
    session_id: str | UnsetType = UNSET
    task_id: str | UnsetType = UNSET
    worker_id: str | UnsetType = UNSET


class CallMade(Struct, frozen=True):
    """An executed tool call."""

    name: str
    args: dict[str, Any]
    id: str | UnsetType = UNSET


class Result(Struct, frozen=True, kw_only=True, tag="result", tag_field="type"):
    """The end of a send; also the response to an invalid request."""

    id: str
    status: Literal["ok", "error"]
    response: str | UnsetType = UNSET
    tool_calls_made: list[CallMade] = []
    usage: Usage | UnsetType = UNSET
    iterations: int = 0
    error: ErrorEnvelope | UnsetType = UNSET
    failure: dict[str, Any] | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    task_id: str | UnsetType = UNSET
    worker_id: str | UnsetType = UNSET
    model_latency_ms: int | UnsetType = UNSET
    tool_latency_ms: int | UnsetType = UNSET
    total_latency_ms: int | UnsetType = UNSET
    runtime: dict[str, Any] | UnsetType = UNSET
    routing: dict[str, Any] | UnsetType = UNSET
    requested_routing: dict[str, Any] | UnsetType = UNSET
    effective_routing: dict[str, Any] | UnsetType = UNSET


class StatusOk(Struct, frozen=True, kw_only=True, tag="status_ok", tag_field="type"):
    """The current state. The system prompt counts as a message."""

    id: str
    model: str
    messages_count: int
    session_id: str
    active: bool
    last_routed_model: str | UnsetType = UNSET
    runtime: dict[str, Any] | UnsetType = UNSET
    routing: dict[str, Any] | UnsetType = UNSET
    requested_routing: dict[str, Any] | UnsetType = UNSET
    effective_routing: dict[str, Any] | UnsetType = UNSET


class ShutdownOk(Struct, frozen=True, kw_only=True, tag="shutdown_ok", tag_field="type"):
    """The last message."""

    id: str


class PermissionOk(Struct, frozen=True, kw_only=True, tag="permission_ok", tag_field="type"):
    """The answer to a permission request was accepted."""

    id: str
    request_id: str


Response = InitOk | Event | Result | StatusOk | PermissionOk | ShutdownOk


def refusal(request_id: str, problem: str, code: str = "protocol_error") -> Result:
    """The response to an invalid request."""
    envelope = ErrorEnvelope(code=code, message=problem, retryable=code == "provider_error")
    return Result(id=request_id, status="error", error=envelope)


def cancellation() -> ErrorEnvelope:
    return ErrorEnvelope(code="cancelled", message="cancelled", retryable=False)
