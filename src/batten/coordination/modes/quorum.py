"""Quorum: the initiator asks for approval; enough participants approve, or too few can."""

from typing import Literal

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
from batten.coordination.policy.policy import unsupported
from batten.coordination.policy.rules import QuorumRules
from batten.coordination.rejection import Denial, Rejection, denied, invalid

MODE = "macp.mode.quorum.v1"


class ApprovalRequestPayload(Struct, frozen=True):
    request_id: str = ""
    action: str = ""
    summary: str = ""
    details: bytes = b""
    required_approvals: int = 0


class ApprovePayload(Struct, frozen=True):
    request_id: str = ""
    reason: str = ""


class RejectPayload(Struct, frozen=True):
    request_id: str = ""
    reason: str = ""


class AbstainPayload(Struct, frozen=True):
    request_id: str = ""
    reason: str = ""


class Asked(Struct, frozen=True):
    request_id: str
    action: str
    summary: str
    required_approvals: int


class Ballot(Struct, frozen=True):
    choice: Literal["Approve", "Reject", "Abstain"]
    reason: str


class QuorumState(ModeState, frozen=True, kw_only=True):
    phase: str = "Unrequested"
    request: Asked | None = None
    ballots: dict[str, Ballot] = field(default_factory=dict[str, Ballot])

    @property
    def approvals(self) -> int:
        return sum(ballot.choice == "Approve" for ballot in self.ballots.values())


_AFTER_BALLOT = ("Voting", "Approved", "Unreachable")
_BALLOTS = ("Approve", "Reject", "Abstain")


class Quorum(Mode[QuorumState]):
    descriptor = Descriptor(
        mode=MODE,
        mode_version="1.0.0",
        title="Quorum",
        description="The initiator asks for approval; enough participants approve, or too few.",
        determinism_class="semantic-deterministic",
        participant_model="quorum",
        schema_uris=published_schema("quorum"),
        message_types=("SessionStart", "ApprovalRequest", *_BALLOTS, "Commitment"),
    )
    rows = (
        Row("Unrequested", "ApprovalRequest", "initiator", _AFTER_BALLOT),
        *(Row("Voting", ballot, "participant", _AFTER_BALLOT) for ballot in _BALLOTS),
        *(Row("Approved", ballot, "participant", ("Approved",)) for ballot in _BALLOTS),
        *(Row("Unreachable", ballot, "participant", ("Unreachable",)) for ballot in _BALLOTS),
        Row("Approved", "Commitment", "authority", ("Committed",)),
        Row("Unreachable", "Commitment", "authority", ("Committed",)),
    )
    payloads = wire_types(
        "macp.modes.quorum.v1.quorum_pb2",
        ApprovalRequest=ApprovalRequestPayload,
        Approve=ApprovePayload,
        Reject=RejectPayload,
        Abstain=AbstainPayload,
    )
    first = QuorumState()

    def apply(self, state: QuorumState, panel: Panel, step: Step) -> QuorumState:
        match step.payload:
            case ApprovalRequestPayload() as payload:
                after = _asked(state, panel, payload)
            case ApprovePayload(request_id=id_, reason=reason):
                after = _ballot(state, step.sender, id_, Ballot("Approve", reason))
            case RejectPayload(request_id=id_, reason=reason):
                after = _ballot(state, step.sender, id_, Ballot("Reject", reason))
            case AbstainPayload(request_id=id_, reason=reason):
                after = _ballot(state, step.sender, id_, Ballot("Abstain", reason))
            case _:
                raise invalid(f"{step.message_type} is no message of this mode")
        return replace(after, phase=_phase(after, panel))

    def committed(
        self, state: QuorumState, panel: Panel, step: Step, payload: bytes
    ) -> tuple[QuorumState, bytes]:
        return replace(state, phase="Committed"), payload

    def judge(self, state: QuorumState, panel: Panel, positive: bool) -> Rejection | None:
        if (rejection := unsupported(panel.policy)) is not None:
            return rejection
        needed = policy_threshold(panel.policy.quorum, len(panel.participants))
        if positive and needed is not None and state.approvals < needed:
            against = tuple(who for who in panel.participants if who not in _approvers(state))
            text = f"{state.approvals} approve, {needed} are needed"
            return denied(Denial("threshold_not_met", text, against))
        return None


def policy_threshold(rules: QuorumRules, participants: int) -> int | None:
    """The approvals that a policy demands, in whole numbers; None if it leaves the request's."""
    threshold = rules.threshold
    if threshold.value == 0:
        return None
    if threshold.type == "percentage":
        return max(1, -(-threshold.value * participants // 100))
    return threshold.value


def needed_approvals(state: QuorumState, panel: Panel) -> int:
    """The approvals that this session needs."""
    demanded = policy_threshold(panel.policy.quorum, len(panel.participants))
    assert state.request is not None
    return state.request.required_approvals if demanded is None else demanded


def _asked(state: QuorumState, panel: Panel, payload: ApprovalRequestPayload) -> QuorumState:
    nonblank(payload, "request_id")
    count = len(panel.participants)
    if not 1 <= payload.required_approvals <= count:
        raise invalid(f"required_approvals must be from 1 to {count}")
    asked = Asked(payload.request_id, payload.action, payload.summary, payload.required_approvals)
    return replace(state, request=asked)


def _ballot(state: QuorumState, sender: str, request_id: str, ballot: Ballot) -> QuorumState:
    if state.request is None or state.request.request_id != request_id:
        raise invalid(f"the session has no request {request_id!r}")
    if sender in state.ballots:
        raise invalid(f"{sender} has voted already")
    return replace(state, ballots={**state.ballots, sender: ballot})


def _approvers(state: QuorumState) -> set[str]:
    return {who for who, ballot in state.ballots.items() if ballot.choice == "Approve"}


def _phase(state: QuorumState, panel: Panel) -> str:
    needed = needed_approvals(state, panel)
    if state.approvals >= needed:
        return "Approved"
    open_ = len(panel.participants) - len(state.ballots)
    return "Voting" if state.approvals + open_ >= needed else "Unreachable"
