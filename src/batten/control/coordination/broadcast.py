"""Values to every subscriber in this process; one that lags behind is cut off."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Generic, TypeVar

from batten.coordination.rejection import Rejection

T = TypeVar("T")


class Broadcast(Generic[T]):
    """Each subscriber has a buffer of `size` values; when it overflows the subscription ends."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._queues: set[asyncio.Queue[T | None]] = set()

    def publish(self, value: T) -> None:
        for queue in list(self._queues):
            if queue.qsize() >= self._size:
                self._queues.discard(queue)
                queue.put_nowait(None)
            else:
                queue.put_nowait(value)

    def subscribe(self) -> "Subscription[T]":
        """A subscription that hears everything from now on. Close it."""
        return Subscription(self._queues)


class Subscription(Generic[T]):
    def __init__(self, queues: set[asyncio.Queue[T | None]]) -> None:
        self._queue: asyncio.Queue[T | None] = asyncio.Queue()
        self._queues = queues
        queues.add(self._queue)

    async def values(self) -> AsyncGenerator[T, None]:
        """Each value as it comes. Raises `STREAM_LAGGED` after an overflow."""
        while True:
            value = await self._queue.get()
            if value is None:
                raise Rejection("STREAM_LAGGED", "the reader is too slow: subscribe again")
            yield value

    def close(self) -> None:
        self._queues.discard(self._queue)
