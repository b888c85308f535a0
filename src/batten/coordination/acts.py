"""What a participant can do in a session: an act for each message that its mode and role allow.

An act has a name and a JSON Schema, as a model's tool has. Ids that follow from the session may be
left out of its arguments: the only proposal, the one request, the versions of a commitment.
"""

from typing import Any

import msgspec
from msgspec import Struct

from batten.coordination.modes.decision import DecisionState
from batten.coordination.modes.handoff import HandoffState
from batten.coordination.modes.proposal import ProposalState
from batten.coordination.modes.quorum import QuorumState
from batten.coordination.modes.task import TaskState
from batten.coordination.payloads import COMMITMENT, WireType, write
from batten.coordination.rejection import Rejection, invalid
from batten.coordination.session import Session


class Act(Struct, frozen=True, kw_only=True):
    """One message of a mode, as a participant sends it."""

    name: str
    message_type: str
    description: str
    required: tuple[str, ...] = ()


_COMMIT = Act(
    name="commit",
    message_type="Commitment",
    description="End the session with a decision that binds everybody. The policy judges it.",
    required=("action", "reason", "outcome_positive"),
)
_ACTS = (
    Act(
        name="propose",
        message_type="Proposal",
        description="Put an option on the table.",
    ),
    Act(
        name="counter_propose",
        message_type="CounterProposal",
        description="Put another proposal in place of one on the table.",
        required=("title", "summary"),
    ),
    Act(
        name="evaluate",
        message_type="Evaluation",
        description="Say what you think of a proposal, before anybody votes.",
        required=("recommendation", "confidence"),
    ),
    Act(
        name="object",
        message_type="Objection",
        description="Object to a proposal. A critical objection may veto it.",
        required=("reason", "severity"),
    ),
    Act(
        name="vote",
        message_type="Vote",
        description="Vote on a proposal, once. After the first vote nobody evaluates or objects.",
        required=("vote", "reason"),
    ),
    Act(name="accept", message_type="Accept", description="Accept a proposal."),
    Act(name="reject", message_type="Reject", description="Reject it.", required=("reason",)),
    Act(name="withdraw", message_type="Withdraw", description="Take your proposal back."),
    Act(
        name="request_task",
        message_type="TaskRequest",
        description="Ask for a task to be done.",
        required=("title", "instructions"),
    ),
    Act(name="accept_task", message_type="TaskAccept", description="Take the task."),
    Act(
        name="reject_task",
        message_type="TaskReject",
        description="Decline the task, or give it back.",
        required=("reason",),
    ),
    Act(
        name="update_task",
        message_type="TaskUpdate",
        description="Report progress, from 0 to 1.",
        required=("status",),
    ),
    Act(
        name="complete_task",
        message_type="TaskComplete",
        description="Report that the task is done.",
        required=("summary",),
    ),
    Act(
        name="fail_task",
        message_type="TaskFail",
        description="Report that the task cannot be done.",
        required=("reason",),
    ),
    Act(
        name="offer_handoff",
        message_type="HandoffOffer",
        description="Offer a part of your work to another participant.",
        required=("target_participant", "scope"),
    ),
    Act(
        name="add_context",
        message_type="HandoffContext",
        description="Give the target of your offer what it needs to know.",
        required=("context",),
    ),
    Act(name="accept_handoff", message_type="HandoffAccept", description="Take over the work."),
    Act(
        name="decline_handoff",
        message_type="HandoffDecline",
        description="Do not take over the work.",
        required=("reason",),
    ),
    Act(
        name="request_approval",
        message_type="ApprovalRequest",
        description="Ask the panel to approve an action.",
        required=("action", "summary", "required_approvals"),
    ),
    Act(name="approve", message_type="Approve", description="Approve.", required=("reason",)),
    Act(name="abstain", message_type="Abstain", description="Neither approve nor reject."),
    Act(
        name="contribute",
        message_type="Contribute",
        description="Say the value you hold now. The session converges when all hold the same.",
        required=("value",),
    ),
    _COMMIT,
)
ACTS = {act.message_type: act for act in _ACTS}

_KINDS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bytes: {"type": "string"},
    float: {"type": "number"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    tuple[str, ...]: {"type": "array", "items": {"type": "string"}},
}
_CHOICES: dict[str, dict[str, Any]] = {
    "vote": {"enum": ["APPROVE", "REJECT", "ABSTAIN"]},
    "recommendation": {"enum": ["APPROVE", "REVIEW", "BLOCK", "REJECT"]},
    "severity": {"enum": ["critical", "high", "medium", "low"]},
    "confidence": {"minimum": 0, "maximum": 1},
}
_GIVEN = {
    "Commitment": ("commitment_id", "mode_version", "policy_version", "configuration_version"),
    "HandoffAccept": ("implicit", "accepted_by"),
    "HandoffDecline": ("declined_by",),
}
"""Fields that the session itself knows, or that only the runtime sets."""
_UNSAID = ("assignee", "supersedes", "deadline_unix_ms")


def acts_of(session: Session, who: str) -> list[Act]:
    """What somebody may ever send in a session, in the order of the mode's messages."""
    found: list[Act] = []
    for message_type in session.mode.senders:
        act = ACTS.get(message_type)
        try:
            session.mode.check_sender(session.panel, message_type, who)
        except Rejection:
            continue
        if act is not None and act not in found:
            found.append(act)
    return found


def wire_of(session: Session, act: Act) -> WireType:
    if act.message_type == "Commitment":
        return COMMITMENT
    return session.mode.payloads[act.message_type]


def parameters_of(session: Session, act: Act) -> dict[str, Any]:
    """The JSON Schema of an act's arguments."""
    hidden = (*_GIVEN.get(act.message_type, ()), *_UNSAID)
    properties: dict[str, Any] = {}
    for field in msgspec.structs.fields(wire_of(session, act).value):
        if field.name not in hidden:
            properties[field.name] = {**_KINDS[field.type], **_CHOICES.get(field.name, {})}
    required = act.required
    if act.message_type == "Proposal":
        required = ("option",) if "option" in properties else ("title", "summary")
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def payload_of(session: Session, act: Act, arguments: dict[str, Any], message_id: str) -> bytes:
    """The bytes of an act. Raises `INVALID_ENVELOPE` for arguments that are no such message."""
    wire = wire_of(session, act)
    known = {field.name: field.type for field in msgspec.structs.fields(wire.value)}
    values: dict[str, Any] = {**_implied(session, act, message_id), **arguments}
    _check_named(session, act, values)
    fields: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise invalid(f"{act.message_type} has no field {name!r}: it has {', '.join(known)}")
        fields[name] = value.encode() if known[name] is bytes and isinstance(value, str) else value
    try:
        return write(wire, fields)
    except (TypeError, ValueError) as error:
        raise invalid(f"{act.message_type}: {error}") from error


def _implied(session: Session, act: Act, message_id: str) -> dict[str, Any]:
    """The fields that follow from the session, if they are left out."""
    if act.message_type == "Commitment":
        return {
            "commitment_id": message_id,
            "authority_scope": "session",
            "mode_version": session.mode_version,
            "policy_version": session.policy.descriptor.policy_id,
            "configuration_version": session.configuration_version,
        }
    name = next((one for one in _IDS if one in wire_of(session, act).value.__struct_fields__), "")
    if not name:
        return {}
    known = _known_ids(session)
    if act.message_type in _NAMING:
        implied = {name: _free(name[0], known)}
        if act.message_type == "CounterProposal" and len(known) == 1:
            implied["supersedes_proposal_id"] = known[0]
        return implied
    return {name: known[0]} if len(known) == 1 else {}


def _check_named(session: Session, act: Act, values: dict[str, Any]) -> None:
    """Raise if an act concerns one of several and does not say which."""
    ids = [name for name in _IDS if name in wire_of(session, act).value.__struct_fields__]
    known = _known_ids(session)
    if ids and not values.get(ids[0]) and len(known) > 1:
        raise invalid(f"{ids[0]} must say which one: {', '.join(known)}")


_IDS = ("proposal_id", "request_id", "task_id", "handoff_id")
_NAMING = ("Proposal", "CounterProposal", "TaskRequest", "HandoffOffer", "ApprovalRequest")
"""Messages that bring a new id."""


def _known_ids(session: Session) -> list[str]:
    match session.mode_state:
        case DecisionState(proposals=proposals) | ProposalState(proposals=proposals):
            return list(proposals)
        case QuorumState(request=request) if request is not None:
            return [request.request_id]
        case TaskState(request=request) if request is not None:
            return [request.task_id]
        case HandoffState(offers=offers):
            return list(offers)
        case _:
            return []


def _free(letter: str, known: list[str]) -> str:
    number = len(known) + 1
    while f"{letter}{number}" in known:
        number += 1
    return f"{letter}{number}"
