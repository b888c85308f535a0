"""`approval.*` and `request.*`: questions a run asks outside the process, and the answers."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import UNSET, UnsetType

from batten.contract.facts.base import Fact

RequestClass = Literal["approval", "client_tool", "mcp_elicitation", "user_input", "tool_retry"]
Decision = Literal["approved", "rejected", "cancelled"]

APPROVAL_REJECTED = "approval rejected"
APPROVAL_TIMED_OUT = "approval timed out"
"""Reasons of runs that end with an approval."""
QUESTION_TIMED_OUT: Mapping[RequestClass, str] = {
    "client_tool": "Client tool execution timed out",
    "mcp_elicitation": "MCP elicitation request timed out",
    "user_input": "User input request timed out",
}
"""Of questions within a call: the client and the model are told the same."""


PANEL = "panel:"
"""The beginning of the resolver of an approval that a panel answers; its name follows."""


def panel_of(resolvers: Sequence[str]) -> str:
    """The panel among the resolvers; empty if others answer."""
    return next((one.removeprefix(PANEL) for one in resolvers if one.startswith(PANEL)), "")


class ApprovalRequested(Fact, frozen=True):
    """A tool call waits for approval."""

    TYPE = "approval.requested"
    ALWAYS = (
        "digest",
        "deadline_at",
        "resolvers",
    )
    approval_id: str
    tool_call_id: str
    kind: str
    """The tool's name."""
    summary: str
    policy_reason: str
    digest: str | UnsetType = UNSET
    """SHA-256 of tool, arguments and base: an answer applies to exactly these."""
    deadline_at: str | UnsetType = UNSET
    resolvers: list[str] | UnsetType = UNSET
    """The roles whose answer counts."""
    input: dict[str, Any] | UnsetType = UNSET
    """The arguments to approve, if a hook changed the proposed ones."""


class ApprovalResolved(Fact, frozen=True):
    TYPE = "approval.resolved"
    approval_id: str
    decision: Decision
    by: str
    comment: str
    scope: str | UnsetType = UNSET
    """How far the answer reaches: `once`, or `session`. Advisory: `grant` is what was stored."""
    grant: str | UnsetType = UNSET
    """The pattern of a rule that allows such calls in all later turns and runs of the session."""
    updated_input: dict[str, Any] | UnsetType = UNSET
    """Arguments to run with instead of those in the request."""
    sealed_artifact_id: str | UnsetType = UNSET
    """Those arguments unchanged and encrypted; present if redaction or size altered them here."""
    halt: bool | UnsetType = UNSET
    """The refusal ends the run."""
    halt_reason: str | UnsetType = UNSET
    """The reason of that ending; the comment if absent."""


class ApprovalTimedOut(Fact, frozen=True):
    TYPE = "approval.timed_out"
    approval_id: str
    after_seconds: int
    halt: bool | UnsetType = UNSET
    """The missing answer ends the run."""


class RequestOpened(Fact, frozen=True):
    """A question other than an approval: user input, a client's tool, a retry."""

    TYPE = "request.opened"
    ALWAYS = (
        "deadline_at",
        "resolvers",
    )
    request_id: str
    request_class: RequestClass
    tool_call_id: str
    summary: str
    detail: dict[str, Any]
    digest: str
    deadline_at: str | UnsetType = UNSET
    resolvers: list[str] | UnsetType = UNSET


class RequestClosed(Fact, frozen=True):
    """Answered, timed out or cancelled: exactly once."""

    TYPE = "request.closed"
    request_id: str
    resolution: Literal["answered", "failed", "timed_out", "cancelled"]
    by: str
    answer: dict[str, Any]
