"""Bounded buffers of unread messages, one per reader.

A slow reader slows the worker down: with too much unread, the client stops reading. The exception
is a caller that waits for an answer, since only reading can bring it, and the slow reader may be in
the same program: reading then goes on up to a second bound, at which the slow reader gets
`FellBehind`.
"""

import asyncio
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import Generic, TypeVar

from batten.client.errors import FellBehind
from batten.contract.errors import BattenError

MOST_UNREAD = 1 << 20
"""Unread bytes of one reader at which the client stops reading."""
MOST_KEPT = 64 << 20
"""Unread bytes of one reader at which it falls behind, while others wait."""
_PLACE = 256
"""Overhead of an item in bytes."""

Item = TypeVar("Item")


class Flow:
    """Decides whether the client may read more."""

    def __init__(self) -> None:
        self._full = 0
        self._waiting = 0
        self._changed = asyncio.Event()

    @property
    def is_free(self) -> bool:
        return not self._full or self._waiting > 0

    async def free(self) -> None:
        """Wait until the client may read more."""
        while not self.is_free:
            self._changed.clear()
            await self._changed.wait()

    @contextmanager
    def awaited(self) -> Generator[None, None, None]:
        """Keep reading: the caller waits for an answer."""
        self._waiting += 1
        self._changed.set()
        try:
            yield
        finally:
            self._waiting -= 1

    def fill(self, change: int) -> None:
        """Count one full reader more, or one less."""
        self._full += change
        self._changed.set()


class Mailbox(Generic[Item]):
    """Items for one reader. A `patient` one waits without keeping the client reading."""

    def __init__(self, flow: Flow, *, patient: bool = False) -> None:
        self._flow = flow
        self._patient = patient
        self._items: deque[tuple[Item, int]] = deque()
        self._size = 0
        self._counted = False
        self._closed = False
        self._error: BattenError | None = None
        self._arrived = asyncio.Event()

    def put(self, item: Item, size: int) -> None:
        if self._closed:
            return
        if self._size > MOST_KEPT:
            self._items.clear()
            self._resize(-self._size)
            kept = f"more than {MOST_KEPT} bytes wait to be read"
            self.close(FellBehind(f"{kept}; the journal has all of it"))
            return
        self._items.append((item, size + _PLACE))
        self._resize(size + _PLACE)
        self._arrived.set()

    def close(self, error: BattenError | None = None) -> None:
        """End it: after the remaining items, `get` raises the error or returns None."""
        if not self._closed:
            self._closed, self._error = True, error
            self._arrived.set()

    def discard(self) -> None:
        """Drop unread items: the reader has left."""
        self.close()
        self._items.clear()
        self._resize(-self._size)

    async def get(self) -> Item | None:
        """The next item, or None at the end."""
        while not self._items:
            if self._closed:
                if self._error is not None:
                    raise self._error
                return None
            self._arrived.clear()
            if self._patient:
                await self._arrived.wait()
            else:
                with self._flow.awaited():
                    await self._arrived.wait()
        item, size = self._items.popleft()
        self._resize(-size)
        return item

    def _resize(self, change: int) -> None:
        self._size += change
        if (self._size > MOST_UNREAD) is not self._counted:
            self._counted = not self._counted
            self._flow.fill(1 if self._counted else -1)


class Slot(Generic[Item]):
    """Holds one answer."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._answer: asyncio.Future[Item] = asyncio.get_running_loop().create_future()

    def put(self, answer: Item) -> None:
        if not self._answer.done():
            self._answer.set_result(answer)

    def fail(self, error: BattenError) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)
            self._answer.exception()  # mark it as retrieved: the caller may have left

    async def get(self) -> Item:
        with self._flow.awaited():
            return await asyncio.shield(self._answer)
