"""`error.*`: failures that belong to no single tool call."""

from msgspec import UNSET, UnsetType

from batten.contract.facts.base import Fact

SERVER_UNAVAILABLE = "mcp_server_unavailable"


class ErrorToolUnavailable(Fact, frozen=True):
    """A configured tool, or all tools of an MCP server, cannot be used."""

    TYPE = "error.tool_unavailable"
    tool_name: str
    """The tool's name, or `mcp__` and the server's."""
    reason: str
    message: str | UnsetType = UNSET


class ErrorModelCapabilityMissing(Fact, frozen=True):
    """The model lacks what the settings ask of it; the fallback is used. Once a run and model."""

    TYPE = "error.model_capability_missing"
    model: str
    missing_capability: str
    fallback_strategy: str


class ErrorUpstream(Fact, frozen=True):
    """A provider failed. The call is retried if `retriable` and attempts remain."""

    TYPE = "error.upstream"
    ALWAYS = (
        "category",
        "retry_delay_ms",
    )
    provider: str
    status: int | None
    """None: there was no HTTP response."""
    message: str
    retriable: bool
    attempt: int
    max_attempts: int
    category: str | UnsetType = UNSET
    retry_delay_ms: int | UnsetType = UNSET
