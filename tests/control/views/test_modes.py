"""One session of each mode on our runtime, and its state as a person would write it down."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.protocols.macp.emitting import NormaliserState
from batten.protocols.macp.ids import run_uuid
from batten.protocols.macp.normaliser import normalise
from batten.protocols.macp.projection import new_projection, project, state_of
from tests.control.coordination.given import open_runtime
from tests.control.views.sessions import (
    DECISION,
    HANDOFF,
    PROPOSAL,
    QUORUM,
    ROUNDS,
    SESSIONS,
    TASK,
    envelopes,
    play,
)
from tests.coordination.given import SESSION_ID

DONE = {"lead": "completed", "ann": "completed", "ben": "completed"}
WITHOUT_BEN = DONE | {"ben": "skipped"}
REACHED = {
    "policyVersion": "policy.default",
    "quorumStatus": "reached",
    "outcomePositive": True,
    "evaluations": [("c1", "allow")],
}


def tally(id_: str, allow: int, deny: int) -> dict[str, Any]:
    return {
        "commitmentId": id_,
        "allow": allow,
        "deny": deny,
        "threshold": 2,
        "quorum": {"required": 3, "cast": allow + deny},
    }


def said(who: str, action: str, *more: str) -> tuple[str, ...]:
    """Participant, action, and the vote if it is one."""
    return (who, action, *more)


EXPECTED: dict[str, dict[str, Any]] = {
    DECISION: {
        "participants": WITHOUT_BEN,
        "decision": {
            "action": "decision.rejected",
            "confidence": 0.0,
            "proposalId": "p1",
            "outcomePositive": False,
            "prompt": "Ship now?",
        },
        "proposals": [
            said("lead", "ship"),
            said("ann", "APPROVE", "allow"),
            said("ann", "REJECT", "deny"),
            said("lead", "REJECT", "deny"),
        ],
        "policy": REACHED | {"outcomePositive": False, "voteTally": [tally("p1", 0, 2)]},
        "progress": [],
        "special nodes": ["__start", "__proposal", "__decision", "__outcome"],
        "messages": 6,
    },
    PROPOSAL: {
        "participants": DONE,
        "decision": {
            "action": "proposal.accepted",
            "confidence": 1.0,
            "proposalId": "p2",
            "outcomePositive": True,
        },
        "proposals": [
            said("ann", "Proposal"),
            said("ben", "CounterProposal"),
            said("lead", "Accept", "allow"),
            said("ann", "Accept", "allow"),
            said("ben", "Accept", "allow"),
        ],
        "policy": REACHED | {"voteTally": [tally("p2", 3, 0)]},
        "progress": [],
        "special nodes": ["__start", "__proposal", "__decision", "__outcome"],
        "messages": 7,
    },
    TASK: {
        "participants": WITHOUT_BEN,
        "decision": {
            "action": "task.completed",
            "confidence": 1.0,
            "proposalId": "m4",
            "outcomePositive": True,
        },
        "proposals": [
            said("lead", "TaskRequest"),
            said("ann", "TaskAccept", "allow"),
            said("ann", "TaskUpdate"),
            said("ann", "TaskComplete"),
        ],
        "policy": REACHED,
        "progress": [("ann", 50.0, "half"), ("ann", 100, "completed")],
        "special nodes": ["__start", "__decision", "__outcome"],
        "messages": 6,
    },
    HANDOFF: {
        "participants": WITHOUT_BEN,
        "decision": {
            "action": "handoff.accepted",
            "confidence": 1.0,
            "proposalId": "m2",
            "outcomePositive": True,
        },
        "proposals": [said("lead", "HandoffOffer"), said("ann", "HandoffAccept", "allow")],
        "policy": REACHED,
        "progress": [],
        "special nodes": ["__start", "__decision", "__outcome"],
        "messages": 4,
    },
    QUORUM: {
        "participants": DONE,
        "decision": {
            "action": "quorum.approved",
            "confidence": 1.0,
            "proposalId": "r1",
            "outcomePositive": True,
        },
        "proposals": [
            said("lead", "deploy"),
            said("ann", "Approve", "allow"),
            said("ben", "Approve", "allow"),
        ],
        "policy": REACHED | {"voteTally": [tally("r1", 2, 0)]},
        "progress": [],
        "special nodes": ["__start", "__decision", "__outcome"],
        "messages": 5,
    },
    ROUNDS: {
        "participants": DONE,
        "decision": {
            "action": "multi_round.converged",
            "proposalId": "m3",
            "outcomePositive": True,
        },
        "proposals": [
            said("ann", "Contribute"),
            said("ben", "Contribute"),
            said("ann", "Contribute"),
        ],
        "policy": REACHED,
        "progress": [],
        "special nodes": ["__start", "__decision", "__outcome"],
        "messages": 5,
    },
}


def summary(state: dict[str, Any]) -> dict[str, Any]:
    """The blocks in the form of `EXPECTED`."""
    current = dict(state["decision"]["current"])
    policy = state["policy"]
    kept = ("policyVersion", "quorumStatus", "outcomePositive", "voteTally")
    return {
        "participants": {one["participantId"]: one["status"] for one in state["participants"]},
        "decision": {
            name: current[name]
            for name in ("action", "confidence", "proposalId", "outcomePositive", "prompt")
            if name in current
        },
        "proposals": [
            said(one["participantId"], one["action"], *([one["vote"]] if "vote" in one else []))
            for one in current["proposals"]
        ],
        "policy": {name: policy[name] for name in kept if name in policy}
        | {
            "evaluations": [
                (one["commitmentId"], one["decision"]) for one in policy["commitmentEvaluations"]
            ]
        },
        "progress": [
            (one["participantId"], one["percentage"], one["message"])
            for one in state["progress"]["entries"]
        ],
        "special nodes": [
            node["id"] for node in state["graph"]["nodes"] if node["kind"] != "participant"
        ],
        "messages": state["outboundMessages"]["accepted"],
    }


@pytest.mark.parametrize("mode", SESSIONS)
async def test_a_session_of_each_mode_has_the_state_that_a_person_expects(
    tmp_path: Path, mode: str
) -> None:
    async with open_runtime(tmp_path) as runtime:
        run_id = await play(runtime, mode)
        found = await envelopes(runtime, run_id)
    state, projection = NormaliserState(), new_projection()
    for envelope in found:
        for event in normalise(state, envelope):
            project(projection, event)
    shown: dict[str, Any] = msgspec.to_builtins(state_of(projection))
    assert summary(shown) == EXPECTED[mode]
    assert shown["run"] == {
        "runId": run_uuid(run_id),
        "status": "completed",
        "modeName": mode,
        "runtimeSessionId": SESSION_ID,
        "startedAt": found[1].occurred_at,
        "endedAt": found[-1].occurred_at,
        "traceId": run_uuid(run_id).replace("-", ""),
    }
    current = shown["decision"]["current"]
    assert (current["finalized"], current["resolvedBy"]) == (True, "lead")
    assert shown["timeline"]["latestSeq"] == shown["timeline"]["totalEvents"] == state.seq
    assert shown["llm"]["totals"]["callCount"] == 0
