"""The input of a command: written in order, and bounded while the command does not read."""

import asyncio

from batten.contract.errors import Conflict
from batten.workspace.commands import Command

MOST_WAITING = 1 << 20
"""Bytes queued to be read; one text may exceed it."""
_STALLED_S = 5.0
"""How long a command may read nothing before more input is refused."""
_PIECE = 1 << 16
_PLACE = 256


class Feed:
    """The input of one command.

    A writer that is faster than the command waits; if the command reads nothing at all, the writer
    gets an error instead of waiting forever.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._waiting = 0
        self._turn = asyncio.Lock()
        self._moved = asyncio.Event()
        self._is_stalled = False

    async def room_for(self, data: bytes) -> None:
        """Wait for room for `data`, which must then be written. `Conflict` if nothing is read."""
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
        """Write data with reserved room; returns when the command or its pipe has taken it.

        Raises `Conflict` if the input is closed, by an earlier `eof` or by the command.
        """
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
        except Conflict as error:
            raise Conflict(
                f"Utility command stdin is not writable: {self._name}: it is closed",
                code=error.code,
            ) from error
        finally:
            self._taken(len(rest) + _PLACE)

    def _taken(self, size: int) -> None:
        self._waiting -= size
        self._is_stalled = False
        self._moved.set()
