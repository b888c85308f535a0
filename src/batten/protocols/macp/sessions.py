"""The session of a run, as an export shows it: folded from the run's facts and events."""

from typing import Any

from msgspec import Struct

from batten.contract import facts as f
from batten.contract.envelope import Envelope, timestamp
from batten.protocols.macp.events import CanonicalEvent


class SessionRow(Struct, kw_only=True, rename="camel"):
    """What is known of the session that a run observes."""

    run_id: str = ""
    """Empty until the run is bound to a session."""
    runtime_kind: str = ""
    runtime_session_id: str = ""
    mode_name: str = ""
    mode_version: str = ""
    configuration_version: str = ""
    policy_version: str = ""
    initiator_participant_id: str = ""
    session_state: str = ""
    expires_at: str | None = None
    last_seen_at: str | None = None
    """When the runtime last told something of it."""
    capabilities: dict[str, Any] = {}
    last_stream_cursor: int = 0
    """The last canonical event that the runtime caused."""
    stream_connected_at: str | None = None
    stream_disconnected_at: str | None = None
    metadata: dict[str, Any] = {}
    """`participants`: those that the session declared."""
    created_at: str = ""
    updated_at: str = ""


def observe(
    session: SessionRow, envelope: Envelope, events: list[CanonicalEvent], kind: str
) -> None:
    """Take a fact of the run, and its events. `kind` is the kind of runtime."""
    for event in events:
        _take(session, event, kind)
    fact = envelope.data
    if isinstance(fact, f.MacpSessionBound):
        session.expires_at = timestamp(fact.deadline_unix_ms * 1_000_000)


def _take(session: SessionRow, event: CanonicalEvent, kind: str) -> None:
    data, ts = event.data, event.ts
    if event.type == "session.bound":
        session.run_id, session.runtime_kind = event.run_id, kind
        session.runtime_session_id = data["sessionId"]
        session.mode_name = data["modeName"]
        session.mode_version = data["modeVersion"]
        session.configuration_version = data["configurationVersion"]
        session.policy_version = data["policyVersion"]
        session.initiator_participant_id = data["initiator"]
        session.session_state = data["state"]
        session.metadata = {"participants": data["participants"]}
        session.created_at = ts
    if not session.run_id:
        return
    session.updated_at = ts
    if event.source.kind == "runtime":
        session.last_seen_at, session.last_stream_cursor = ts, event.seq
    if event.type == "session.state.changed":
        session.session_state = data["state"]
        expires = data.get("expiresAtUnixMs")
        if isinstance(expires, int):
            session.expires_at = timestamp(expires * 1_000_000)
    elif event.type == "session.stream.opened":
        if data["status"] == "reconnecting":
            session.stream_disconnected_at = ts
        else:
            session.stream_connected_at = ts
    elif event.type in ("run.completed", "run.failed", "run.cancelled"):
        session.stream_disconnected_at = ts
