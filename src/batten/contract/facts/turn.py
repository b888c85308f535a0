"""`turn.*`: one model call and its tools. Turns count from 1."""

from typing import Any

from msgspec import UNSET, UnsetType

from batten.contract.facts.base import Fact


class TurnStarted(Fact, frozen=True):
    """A model call is about to begin."""

    TYPE = "turn.started"
    turn_index: int
    model: str
    provider: str
    input_tokens_estimate: int


class TurnCompleted(Fact, frozen=True):
    """The call and its tools have ended. The totals here are authoritative."""

    TYPE = "turn.completed"
    turn_index: int
    input_tokens: int
    output_tokens: int
    cached_input_tokens: int
    cost_micros_usd: int
    duration_ms: int
    tool_calls: int
    stop_reason: str


class TurnFailed(Fact, frozen=True):
    """The call produced no whole message. `will_retry`: the turn is retried. Text that had come is
    kept in `assistant.text_complete`; with the code `worker_lost` it is void."""

    TYPE = "turn.failed"
    turn_index: int
    code: str
    message: str
    will_retry: bool
    provider: str | UnsetType = UNSET
    """The provider that failed, if one did."""
    status: int | UnsetType = UNSET
    """The status of its HTTP response, if there was one."""
    answer: Any = UNSET
    """The body of its response: an object or text."""
    retry_after_ms: int | UnsetType = UNSET
    """The delay it requested before a retry."""
    duration_ms: int | UnsetType = UNSET
    """The time from `turn.started`, retries included; absent if the worker was lost."""
