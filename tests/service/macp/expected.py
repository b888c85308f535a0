"""What a person expects to see of one session of each mode.

An event is a line: its type, its subject, and its sender if it has one. `m1` is the first message,
`c` the commitment, `r` the run, `s` the session, `a` the artifact of its trace.
"""

from typing import Any

from msgspec import Struct

_OPENING = """
    run.created run:r
    run.started run:r
    session.bound session:s
"""
_BOUND = """
    session.state.changed session:s
    session.stream.opened session:s
    artifact.created artifact:a
    policy.resolved policy:policy.default batten-runtime
"""
_CLOSING = """
    policy.commitment.evaluated policy:c batten-runtime
    message.received message:{last} lead
    decision.finalized decision:c lead
    session.state.changed session:s
    run.completed run:r
"""


class Expected(Struct, frozen=True, kw_only=True):
    participants: list[str]
    """Those declared, in order."""
    said: str
    """The events between the resolved policy and the commitment."""
    commitment: str
    """The message of the commitment."""
    statuses: dict[str, str]
    """Each participant's last message; `-` for a silent one, which is skipped."""
    edges: list[str]
    """Beyond those of the start."""
    current: dict[str, Any]
    contributions: list[tuple[Any, ...]]
    """Who, action, vote, confidence, reasons."""
    tally: list[tuple[str, int, int]] = []
    """Proposal, allowed, denied."""
    counts: dict[str, int]
    """Numbers of the metrics that are not 0."""
    progress: list[tuple[str, float, str]] = []
    calls: list[tuple[str, str, int, float]] = []
    """Participant, model, tokens, cost."""

    @property
    def events(self) -> list[str]:
        seen = [f"participant.seen participant:{name}" for name in self.participants]
        closing = _CLOSING.format(last=self.commitment)
        return [*lines(_OPENING), *seen, *lines(_BOUND), *lines(self.said), *lines(closing)]


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


EXPECTED: dict[str, Expected] = {
    "macp.mode.decision.v1": Expected(
        participants=["lead", "ann", "ben"],
        said="""
            message.received message:m1 lead
            message.received message:m2 lead
            proposal.created proposal:p1 lead
            message.received message:m3 ann
            proposal.updated proposal:p1 ann
            message.received message:m4 ben
            proposal.updated proposal:p1 ben
            message.received message:m5 ann
            llm.call.completed message:m5 ann
            signal.emitted signal:m5 ann
            message.received message:m6 ann
            proposal.updated proposal:p1 ann
            message.received message:m7 ben
            proposal.updated proposal:p1 ben
        """,
        commitment="m8",
        statuses={"lead": "Commitment", "ann": "Vote", "ben": "Vote"},
        edges=[
            *("lead>__proposal proposes", "__proposal>ann review", "__proposal>ben review"),
            *("lead>ann Proposal", "lead>ben Proposal"),
            *("ann>__decision evaluation", "ben>__decision objection"),
            *("ann>__decision vote", "ben>__decision vote", "__decision>__outcome commits"),
        ],
        current={
            "action": "decision.rejected",
            "confidence": 0.5,
            "proposalId": "p1",
            "outcomePositive": False,
            "prompt": "tests pass",
        },
        contributions=[
            ("lead", "merge", None, None, ["tests pass"]),
            ("ann", "APPROVE", "allow", 0.9, ["clean"]),
            ("ben", "Objection", None, None, ["late"]),
            ("ann", "APPROVE", "allow", 1.0, []),
            ("ben", "REJECT", "deny", 1.0, ["late"]),
        ],
        tally=[("p1", 1, 1)],
        counts={
            "messageCount": 8,
            "signalCount": 1,
            "proposalCount": 5,
            "promptTokens": 120,
            "completionTokens": 45,
            "totalTokens": 165,
        },
        calls=[("ann", "gpt-4o-mini", 165, 0.000045)],
    ),
    "macp.mode.proposal.v1": Expected(
        participants=["lead", "ann"],
        said="""
            message.received message:m1 lead
            message.received message:m2 lead
            proposal.created proposal:p1 lead
            message.received message:m3 ann
            proposal.created proposal:p2 ann
            message.received message:m4 ann
            proposal.updated proposal:p1 ann
            message.received message:m5 lead
            proposal.updated proposal:p1 lead
            message.received message:m6 lead
            proposal.updated proposal:p2 lead
            message.received message:m7 ann
            proposal.updated proposal:p2 ann
        """,
        commitment="m8",
        statuses={"lead": "Commitment", "ann": "Accept"},
        edges=[
            *("lead>__proposal proposes", "__proposal>ann review", "lead>ann Proposal"),
            "__decision>__outcome commits",
        ],
        current={
            "action": "proposal.accepted",
            "confidence": 1.0,
            "proposalId": "p2",
            "outcomePositive": True,
        },
        contributions=[
            ("lead", "Proposal", None, None, ["ten a piece"]),
            ("ann", "CounterProposal", None, None, []),
            ("ann", "Reject", "deny", None, ["too much"]),
            ("lead", "Withdraw", None, None, []),
            ("lead", "Accept", "allow", None, []),
            ("ann", "Accept", "allow", None, []),
        ],
        tally=[("p1", 0, 1), ("p2", 2, 0)],
        counts={"messageCount": 8, "proposalCount": 6},
    ),
    "macp.mode.task.v1": Expected(
        participants=["lead", "ann", "ben"],
        said="""
            message.received message:m1 lead
            message.received message:m2 lead
            proposal.created proposal:m2 lead
            message.received message:m3 ben
            proposal.updated proposal:m3 ben
            message.received message:m4 ann
            proposal.updated proposal:m4 ann
            message.received message:m5 ann
            proposal.updated proposal:m5 ann
            progress.reported message:m5 ann
            message.received message:m6 ann
            proposal.updated proposal:m6 ann
            progress.reported message:m6 ann
        """,
        commitment="m7",
        statuses={"lead": "Commitment", "ann": "TaskComplete", "ben": "TaskReject"},
        edges=["__decision>__outcome commits"],
        current={
            "action": "task.completed",
            "confidence": 0.5,
            "proposalId": "m6",
            "outcomePositive": True,
        },
        contributions=[
            ("lead", "TaskRequest", None, None, []),
            ("ben", "TaskReject", "deny", None, ["busy"]),
            ("ann", "TaskAccept", "allow", None, []),
            ("ann", "TaskUpdate", None, None, []),
            ("ann", "TaskComplete", None, None, []),
        ],
        counts={"messageCount": 7, "proposalCount": 5},
        progress=[("ann", 50.0, ""), ("ann", 100.0, "completed")],
    ),
    "macp.mode.handoff.v1": Expected(
        participants=["lead", "ann", "ben"],
        said="""
            message.received message:m1 lead
            message.received message:m2 lead
            proposal.created proposal:m2 lead
            message.received message:m3 lead
            proposal.updated proposal:m3 lead
            message.received message:m4 ann
            proposal.updated proposal:m4 ann
        """,
        commitment="m5",
        statuses={"lead": "Commitment", "ann": "HandoffAccept", "ben": "-"},
        edges=["__decision>__outcome commits"],
        current={
            "action": "handoff.accepted",
            "confidence": 1.0,
            "proposalId": "m4",
            "outcomePositive": True,
        },
        contributions=[
            ("lead", "HandoffOffer", None, None, []),
            ("lead", "HandoffContext", None, None, []),
            ("ann", "HandoffAccept", "allow", None, []),
        ],
        counts={"messageCount": 5, "proposalCount": 3},
    ),
    "macp.mode.quorum.v1": Expected(
        participants=["ann", "ben", "cem"],
        said="""
            participant.seen participant:lead
            message.received message:m1 lead
            message.received message:m2 lead
            proposal.created proposal:r1 lead
            message.received message:m3 ann
            proposal.updated proposal:r1 ann
            message.received message:m4 ben
            proposal.updated proposal:r1 ben
            message.received message:m5 cem
            proposal.updated proposal:r1 cem
        """,
        commitment="m6",
        statuses={"ann": "Approve", "ben": "Abstain", "cem": "Approve", "lead": "Commitment"},
        edges=["__decision>__outcome commits"],
        current={
            "action": "quorum.approved",
            "confidence": 1.0,
            "proposalId": "r1",
            "outcomePositive": True,
        },
        contributions=[
            ("lead", "deploy", None, None, []),
            ("ann", "Approve", "allow", None, []),
            ("ben", "Abstain", None, None, []),
            ("cem", "Approve", "allow", None, []),
        ],
        tally=[("r1", 2, 0)],
        counts={"messageCount": 6, "proposalCount": 4},
    ),
    "ext.multi_round.v1": Expected(
        participants=["ann", "ben"],
        said="""
            participant.seen participant:lead
            message.received message:m1 lead
            message.received message:m2 ann
            proposal.updated proposal:m2 ann
            message.received message:m3 ben
            proposal.updated proposal:m3 ben
        """,
        commitment="m4",
        statuses={"ann": "Contribute", "ben": "Contribute", "lead": "Commitment"},
        edges=["__decision>__outcome commits"],
        current={
            "action": "multi_round.converged",
            "proposalId": "m3",
            "outcomePositive": True,
        },
        contributions=[
            ("ann", "Contribute", None, None, []),
            ("ben", "Contribute", None, None, []),
        ],
        counts={"messageCount": 4, "proposalCount": 2},
    ),
}
