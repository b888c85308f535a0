"""Lines between a hosted runner and the process of its session.

The runner holds the connections, the state and the cursors; the process holds the session. Each
side writes whole JSON lines in order, so what the process says before it answers a request is
published before that request is done.
"""

from typing import Any, Union

import msgspec
from msgspec import Raw, Struct

from batten.contract.errors import (
    BattenError,
    CallerError,
    Conflict,
    HandoverFailed,
    JournalError,
    NotFound,
    NotReady,
    Refused,
)
from batten.protocols.maestro import outgoing
from batten.protocols.maestro.incoming import Init
from batten.protocols.maestro.outgoing import Message
from batten.protocols.maestro.vocabulary import RequestType


class Open(Struct, frozen=True, kw_only=True, tag_field="kind", tag="open"):
    """The first line: which session to open, and how."""

    session_id: str
    """In the journal."""
    name: str
    """The id that clients use."""
    exists: bool
    """Whether to resume it."""
    again: bool = False
    """Whether this runner had it open before: what its clients set since holds, not the flags."""
    model: str = ""
    init: Init = Init()
    """Settings that its creator asked for."""


class Audience(Struct, frozen=True, kw_only=True, tag_field="kind", tag="audience"):
    """What the connections of the runner take from now on."""

    serves: tuple[RequestType, ...] = ()
    wants_raw: bool = False
    wants_endings: bool = False


class Take(Struct, frozen=True, kw_only=True, tag_field="kind", tag="take"):
    """Carry out a client's message."""

    number: int
    sender: str
    message: Any


class Leave(Struct, frozen=True, kw_only=True, tag_field="kind", tag="leave"):
    """A connection was closed."""

    number: int
    connection_id: str


class End(Struct, frozen=True, kw_only=True, tag_field="kind", tag="end"):
    """End all work and leave."""

    reason: str


Order = Open | Audience | Take | Leave | End
"""From the runner to the process."""


class Fault(Struct, frozen=True, kw_only=True):
    """An error, as the runner raises it again."""

    error: str
    code: str
    message: str


class Opened(Struct, frozen=True, kw_only=True, tag_field="kind", tag="opened"):
    """The session is open; its first messages."""

    ready: outgoing.Ready
    session_info: outgoing.SessionInfo


class Said(Struct, frozen=True, kw_only=True, tag_field="kind", tag="said"):
    """A message for the clients."""

    message: Raw


class Prompted(Struct, frozen=True, kw_only=True, tag_field="kind", tag="prompted"):
    """A prompt was accepted; messages about it follow."""

    message: Any


class Done(Struct, frozen=True, kw_only=True, tag_field="kind", tag="done"):
    """A numbered order was carried out, or refused."""

    number: int
    fault: Fault | None = None


class Over(Struct, frozen=True, kw_only=True, tag_field="kind", tag="over"):
    """The last line: all is stored, or why not."""

    fault: Fault | None = None


Report = Opened | Said | Prompted | Done | Over
"""From the process to the runner."""

_ERRORS: dict[str, type[BattenError]] = {
    kind.__name__: kind
    for kind in (CallerError, Conflict, HandoverFailed, JournalError, NotFound, NotReady, Refused)
}

_encode = msgspec.json.Encoder().encode
_report = msgspec.json.Decoder[Any](Report)
_message = msgspec.json.Decoder[Any](Union[tuple(Message.__subclasses__())])  # noqa: UP007


def line(value: Order | Report) -> bytes:
    return _encode(value) + b"\n"


def said(message: Message) -> bytes:
    """A message for the clients as a line."""
    return b'{"kind":"said","message":%b}\n' % outgoing.encode(message)[:-1]


def order(value: dict[str, Any]) -> Order:
    found: Order = msgspec.convert(value, Order)
    return found


def report(text: bytes) -> Report:
    found: Report = _report.decode(text)
    return found


def message_of(report: Said) -> Message:
    found: Message = _message.decode(report.message)
    return found


def fault_of(error: BaseException) -> Fault:
    """An error as a line; one of an unknown class as that of its nearest known one."""
    if not isinstance(error, BattenError):
        return Fault(
            error="NotReady", code="runtime_failed", message=f"{type(error).__name__}: {error}"
        )
    known = (kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _ERRORS)
    return Fault(error=next(known, "NotReady"), code=error.code, message=str(error))


def error_of(fault: Fault) -> BattenError:
    return _ERRORS.get(fault.error, NotReady)(fault.message, code=fault.code)
