"""Reads server-sent events. Buffers bytes; does no I/O."""

from msgspec import Struct

from batten.contract.errors import PeerError

SILENT_S = 45.0
"""How long an answer may take; a stream without a byte for so long is opened again. The service
sends a comment every 15 s."""
_LONGEST = 64 << 20


class Frame(Struct, frozen=True, gc=False):
    """One event of a stream."""

    cursor: int
    """Its `id`."""
    data: bytes


class FrameReader:
    """Turns the pieces of a stream into frames, however they are cut."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[Frame]:
        """The frames that are whole now. Raises `PeerError` for what is no stream of events."""
        self._rest += piece
        *whole, self._rest = self._rest.split(b"\n\n")
        if len(self._rest) > _LONGEST:
            raise PeerError(f"the service sends an event of more than {_LONGEST} bytes")
        return [frame for text in whole if (frame := _frame(text)) is not None]


def _frame(text: bytes) -> Frame | None:
    """One event; None for a comment. An event named `error` is raised."""
    fields: dict[bytes, bytes] = {}
    for line in text.split(b"\n"):
        name, _, value = line.partition(b":")
        if name:  # not a comment
            fields[name] = value.removeprefix(b" ")
    data = fields.get(b"data")
    if data is None:
        return None
    if fields.get(b"event") == b"error":
        raise PeerError(f"the service ends the stream: {data[:500].decode(errors='replace')}")
    cursor = fields.get(b"id", b"")
    if not cursor.isdigit() or len(cursor) > 18:
        raise PeerError(f"the service sends an event with the id {cursor[:40]!r}")
    return Frame(int(cursor), data)
