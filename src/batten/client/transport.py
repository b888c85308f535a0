"""The seam below a worker: bytes in both directions, and its end.

A `Launch` gives a transport: `batten.client.process` for a process, `batten.embedded` for a worker
in this process.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from msgspec import Struct


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


class Tail:
    """The last characters of a growing text."""

    def __init__(self, longest: int = 8192) -> None:
        self._longest = longest
        self._text = ""

    def add(self, text: str) -> None:
        self._text = (self._text + text)[-self._longest :]

    def __str__(self) -> str:
        return self._text
