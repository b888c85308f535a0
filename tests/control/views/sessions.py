"""One session of each mode on a real runtime, message by message."""

from typing import Any

from batten.contract.envelope import Envelope, decode
from batten.control.coordination.runtime import Runtime
from batten.coordination.envelope import Message
from batten.coordination.rejection import Rejection
from tests.coordination.given import SESSION_ID, commitment, say, start_message

DECISION = "macp.mode.decision.v1"
PROPOSAL = "macp.mode.proposal.v1"
TASK = "macp.mode.task.v1"
HANDOFF = "macp.mode.handoff.v1"
QUORUM = "macp.mode.quorum.v1"
ROUNDS = "ext.multi_round.v1"

Said = tuple[str, str, dict[str, Any]]
SESSIONS: dict[str, list[Said]] = {
    DECISION: [
        ("lead", "Proposal", {"proposal_id": "p1", "option": "ship", "rationale": "Ship now?"}),
        (
            "ann",
            "Evaluation",
            {"proposal_id": "p1", "recommendation": "APPROVE", "confidence": 0.9, "reason": "ok"},
        ),
        ("ann", "Vote", {"proposal_id": "p1", "vote": "REJECT", "reason": "too late"}),
        ("lead", "Vote", {"proposal_id": "p1", "vote": "REJECT"}),
        ("lead", "Commitment", {"action": "decision.rejected", "outcome_positive": False}),
    ],
    PROPOSAL: [
        ("ann", "Proposal", {"proposal_id": "p1", "title": "ten", "summary": "ten a piece"}),
        (
            "ben",
            "CounterProposal",
            {"proposal_id": "p2", "supersedes_proposal_id": "p1", "title": "eight"},
        ),
        ("lead", "Accept", {"proposal_id": "p2"}),
        ("ann", "Accept", {"proposal_id": "p2"}),
        ("ben", "Accept", {"proposal_id": "p2"}),
        ("lead", "Commitment", {"action": "proposal.accepted"}),
    ],
    TASK: [
        (
            "lead",
            "TaskRequest",
            {"task_id": "t1", "title": "build", "instructions": "do", "requested_assignee": "ann"},
        ),
        ("ann", "TaskAccept", {"task_id": "t1", "assignee": "ann"}),
        ("ann", "TaskUpdate", {"task_id": "t1", "status": "half", "progress": 0.5}),
        ("ann", "TaskComplete", {"task_id": "t1", "assignee": "ann", "summary": "built"}),
        ("lead", "Commitment", {"action": "task.completed"}),
    ],
    HANDOFF: [
        (
            "lead",
            "HandoffOffer",
            {"handoff_id": "h1", "target_participant": "ann", "scope": "all", "reason": "away"},
        ),
        ("ann", "HandoffAccept", {"handoff_id": "h1", "accepted_by": "ann", "reason": "ready"}),
        ("lead", "Commitment", {"action": "handoff.accepted"}),
    ],
    QUORUM: [
        (
            "lead",
            "ApprovalRequest",
            {"request_id": "r1", "action": "deploy", "summary": "v2", "required_approvals": 2},
        ),
        ("ann", "Approve", {"request_id": "r1", "reason": "good"}),
        ("ben", "Approve", {"request_id": "r1"}),
        ("lead", "Commitment", {"action": "quorum.approved"}),
    ],
    ROUNDS: [
        ("ann", "Contribute", {"value": "red"}),
        ("ben", "Contribute", {"value": "blue"}),
        ("ann", "Contribute", {"value": "blue"}),
        ("lead", "Commitment", {"action": "multi_round.converged"}),
    ],
}


def spoken(mode: str) -> list[Message]:
    """The messages of the mode's session, the start first."""
    made = [start_message(mode, **_START.get(mode, {}))]
    for number, (sender, message_type, fields) in enumerate(SESSIONS[mode], 1):
        if message_type == "Commitment":
            made.append(commitment(sender, mode, **fields))
        else:
            made.append(say(sender, message_type, mode, f"m{number}", **fields))
    return made


_START: dict[str, dict[str, Any]] = {}


async def play(runtime: Runtime, mode: str) -> str:
    """Play the session; returns its run."""
    for message in spoken(mode):
        try:
            await runtime.send(message)
        except Rejection as rejection:
            raise AssertionError(f"{message.message_type}: {rejection}") from rejection
    run_id = await runtime.run_of(SESSION_ID)
    assert run_id is not None
    return run_id


async def envelopes(runtime: Runtime, run_id: str) -> list[Envelope]:
    return [decode(one.body) for one in await runtime.journal.read(run_id, limit=1000)]
