"""Payloads on the wire: protobuf messages of the published package, read into typed values.

The generated modules have no types; `Any` stays in this file.
"""

from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib import import_module
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import Struct

from batten.coordination.rejection import invalid

T = TypeVar("T", bound=Struct)
_messages: dict[str, Any] = {}
_CONVERTED = frozenset({"supersedes", "roots", "participants", "tags", "extensions"})


class Reference(Struct, frozen=True):
    """A commitment of another session, by its hash."""

    session_id: str = ""
    commitment_hash: str = ""


class Commitment(Struct, frozen=True):
    """The decision that ends a session, in every mode."""

    commitment_id: str = ""
    action: str = ""
    authority_scope: str = ""
    reason: str = ""
    mode_version: str = ""
    policy_version: str = ""
    configuration_version: str = ""
    outcome_positive: bool = False
    supersedes: Reference | None = None


class Root(Struct, frozen=True):
    uri: str = ""
    name: str = ""


class SessionStart(Struct, frozen=True):
    """What the initiator binds the session to."""

    intent: str = ""
    participants: tuple[str, ...] = ()
    mode_version: str = ""
    configuration_version: str = ""
    policy_version: str = ""
    ttl_ms: int = 0
    roots: tuple[Root, ...] = ()
    context_id: str = ""
    extensions: dict[str, bytes] = {}
    max_suspend_ms: int = 0


class Signal(Struct, frozen=True):
    """A message beside all sessions. It is not kept."""

    signal_type: str = ""
    data: bytes = b""
    confidence: float = 0.0
    correlation_session_id: str = ""


class Progress(Struct, frozen=True):
    progress_token: str = ""
    progress: float = 0.0
    total: float = 0.0
    message: str = ""
    target_message_id: str = ""


class SessionCancel(Struct, frozen=True):
    """Tells the participants that their session was cancelled. The runtime alone sends it."""

    reason: str = ""
    cancelled_by: str = ""


class SessionSuspend(Struct, frozen=True):
    """Tells participants who ask for it that their session was suspended."""

    reason: str = ""
    suspended_by: str = ""


class SessionResume(Struct, frozen=True):
    """Tells participants who ask for it that their session goes on."""

    reason: str = ""
    resumed_by: str = ""
    banked_ms: int = 0
    """The time that the session gets back."""


class WireType(Struct, frozen=True):
    """A protobuf message and the value it is read into."""

    message: str
    """Module and name: `macp.v1.core_pb2.CommitmentPayload`."""
    value: type[Struct]


COMMITMENT = WireType("macp.v1.core_pb2.CommitmentPayload", Commitment)
SESSION_START = WireType("macp.v1.core_pb2.SessionStartPayload", SessionStart)
SIGNAL = WireType("macp.v1.core_pb2.SignalPayload", Signal)
PROGRESS = WireType("macp.v1.core_pb2.ProgressPayload", Progress)
SESSION_CANCEL = WireType("macp.v1.core_pb2.SessionCancelPayload", SessionCancel)
SESSION_SUSPEND = WireType("macp.v1.core_pb2.SessionSuspendPayload", SessionSuspend)
SESSION_RESUME = WireType("macp.v1.core_pb2.SessionResumePayload", SessionResume)


def wire_types(module: str, **values: type[Struct]) -> Mapping[str, WireType]:
    """Payloads by message type; the protobuf message of `Vote` is `VotePayload`."""
    return {name: WireType(f"{module}.{name}Payload", value) for name, value in values.items()}


@lru_cache(maxsize=1)  # a message that was judged is read again when it is recorded
def read(wire: WireType, data: bytes) -> Struct:
    """The value of a payload. Raises `INVALID_ENVELOPE` if the bytes are not such a message."""
    message = _message(wire)()
    try:
        message.ParseFromString(data)
    except Exception as error:  # protobuf's DecodeError, whose module need not be loaded here
        name = wire.message.rpartition(".")[2]
        raise invalid(f"the payload is not a {name}: {error}") from error
    return _value(message, wire.value)


def write(wire: WireType, fields: dict[str, Any]) -> bytes:
    """The bytes of a payload with these fields."""
    return bytes(_message(wire)(**fields).SerializeToString(deterministic=True))


def has_unknown_fields(wire: WireType, data: bytes) -> bool:
    """Whether the bytes hold fields that this version of the protocol does not know."""
    unknown: Any = import_module("google.protobuf.unknown_fields").UnknownFieldSet
    message = _message(wire)()
    message.ParseFromString(data)
    nested = getattr(message, "supersedes", None)
    return len(unknown(message)) > 0 or (nested is not None and len(unknown(nested)) > 0)


def _message(wire: WireType) -> Any:
    found = _messages.get(wire.message)
    if found is None:
        module, _, name = wire.message.rpartition(".")
        found = _messages[wire.message] = getattr(import_module(module), name)
    return found


def _value(message: Any, value: type[T]) -> T:
    plain = _plain_fields(value)
    if plain is not None:
        return value(*plain(message))
    return value(**{name: _field(message, name) for name in value.__struct_fields__})


@cache
def _plain_fields(value: type[Struct]) -> Callable[[Any], tuple[Any, ...]] | None:
    """Reads all fields at once; None for a value with fields that have to be converted."""
    names = value.__struct_fields__
    return attrgetter(*names) if len(names) > 1 and _CONVERTED.isdisjoint(names) else None


def _field(message: Any, name: str) -> Any:
    found = getattr(message, name)
    match name:
        case "supersedes":
            return _value(found, Reference) if message.HasField(name) else None
        case "roots":
            return tuple(_value(root, Root) for root in found)
        case "participants" | "tags":
            return tuple(found)
        case "extensions":
            return dict(found)
        case _:
            return found
