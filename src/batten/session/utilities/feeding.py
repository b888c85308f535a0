"""What is written to a command: in the order it was sent, and bounded while it is not read."""

import asyncio

from batten.contract.errors import Conflict
from batten.workspace.commands import Command

MOST_WAITING = 1 << 20
"""Bytes that wait to be read, and one text more."""
_STALLED_S = 5.0
"""How long a command may read nothing of them before it is given nothing more."""
_PIECE = 1 << 16
_PLACE = 256


class Feed:
    """The input of one command. Whoever writes faster than it reads waits; whoever writes to one
    that does not read at all is refused, so that nobody waits for ever.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._moved = asyncio.Event()
        self._is_stalled = False

    async def room_for(self, data: bytes) -> None:
        """Wait until this may be written, which then must be; `Conflict` if nothing is read."""
        while self._waiting > MOST_WAITING:
            if self._is_stalled:
                raise Conflict(
                    f"Utility command does not read its stdin: {self._name}: "
                    f"{self._waiting} bytes wait already, and this is not written",
                    code="stdin_full",
                )
            self._moved.clear()
            try:
                async with asyncio.timeout(_STALLED_S):
                    await self._moved.wait()
            except TimeoutError:
                self._is_stalled = True
        self._waiting += len(data) + _PLACE

    async def write(self, command: Command, data: bytes, *, eof: bool) -> None:
        """Write what there is room for; returns when all of it is read, or on its way."""
        rest = memoryview(data)
        try:
            async with self._turn:
                while rest:
                    piece, rest = rest[:_PIECE], rest[_PIECE:]
                    try:
                        await command.write_stdin(bytes(piece))
                    finally:
                        self._taken(len(piece))
                if eof:
                    await command.close_stdin()
        finally:
            self._taken(len(rest) + _PLACE)

    def _taken(self, size: int) -> None:
        self._waiting -= size
        self._is_stalled = False
        self._moved.set()
