"""The queue of jobs to write.

A job without a waiter stays here for a moment and is committed with those that follow: else each
fact would be a commit of its own, and a fact with a waiter would wait behind it.
"""

import asyncio
import queue
import threading
from typing import Generic, TypeVar

T = TypeVar("T")

LINGER_S = 0.004
"""How long a job without a waiter may stay here."""
_MOST = 128


class Inbox(Generic[T]):
    """Many threads put, the current writer takes, in the order of `put`."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._gathered: list[T] = []
        self._planned: asyncio.AbstractEventLoop | None = None
        """The loop with a timer that rings. One timer serves all jobs of its time."""
        self._rung = False
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._closed = False

    def put(self, item: T) -> None:
        loop = _running_loop()
        with self._mutex:
            self._gathered.append(item)
            if loop is None or len(self._gathered) >= _MOST:
                self._ring()
            elif self._planned is not loop:  # another loop may be closed
                self._planned = loop
                loop.call_later(LINGER_S, self._on_timer)

    def ring(self) -> None:
        """Wake the writer's thread for the queued jobs."""
        with self._mutex:
            if self._gathered:
                self._ring()

    def _on_timer(self) -> None:
        with self._mutex:
            self._planned = None
            if self._gathered:
                self._ring()

    def close(self) -> None:
        """Let `wait` return False; queued jobs can still be taken."""
        with self._mutex:
            self._closed = True
            self._ring()

    def wait(self) -> bool:
        """Wait until there are jobs to take; False once closed."""
        self._bell.get()
        return not self._closed

    def take(self, most: int) -> list[T]:
        """The first `most` jobs."""
        with self._mutex:
            taken = self._gathered[:most]
            del self._gathered[:most]
            self._rung = False
            return taken

    def _ring(self) -> None:
        if not self._rung:
            self._rung = True
            self._bell.put(None)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
