"""Files and terminals that a client lends a session in place of the disk and the keeper.

Tools use these Protocols and record the results like any others.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Protocol, Self

from msgspec import Struct

from batten.workspace import files, patches
from batten.workspace.commands import Exit, Launch, Stream
from batten.workspace.patches import PatchBody
from batten.workspace.root import ResolvedPath, Root


class Documents(Protocol):
    """Files as the client holds them, saved or not."""

    async def text(self, place: ResolvedPath) -> bytes | None:
        """The client's text of a file; None if the version on disk counts."""
        ...

    async def apply(self, root: Root, bodies: Sequence[PatchBody]) -> None:
        """Make all these changes or none; `BaseChanged` if a file differs from its base.

        Cancellation during the change takes effect once its result is known.
        """
        ...


class RunningCommand(Protocol):
    """A started command; leaving the block ends it."""

    @property
    def launch(self) -> Launch: ...

    @property
    def killed(self) -> tuple[str, ...]: ...

    @property
    def cut(self) -> bool:
        """Whether `output` lacked the beginning."""
        ...

    def output(self) -> AsyncIterator[tuple[Stream, bytes]]: ...

    async def wait(self) -> Exit: ...

    async def terminate(self, grace_s: float = 1.0) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *raised: object) -> None: ...


class Terminals(Protocol):
    """Runs commands in terminals that the client's user can see."""

    async def spawn(self, command: str) -> RunningCommand: ...


class Lent(Struct, frozen=True):
    documents: Documents | None = None
    terminals: Terminals | None = None


async def held(lent: Documents | None, places: Iterable[ResolvedPath]) -> dict[str, files.Content]:
    """The files that the client holds, by path."""
    contents: dict[str, files.Content] = {}
    for place in places if lent is not None else ():
        assert lent is not None
        text = None if place.path in contents else await lent.text(place)
        if text is not None:
            contents[place.path] = files.Content(text, files.mode_of(place))
    return contents


async def change(lent: Documents | None, root: Root, bodies: Sequence[PatchBody]) -> None:
    """Apply these changes on the disk, without awaiting, or through the client."""
    if lent is None:
        patches.apply(root, bodies)
    else:
        await lent.apply(root, bodies)
