"""The envelope: a fact with its place and time, as it is stored and sent.

The journal builds and encodes envelopes; everyone else is given the stored bytes.
"""

import time
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from batten.contract.errors import PeerError
from batten.contract.facts import FACTS, Fact, Unknown

SCHEMA_VERSION = "1"
MAX_ENVELOPE_BYTES = 256 * 1024
"""No stored envelope is larger: bigger fields become artifact references."""


class Envelope(Struct, frozen=True, kw_only=True):
    """One event on the wire. The order of the fields is the order of the stored keys."""

    schema_version: str = SCHEMA_VERSION
    event_id: str
    run_id: str
    task_id: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    sequence: int
    occurred_at: str
    type: str
    data: Any


class _Outer(Struct, frozen=True, kw_only=True):
    """An envelope whose payload has not been looked at yet."""

    schema_version: str
    event_id: str
    run_id: str
    task_id: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    sequence: Annotated[int, Meta(ge=0)]
    occurred_at: str
    type: str
    data: msgspec.Raw


_encoder = msgspec.json.Encoder()
_outer = msgspec.json.Decoder(_Outer)
_payloads: dict[str, msgspec.json.Decoder[Any]] = {}


def encode(envelope: Envelope) -> bytes:
    return _encoder.encode(envelope)


def payload(fact: Fact) -> object:
    """What goes under `data`: an unknown fact passes its payload through unchanged."""
    return fact.data if isinstance(fact, Unknown) else fact


def decode(body: bytes) -> Envelope:
    """Read one envelope; `data` becomes a typed fact, or `Unknown` for a type nobody here knows.

    A known type whose payload does not fit is also `Unknown`: what is stored is data,
    and a newer writer's field must not stop an older reader.
    """
    try:
        outer = _outer.decode(body)
        fact = _fact(outer.type, outer.data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PeerError(f"not an event envelope: {error}") from error
    return Envelope(
        schema_version=outer.schema_version,
        event_id=outer.event_id,
        run_id=outer.run_id,
        task_id=outer.task_id,
        session_id=outer.session_id,
        sequence=outer.sequence,
        occurred_at=outer.occurred_at,
        type=outer.type,
        data=fact,
    )


def decode_fact(body: bytes) -> Fact:
    """Only the fact of a stored envelope."""
    fact = decode(body).data
    assert isinstance(fact, Fact)
    return fact


def _fact(type_: str, raw: msgspec.Raw) -> Fact:
    known = FACTS.get(type_)
    if known is not None:
        decoder = _payloads.get(type_)
        if decoder is None:
            decoder = _payloads[type_] = msgspec.json.Decoder(known)
        try:
            fact: Fact = decoder.decode(raw)
        except msgspec.ValidationError:
            pass
        else:
            return fact
    try:
        data = msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.ValidationError as error:
        raise PeerError(f"`data` of {type_} is not an object") from error
    return Unknown(type=type_, data=data)


def timestamp(nanoseconds: int | None = None) -> str:
    """An instant as RFC 3339 in UTC with milliseconds; now, if none is given."""
    nanoseconds = time.time_ns() if nanoseconds is None else nanoseconds
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    parts = time.gmtime(seconds)
    return "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ" % (*parts[:6], rest // 1_000_000)
