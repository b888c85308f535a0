"""The chair of a panel: opens the session, sees when it is ripe, and commits what was decided.

The chair weighs nothing of its own. It reads the sign of the decision from the messages; whether
it may be committed is for the policy to say.
"""

from typing import Any, Literal

from msgspec import Struct

from batten.contract.errors import Conflict
from batten.contract.ids import new_session_id, to_uuid
from batten.control.coordination.runtime import Runtime
from batten.control.coordination.seat import Seat
from batten.coordination.acts import ACTS
from batten.coordination.envelope import Message
from batten.coordination.modes import decision, extensions, proposal, quorum
from batten.coordination.payloads import SESSION_START, write
from batten.coordination.policy.policy import PolicyDescriptor, may_commit
from batten.coordination.rejection import Rejection
from batten.coordination.session import Session

MODES = {
    "decision": decision.MODE,
    "quorum": quorum.MODE,
    "proposal": proposal.MODE,
    "multi_round": extensions.MultiRound.descriptor.mode,
}
"""The modes in which a panel can decide a question."""
_ACTIONS = {
    decision.MODE: ("decision.selected", "decision.declined"),
    quorum.MODE: ("quorum.approved", "quorum.rejected"),
    proposal.MODE: ("proposal.accepted", "proposal.rejected"),
    MODES["multi_round"]: ("multi_round.converged", "multi_round.declined"),
}


CHAIR = "batten"
"""The sender of a chair. No client of the runtime may use it."""
APPROVAL = "batten.approval"
"""The extension of a session whose members connect to the runtime: what they are asked about."""
QUESTION = "batten.question"
"""The extension of a session of `batten decide` with such members, beside its agents."""


def may_adopt(session: Session) -> bool:
    """Whether the runtime that clients connect to goes on with a session that it finds.

    Other panels wait for a process that brings their agents back.
    """
    return session.panel.initiator != CHAIR or APPROVAL in session.extension_keys


class Opening(Struct, frozen=True, kw_only=True):
    """What the chair opens a session with."""

    question: str
    participants: tuple[str, ...]
    policy: PolicyDescriptor
    mode: str
    chair: str
    ttl_ms: int
    session_id: str = ""
    context_id: str = ""
    about: str = ""
    extensions: dict[str, bytes] = {}


class Verdict(Struct, frozen=True):
    """What the messages of a session amount to."""

    positive: bool
    reason: str


async def open_panel(runtime: Runtime, opening: Opening) -> Seat:
    """Start the session, or go on with it; of a quorum also ask the question.

    Raises `Rejection`, and `Conflict` while another process holds the session.
    """
    session_id = opening.session_id or to_uuid(new_session_id())
    now = runtime.clock()
    start: dict[str, Any] = {
        "intent": opening.question,
        "participants": list(opening.participants),
        "mode_version": "1.0.0",
        "configuration_version": "config.default",
        "policy_version": opening.policy.policy_id,
        "ttl_ms": opening.ttl_ms,
        "context_id": opening.context_id,
        "extensions": opening.extensions,
    }
    await runtime.send(
        Message(
            mode=opening.mode,
            message_type="SessionStart",
            message_id=f"start-{session_id}",
            session_id=session_id,
            sender=opening.chair,
            timestamp_unix_ms=now,
            payload=write(SESSION_START, start),
        ),
        policy=opening.policy,
    )
    seat = Seat(runtime, session_id, opening.chair)
    session = await seat.session()
    if session.is_terminal:
        return seat
    if not runtime.holds(session_id):
        raise Conflict(f"another process holds the panel {session_id}", code="panel_held")
    if opening.mode == quorum.MODE and session.mode_state.phase == "Unrequested":
        asked = {
            "action": "decide",
            "summary": opening.question,
            "details": opening.about,
            "required_approvals": len(opening.participants) // 2 + 1,
        }
        await seat.send(ACTS["ApprovalRequest"], asked)
    return seat


def verdict_of(session: Session, *, at_last: bool) -> Verdict | None:
    """What was decided; None if the session is not ripe. `at_last`: nobody has more to say."""
    match session.mode_state:
        case decision.DecisionState() as state:
            return _of_votes(session, state, at_last=at_last)
        case quorum.QuorumState() as state:
            if state.phase not in ("Approved", "Unreachable"):
                return None
            needed = quorum.needed_approvals(state, session.panel)
            count = f"{state.approvals} of {len(session.panel.participants)} approve"
            return Verdict(state.phase == "Approved", f"{count}, {needed} are needed")
        case proposal.ProposalState(phase="Converged", accepts=accepts):
            return Verdict(True, f"accepted: {', '.join(sorted(set(accepts.values())))}")
        case proposal.ProposalState(phase="TerminalRejected", rejections=rejections):
            return Verdict(False, f"rejected by {rejections[-1].sender}: {rejections[-1].reason}")
        case extensions.MultiRoundState(phase="Converged", contributions=values):
            return Verdict(True, f"all hold {next(iter(values.values()))!r}")
        case _:
            return None


def _of_votes(session: Session, state: decision.DecisionState, *, at_last: bool) -> Verdict | None:
    if not state.proposals:
        return None
    voters = {who for votes in state.votes.values() for who in votes}
    everybody = set(session.panel.participants) <= voters
    if not everybody and not at_last:
        return None
    tallies = {
        id_: [sum(vote.vote == value for vote in votes.values()) for value in ("APPROVE", "REJECT")]
        for id_, votes in state.votes.items()
    }
    best = max(tallies, key=lambda id_: tallies[id_][0] - tallies[id_][1], default="")
    if not best:
        return Verdict(False, "nobody voted") if at_last else None
    approve, reject = tallies[best]
    option = state.proposals[best].option
    return Verdict(approve > reject, f"{approve} approve and {reject} reject {best}: {option}")


def may_chair_commit(session: Session, chair: str) -> bool:
    panel = session.panel
    return may_commit(panel.policy, panel.initiator, panel.participants, chair)


async def commit(seat: Seat, verdict: Verdict) -> Literal["committed", "denied", "over"]:
    """Commit a verdict; `denied` if the policy does not let it stand."""
    session = await seat.session()
    actions = _ACTIONS[session.descriptor.mode]
    fields = {
        "action": actions[0] if verdict.positive else actions[1],
        "reason": verdict.reason,
        "outcome_positive": verdict.positive,
    }
    try:
        await seat.send(ACTS["Commitment"], fields)
    except Rejection as rejection:
        if rejection.macp_code in ("POLICY_DENIED", "INVALID_ENVELOPE"):
            return "denied"
        if rejection.macp_code == "SESSION_NOT_OPEN":
            return "over"
        raise
    return "committed"
