"""What was read and not yet taken: bounded, for each reader of its own.

A reader that is slow slows the worker down: nothing more is read while somebody has too much
unread. But who waits for something that only reading can bring must not wait for who is slow,
least of all if both are the same program: then reading goes on, up to a bound at which the slow
one is told that it fell behind.
"""

import asyncio
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from typing import Generic, TypeVar

from batten.client.errors import FellBehind
from batten.contract.errors import BattenError

MOST_UNREAD = 1 << 20
"""Bytes that one reader has unread before nothing more is read for it."""
MOST_KEPT = 64 << 20
"""Bytes that are kept for one reader while others wait."""
_PLACE = 256
"""Bytes that an item takes beside its own."""

Item = TypeVar("Item")


class Flow:
    """Whether more is to be read."""

    def __init__(self) -> None:
        self._full = 0
        self._waiting = 0
        self._changed = asyncio.Event()

    @property
    def is_free(self) -> bool:
        return not self._full or self._waiting > 0

    async def free(self) -> None:
        """Wait until more is to be read."""
        while not self.is_free:
            self._changed.clear()
            await self._changed.wait()

    @contextmanager
    def awaited(self) -> Generator[None, None, None]:
        """Somebody waits for what only reading can bring."""
        self._waiting += 1
        self._changed.set()
        try:
            yield
        finally:
            self._waiting -= 1

    def fill(self, change: int) -> None:
        """One reader more has too much unread, or one less."""
        self._full += change
        self._changed.set()


class Mailbox(Generic[Item]):
    """For one reader. `patient`: it may be kept waiting, since nothing else waits for it."""

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
        """Keep an item for the reader; nothing is kept any more once it is closed."""
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
        """Nothing more comes; after what is there, `get` raises the error or gives None."""
        if not self._closed:
            self._closed, self._error = True, error
            self._arrived.set()

    def discard(self) -> None:
        """The reader has left."""
        self.close()
        self._items.clear()
        self._resize(-self._size)

    async def get(self) -> Item | None:
        """The next item; None if there will be none."""
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
    """For one answer."""

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._answer: asyncio.Future[Item] = asyncio.get_running_loop().create_future()

    def put(self, answer: Item) -> None:
        if not self._answer.done():
            self._answer.set_result(answer)

    def fail(self, error: BattenError) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)
            self._answer.exception()  # seen: whoever waited may have left

    async def get(self) -> Item:
        with self._flow.awaited():
            return await asyncio.shield(self._answer)
