"""Values as protobuf messages and back. The generated modules have no types: `Any` stays here."""

from importlib import import_module
from typing import Any

import msgspec

from batten import __version__
from batten.control.coordination.answers import Answer, Lifecycle
from batten.coordination.engine import Accepted
from batten.coordination.envelope import RUNTIME, VERSION, Message
from batten.coordination.modes.mode import Descriptor
from batten.coordination.policy.policy import DEFAULT, PolicyDescriptor
from batten.coordination.policy.rules import DEFAULT_RULES
from batten.coordination.rejection import Rejection
from batten.coordination.session import Session

core: Any = import_module("macp.v1.core_pb2")
envelopes: Any = import_module("macp.v1.envelope_pb2")
policies: Any = import_module("macp.v1.policy_pb2")

_STATES = {
    "OPEN": envelopes.SESSION_STATE_OPEN,
    "SUSPENDED": envelopes.SESSION_STATE_SUSPENDED,
    "RESOLVED": envelopes.SESSION_STATE_RESOLVED,
    "EXPIRED": envelopes.SESSION_STATE_EXPIRED,
    "CANCELLED": envelopes.SESSION_STATE_CANCELLED,
}
_INSTRUCTIONS = (
    "Send authorization: Bearer TOKEN. Start a session with SessionStart, send its messages with"
    " Send, and read them with StreamSession."
)


def read_message(envelope: Any) -> Message:
    """An envelope as a message."""
    return Message(
        macp_version=envelope.macp_version,
        mode=envelope.mode,
        message_type=envelope.message_type,
        message_id=envelope.message_id,
        session_id=envelope.session_id,
        sender=envelope.sender,
        timestamp_unix_ms=envelope.timestamp_unix_ms,
        payload=envelope.payload,
    )


def write_envelope(message: Message) -> Any:
    return envelopes.Envelope(
        macp_version=VERSION,
        mode=message.mode,
        message_type=message.message_type,
        message_id=message.message_id,
        session_id=message.session_id,
        sender=message.sender,
        timestamp_unix_ms=message.timestamp_unix_ms,
        payload=message.payload,
    )


def write_accepted(accepted: Accepted) -> Any:
    return core.StreamSessionResponse(envelope=write_envelope(accepted.message))


def ack(answer: Answer, session_id: str, message_id: str = "") -> Any:
    return envelopes.Ack(
        ok=True,
        duplicate=answer.duplicate,
        message_id=message_id,
        session_id=session_id,
        accepted_at_unix_ms=answer.at_ms,
        session_state=_STATES[answer.state],
    )


def nack(rejection: Rejection, session_id: str, message_id: str = "") -> Any:
    return envelopes.Ack(
        ok=False,
        message_id=message_id,
        session_id=session_id,
        error=error(rejection, session_id, message_id),
    )


def error(rejection: Rejection, session_id: str = "", message_id: str = "") -> Any:
    return envelopes.MACPError(
        code=rejection.macp_code,
        message=rejection.message,
        session_id=session_id,
        message_id=message_id,
        details=rejection.details,
    )


def metadata(session: Session) -> Any:
    activity = [
        core.ParticipantActivity(
            participant_id=who,
            last_message_at_unix_ms=one.last_message_at_unix_ms,
            message_count=one.message_count,
        )
        for who, one in sorted(session.activity.items())
    ]
    return core.SessionMetadata(
        session_id=session.session_id,
        mode=session.descriptor.mode,
        state=_STATES[session.state],
        started_at_unix_ms=session.started_at_ms,
        expires_at_unix_ms=session.deadline_ms,
        mode_version=session.mode_version,
        configuration_version=session.configuration_version,
        policy_version=session.policy.descriptor.policy_id,
        participants=session.panel.participants,
        participant_activity=activity,
        initiator=session.panel.initiator,
        context_id=session.context_id,
        extension_keys=session.extension_keys,
    )


def lifecycle_event(event: Lifecycle) -> Any:
    kinds = core.SessionLifecycleEvent
    return core.WatchSessionsResponse(
        event=core.SessionLifecycleEvent(
            event_type=kinds.EventType.Value(f"EVENT_TYPE_{event.kind}"),
            session=metadata(event.session),
            observed_at_unix_ms=event.at_ms,
        )
    )


def mode_descriptor(descriptor: Descriptor) -> Any:
    return core.ModeDescriptor(
        mode=descriptor.mode,
        mode_version=descriptor.mode_version,
        title=descriptor.title,
        description=descriptor.description,
        determinism_class=descriptor.determinism_class,
        participant_model=descriptor.participant_model,
        message_types=descriptor.message_types,
        terminal_message_types=descriptor.terminal_message_types,
        schema_uris=descriptor.schema_uris,
    )


def read_mode(given: Any) -> Descriptor:
    return Descriptor(
        mode=given.mode,
        mode_version=given.mode_version,
        title=given.title,
        description=given.description,
        determinism_class=given.determinism_class,
        participant_model=given.participant_model,
        message_types=tuple(given.message_types),
        terminal_message_types=tuple(given.terminal_message_types),
        schema_uris=dict(given.schema_uris),
    )


def policy_descriptor(policy: PolicyDescriptor) -> Any:
    """A policy as it was registered; the rules of the built-in one are written out."""
    rules = policy.rules if policy != DEFAULT else msgspec.json.encode(DEFAULT_RULES).decode()
    return policies.PolicyDescriptor(
        policy_id=policy.policy_id,
        mode=policy.mode,
        description=policy.description,
        rules=rules,
        schema_version=policy.schema_version,
        registered_at_unix_ms=policy.registered_at_unix_ms,
    )


def read_policy(given: Any, now_ms: int) -> PolicyDescriptor:
    return PolicyDescriptor(
        policy_id=given.policy_id,
        mode=given.mode,
        description=given.description,
        rules=given.rules,
        schema_version=given.schema_version,
        registered_at_unix_ms=now_ms,
    )


def initialized(modes: list[str], *, policies_fixed: bool) -> Any:
    return core.InitializeResponse(
        selected_protocol_version=VERSION,
        runtime_info=core.RuntimeInfo(
            name=RUNTIME,
            title="Batten",
            version=__version__,
            description="The coordination runtime of Batten.",
        ),
        capabilities=core.Capabilities(
            sessions=core.SessionsCapability(stream=True, list_sessions=True, watch_sessions=True),
            cancellation=core.CancellationCapability(cancel_session=True),
            progress=core.ProgressCapability(progress=True),
            manifest=core.ManifestCapability(get_manifest=True),
            mode_registry=core.ModeRegistryCapability(list_modes=True, list_changed=True),
            roots=core.RootsCapability(list_roots=True, list_changed=False),
            policy_registry=policies.PolicyRegistryCapability(
                register_policy=not policies_fixed, list_policies=True, list_changed=True
            ),
            experimental=core.ExperimentalCapabilities(features={"ext_mode_lifecycle": "true"}),
        ),
        supported_modes=modes,
        instructions=_INSTRUCTIONS,
    )


def manifest(modes: list[str]) -> Any:
    return core.GetManifestResponse(
        manifest=core.AgentManifest(
            agent_id=RUNTIME,
            title="Batten",
            description="The coordination runtime of Batten.",
            supported_modes=modes,
            input_content_types=["application/macp-envelope+proto"],
            output_content_types=["application/macp-envelope+proto"],
            metadata={"version": __version__},
        )
    )
