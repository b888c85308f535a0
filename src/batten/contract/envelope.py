"""The envelope: a fact with its place and time, as stored and sent.

Only the journal builds and encodes envelopes; all other code passes the stored bytes on.
"""

import time
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from batten.contract.errors import PeerError
from batten.contract.facts import FACTS, Fact, Unknown

SCHEMA_VERSION = "1"
MAX_ENVELOPE_BYTES = 256 * 1024
"""Fields that would make an envelope larger become artifact references."""


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
    """An envelope with its payload not yet decoded."""

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
    return on_one_line(_encoder.encode(envelope))


def on_one_line(json: bytes) -> bytes:
    """JSON that is one line for every reader of lines.

    Many split text at these three characters too, `str.splitlines` among them. JSON has them only
    in strings, where an escape means the same.
    """
    if json.isascii():
        return json
    for character, escaped in _LINE_ENDS:
        if character in json:
            json = json.replace(character, escaped)
    return json


_LINE_ENDS = (
    ("\x85".encode(), rb"\u0085"),
    ("\u2028".encode(), rb"\u2028"),
    ("\u2029".encode(), rb"\u2029"),
)


def payload(fact: Fact) -> object:
    """The value of `data`; an unknown fact passes its payload through unchanged."""
    return fact.data if isinstance(fact, Unknown) else fact


def decode(body: bytes) -> Envelope:
    """Decode one envelope; `data` becomes a typed fact, or `Unknown` for an unknown type.

    A known type with a payload that does not fit is also `Unknown`: stored events are data, and a
    newer writer's field must not stop an older reader.
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


class _Time(Struct):
    occurred_at: str


_times = msgspec.json.Decoder(_Time)


def time_of(body: bytes) -> str:
    """When the event of an envelope happened; nothing else of it is decoded."""
    return _times.decode(body).occurred_at


def decode_fact(body: bytes) -> Fact:
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
    """An instant as RFC 3339 in UTC with milliseconds; the default is now."""
    nanoseconds = time.time_ns() if nanoseconds is None else nanoseconds
    seconds, rest = divmod(nanoseconds, 1_000_000_000)
    parts = time.gmtime(seconds)
    return "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ" % (*parts[:6], rest // 1_000_000)


def milliseconds_since(instant: str) -> int:
    """Milliseconds from an envelope's time until now by the clock, never less than 0."""
    from datetime import datetime

    began = datetime.fromisoformat(instant).timestamp()
    return max(0, round((time.time() - began) * 1000))
