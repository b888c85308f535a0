"""Facts that people must not miss, each as one line."""

from msgspec import UNSET

from batten.contract.cutting import call_in_short
from batten.contract.facts import (
    AssistantFinalAnswer,
    ErrorModelCapabilityMissing,
    Fact,
    PolicyToolBlocked,
)
from batten.contract.marks import crowded


def alert_line(fact: Fact) -> str:
    """What happened, and the flag that helps; on one line, without control characters."""
    match fact:
        case PolicyToolBlocked():
            return denial(fact)
        case ErrorModelCapabilityMissing():
            return crowded(f"{fact.model} takes no images: they are left out")
        case AssistantFinalAnswer():
            return "the model gave an empty answer"
        case _:
            return crowded(fact.type)


def denial(fact: PolicyToolBlocked) -> str:
    """`denied: bash(git push); allow with …`, or the reason if no flag would have allowed it."""
    call = call_in_short(fact.tool_name, fact.subject)
    reason = f": {fact.reason}" if fact.allow_with is UNSET else ""
    flag = help_with(fact)
    return crowded(f"denied: {call}{reason}" + (f"; {flag}" if flag else ""))


def help_with(fact: PolicyToolBlocked) -> str:
    """The flag that would have allowed the call, in words; empty if none would."""
    if isinstance(fact.allow_with, str):
        return f"allow with {fact.allow_with}"
    is_outside = fact.policy_id == "bounds:workspace_violation"
    return "open another directory with --add-dir DIR" if is_outside else ""
