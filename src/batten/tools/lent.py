"""What a client may lend a session in place of the disk and the keeper: its files, its terminals.

The tools ask through these Protocols and record what came of it as they always do.
"""

from collections.abc import AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Protocol, Self

from msgspec import Struct

from batten.workspace import files, patches
from batten.workspace.commands import Exit, Launch, Stream
from batten.workspace.patches import PatchBody
from batten.workspace.root import ResolvedPath, Root


class Documents(Protocol):
    """Files as a client holds them, saved or not."""

    async def text(self, place: ResolvedPath) -> bytes | None:
        """What the client has of a file; None if what is on the disk counts."""
        ...

    async def apply(self, root: Root, bodies: Sequence[PatchBody]) -> None:
        """Make these changes, all of them or none; `BaseChanged` if a file is not as expected.

        A cancel that comes while they are made is heard after what came of them is known.
        """
        ...


class RunningCommand(Protocol):
    """A command that was started; leaving it ends it."""

    @property
    def launch(self) -> Launch: ...

    @property
    def killed(self) -> tuple[str, ...]: ...

    def output(self) -> AsyncIterator[tuple[Stream, bytes]]: ...

    async def wait(self) -> Exit: ...

    async def terminate(self, grace_s: float = 1.0) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Terminals(Protocol):
    """Where commands run and are seen by the client's user."""

    async def spawn(self, command: str) -> RunningCommand: ...


class Lent(Struct, frozen=True):
    """What this client lends."""

    documents: Documents | None = None
    terminals: Terminals | None = None


async def held(lent: Documents | None, places: Iterable[ResolvedPath]) -> dict[str, files.Content]:
    """Those of the files that the client holds, by their paths."""
    contents: dict[str, files.Content] = {}
    for place in places if lent is not None else ():
        assert lent is not None
        text = None if place.path in contents else await lent.text(place)
        if text is not None:
            contents[place.path] = files.Content(text, files.mode_of(place))
    return contents


async def change(lent: Documents | None, root: Root, bodies: Sequence[PatchBody]) -> None:
    """Make these changes where the files are. On the disk nothing is awaited."""
    if lent is None:
        patches.apply(root, bodies)
    else:
        await lent.apply(root, bodies)
