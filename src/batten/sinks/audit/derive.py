"""Which facts are entries of the audit log: those that somebody decided."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from batten.contract import facts
from batten.contract.envelope import Envelope, decode
from batten.contract.errors import PeerError
from batten.contract.ids import SessionId, session_stream
from batten.journal.contract import Stored
from batten.protocols.macp.ids import run_uuid
from batten.sinks.audit.entry import ActorType, NewEntry

TYPES = frozenset(
    kind.TYPE
    for kind in (
        facts.TaskCreated,
        facts.TaskUpdated,
        facts.SessionConfigured,
        facts.RunQueued,
        facts.RunCancelRequested,
        facts.ApprovalResolved,
        facts.ApprovalTimedOut,
        facts.RequestClosed,
        facts.ArtifactUpdated,
        facts.ToolEditApplied,
        facts.ToolFileWriteApplied,
        facts.ToolEditReverted,
        facts.GapEventsPruned,
        facts.MacpRunDescribed,
        facts.MacpSessionBound,
    )
)
_POLICY = frozenset(("mode", "rules", "resolvers", "denies_asked", "auto_apply"))
_RETENTION = "retention"
SYSTEM = frozenset(("policy", "system", "timeout", "runtime", "session-discovery", _RETENTION))
"""What the program does by itself is done by these."""
LOCAL = frozenset(("", "operator", "client", "user", "guest"))
"""Those who need no key: users of this machine, and clients on the pipes of a session."""


IMPORTED = "session.imported"
"""The action of importing a session."""


def entry_of(stored: Stored, imports: Mapping[str, str]) -> NewEntry | None:
    """The entry of a fact; None for one that nobody decided here.

    `imports`: when sessions were imported. What happened in them before happened elsewhere, and a
    bundle can claim anything.
    """
    try:
        envelope = decode(stored.body)
    except PeerError:
        return None
    if envelope.occurred_at <= imports.get(envelope.session_id or "", ""):
        return None
    found = _read(envelope)
    if found is None:
        return None
    action, resource, resource_id, actor, details = found
    return NewEntry(
        created_at=envelope.occurred_at,
        actor=actor or "local",
        actor_type=_kind(actor),
        action=action,
        resource=resource,
        resource_id=resource_id,
        details={**details, **_place(envelope, resource_id)},
    )


def _place(envelope: Envelope, resource_id: str) -> dict[str, str]:
    """The session, for a fact of its own stream, or the run; nothing if that is the resource."""
    session = envelope.session_id
    if session and envelope.run_id == session_stream(SessionId(session)):
        name, place = "session_id", session
    else:
        name, place = "run_id", envelope.run_id
    return {} if place == resource_id else {name: place}


def _kind(actor: str) -> ActorType:
    if actor in LOCAL:
        return "local"
    return "system" if actor in SYSTEM else "key"


_Found = tuple[str, str, str, str, dict[str, Any]]


def _read(envelope: Envelope) -> _Found | None:
    """Action, resource, its id, actor and details."""
    fact = envelope.data
    match fact:
        case facts.TaskCreated():
            return "task.created", "task", envelope.task_id or "", fact.by, {"title": fact.title}
        case facts.TaskUpdated():
            return "task.updated", "task", envelope.task_id or "", fact.by, {}
        case facts.SessionConfigured():
            return _configured(envelope, fact)
        case facts.MacpRunDescribed() if fact.cloned_from is UNSET:
            by = "" if fact.by is UNSET else fact.by
            return "run.created", "run", run_uuid(envelope.run_id), by, {}
        case facts.RunQueued() if envelope.sequence <= 1 and fact.parent_run_id is UNSET:
            if fact.kind == "coordination":
                return None  # it starts when its session opens
            by = "" if fact.by is UNSET else fact.by
            details: dict[str, Any] = {"model": fact.model, "workspace": fact.workspace_path}
            return "run.started", "run", envelope.run_id, by, details
        case facts.MacpSessionBound():
            opened = {"mode": fact.mode, "session": fact.session_id}
            return "run.started", "run", envelope.run_id, fact.initiator, opened
        case facts.RunCancelRequested():
            return (
                "run.cancel_requested",
                "run",
                envelope.run_id,
                fact.by,
                {"reason": fact.reason},
            )
        case facts.ApprovalResolved():
            details = {"decision": fact.decision}
            if fact.grant is not UNSET:
                details["grant"] = fact.grant
            return "approval.answered", "approval", fact.approval_id, fact.by, details
        case facts.ApprovalTimedOut():
            return "approval.timed_out", "approval", fact.approval_id, "policy", {}
        case facts.RequestClosed():
            resolution = {"resolution": fact.resolution}
            return "request.answered", "request", fact.request_id, fact.by, resolution
        case facts.ToolEditApplied() | facts.ToolFileWriteApplied():
            if fact.applied_by is UNSET:
                return None  # by the run
            patch = {"artifact_id": fact.patch_artifact_id}
            return "patch.applied", "run", envelope.run_id, fact.applied_by, patch
        case facts.ToolEditReverted():
            patch = {"artifact_id": fact.patch_artifact_id}
            if fact.inverse_artifact_id is not UNSET:
                patch["inverse_artifact_id"] = fact.inverse_artifact_id
            return "patch.reverted", "run", envelope.run_id, fact.reverted_by, patch
        case facts.ArtifactUpdated():
            return _artifact(envelope, fact)
        case facts.GapEventsPruned():
            return "run.pruned", "run", envelope.run_id, "system", {"reason": fact.reason}
        case _:
            return None


def _artifact(envelope: Envelope, fact: facts.ArtifactUpdated) -> _Found | None:
    """What a client did with an artifact. A run's own changes are no decision of anybody; retention
    has an entry for each run that it prunes. Patches have facts of their own for all but this.
    """
    if fact.by is UNSET or fact.by == _RETENTION:
        return None
    if fact.field == "status" and fact.new_value == "rejected":
        patch = {"artifact_id": fact.artifact_id}
        return "patch.rejected", "run", envelope.run_id, fact.by, patch
    if fact.field == "pinned":
        action = "artifact.pinned" if fact.new_value else "artifact.unpinned"
    elif fact.field == "deleted_at":
        action = "artifact.deleted"
    else:
        return None
    return action, "artifact", fact.artifact_id, fact.by, {}


def _configured(envelope: Envelope, fact: facts.SessionConfigured) -> _Found | None:
    """Only what changes who may do what; `envelope` is of the session's own stream.

    The settings that a session begins with change nothing.
    """
    changed = [] if fact.changed is UNSET else sorted(_POLICY.intersection(fact.changed))
    if not changed:
        return None
    details: dict[str, Any] = {"changed": changed}
    if isinstance(mode := fact.settings.get("mode"), str):
        details["mode"] = mode
    by = "" if fact.by is UNSET else fact.by
    return "policy.changed", "session", envelope.session_id or envelope.run_id, by, details
