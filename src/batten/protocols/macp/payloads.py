"""Payloads of messages as JSON: protobuf by a table of message types, else JSON, else text.

The generated modules have no types; `Any` stays in this file.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import msgspec
from msgspec import UNSET, Struct

from batten.contract.depth import is_too_deep
from batten.contract.errors import NotReady

_CORE = "macp.v1.core_pb2"
_MODES: dict[str, tuple[str, tuple[str, ...]]] = {
    "macp.mode.decision.v1": ("decision", ("Proposal", "Evaluation", "Objection", "Vote")),
    "macp.mode.proposal.v1": (
        "proposal",
        ("Proposal", "CounterProposal", "Accept", "Reject", "Withdraw"),
    ),
    "macp.mode.task.v1": (
        "task",
        ("TaskRequest", "TaskAccept", "TaskReject", "TaskUpdate", "TaskComplete", "TaskFail"),
    ),
    "macp.mode.handoff.v1": (
        "handoff",
        ("HandoffOffer", "HandoffContext", "HandoffAccept", "HandoffDecline"),
    ),
    "macp.mode.quorum.v1": ("quorum", ("ApprovalRequest", "Approve", "Reject", "Abstain")),
    "ext.multi_round.v1": ("multi_round", ("Contribute",)),
}
_BOTH = frozenset({"Contribute"})
"""Types that older runtimes send as JSON."""
_KEPT_FALSE: dict[str, tuple[str, ...]] = {
    "Commitment": ("outcome_positive",),
    "Evaluation": ("confidence",),
    "TaskUpdate": ("progress",),
    "Progress": ("progress",),
}
"""Fields whose default says something: a negative commitment, a confidence of nothing."""

_ALSO_PLAIN: dict[str, tuple[str, ...]] = {"Commitment": ("outcome_positive",)}
"""Fields that the control plane's contract spells as protobuf does; they are there twice."""

_modules = {
    (mode, name): f"macp.modes.{module}.v1.{module}_pb2.{name}Payload"
    for mode, (module, names) in _MODES.items()
    for name in names
}
_core = {
    name: f"{_CORE}.{name}Payload"
    for name in ("SessionStart", "SessionCancel", "Commitment", "Signal", "Progress")
}
_messages: dict[str, Any] = {}
_BYTES = 12
"""The type of a field of bytes, as protobuf numbers it."""


class Decoded(Struct, frozen=True):
    """A payload for people and programs."""

    value: Any
    """None for an empty payload."""
    type_name: str = ""
    """The protobuf message it was read as."""


def decode_payload(mode: str, message_type: str, payload: bytes) -> Decoded:
    place = _modules.get((mode, message_type)) or _core.get(message_type)
    if place is None or (message_type in _BOTH and payload[:1] in (b"{", b"[", b'"')):
        return Decoded(_unknown(payload))
    message = _message(place)()
    try:
        message.ParseFromString(payload)
    except Exception:  # protobuf's DecodeError, whose module need not be loaded here
        return Decoded(_unknown(payload))
    return Decoded(_plain(message, message_type), message.DESCRIPTOR.full_name)


def decode_body(
    mode: str, message_type: str, body: Mapping[str, Any], *, has_texts: bool
) -> Decoded:
    """A payload of which only the readable form may be shown, or is at hand.

    `has_texts`: its fields of bytes are texts, and are shown in base64 like those of a payload.
    """
    place = _modules.get((mode, message_type)) or _core.get(message_type)
    name = "" if place is None else place.replace(f".{place.split('.')[-2]}.", ".")
    fields = _byte_fields(place) if has_texts and place is not None else frozenset[str]()
    shown = {
        camel(key): b64encode(value.encode()).decode()
        if key in fields and isinstance(value, str)
        else value
        for key, value in body.items()
    }
    shown |= {key: body[key] for key in _ALSO_PLAIN.get(message_type, ()) if key in body}
    return Decoded(shown, name)


def _byte_fields(place: str) -> frozenset[str]:
    return frozenset(one.name for one in _message(place).DESCRIPTOR.fields if one.type == _BYTES)


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def text_of(value: Any) -> str | None:
    """The text in a field of bytes; None if it is not text."""
    if not isinstance(value, str):
        return None
    try:
        return b64decode(value, validate=True).decode()
    except ValueError:
        return None


def _message(place: str) -> Any:
    found = _messages.get(place)
    if found is None:
        module, _, name = place.rpartition(".")
        try:
            found = _messages[place] = getattr(import_module(module), name)
        except ImportError as error:
            raise NotReady(
                "sessions of the runtime need more packages: install batten[runtime]",
                code="RUNTIME_UNAVAILABLE",
            ) from error
    return found


def _plain(message: Any, message_type: str) -> dict[str, Any]:
    to_dict: Any = import_module("google.protobuf.json_format").MessageToDict
    value: dict[str, Any] = to_dict(message, unquote_int64_if_possible=True)
    for name in _KEPT_FALSE.get(message_type, ()):
        value.setdefault(camel(name), getattr(message, name))
    for name in _ALSO_PLAIN.get(message_type, ()):
        value[name] = getattr(message, name)
    return value


def _unknown(payload: bytes) -> Any:
    if not payload:
        return None
    if (value := read_json(payload)) is not UNSET:
        return {"json": value, "encoding": "json"}
    encoded = b64encode(payload).decode()
    text = payload.decode("utf-8", "replace")
    return {"text": text, "encoding": "text", "payloadBase64": encoded}


def read_json(text: bytes | str) -> Any:
    """The value of a JSON text; UNSET if it is none, or nests too deep to walk."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNSET
    return UNSET if is_too_deep(value) else value
