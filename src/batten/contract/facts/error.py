"""`error.*`: failures that belong to no single tool call."""

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
    """A provider failed. The call is retried if `retriable` and attempts remain."""

    TYPE = "error.upstream"
    provider: str
    status: int | None
    """None: there was no HTTP response."""
    message: str
    retriable: bool
    attempt: int
    max_attempts: int
    category: str | UnsetType = UNSET
    retry_delay_ms: int | UnsetType = UNSET
