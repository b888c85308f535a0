"""The graph of a run: who spoke to whom, and how a proposal became an outcome."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.json_values import texts_of
from batten.protocols.macp.messages import payload_fields
from batten.protocols.macp.standing import Projection
from batten.protocols.macp.state import MOST_EDGES, Edge, Node, ParticipantBlock

START = "__start"
PROPOSAL = "__proposal"
DECISION = "__decision"
OUTCOME = "__outcome"
_RANKS = {"idle": 0, "waiting": 1, "active": 2, "completed": 3, "skipped": 3, "failed": 4}
"""The status of a node only rises."""
_OPINIONS = ("Vote", "Evaluation", "Objection")


def participant(projection: Projection, name: str) -> ParticipantBlock:
    """The participant of this name, added if it is new."""
    found = projection.participants.get(name)
    if found is None:
        found = projection.participants[name] = ParticipantBlock(participant_id=name)
        mirror(projection, found)
    return found


def mirror(projection: Projection, block: ParticipantBlock) -> None:
    _raise(projection, block.participant_id, "participant", block.status)


def _raise(projection: Projection, id_: str, kind: str, status: str) -> None:
    node = projection.nodes.get(id_)
    if node is None:
        projection.nodes[id_] = Node(id=id_, kind=kind, status=status)
    elif _RANKS[status] > _RANKS[node.status]:
        node.status = status


def _connect(projection: Projection, from_: str, to: str, kind: str, ts: str) -> None:
    if not from_ or not to or from_ == to:
        return
    key = f"{from_}\n{to}\n{kind}"
    projection.edges.pop(key, None)  # drawn again, it is the newest
    projection.edges[key] = Edge(from_=from_, to=to, kind=kind, ts=ts)
    if len(projection.edges) > MOST_EDGES:
        del projection.edges[next(iter(projection.edges))]


def recipients_of(data: Mapping[str, Any], known: Iterable[str]) -> list[str]:
    """Whom a message is for: those it names, those invited, or all who judge a proposal."""
    sender, fields = data["sender"], payload_fields(data.get("payload"))
    named = data.get("to")
    if named is None:
        match data["messageType"]:
            case "SessionStart":  # runtimes take names without the blanks around them
                declared = set(known)
                names = texts_of(fields.get("participants"))
                named = [name if name in declared else name.strip() for name in names]
            case "Proposal":
                named = list(known)
            case _:
                named = None
    return [name for name in texts_of(named) if name != sender]


def draw(projection: Projection, event: CanonicalEvent, to: Sequence[str]) -> None:
    """The nodes and edges of a message."""
    ts, sender = event.ts, event.data["sender"]
    message_type: str = event.data["messageType"]
    _raise(projection, START, "start", "completed")
    if message_type == "SessionStart":
        _connect(projection, START, sender, "session.bound", ts)
        for name in to:
            _connect(projection, sender, name, "fanout", ts)
    elif message_type == "Proposal":
        _raise(projection, PROPOSAL, "proposal", "completed")
        _connect(projection, sender, PROPOSAL, "proposes", ts)
        for name in to:
            _connect(projection, PROPOSAL, name, "review", ts)
    elif message_type in _OPINIONS:
        _raise(projection, DECISION, "decision", "active")
        _connect(projection, sender, DECISION, message_type.lower(), ts)
    elif message_type == "Commitment":
        _raise(projection, DECISION, "decision", "completed")
        _raise(projection, OUTCOME, "output", "completed")
        _connect(projection, DECISION, OUTCOME, "commits", ts)
    for name in to:
        _connect(projection, sender, name, message_type, ts)
