"""Decodes server-sent events and newline-delimited JSON from chunks of any size.

Pure: buffers bytes, does no I/O. Keeps only an event's `data`, which repeats the event's name.
"""

from typing import Protocol

from batten.contract.errors import PeerError

MAX_PAYLOAD = 16 * 1024 * 1024
"""Limit of a line or event. An encrypted reasoning item can be hundreds of kilobytes."""


class Decoder(Protocol):
    def receive(self, chunk: bytes) -> list[bytes]:
        """The payloads that this chunk completes. Raises PeerError if one is too long."""
        ...

    def finish(self) -> list[bytes]:
        """The last payload, if the stream ended without a terminator."""
        ...


class _Lines:
    """Lines ended by LF, CR LF or CR; linear time, also if a line comes in many pieces."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._size = 0
        self._after_cr = False

    def receive(self, chunk: bytes) -> list[bytes]:
        if self._after_cr and chunk:
            # The CR already ended the line: this LF is its other half.
            self._after_cr = False
            if chunk[0] == 10:
                chunk = chunk[1:]
        lines = chunk.splitlines(keepends=True)
        if not lines:
            return lines
        rest = b""
        if lines[-1][-1] not in (10, 13):
            rest = lines.pop()
        elif lines[-1][-1] == 13:
            self._after_cr = True
        if lines and self._pieces:
            lines[0] = b"".join((*self._pieces, lines[0]))
            self._pieces.clear()
            self._size = 0
        if rest:
            self._pieces.append(rest)
            self._size += len(rest)
        if self._size > self._limit or (lines and max(map(len, lines)) > self._limit):
            raise PeerError(f"a line is longer than {self._limit} bytes")
        return lines

    def finish(self) -> list[bytes]:
        rest = b"".join(self._pieces)
        self._pieces.clear()
        return [rest] if rest else []


class SseDecoder:
    """`text/event-stream`: the data of each event."""

    def __init__(self, limit: int = MAX_PAYLOAD) -> None:
        self._limit = limit
        self._lines = _Lines(limit)
        self._data: list[bytes] = []
        self._size = 0
        self._first = True

    def receive(self, chunk: bytes) -> list[bytes]:
        return self._read(self._lines.receive(chunk))

    def finish(self) -> list[bytes]:
        # The last event may lack its blank line; if it was cut short, it is not valid JSON.
        return self._read([*self._lines.finish(), b"\n"])

    def _read(self, lines: list[bytes]) -> list[bytes]:
        events: list[bytes] = []
        for raw in lines:
            line = raw.rstrip(b"\r\n")
            if self._first:
                self._first = False
                line = line.removeprefix(b"\xef\xbb\xbf")
            if not line:
                if self._data:
                    events.append(b"\n".join(self._data) if self._data[1:] else self._data[0])
                    self._data = []
                    self._size = 0
            elif line.startswith(b"data:"):
                data = line[6:] if line[5:6] == b" " else line[5:]
                self._data.append(data)
                self._size += len(data) + 1
                if self._size > self._limit:
                    raise PeerError(f"an event is longer than {self._limit} bytes")
        return events


class NdjsonDecoder:
    """One JSON value per line; skips blank lines."""

    def __init__(self, limit: int = MAX_PAYLOAD) -> None:
        self._lines = _Lines(limit)

    def receive(self, chunk: bytes) -> list[bytes]:
        return [line for raw in self._lines.receive(chunk) if (line := raw.strip())]

    def finish(self) -> list[bytes]:
        return [line for raw in self._lines.finish() if (line := raw.strip())]
