"""Which facts are entries of the audit log: those that somebody decided."""

from typing import Any

from msgspec import UNSET

from batten.contract import facts
from batten.contract.envelope import Envelope, decode
from batten.contract.errors import PeerError
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
        facts.ToolEditReverted,
        facts.GapEventsPruned,
        facts.MacpRunDescribed,
        facts.MacpSessionBound,
    )
)
_POLICY = frozenset(("mode", "rules", "resolvers", "auto_apply"))
_SYSTEM = frozenset(("policy", "system", "timeout", "runtime", "session-discovery"))
_LOCAL = frozenset(("", "operator", "client", "user", "guest"))
"""Those who need no key: users of this machine, and clients on the pipes of a session."""


def entry_of(stored: Stored) -> NewEntry | None:
    """The entry of a fact; None for one that nobody decided."""
    try:
        envelope = decode(stored.body)
    except PeerError:
        return None
    found = _read(envelope)
    if found is None:
        return None
    action, resource, resource_id, actor, details = found
    is_run = resource != "session" or "task" in action
    place = {"run_id": envelope.run_id} if is_run and resource_id != envelope.run_id else {}
    return NewEntry(
        created_at=envelope.occurred_at,
        actor=actor or "local",
        actor_type=_kind(actor),
        action=action,
        resource=resource,
        resource_id=resource_id,
        details={**details, **place},
    )


def _kind(actor: str) -> ActorType:
    if actor in _LOCAL:
        return "local"
    return "system" if actor in _SYSTEM else "key"


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
        case facts.ToolEditReverted():
            return "patch.reverted", "run", envelope.run_id, fact.reverted_by, {}
        case facts.GapEventsPruned():
            return "run.pruned", "run", envelope.run_id, "system", {"reason": fact.reason}
        case _:
            return None


def _configured(envelope: Envelope, fact: facts.SessionConfigured) -> _Found | None:
    """Only what changes who may do what; `envelope` is of the session's own stream."""
    changed = sorted(_POLICY & fact.settings.keys())
    if not changed:
        return None
    details: dict[str, Any] = {"changed": changed}
    if isinstance(mode := fact.settings.get("mode"), str):
        details["mode"] = mode
    return "policy.changed", "session", envelope.session_id or envelope.run_id, "", details
