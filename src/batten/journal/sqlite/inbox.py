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
        self._planned: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        """The loop that rings at the latest, with its timer."""
        self._rung = False
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._closed = False

    def put(self, item: T) -> None:
        loop = _running_loop()
        with self._mutex:
            self._gathered.append(item)
            if loop is None or len(self._gathered) >= _MOST:
                self._ring()
            elif self._planned is None or self._planned[0] is not loop:  # which may be closed
                self._planned = (loop, loop.call_later(LINGER_S, self.ring))

    def ring(self) -> None:
        """Wake the writer's thread for the queued jobs."""
        with self._mutex:
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
        loop = _running_loop()
        with self._mutex:
            taken = self._gathered[:most]
            del self._gathered[:most]
            self._rung = False
            if self._planned is not None and not self._gathered:
                if self._planned[0] is loop:
                    self._planned[1].cancel()  # only its own loop may; else the timer does little
                self._planned = None
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
