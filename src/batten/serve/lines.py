"""Lines from a descriptor, read beside the event loop: bounded, whole, at the consumer's pace.

A thread does the reading, so that the descriptor, which others may share, is left as it is.
"""

import asyncio
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
"""Bytes of lines that nobody has taken yet, and one line or piece more."""
_MOST_AT_ONCE = 256
"""Lines given one after the other before the event loop gets to do something else."""


class TooLong(Struct, frozen=True):
    """A line that is not kept, in the place where it stands: said as soon as it is too long, which
    may be before it ends. Its rest is skipped.
    """

    head: bytes = b""
    """How it begins: enough to tell who waits for an answer to it."""


class ReadFailed(Struct, frozen=True):
    """Nothing more can be read."""

    reason: str


Line = bytes | TooLong | ReadFailed


class LineTooLong(PeerError):
    """A line has more bytes than the protocol takes."""

    def __init__(self, number: int, longest: int) -> None:
        super().__init__(f"line {number} of standard input has more than {longest} bytes")


class Lines:
    """What a client writes, one line after the other; without the line ends."""

    def __init__(self, descriptor: int, *, longest: int, owned: bool = False) -> None:
        """A descriptor that is `owned` is closed when nothing more is read from it."""
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
        """The lines that are not blank, with their numbers, for a protocol that ends at the first
        one it cannot read. Raises `LineTooLong`, or `PeerError` when reading fails.
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
            # Looked at again: the thread adds a line before it says so.
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
        """Queue lines once there is room: whoever writes faster than we work waits.

        What came together is given together: what the first line asks for is not done before it
        is seen that the second one calls it off.
        """
        if not lines:
            return
        with self._room:
            self._room.wait_for(lambda: self._waiting <= self._most or self._abandoned)
            self._waiting += sum(map(_size, lines))
        self._lines.extend(lines)
        if self._arrived.is_set():
            return  # and not cleared before this line is looked for
        try:
            self._loop.call_soon_threadsafe(self._arrived.set)
        except RuntimeError:
            return  # the loop is closed: nobody reads any more


def _size(line: Line | None) -> int:
    """What a line takes here; an empty one too takes its place."""
    return _PLACE + (len(line) if isinstance(line, bytes) else 0)
