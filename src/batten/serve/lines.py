"""Reads whole lines from a descriptor, with bounded buffers, at the consumer's pace.

A thread does the reading: other processes may share the descriptor, so it stays in blocking mode.
"""

import asyncio
import errno
import os
import threading
from collections import deque
from collections.abc import AsyncIterator

from msgspec import Struct

from batten.contract.errors import PeerError

_PIECE = 1 << 16
_PLACE = 64
_HEAD = 512
_MOST_WAITING = 4 << 20
"""Bytes of unread lines after which the thread stops reading; one line or piece may exceed it."""
_MOST_AT_ONCE = 256
"""Lines yielded before the event loop gets a turn."""


class TooLong(Struct, frozen=True):
    """Stands in for a line over the limit. Yielded before the line ends; its rest is skipped."""

    head: bytes = b""
    """The start of the line: enough to find the id of the request to answer."""


class ReadFailed(Struct, frozen=True):
    """Nothing more can be read."""

    reason: str


Line = bytes | TooLong | ReadFailed


class LineTooLong(PeerError):
    """A line has more bytes than the protocol allows."""

    def __init__(self, number: int, longest: int) -> None:
        super().__init__(f"line {number} of standard input has more than {longest} bytes")


class Lines:
    """Iterates over the lines of a descriptor, without their line feeds."""

    def __init__(self, descriptor: int, *, longest: int, owned: bool = False) -> None:
        """An `owned` descriptor is closed after the last read."""
        self._descriptor = descriptor
        self._owned = owned
        self._longest = longest
        self._most = min(longest, _MOST_WAITING)
        self._lines: deque[Line | None] = deque()
        self._waiting = 0
        self._room = threading.Condition()
        self._arrived = asyncio.Event()
        self._abandoned = False
        self._loop = asyncio.get_running_loop()
        self._thread: threading.Thread | None = None

    async def __aiter__(self) -> AsyncIterator[Line]:
        if self._thread is None:
            self._thread = threading.Thread(target=self._read, name="lines", daemon=True)
            self._thread.start()
        given = 0
        try:
            while (line := await self._next()) is not None:
                yield line
                given += 1
                if given % _MOST_AT_ONCE == 0:
                    await asyncio.sleep(0)
        finally:
            with self._room:
                self._abandoned = True
                self._room.notify()

    async def strict(self) -> AsyncIterator[tuple[int, bytes]]:
        """Numbered lines, without blank ones, for a protocol that stops at the first bad line.

        Raises `LineTooLong`, or `PeerError` when reading fails.
        """
        number = 0
        async for line in self:
            number += 1
            match line:
                case TooLong():
                    raise LineTooLong(number, self._longest)
                case ReadFailed():
                    raise PeerError(f"standard input cannot be read: {line.reason}")
                case _ if line.strip():
                    yield number, line
                case _:
                    pass

    async def _next(self) -> Line | None:
        while not self._lines:
            self._arrived.clear()
            # Checked again: the thread adds a line before it sets the event.
            if not self._lines:
                await self._arrived.wait()
        line = self._lines.popleft()
        with self._room:
            self._waiting -= _size(line)
            self._room.notify()
        return line

    def _read(self) -> None:
        held = bytearray()
        skips = False
        while not self._abandoned:
            try:
                piece = os.read(self._descriptor, _PIECE)
            except OSError as error:
                if error.errno != errno.EBADF:  # closed from the start, it is empty
                    self._put([ReadFailed(error.strerror or "it cannot be read")])
                piece = b""
            if not piece:
                break
            *ended, rest = piece.split(b"\n")
            lines: list[Line | None] = []
            for part in ended:
                if not skips:
                    lines.append(self._line(held, part))
                held, skips = bytearray(), False
            if not skips and len(held) + len(rest) > self._longest:
                lines.append(self._too_long(held, rest))
                held, skips = bytearray(), True
            elif not skips:
                held += rest
            self._put(lines)
        if held:
            self._put([bytes(held)])
        if self._owned:
            os.close(self._descriptor)
        self._put([None])

    def _line(self, held: bytearray, end: bytes) -> Line:
        held += end
        return self._too_long(held) if len(held) > self._longest else bytes(held)

    def _too_long(self, held: bytearray, rest: bytes = b"") -> TooLong:
        known = min(_HEAD, self._longest)
        return TooLong(bytes(held[:known] + rest[:known])[:known])

    def _put(self, lines: list[Line | None]) -> None:
        """Queue lines once there is room; a client that writes faster than we read has to wait.

        Lines read together are queued together, so a cancel in the same chunk is seen before the
        request it cancels is carried out.
        """
        if not lines:
            return
        with self._room:
            self._room.wait_for(lambda: self._waiting <= self._most or self._abandoned)
            self._waiting += sum(map(_size, lines))
        self._lines.extend(lines)
        if self._arrived.is_set():
            return  # the reader checks the queue again after it clears the event
        try:
            self._loop.call_soon_threadsafe(self._arrived.set)
        except RuntimeError:
            return  # the loop is closed


def _size(line: Line | None) -> int:
    """Bytes counted for a line; an empty line counts for its overhead."""
    return _PLACE + (len(line) if isinstance(line, bytes) else 0)
