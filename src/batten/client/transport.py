"""The seam below a worker: bytes in both directions, and its end.

A `Launch` gives a transport: `batten.client.process` for a process, `batten.embedded` for a worker
in this process.
"""

from asyncio import StreamReader, StreamWriter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct

from batten.client.errors import WorkerDied
from batten.protocols.tail import Tail

PIECE = 1 << 16
MOST_COMPLAINTS = 8192
"""Characters kept of what a worker writes to standard error."""


class Start(Struct, frozen=True, kw_only=True):
    """What a worker is started with."""

    model: str = ""
    workspace: str = ""
    """An absolute path."""
    resume: str = ""
    """The session to resume, by its id or that of one of its runs."""
    flags: tuple[str, ...] = ()
    """Further flags of `batten headless`."""
    environ: dict[str, str]
    """The whole environment."""
    command: tuple[str, ...] = ()
    """The program to start instead of this interpreter's Batten."""

    @property
    def argv(self) -> list[str]:
        """All of it as flags of `batten headless`."""
        named = {"--model": self.model, "--workspace": self.workspace, "--resume": self.resume}
        return [word for pair in named.items() if pair[1] for word in pair] + [*self.flags]


class Transport(Protocol):
    """One worker's streams."""

    async def read(self) -> bytes:
        """Some output; empty at its end."""
        ...

    async def write(self, data: bytes) -> None:
        """Write, waiting while the worker is slow. Raises `WorkerDied` if it is gone."""
        ...

    def hang_up(self) -> None:
        """Close the worker's input."""
        ...

    async def ended(self) -> int:
        """Wait until it has ended; its exit code."""
        ...

    @property
    def complaints(self) -> str:
        """The end of its standard error."""
        ...


Launch = Callable[[Start], AbstractAsyncContextManager[Transport]]
"""Starts a worker. When the context is left, the worker has ended."""


class Streams:
    """The part of a transport that is the same for every pair of streams."""

    def __init__(self, reader: StreamReader, writer: StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.said = Tail(MOST_COMPLAINTS)

    async def read(self) -> bytes:
        return await self._reader.read(PIECE)

    async def write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except (OSError, RuntimeError) as error:
            raise WorkerDied(f"the worker listens no more: {error}") from error

    async def skip_rest(self) -> None:
        """Unread output would keep the worker from exiting."""
        while await self.read():
            pass

    @property
    def complaints(self) -> str:
        return self.said.text()
