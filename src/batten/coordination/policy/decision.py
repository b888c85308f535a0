"""The judgement of a decision's commitment: evaluations, objections, quorum, votes."""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

from batten.coordination.policy.policy import Policy, unsupported
from batten.coordination.policy.rules import DecisionRules, VotingRules
from batten.coordination.rejection import Denial, Rejection, denied

Ballots = tuple[tuple[str, Literal["APPROVE", "REJECT", "ABSTAIN"]], ...]
"""Every vote on any proposal, with its sender."""


class Evaluated(Struct, frozen=True, kw_only=True):
    proposal_id: str
    recommendation: Literal["APPROVE", "REVIEW", "BLOCK", "REJECT"]
    confidence: float
    reason: str
    sender: str


class Objected(Struct, frozen=True, kw_only=True):
    proposal_id: str
    reason: str
    severity: Literal["critical", "high", "medium", "low"]
    sender: str


def judge_decision(
    policy: Policy,
    participants: tuple[str, ...],
    evaluations: Sequence[Evaluated],
    objections: Sequence[Objected],
    ballots: Ballots,
    *,
    positive: bool,
) -> Rejection | None:
    """Why the policy denies; None if it allows. All rules are looked at, and all reasons told."""
    if (rejection := unsupported(policy)) is not None:
        return rejection
    rules = policy.decision
    found = [
        _evaluation(rules, evaluations),
        _veto(rules, objections, positive),
        _quorum(rules, participants, ballots),
        _vote(rules, policy.descriptor.schema_version, participants, ballots, positive),
    ]
    denials = tuple(denial for denial in found if denial is not None)
    return denied(*denials) if denials else None


def _evaluation(rules: DecisionRules, evaluations: Sequence[Evaluated]) -> Denial | None:
    if not rules.evaluation.required_before_voting:
        return None
    decisive = [one for one in evaluations if one.recommendation != "REVIEW"]
    if not decisive:
        return Denial("evaluation_required", "no participant has evaluated a proposal")
    minimum = rules.evaluation.minimum_confidence
    if minimum > 0 and not any(one.confidence >= minimum for one in decisive):
        return Denial(
            "confidence_below_minimum",
            f"no evaluation has the confidence {minimum:g}",
            tuple(dict.fromkeys(one.sender for one in decisive)),
        )
    return None


def _veto(rules: DecisionRules, objections: Sequence[Objected], positive: bool) -> Denial | None:
    handling = rules.objection_handling
    if not (handling.critical_severity_vetoes or handling.block_severity_vetoes):
        return None
    critical = [one for one in objections if one.severity == "critical"]
    if len(critical) < handling.veto_threshold:
        return None
    by = tuple(dict.fromkeys(one.sender for one in critical))
    match handling.critical_objection_action:
        case "hold":
            return Denial("veto_hold", "critical objections hold the decision: escalate it", by)
        case "finalize_decline" if not positive:
            return None
        case "deny" | "finalize_decline":
            return Denial("veto", f"{len(critical)} critical objections veto it", by)


def _quorum(rules: DecisionRules, participants: tuple[str, ...], ballots: Ballots) -> Denial | None:
    if not rules.commitment.require_vote_quorum:
        return None
    voters = len({sender for sender, _ in ballots})
    quorum = rules.voting.quorum
    if quorum.type == "count":
        met, text = voters >= quorum.value, f"{quorum.value:g} voters"
    else:
        met = bool(participants) and voters * 100 >= quorum.value * len(participants)
        text = f"{quorum.value:g} percent of {len(participants)} participants"
    if met:
        return None
    missing = tuple(who for who in participants if who not in {sender for sender, _ in ballots})
    return Denial("quorum_not_met", f"{voters} voted, {text} are needed", missing)


def _vote(
    rules: DecisionRules,
    schema_version: int,
    participants: tuple[str, ...],
    ballots: Ballots,
    positive: bool,
) -> Denial | None:
    voting = rules.voting
    if voting.algorithm == "none":
        return None
    approvals = [sender for sender, vote in ballots if vote == "APPROVE"]
    rejections = [sender for sender, vote in ballots if vote == "REJECT"]
    if not approvals and not rejections:
        if not positive:
            return Denial("decline_not_backed", "nobody voted REJECT")
        if schema_version >= 3 or rules.commitment.require_vote_quorum:
            return Denial("no_votes", "nobody voted APPROVE or REJECT")
        return None
    passed = _passed(voting, participants, approvals, rejections)
    tally = f"{len(approvals)} approve, {len(rejections)} reject"
    if positive:
        if passed:
            return None
        by = tuple(dict.fromkeys(rejections))
        return Denial("threshold_not_met", f"{voting.algorithm} is not met: {tally}", by)
    if passed:
        if rules.commitment.allow_decline_over_approval:
            return None
        return Denial("decline_over_approval", f"the vote passed: {tally}")
    return None if rejections else Denial("decline_not_backed", "nobody voted REJECT")


def _passed(
    voting: VotingRules,
    participants: tuple[str, ...],
    approvals: list[str],
    rejections: list[str],
) -> bool:
    """Whether the vote passes; abstentions are out of the denominator."""
    ratio = len(approvals) / (len(approvals) + len(rejections))
    match voting.algorithm:
        case "majority":
            return ratio >= voting.threshold
        case "supermajority":
            return ratio >= (voting.threshold if voting.threshold > 0.5 else 2 / 3)
        case "unanimous":
            return not rejections and set(participants) <= set(approvals)
        case "weighted":
            approve = sum(voting.weights.get(sender, 1.0) for sender in approvals)
            total = approve + sum(voting.weights.get(sender, 1.0) for sender in rejections)
            return total > 0 and approve / total >= voting.threshold
        case "plurality":
            return len(approvals) > len(rejections)
        case "none":
            return True
