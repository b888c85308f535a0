"""The queued prompts of a live session: in order and bounded."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from sys import getsizeof

from msgspec import Struct

from batten.contract.commands import GoOn, Prompt

Ready = Callable[[], Awaitable[object]]


class Bounds(Struct, frozen=True):
    """Limits of the queue; a client that sends more is not read until there is room."""

    prompts: int = 256
    size: int = 10 * 1024 * 1024
    """Bytes in memory. One prompt may exceed it."""


class Waiting(Struct, frozen=True):
    """A queued prompt."""

    command: Prompt | GoOn
    ready: Ready | None = None
    """Awaited before the run is created."""


class PromptQueue:
    """A queue with one reader. After `close` the reader still gets the queued prompts."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._items: deque[Waiting] = deque()
        self._size = 0
        self._turn = asyncio.Lock()
        """Keeps the order of writers that wait for room."""
        self._room = asyncio.Event()
        self._changed = asyncio.Event()
        self.closed = False

    def __len__(self) -> int:
        return len(self._items)

    async def put(self, waiting: Waiting) -> bool:
        """Add a prompt once there is room; False if the queue was closed before that."""
        async with self._turn:
            while not self.closed and self._is_full:
                self._room.clear()
                await self._room.wait()
            if self.closed:
                return False
            self._items.append(waiting)
            self._size += _size(waiting.command)
            self._changed.set()
            return True

    async def get(self) -> Waiting | None:
        """The next prompt; None once the queue is closed and empty."""
        while not self._items:
            if self.closed:
                return None
            self._changed.clear()
            await self._changed.wait()
        waiting = self._items.popleft()
        self._size -= _size(waiting.command)
        self._room.set()
        return waiting

    def close(self) -> None:
        self.closed = True
        self._changed.set()
        self._room.set()

    def drop(self) -> bool:
        """Remove the queued prompts. Whether there were any."""
        dropped = bool(self._items)
        self._items.clear()
        self._size = 0
        return dropped

    @property
    def _is_full(self) -> bool:
        return len(self._items) >= self._bounds.prompts or self._size > self._bounds.size


def _size(command: Prompt | GoOn) -> int:
    if not isinstance(command, Prompt):
        return 0
    # `getsizeof`, not the length: one wide character makes the whole text wide.
    images = sum(len(image.data) for image in command.images)
    return getsizeof(command.text) + images + sum(len(file.data) for file in command.files)
