"""Tokens and cost, of one model call and of a whole send."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import asdict, replace

from batten.contract.facts import (
    AssistantMessageComplete,
    ContextCompacted,
    CostCallUnfinished,
)
from batten.protocols.heddle.messages import Usage, UsageEvent
from batten.protocols.heddle.versions import Spoken

_FIELDS = Usage.__struct_fields__


def usage_of(
    fact: AssistantMessageComplete | ContextCompacted | CostCallUnfinished, spoken: Spoken
) -> Usage | None:
    """The usage of a call; None if its provider did not report it."""
    tokens = fact.usage
    if tokens is UNSET or not (tokens.input_tokens or tokens.output_tokens):
        return None
    usage = Usage(
        prompt_tokens=tokens.input_tokens,
        completion_tokens=tokens.output_tokens,
        total_tokens=tokens.input_tokens + tokens.output_tokens,
    )
    if not spoken.has("0.3.0"):
        return usage
    cost = fact.cost_micros_usd
    return replace(
        usage,
        cost_micros=UNSET if cost is None else cost,
        cost_currency=UNSET if cost is None else "USD",
        cached_tokens=tokens.cache_read_tokens or UNSET,
        cache_write_tokens=tokens.cache_write_tokens or UNSET,
        reasoning_tokens=tokens.reasoning_tokens or UNSET,
        generation_id=fact.message_id if isinstance(fact, AssistantMessageComplete) else UNSET,
    )


def event_of(usage: Usage) -> UsageEvent:
    return UsageEvent(**asdict(usage))


def total(usages: list[Usage]) -> Usage:
    """The sum of all calls; names are those of the last."""
    added: dict[str, Any] = {}
    for usage in usages:
        for name in _FIELDS:
            value: Any = getattr(usage, name)
            if value is not UNSET:
                added[name] = added.get(name, 0) + value if isinstance(value, int) else value
    return Usage(**added)
