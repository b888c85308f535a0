"""Reads server-sent events. Buffers bytes; does no I/O."""

import msgspec
from msgspec import Struct

from batten.contract.errors import PeerError

SILENT_S = 45.0
"""How long an answer may take; a stream without a byte for so long is opened again. The service
sends a comment every 15 s."""
_LONGEST = 64 << 20


class StreamFailed(PeerError):
    """The service ended a stream with an error; `code` is its type."""


class _Told(Struct, frozen=True):
    type: str
    message: str


class _Error(Struct, frozen=True):
    error: _Told


class Frame(Struct, frozen=True, gc=False):
    """One event of a stream."""

    cursor: int
    """Its `id`."""
    data: bytes


class FrameReader:
    """Turns the pieces of a stream into frames, however they are cut and lines are ended."""

    def __init__(self) -> None:
        self._rest = b""
        """The beginning of a line."""
        self._lines: list[bytes] = []
        """Of a frame that is not whole."""
        self._size = 0
        self.failure: StreamFailed | None = None
        """The error that the service ended the stream with, after all frames."""

    def feed(self, piece: bytes) -> list[Frame]:
        """The frames that are whole now. Raises `PeerError` for what is no stream of events."""
        *whole, self._rest = (self._rest + piece).split(b"\n")
        frames: list[Frame] = []
        for ended in whole:
            line = ended.removesuffix(b"\r")
            if line:
                self._lines.append(line)
                self._size += len(line)
                continue
            frame = _frame(self._lines)
            self._lines, self._size = [], 0
            if isinstance(frame, StreamFailed):
                self.failure = frame
                break
            if frame is not None:
                frames.append(frame)
        if self._size + len(self._rest) > _LONGEST:
            raise PeerError(f"the service sends an event of more than {_LONGEST} bytes")
        return frames


def _frame(lines: list[bytes]) -> Frame | StreamFailed | None:
    """One event; None for a comment."""
    fields: dict[bytes, bytes] = {}
    texts: list[bytes] = []
    for line in lines:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            texts.append(value)
        else:  # a comment has no name
            fields[name] = value
    if not texts:
        return None
    data = b"\n".join(texts)
    if fields.get(b"event") == b"error":
        return _failure(data)
    cursor = fields.get(b"id", b"")
    if not cursor.isdigit() or len(cursor) > 18:
        raise PeerError(f"the service sends an event with the id {cursor[:40]!r}")
    return Frame(int(cursor), data)


def _failure(data: bytes) -> StreamFailed:
    try:
        told = msgspec.json.decode(data, type=_Error).error
    except (msgspec.MsgspecError, ValueError, RecursionError):
        told = _Told(PeerError.code, data[:500].decode(errors="replace"))
    return StreamFailed(f"the service ends the stream: {told.message}", code=told.type)
