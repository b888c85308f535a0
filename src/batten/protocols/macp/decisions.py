"""The blocks `decision` and `policy`: contributions, votes, commitments and their evaluation."""

from collections.abc import Mapping
from math import ceil
from typing import Any

from msgspec import UNSET

from batten.protocols.macp import state as st
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.json_values import list_of, number_of, object_of, texts_of
from batten.protocols.macp.messages import field, first_text, payload_fields, reasons_of
from batten.protocols.macp.standing import Projection, Vote, Weight

_ALLOW = frozenset({"APPROVE", "ACCEPT", "ALLOW", "YES"})
_DENY = frozenset({"REJECT", "DENY", "BLOCK", "NO"})
_SIDES: dict[str, st.Side] = {
    **dict.fromkeys(("Accept", "Approve", "TaskAccept", "HandoffAccept"), "allow"),
    **dict.fromkeys(("Reject", "TaskReject", "HandoffDecline"), "deny"),
}
_TALLIED = frozenset({"Vote", "Approve", "Reject", "Accept", "Abstain", "Evaluation"})
"""Message types that count in the tally, whatever they say."""
_POSITIVE = frozenset({"approve", "approved", "accept", "accepted", "selected", "completed"})
_NEGATIVE = frozenset({"reject", "rejected", "decline", "declined", "failed"})


def contributed(projection: Projection, event: CanonicalEvent) -> None:
    """A proposal, or what somebody said about one."""
    data = event.data
    fields = payload_fields(data.get("decodedPayload"))
    message_type, sender = data["messageType"], data["sender"]
    current = projection.current
    if current is None:
        current = projection.current = st.Current()
    weigh(projection.weight, event)
    side = _side(message_type, fields)
    contribution = _contribution(event, fields, side)
    current.proposals.append(contribution)
    if len(current.proposals) > st.MOST_PROPOSALS:
        del current.proposals[0]
    named = _named(fields)
    proposal_id = named or ("" if event.subject is UNSET else event.subject.id)
    if message_type in _TALLIED and named and projection.policy.quorum_status is UNSET:
        projection.policy.quorum_status = "pending"
    if event.type == "proposal.created" and sender == projection.initiator:
        prompt = first_text(fields, "prompt", "rationale")
        if prompt and current.prompt is UNSET:
            current.prompt = prompt
    if current.finalized:
        return  # a late contribution does not open the decision again
    current.action = current.proposal_id = proposal_id
    current.reasons = [first_text(fields, "reason", "summary", "rationale") or event.type]
    if (confidence := projection.weight.confidence(projection.weight.latest)) is not None:
        current.confidence = confidence


def weigh(weight: Weight, event: CanonicalEvent) -> None:
    """Take what somebody said about a proposal."""
    message_type = event.data["messageType"]
    fields = payload_fields(event.data.get("decodedPayload"))
    side, confidence = _side(message_type, fields), _stated(message_type, fields)
    weight.latest = _named(fields)
    if message_type == "Withdraw":
        weight.withdrawn[weight.latest] = True
    elif side is not None or message_type in _TALLIED:
        _count(weight, event.data["sender"], message_type, side)
    if confidence is not None:
        weight.stated = confidence


def _named(fields: Mapping[str, Any]) -> str:
    return first_text(fields, "proposalId", "requestId")


def _count(weight: Weight, voter: str, message_type: str, side: st.Side | None) -> None:
    votes = weight.votes.setdefault(weight.latest, {})
    if len(weight.votes) > st.MOST_TALLIES:
        del weight.votes[next(iter(weight.votes))]
    before, is_vote = votes.get(voter), message_type != "Evaluation"
    if before is None or is_vote or not before.is_vote:
        votes[voter] = Vote("none" if side is None else side, is_vote)


def _stated(message_type: str, fields: Mapping[str, Any]) -> float | None:
    """The confidence that a message names; a vote is certain."""
    confidence = number_of(field(fields, "confidence"))
    if confidence is None:
        return 1.0 if message_type == "Vote" else None
    return float(confidence)


def _contribution(
    event: CanonicalEvent, fields: Mapping[str, Any], side: st.Side | None
) -> st.Contribution:
    message_type = event.data["messageType"]
    confidence = _stated(message_type, fields)
    said = [first_text(fields, name) for name in ("reason", "rationale", "summary")]
    listed = texts_of(fields.get("reasons"))
    names = ("vote", "recommendation", "action", "option", "revisedAction")
    return st.Contribution(
        participant_id=event.data["sender"],
        action=first_text(fields, *names) or message_type,
        confidence=UNSET if confidence is None else confidence,
        reasons=[reason for reason in (*said, *listed) if reason],
        ts=event.ts,
        vote=UNSET if side is None else side,
        message_type=message_type,
    )


def _side(message_type: str, fields: Mapping[str, Any]) -> st.Side | None:
    said = first_text(fields, "vote", "recommendation").upper()
    if said in _ALLOW:
        return "allow"
    if said in _DENY:
        return "deny"
    return None if said else _SIDES.get(message_type)


def tallies(projection: Projection) -> list[st.Tally]:
    """The votes on each proposal that has a name."""
    people = projection.participants.values()
    voters = sum(one.role == "voter" for one in people)
    required = voters or projection.declared or len(people)
    weight = projection.weight
    return [
        _tally_of(proposal_id, weight.sides(proposal_id), required)
        for proposal_id in weight.votes
        if proposal_id
    ]


def _tally_of(proposal_id: str, sides: tuple[int, int], required: int) -> st.Tally:
    allow, deny = sides
    return st.Tally(
        commitment_id=proposal_id,
        allow=allow,
        deny=deny,
        threshold=ceil(required / 2),
        quorum=st.Quorum(required=required, cast=allow + deny),
    )


def finalized(projection: Projection, event: CanonicalEvent) -> None:
    """A commitment: the decision is binding."""
    fields = payload_fields(event.data.get("decodedPayload"))
    current = projection.current
    if current is None:
        current = projection.current = st.Current()
    current.action = first_text(fields, "action") or "resolved"
    if (confidence := certainty(fields, projection.weight)) is not None:
        current.confidence = confidence
    current.reasons = [first_text(fields, "reason") or "the decision was finalized"]
    current.finalized = True
    if proposal_id := _decided(fields, projection.weight):
        current.proposal_id = proposal_id
    current.outcome_positive = outcome(fields)
    current.resolved_at = event.ts
    current.resolved_by = event.data["sender"]
    if (supersedes := object_of(fields.get("supersedes"))) is not None:
        current.supersedes = st.Supersedes(
            session_id=first_text(supersedes, "sessionId"),
            commitment_hash=first_text(supersedes, "commitmentHash"),
        )
    projection.policy.outcome_positive = current.outcome_positive


def certainty(fields: Mapping[str, Any], weight: Weight) -> float | None:
    """How sure a commitment is: as it says, else as its participants were."""
    confidence = number_of(field(fields, "confidence"))
    if confidence is None:
        return weight.confidence(_decided(fields, weight))
    return float(confidence)


def _decided(fields: Mapping[str, Any], weight: Weight) -> str:
    """The proposal that a commitment is about: the protocol's payload does not name it."""
    if named := first_text(fields, "proposalId"):
        return named
    return weight.favourite if outcome(fields) else weight.latest


def outcome(fields: Mapping[str, Any]) -> bool | None:
    """Whether a commitment is positive: as it says, else as its action tells; None if neither."""
    said = field(fields, "outcomePositive")
    if isinstance(said, bool):
        return said
    action = first_text(fields, "action").rpartition(".")[2].lower()
    if action in _POSITIVE:
        return True
    return False if action in _NEGATIVE else None


def resolved(projection: Projection, event: CanonicalEvent) -> None:
    """The policy of the session is known."""
    policy, data = projection.policy, event.data
    fields = payload_fields(data.get("decodedPayload"))
    policy.policy_version = data["policyVersion"]
    policy.policy_description = first_text(fields, "description") or UNSET
    policy.resolved_at = event.ts
    expected = list_of(field(fields, "expectedCommitments"))
    if expected is not None:
        policy.expected_commitments = expected
    if policy.quorum_status is UNSET:
        policy.quorum_status = "pending"


def evaluated(projection: Projection, event: CanonicalEvent) -> None:
    """The policy judged a commitment."""
    policy, fields = projection.policy, event.data["decodedPayload"]
    decision: st.Side = "allow" if fields.get("decision") == "allow" else "deny"
    policy.commitment_evaluations.append(
        st.Evaluation(
            commitment_id=first_text(fields, "commitmentId"),
            decision=decision,
            reasons=reasons_of(fields),
            ts=event.ts,
        )
    )
    if len(policy.commitment_evaluations) > st.MOST_EVALUATIONS:
        del policy.commitment_evaluations[0]
    if decision == "allow":
        policy.quorum_status = "reached"


def run_ended(projection: Projection) -> None:
    """A run that failed or was cancelled before any allowed commitment had no quorum."""
    policy = projection.policy
    if projection.run.status != "completed" and policy.quorum_status != "reached":
        policy.quorum_status = "failed"
