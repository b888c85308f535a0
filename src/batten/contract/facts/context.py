"""`context.*`: changes to what the model is shown of the conversation."""

from msgspec import UNSET, UnsetType

from batten.contract.facts.assistant import Usage
from batten.contract.facts.base import Fact


class ContextPruned(Fact, frozen=True):
    """Old tool results are no longer shown to the model; the journal still has them."""

    TYPE = "context.pruned"
    tool_call_ids: list[str]
    tokens_before: int
    tokens_after: int


class ContextCompacted(Fact, frozen=True):
    """All but the last `kept_messages` messages are shown as `summary`. Also a ledger row."""

    TYPE = "context.compacted"
    summary: str
    messages_removed: int
    tokens_before: int
    tokens_after: int
    kept_messages: int
    """How many messages at the end of the conversation stay as they are."""
    model: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
    cost_micros_usd: int | None = None
    price_as_of: str | None = None
