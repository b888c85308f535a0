"""Facts that people must not miss, each as one line."""

from msgspec import UNSET

from batten.contract.cutting import call_in_short
from batten.contract.facts import ErrorModelCapabilityMissing, Fact, PolicyToolBlocked
from batten.serve.words import crowded


def alert_line(fact: Fact) -> str:
    """What happened, and the flag that helps; on one line, without control characters."""
    match fact:
        case PolicyToolBlocked():
            return denial(fact)
        case ErrorModelCapabilityMissing():
            return crowded(f"{fact.model} takes no images: they are left out")
        case _:
            return crowded(fact.type)


def denial(fact: PolicyToolBlocked) -> str:
    """`denied: bash(git push); allow with …`, or the reason if no flag would have allowed it."""
    call = call_in_short(fact.tool_name, fact.subject)
    if fact.allow_with is UNSET:
        return crowded(f"denied: {call}: {fact.reason}")
    return crowded(f"denied: {call}; allow with {fact.allow_with}")
