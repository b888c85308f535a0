"""The envelope of a MACP message, and the checks of its shape."""

from typing import Any

from msgspec import Struct

from batten.coordination.payloads import PROGRESS, SIGNAL, Signal, read
from batten.coordination.rejection import Rejection, invalid

VERSION = "1.0"
MAX_PAYLOAD_BYTES = 1_048_576
_LONGEST_NAME = 512
RUNTIME = "macp-runtime"
"""The agent id of the runtime, and the sender of what it says itself."""
AMBIENT = frozenset({"Signal", "Progress"})
"""Messages that enter no session's history."""


class Message(Struct, frozen=True, kw_only=True):
    """One message as it was sent. The journal keeps the accepted ones with all their bytes."""

    macp_version: str = VERSION
    mode: str = ""
    message_type: str
    message_id: str
    session_id: str = ""
    sender: str = ""
    timestamp_unix_ms: int = 0
    payload: bytes = b""
    metadata: dict[str, Any] = {}
    """What a host of this runtime says beside the payload: `llmCall`. No rule looks at it."""


def check_shape(message: Message, max_payload_bytes: int = MAX_PAYLOAD_BYTES) -> None:
    """Raise `Rejection` for an envelope that no session could accept."""
    if message.macp_version != VERSION:
        raise Rejection(
            "UNSUPPORTED_PROTOCOL_VERSION",
            f"macp_version is {message.macp_version!r}: this runtime speaks {VERSION}",
        )
    if not message.message_type or not message.message_id:
        raise invalid("message_type and message_id must not be empty")
    for name in ("message_type", "message_id", "sender", "mode"):
        if len(getattr(message, name)) > _LONGEST_NAME:
            raise invalid(f"{name} must not have more than {_LONGEST_NAME} characters")
    mode = message.mode.strip()
    match message.message_type:
        case "Signal":
            if message.session_id or mode:
                raise invalid("a Signal names neither a session nor a mode")
        case "Progress":
            if bool(message.session_id) != bool(mode):
                raise invalid("a Progress names a session and its mode, or neither")
        case _:
            if not message.session_id or not mode:
                raise invalid(f"{message.message_type} needs session_id and mode")
    if len(message.payload) > max_payload_bytes:
        raise Rejection(
            "PAYLOAD_TOO_LARGE",
            f"the payload has {len(message.payload)} bytes, at most {max_payload_bytes} are taken",
        )


def check_ambient(message: Message) -> None:
    """Raise `INVALID_ENVELOPE` unless the payload of a Signal or Progress can be read."""
    if not message.payload:
        return
    if message.message_type == "Progress":
        read(PROGRESS, message.payload)
        return
    signal = read(SIGNAL, message.payload)
    assert isinstance(signal, Signal)
    if not signal.signal_type.strip():
        raise invalid("signal_type must not be blank")


def session_of(message: Message) -> str:
    """The session that a Signal or Progress belongs to; empty for none."""
    if message.session_id or message.message_type != "Signal" or not message.payload:
        return message.session_id
    signal = read(SIGNAL, message.payload)
    assert isinstance(signal, Signal)
    return signal.correlation_session_id
