"""Decision: participants propose options, evaluate, object and vote; an authority commits."""

import math
from typing import Literal, get_args

from msgspec import Struct, field
from msgspec.structs import replace

from batten.coordination.modes.mode import (
    Descriptor,
    Mode,
    ModeState,
    Panel,
    Row,
    Step,
    nonblank,
    published_schema,
)
from batten.coordination.payloads import wire_types
from batten.coordination.policy.decision import Ballots, Evaluated, Objected, judge_decision
from batten.coordination.rejection import Rejection, invalid

MODE = "macp.mode.decision.v1"
Recommendation = Literal["APPROVE", "REVIEW", "BLOCK", "REJECT"]
Severity = Literal["critical", "high", "medium", "low"]
VoteValue = Literal["APPROVE", "REJECT", "ABSTAIN"]
_RECOMMENDATIONS: dict[str, Recommendation] = {name: name for name in get_args(Recommendation)}
_SEVERITIES: dict[str, Severity] = {name: name for name in get_args(Severity)}
_VOTES: dict[str, VoteValue] = {name: name for name in get_args(VoteValue)}


class ProposalPayload(Struct, frozen=True):
    proposal_id: str = ""
    option: str = ""
    rationale: str = ""
    supporting_data: bytes = b""


class EvaluationPayload(Struct, frozen=True):
    proposal_id: str = ""
    recommendation: str = ""
    confidence: float = 0.0
    reason: str = ""


class ObjectionPayload(Struct, frozen=True):
    proposal_id: str = ""
    reason: str = ""
    severity: str = ""


class VotePayload(Struct, frozen=True):
    proposal_id: str = ""
    vote: str = ""
    reason: str = ""


class Proposal(Struct, frozen=True):
    proposal_id: str
    option: str
    rationale: str
    sender: str


class Vote(Struct, frozen=True):
    vote: VoteValue
    reason: str


class DecisionState(ModeState, frozen=True, kw_only=True):
    phase: str = "Proposal"
    proposals: dict[str, Proposal] = field(default_factory=dict[str, Proposal])
    evaluations: tuple[Evaluated, ...] = ()
    objections: tuple[Objected, ...] = ()
    votes: dict[str, dict[str, Vote]] = field(default_factory=dict[str, dict[str, Vote]])
    """By proposal, then by sender."""


class Decision(Mode[DecisionState]):
    descriptor = Descriptor(
        mode=MODE,
        mode_version="1.0.0",
        title="Decision",
        description="Participants propose, evaluate, object and vote; an authority commits.",
        determinism_class="semantic-deterministic",
        participant_model="declared",
        schema_uris=published_schema("decision"),
        message_types=("SessionStart", "Proposal", "Evaluation", "Objection", "Vote", "Commitment"),
    )
    rows = (
        Row("Proposal", "Proposal", "participant", ("Evaluation",)),
        Row("Evaluation", "Proposal", "participant", ("Evaluation",)),
        Row("Evaluation", "Evaluation", "participant", ("Evaluation",)),
        Row("Evaluation", "Objection", "participant", ("Evaluation",)),
        Row("Evaluation", "Vote", "participant", ("Voting",)),
        Row("Voting", "Vote", "participant", ("Voting",)),
        Row("Evaluation", "Commitment", "authority", ("Committed",)),
        Row("Voting", "Commitment", "authority", ("Committed",)),
    )
    payloads = wire_types(
        "macp.modes.decision.v1.decision_pb2",
        Proposal=ProposalPayload,
        Evaluation=EvaluationPayload,
        Objection=ObjectionPayload,
        Vote=VotePayload,
    )
    first = DecisionState()
    closed = True
    takes_anyone = True

    def apply(self, state: DecisionState, panel: Panel, step: Step) -> DecisionState:
        match step.payload:
            case ProposalPayload() as payload:
                return _proposed(state, step, payload)
            case EvaluationPayload() as payload:
                return _evaluated(state, step, payload)
            case ObjectionPayload() as payload:
                return _objected(state, step, payload)
            case VotePayload() as payload:
                return _voted(state, step, payload)
            case _:
                raise invalid(f"{step.message_type} is no message of this mode")

    def committed(
        self, state: DecisionState, panel: Panel, step: Step, payload: bytes
    ) -> tuple[DecisionState, bytes]:
        return replace(state, phase="Committed"), payload

    def judge(self, state: DecisionState, panel: Panel, positive: bool) -> Rejection | None:
        ballots: Ballots = tuple(
            (sender, vote.vote) for votes in state.votes.values() for sender, vote in votes.items()
        )
        return judge_decision(
            panel.policy,
            panel.participants,
            state.evaluations,
            state.objections,
            ballots,
            positive=positive,
        )


def _proposed(state: DecisionState, step: Step, payload: ProposalPayload) -> DecisionState:
    nonblank(payload, "proposal_id", "option")
    if payload.proposal_id in state.proposals:
        raise invalid(f"proposal {payload.proposal_id} exists already")
    proposal = Proposal(payload.proposal_id, payload.option, payload.rationale, step.sender)
    return replace(
        state,
        phase="Evaluation",
        proposals={**state.proposals, payload.proposal_id: proposal},
    )


def _evaluated(state: DecisionState, step: Step, payload: EvaluationPayload) -> DecisionState:
    _check_known(state, payload.proposal_id)
    recommendation = _RECOMMENDATIONS.get(payload.recommendation.strip().upper())
    if recommendation is None:
        raise invalid(f"recommendation must be one of {', '.join(_RECOMMENDATIONS)}")
    if not (math.isfinite(payload.confidence) and 0 <= payload.confidence <= 1):
        raise invalid("confidence must be a number from 0 to 1")
    evaluated = Evaluated(
        proposal_id=payload.proposal_id,
        recommendation=recommendation,
        confidence=payload.confidence,
        reason=payload.reason,
        sender=step.sender,
    )
    return replace(state, evaluations=(*state.evaluations, evaluated))


def _objected(state: DecisionState, step: Step, payload: ObjectionPayload) -> DecisionState:
    _check_known(state, payload.proposal_id)
    severity = _SEVERITIES.get(payload.severity.strip().lower() or "medium")
    if severity is None:
        raise invalid(f"severity must be one of {', '.join(_SEVERITIES)}")
    objected = Objected(
        proposal_id=payload.proposal_id,
        reason=payload.reason,
        severity=severity,
        sender=step.sender,
    )
    return replace(state, objections=(*state.objections, objected))


def _voted(state: DecisionState, step: Step, payload: VotePayload) -> DecisionState:
    _check_known(state, payload.proposal_id)
    value = _VOTES.get(payload.vote.strip().upper())
    if value is None:
        raise invalid(f"vote must be one of {', '.join(_VOTES)}")
    votes = state.votes.get(payload.proposal_id, {})
    if step.sender in votes:
        raise invalid(f"{step.sender} has voted on {payload.proposal_id} already")
    mine = {**votes, step.sender: Vote(value, payload.reason)}
    return replace(state, phase="Voting", votes={**state.votes, payload.proposal_id: mine})


def _check_known(state: DecisionState, proposal_id: str) -> None:
    if proposal_id not in state.proposals:
        raise invalid(f"there is no proposal {proposal_id!r}")
