"""`context.*`: changes to the model's view of the conversation."""

from msgspec import UNSET, UnsetType

from batten.contract.facts.assistant import Usage
from batten.contract.facts.base import Fact


class ContextPruned(Fact, frozen=True):
    """The model no longer sees these old tool results; the journal still has them."""

    TYPE = "context.pruned"
    tool_call_ids: list[str]
    tokens_before: int
    tokens_after: int


class ContextCompacted(Fact, frozen=True):
    """A summary replaces all but the last `kept_messages` messages. Also a ledger row."""

    TYPE = "context.compacted"
    ALWAYS = (
        "model",
        "provider",
        "usage",
    )
    summary: str
    messages_removed: int
    tokens_before: int
    tokens_after: int
    kept_messages: int
    """Messages at the end of the conversation that stay unchanged."""
    model: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    cost_micros_usd: int | None = None
    price_as_of: str | None = None
