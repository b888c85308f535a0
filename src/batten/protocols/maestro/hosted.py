"""Requests, responses and stream envelopes of a shared runtime, beside the messages.

Names on the wire are the protocol's: requests in camel case, responses in snake case, except for a
snapshot's `protocolVersion`.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import asdict

from batten.protocols.maestro import outgoing
from batten.protocols.maestro.incoming import Hello, Init
from batten.protocols.maestro.outgoing import ClientCapabilities, ClientInfo, Message, Name
from batten.protocols.maestro.snapshot import RuntimeState
from batten.protocols.maestro.vocabulary import (
    ApprovalMode,
    Notification,
    Operation,
    RequestType,
    Role,
    ThinkingLevel,
)

Client = Literal["generic", "vscode", "jetbrains", "conductor"]
ResetReason = Literal["lagged", "replay_gap", "restored_from_snapshot"]


class AskedCapabilities(Struct, frozen=True, kw_only=True, rename="camel"):
    """A client's capabilities, in the spelling of a request."""

    server_requests: tuple[RequestType, ...] | None = None
    utility_operations: tuple[Operation, ...] | None = None
    raw_agent_events: bool | None = None
    endings: bool | None = None

    def plain(self) -> ClientCapabilities:
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return ClientCapabilities(**given)


class Ask(Struct, frozen=True, kw_only=True, rename="camel"):
    """A client's description of itself when it connects."""

    connection_id: Name | None = None
    """An existing connection; without it a new one is made."""
    protocol_version: Name | None = None
    client_info: ClientInfo | None = None
    capabilities: AskedCapabilities | None = None
    opt_out_notifications: tuple[Notification, ...] | None = None
    role: Role | None = None
    take_control: bool | None = None
    """Whether to take the lease from its holder."""

    def hello(self) -> Hello:
        return Hello(
            protocol_version=self.protocol_version,
            client_info=self.client_info,
            capabilities=None if self.capabilities is None else self.capabilities.plain(),
            opt_out_notifications=self.opt_out_notifications,
            role=self.role,
        )


class ConnectAsk(Ask, frozen=True, kw_only=True):
    """Request a connection without a subscription."""


class CreateAsk(ConnectAsk, frozen=True, kw_only=True):
    """Request a session, and a connection to it."""

    session_id: Name | None = None
    """An existing session; without it a new one is made."""
    workspace_root: str | None = None
    model: str | None = None
    enable_client_tools: bool | None = None
    client: Client | None = None
    thinking_level: ThinkingLevel | None = None
    approval_mode: ApprovalMode | None = None


class SubscribeAsk(Ask, frozen=True, kw_only=True):
    """Request a subscription, and a connection if there is none."""


class RuntimeSnapshot(
    Struct, frozen=True, kw_only=True, rename={"protocol_version": "protocolVersion"}
):
    """The whole state as of this cursor."""

    protocol_version: str
    session_id: str
    cursor: int
    last_init: Init | None
    state: RuntimeState


class HeartbeatSnapshot(Struct, frozen=True, kw_only=True):
    connection_id: str
    controller_lease_granted: bool
    """Whether this connection holds the lease."""
    controller_connection_id: str | None
    lease_expires_at: str | None
    heartbeat_interval_ms: int


class ConnectionSnapshot(HeartbeatSnapshot, frozen=True, kw_only=True):
    session_id: str
    role: Role
    opt_out_notifications: tuple[Notification, ...] | UnsetType = UNSET
    snapshot: RuntimeSnapshot


class SubscriptionSnapshot(HeartbeatSnapshot, frozen=True, kw_only=True):
    subscription_id: str
    role: Role
    opt_out_notifications: tuple[Notification, ...] | UnsetType = UNSET
    controller_subscription_id: str | None
    snapshot: RuntimeSnapshot


class ConnectionClosed(Struct, frozen=True, kw_only=True):
    success: Literal[True] = True
    connection_id: str
    controller_connection_id: str | None
    """The holder of the lease."""
    disconnected_subscription_ids: tuple[str, ...]


class SnapshotEnvelope(Struct, frozen=True, kw_only=True, tag_field="type", tag="snapshot"):
    snapshot: RuntimeSnapshot


class MessageEnvelope(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    cursor: int
    message: Message


class HeartbeatEnvelope(Struct, frozen=True, kw_only=True, tag_field="type", tag="heartbeat"):
    cursor: int
    """The stream's current cursor; a heartbeat does not advance it."""


class ResetEnvelope(Struct, frozen=True, kw_only=True, tag_field="type", tag="reset"):
    """Messages were lost: this snapshot replaces everything received before."""

    reason: ResetReason
    snapshot: RuntimeSnapshot


Envelope = SnapshotEnvelope | MessageEnvelope | HeartbeatEnvelope | ResetEnvelope

_encode = msgspec.json.Encoder().encode


def encode(envelope: Envelope) -> bytes:
    """One line, without its newline. A message that cannot be sent is replaced by an error."""
    if isinstance(envelope, MessageEnvelope):
        line = Raw(outgoing.encode(envelope.message).rstrip(b"\n"))
        return _encode({"type": "message", "cursor": envelope.cursor, "message": line})
    return _encode(envelope)
