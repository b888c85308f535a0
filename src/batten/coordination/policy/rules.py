"""The rules a policy may state, by mode. Every object is closed: an unknown member is refused."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Share = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0)]


class CommitmentRules(Struct, frozen=True, forbid_unknown_fields=True):
    authority: Literal["initiator_only", "any_participant", "designated_role"] = "initiator_only"
    designated_roles: tuple[str, ...] = ()


class DecisionCommitmentRules(CommitmentRules, frozen=True, forbid_unknown_fields=True):
    require_vote_quorum: bool = False
    allow_decline_over_approval: bool = False
    """A negative commitment is allowed although the vote passed."""


class AuditRules(Struct, frozen=True, forbid_unknown_fields=True):
    """Read by operators only; it decides nothing."""

    level: str = ""


class ModeRules(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the policies of all modes share."""

    commitment: CommitmentRules = CommitmentRules()
    audit: AuditRules = AuditRules()


class VoteQuorum(Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["count", "percentage"] = "count"
    value: Amount = 0
    """Voters, or percent of the participants from 0 to 100."""


class VotingRules(Struct, frozen=True, forbid_unknown_fields=True):
    algorithm: Literal[
        "none", "majority", "supermajority", "unanimous", "weighted", "plurality"
    ] = "none"
    threshold: Share = 0.5
    quorum: VoteQuorum = VoteQuorum()
    weights: dict[str, Amount] = {}
    """Missing participants weigh 1."""


class ObjectionRules(Struct, frozen=True, forbid_unknown_fields=True):
    critical_severity_vetoes: bool = False
    block_severity_vetoes: bool = False
    """Another name for `critical_severity_vetoes`."""
    veto_threshold: Annotated[int, Meta(ge=1)] = 1
    critical_objection_action: Literal["deny", "finalize_decline", "hold"] = "deny"


class EvaluationRules(Struct, frozen=True, forbid_unknown_fields=True):
    minimum_confidence: Share = 0
    required_before_voting: bool = False


class DecisionRules(ModeRules, frozen=True, forbid_unknown_fields=True, kw_only=True):
    voting: VotingRules = VotingRules()
    objection_handling: ObjectionRules = ObjectionRules()
    evaluation: EvaluationRules = EvaluationRules()
    commitment: DecisionCommitmentRules = DecisionCommitmentRules()


DEFAULT_RULES: dict[str, dict[str, Any]] = {
    "voting": {"algorithm": "none", "quorum": {"type": "count", "value": 0}},
    "objection_handling": {"critical_severity_vetoes": False, "veto_threshold": 1},
    "evaluation": {"required_before_voting": False, "minimum_confidence": 0},
    "commitment": {
        "authority": "initiator_only",
        "designated_roles": [],
        "require_vote_quorum": False,
    },
}
"""The rules of `policy.default`, written out: they are those that an empty object has."""


class AcceptanceRules(Struct, frozen=True, forbid_unknown_fields=True):
    criterion: Literal["all_parties", "counterparty", "initiator"] = "all_parties"


class CounterProposalRules(Struct, frozen=True, forbid_unknown_fields=True):
    max_rounds: Count = 0
    """0 for no limit."""


class RejectionRules(Struct, frozen=True, forbid_unknown_fields=True):
    terminal_on_any_reject: bool = False


class ProposalRules(ModeRules, frozen=True, forbid_unknown_fields=True, kw_only=True):
    acceptance: AcceptanceRules = AcceptanceRules()
    counter_proposal: CounterProposalRules = CounterProposalRules()
    rejection: RejectionRules = RejectionRules()


class AssignmentRules(Struct, frozen=True, forbid_unknown_fields=True):
    allow_reassignment_on_reject: bool = False


class CompletionRules(Struct, frozen=True, forbid_unknown_fields=True):
    require_output: bool = False


class TaskRules(ModeRules, frozen=True, forbid_unknown_fields=True, kw_only=True):
    assignment: AssignmentRules = AssignmentRules()
    completion: CompletionRules = CompletionRules()


class HandoffAcceptanceRules(Struct, frozen=True, forbid_unknown_fields=True):
    implicit_accept_timeout_ms: Count = 0
    """An offer counts as accepted after this time; 0 for never."""


class HandoffRules(ModeRules, frozen=True, forbid_unknown_fields=True, kw_only=True):
    acceptance: HandoffAcceptanceRules = HandoffAcceptanceRules()


class ThresholdRules(Struct, frozen=True, forbid_unknown_fields=True):
    type: Literal["n_of_m", "count", "percentage"] = "n_of_m"
    value: Count = 0
    """Approvals, or percent of the participants from 1 to 100; 0 leaves the request's number."""


class AbstentionRules(Struct, frozen=True, forbid_unknown_fields=True):
    """Recorded with the policy; the threshold counts approvals only."""

    counts_toward_quorum: bool = False
    interpretation: Literal["neutral", "implicit_reject", "ignored"] = "neutral"


class QuorumRules(ModeRules, frozen=True, forbid_unknown_fields=True, kw_only=True):
    threshold: ThresholdRules = ThresholdRules()
    abstention: AbstentionRules = AbstentionRules()


RULES: dict[str, type[ModeRules]] = {
    "*": DecisionRules,
    "macp.mode.decision.v1": DecisionRules,
    "macp.mode.proposal.v1": ProposalRules,
    "macp.mode.task.v1": TaskRules,
    "macp.mode.handoff.v1": HandoffRules,
    "macp.mode.quorum.v1": QuorumRules,
}
"""Rules by mode. Policies of other modes may be any object, and decide nothing but authority."""
