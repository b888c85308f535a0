"""What waits to be written.

What nobody waits for lies here a moment, together with what comes meanwhile: each fact would else
be committed by itself, and the fact that matters would wait for it.
"""

import asyncio
import queue
import threading
from typing import Generic, TypeVar

T = TypeVar("T")

LINGER_S = 0.004
"""How long what nobody waits for may lie here."""
_MOST = 128


class Inbox(Generic[T]):
    """Many threads put, whoever may write takes. What is put is taken in that order."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._gathered: list[T] = []
        self._planned: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        """The loop that rings at the latest, and when."""
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
        """Have what was gathered taken now."""
        with self._mutex:
            if self._gathered:
                self._ring()

    def close(self) -> None:
        """Nothing is waited for any more once what is here was taken."""
        with self._mutex:
            self._closed = True
            self._ring()

    def wait(self) -> bool:
        """Wait until something is to be taken; False once it was closed."""
        self._bell.get()
        return not self._closed

    def take(self, most: int) -> list[T]:
        """The first of what was gathered, as many as that."""
        loop = _running_loop()
        with self._mutex:
            taken = self._gathered[:most]
            del self._gathered[:most]
            self._rung = False
            if self._planned is not None and not self._gathered:
                if self._planned[0] is loop:
                    self._planned[1].cancel()  # only its own loop may; else it finds little to do
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
