"""`turn.*`: one model call and the tools it asked for. Turns count from 1."""

from typing import Any

from msgspec import UNSET, UnsetType

from batten.contract.facts.base import Fact


class TurnStarted(Fact, frozen=True):
    """A model call is about to be made."""

    TYPE = "turn.started"
    turn_index: int
    model: str
    provider: str
    input_tokens_estimate: int


class TurnCompleted(Fact, frozen=True):
    """The call and its tools are done. The totals here are authoritative."""

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
    """The call did not give a message. `will_retry`: the turn is tried again."""

    TYPE = "turn.failed"
    turn_index: int
    code: str
    message: str
    will_retry: bool
    provider: str | UnsetType = UNSET
    """Who failed, where it was a provider."""
    status: int | UnsetType = UNSET
    """Of its HTTP answer, if one came."""
    answer: Any = UNSET
    """What it answered: an object, or its words."""
    retry_after_ms: int | UnsetType = UNSET
    """When it said to come back."""
