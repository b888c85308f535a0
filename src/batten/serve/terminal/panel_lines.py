"""Lines for the facts of a coordination session: who said what, and how the policy judged."""

from collections.abc import Iterator

import msgspec

from batten.contract import facts
from batten.contract.cutting import shortened

PanelFact = (
    facts.MacpSessionBound
    | facts.MacpMessageAccepted
    | facts.MacpSessionChanged
    | facts.MacpCommitmentEvaluated
)
_Row = tuple[str, str, str]
_LONGEST = 160
_FIRST = ("option", "title", "action", "recommendation", "vote", "severity", "value", "summary")
"""Fields that tell most, in this order."""
_LATER = ("confidence", "target_participant", "required_approvals", "rationale", "reason")
_COLOURS = {"RESOLVED": "green", "EXPIRED": "red", "CANCELLED": "yellow"}


def panel_rows(fact: PanelFact, *, verbose: bool) -> Iterator[_Row]:
    match fact:
        case facts.MacpSessionBound():
            mode = fact.mode.removeprefix("macp.mode.")
            yield "", f"{mode} under {fact.policy.policy_id}, started by {fact.initiator}", "dim"
            yield "", f"panel: {', '.join(fact.participants) or 'open to everybody'}", "dim"
        case facts.MacpMessageAccepted(message_type="SessionStart"):
            return  # the prompt and the panel say it
        case facts.MacpMessageAccepted():
            text = f"{fact.sender}: {fact.message_type} {_said(fact, verbose=verbose)}".rstrip()
            yield "• ", text, _COLOURS.get(fact.state, "")
        case facts.MacpSessionChanged():
            by = f" by {fact.by}" if fact.by else ""
            reason = f": {fact.reason}" if fact.reason else ""
            yield "! ", f"{fact.state.lower()}{by}{reason}", "yellow"
        case facts.MacpCommitmentEvaluated(decision="allow"):
            yield "", f"{fact.policy_id} allows commitment {fact.commitment_id}", "dim"
        case facts.MacpCommitmentEvaluated():
            yield "✗ ", f"{fact.policy_id} denies {fact.sender}'s commitment", "yellow"
            for denial in fact.denials:
                yield "  ", f"{denial.code}: {denial.message}", "yellow"


def _said(fact: facts.MacpMessageAccepted, *, verbose: bool) -> str:
    if verbose:
        return msgspec.json.encode(fact.body).decode()
    said = [str(fact.body[name]) for name in (*_FIRST, *_LATER) if name in fact.body]
    return shortened(" · ".join(one for one in said if one), _LONGEST)
