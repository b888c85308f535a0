"""`error.*`: trouble that belongs to no single tool call."""

from msgspec import UNSET, UnsetType

from batten.contract.facts.base import Fact


class ErrorToolUnavailable(Fact, frozen=True):
    TYPE = "error.tool_unavailable"
    tool_name: str
    reason: str
    message: str | UnsetType = UNSET


class ErrorModelCapabilityMissing(Fact, frozen=True):
    TYPE = "error.model_capability_missing"
    model: str
    missing_capability: str
    fallback_strategy: str


class ErrorUpstream(Fact, frozen=True):
    """A provider failed. With `retriable` and attempts left, the call is made again."""

    TYPE = "error.upstream"
    provider: str
    status: int | None
    """None: no HTTP answer came."""
    message: str
    retriable: bool
    attempt: int
    max_attempts: int
    category: str | UnsetType = UNSET
    retry_delay_ms: int | UnsetType = UNSET
