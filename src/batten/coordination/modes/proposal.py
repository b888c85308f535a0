"""Proposal: peers propose, counter, accept, reject and withdraw until they agree."""

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
from batten.coordination.policy.rules import ProposalRules
from batten.coordination.rejection import Denial, Rejection, denied, forbidden, invalid

MODE = "macp.mode.proposal.v1"


class ProposalPayload(Struct, frozen=True):
    proposal_id: str = ""
    title: str = ""
    summary: str = ""
    details: bytes = b""
    tags: tuple[str, ...] = ()


class CounterProposalPayload(Struct, frozen=True):
    proposal_id: str = ""
    supersedes_proposal_id: str = ""
    title: str = ""
    summary: str = ""
    details: bytes = b""


class AcceptPayload(Struct, frozen=True):
    proposal_id: str = ""
    reason: str = ""


class RejectPayload(Struct, frozen=True):
    proposal_id: str = ""
    terminal: bool = False
    reason: str = ""


class WithdrawPayload(Struct, frozen=True):
    proposal_id: str = ""
    reason: str = ""


class Offer(Struct, frozen=True):
    """One proposal on the table."""

    proposal_id: str
    title: str
    summary: str
    proposer: str
    supersedes: str = ""
    disposition: Literal["Live", "Withdrawn"] = "Live"


class Refusal(Struct, frozen=True):
    proposal_id: str
    sender: str
    terminal: bool
    reason: str


class ProposalState(ModeState, frozen=True, kw_only=True):
    phase: str = "Negotiating"
    proposals: dict[str, Offer] = field(default_factory=dict[str, Offer])
    accepts: dict[str, str] = field(default_factory=dict[str, str])
    """The proposal that each participant accepted last."""
    rejections: tuple[Refusal, ...] = ()
    counters: int = 0


_MESSAGES = ("Proposal", "CounterProposal", "Accept", "Reject", "Withdraw")


class Proposal(Mode[ProposalState]):
    descriptor = Descriptor(
        mode=MODE,
        mode_version="1.0.0",
        title="Proposal",
        description="Peers propose, counter, accept, reject and withdraw until they agree.",
        determinism_class="semantic-deterministic",
        participant_model="peer",
        schema_uris=published_schema("proposal"),
        message_types=("SessionStart", *_MESSAGES, "Commitment"),
    )
    rows = (
        Row("Negotiating", "Proposal", "participant", ("Negotiating",)),
        Row("Negotiating", "CounterProposal", "participant", ("Negotiating",)),
        Row("Negotiating", "Accept", "participant", ("Negotiating", "Converged")),
        Row("Negotiating", "Reject", "participant", ("Negotiating", "TerminalRejected")),
        Row("Negotiating", "Withdraw", "author", ("Negotiating",)),
        Row("Converged", "Proposal", "participant", ("Converged",)),
        Row("Converged", "CounterProposal", "participant", ("Converged",)),
        Row("Converged", "Accept", "participant", ("Converged", "Negotiating")),
        Row("Converged", "Reject", "participant", ("Converged", "TerminalRejected")),
        Row("Converged", "Withdraw", "author", ("Converged", "Negotiating")),
        Row("TerminalRejected", "Proposal", "participant", ("TerminalRejected",)),
        Row("TerminalRejected", "CounterProposal", "participant", ("TerminalRejected",)),
        Row("TerminalRejected", "Accept", "participant", ("TerminalRejected",)),
        Row("TerminalRejected", "Reject", "participant", ("TerminalRejected",)),
        Row(
            "TerminalRejected",
            "Withdraw",
            "author",
            ("TerminalRejected", "Negotiating", "Converged"),
        ),
        Row("Converged", "Commitment", "authority", ("Committed",)),
        Row("TerminalRejected", "Commitment", "authority", ("Committed",)),
    )
    payloads = wire_types(
        "macp.modes.proposal.v1.proposal_pb2",
        Proposal=ProposalPayload,
        CounterProposal=CounterProposalPayload,
        Accept=AcceptPayload,
        Reject=RejectPayload,
        Withdraw=WithdrawPayload,
    )
    first = ProposalState()

    def check_role(self, state: ProposalState, step: Step) -> None:
        if isinstance(step.payload, WithdrawPayload):
            offer = state.proposals.get(step.payload.proposal_id)
            if offer is not None and offer.proposer != step.sender:
                raise forbidden(f"only {offer.proposer}, who made it, may withdraw the proposal")

    def apply(self, state: ProposalState, panel: Panel, step: Step) -> ProposalState:
        rules = panel.policy.proposal
        match step.payload:
            case ProposalPayload() as payload:
                after = _proposed(state, step.sender, payload, "")
            case CounterProposalPayload() as payload:
                after = _countered(state, step.sender, payload, rules)
            case AcceptPayload() as payload:
                _live(state, payload.proposal_id)
                accepts = {**state.accepts, step.sender: payload.proposal_id}
                after = replace(state, accepts=accepts)
            case RejectPayload() as payload:
                after = _rejected(state, step.sender, payload, rules)
            case WithdrawPayload() as payload:
                after = _withdrawn(state, payload)
            case _:
                raise invalid(f"{step.message_type} is no message of this mode")
        return replace(after, phase=_phase(after, panel, rules))

    def committed(
        self, state: ProposalState, panel: Panel, step: Step, payload: bytes
    ) -> tuple[ProposalState, bytes]:
        return replace(state, phase="Committed"), payload

    def judge(self, state: ProposalState, panel: Panel, positive: bool) -> Rejection | None:
        if (rejection := unsupported(panel.policy)) is not None:
            return rejection
        limit = panel.policy.proposal.counter_proposal.max_rounds
        if positive and limit and state.counters > limit:
            text = f"{state.counters} counter-proposals were made, {limit} are allowed"
            return denied(Denial("criterion_not_met", text))
        return None


def _proposed(
    state: ProposalState,
    sender: str,
    payload: ProposalPayload | CounterProposalPayload,
    supersedes: str,
) -> ProposalState:
    nonblank(payload, "proposal_id")
    if payload.proposal_id in state.proposals:
        raise invalid(f"proposal {payload.proposal_id} exists already")
    offer = Offer(payload.proposal_id, payload.title, payload.summary, sender, supersedes)
    return replace(state, proposals={**state.proposals, payload.proposal_id: offer})


def _countered(
    state: ProposalState, sender: str, payload: CounterProposalPayload, rules: ProposalRules
) -> ProposalState:
    if payload.supersedes_proposal_id not in state.proposals:
        raise invalid(f"there is no proposal {payload.supersedes_proposal_id!r} to supersede")
    limit = rules.counter_proposal.max_rounds
    if limit and state.counters >= limit:
        raise invalid(f"the policy allows {limit} counter-proposals, and they were made")
    after = _proposed(state, sender, payload, payload.supersedes_proposal_id)
    return replace(after, counters=state.counters + 1)


def _rejected(
    state: ProposalState, sender: str, payload: RejectPayload, rules: ProposalRules
) -> ProposalState:
    _live(state, payload.proposal_id)
    terminal = payload.terminal or rules.rejection.terminal_on_any_reject
    refusal = Refusal(payload.proposal_id, sender, terminal, payload.reason)
    return replace(state, rejections=(*state.rejections, refusal))


def _withdrawn(state: ProposalState, payload: WithdrawPayload) -> ProposalState:
    offer = _live(state, payload.proposal_id)
    gone = payload.proposal_id
    return replace(
        state,
        proposals={**state.proposals, gone: replace(offer, disposition="Withdrawn")},
        accepts={sender: id_ for sender, id_ in state.accepts.items() if id_ != gone},
        rejections=tuple(
            one for one in state.rejections if not (one.terminal and one.proposal_id == gone)
        ),
    )


def _live(state: ProposalState, proposal_id: str) -> Offer:
    offer = state.proposals.get(proposal_id)
    if offer is None or offer.disposition != "Live":
        raise invalid(f"there is no live proposal {proposal_id!r}")
    return offer


def _phase(state: ProposalState, panel: Panel, rules: ProposalRules) -> str:
    if any(one.terminal for one in state.rejections):
        return "TerminalRejected"
    live = (offer for offer in state.proposals.values() if offer.disposition == "Live")
    agreed = any(_is_accepted(state, panel, rules, offer) for offer in live)
    return "Converged" if agreed else "Negotiating"


def _is_accepted(state: ProposalState, panel: Panel, rules: ProposalRules, offer: Offer) -> bool:
    match rules.acceptance.criterion:
        case "all_parties":
            needed = set(panel.participants)
        case "counterparty":
            needed = set(panel.participants) - {offer.proposer}
        case "initiator":
            needed = {panel.initiator}
    return bool(needed) and all(state.accepts.get(who) == offer.proposal_id for who in needed)
