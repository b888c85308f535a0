"""The seam under a worker: bytes to it, bytes from it, and how it ends.

The same client speaks to a process (`batten.client.process`) and to a worker in this one
(`batten.embedded`): each is a `Launch`.
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
    """All of its environment."""
    command: tuple[str, ...] = ()
    """The command to start in place of this interpreter's own batten."""

    @property
    def argv(self) -> list[str]:
        """All of it as flags of `batten headless`."""
        named = {"--model": self.model, "--workspace": self.workspace, "--resume": self.resume}
        return [word for pair in named.items() if pair[1] for word in pair] + [*self.flags]


class Transport(Protocol):
    """One worker's streams."""

    async def read(self) -> bytes:
        """Some of what it writes; nothing when there is no more."""
        ...

    async def write(self, data: bytes) -> None:
        """Say something, waiting while it is slow to listen; `WorkerDied` if it never will."""
        ...

    def hang_up(self) -> None:
        """Say nothing more."""
        ...

    async def ended(self) -> int:
        """Wait for its end; its exit code."""
        ...

    @property
    def complaints(self) -> str:
        """The end of what it said to people."""
        ...


Launch = Callable[[Start], AbstractAsyncContextManager[Transport]]
"""Starts a worker. When the context is left it has ended, whatever that takes."""


class Tail:
    """The end of a text that grows."""

    def __init__(self, longest: int = 8192) -> None:
        self._longest = longest
        self._text = ""

    def add(self, text: str) -> None:
        self._text = (self._text + text)[-self._longest :]

    def __str__(self) -> str:
        return self._text
