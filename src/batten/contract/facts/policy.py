"""`policy.*`: decisions made before an effect."""

from typing import Literal

from msgspec import UNSET, UnsetType

from batten.contract.facts.base import Fact

Verdict = Literal["allow", "ask", "deny"]


class PolicyToolDecided(Fact, frozen=True):
    """The verdict on one tool call, allow included, before the tool starts."""

    TYPE = "policy.tool_decided"
    tool_call_id: str
    tool_name: str
    verdict: Verdict
    reason: str
    decided_by: str
    """The rule, mode, hook, grant or resolver: a verdict has an author."""


class PolicyToolBlocked(Fact, frozen=True):
    TYPE = "policy.tool_blocked"
    ALWAYS = (
        "policy_id",
        "kind",
        "result",
        "output",
    )
    tool_call_id: str
    tool_name: str
    reason: str
    policy_id: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET
    mcp_server: str | UnsetType = UNSET
    mcp_tool: str | UnsetType = UNSET
    result: Literal["blocked"] | UnsetType = UNSET
    output: str | UnsetType = UNSET
    """The result as the model receives it."""
    subject: str | UnsetType = UNSET
    """The command, path or address of the call, as rules see it; a long one is visibly cut."""
    allow_with: str | UnsetType = UNSET
    """Flags that would have allowed the call; absent if none would."""

    @property
    def text(self) -> str:
        """What the model receives."""
        return self.reason if self.output is UNSET else self.output


class PolicyModelRewrote(Fact, frozen=True):
    TYPE = "policy.model_rewrote"
    from_model: str
    to_model: str
    reason: str
