"""What waits for the writer's thread.

What nobody waits for is handed over a moment later, together with what came meanwhile: the
writer would else commit each fact by itself, and the fact that matters would wait for it.
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
    """Many threads put, one takes. What is put is taken in that order."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._gathered: list[T] = []
        self._planned: tuple[asyncio.AbstractEventLoop, asyncio.TimerHandle] | None = None
        """The loop that hands over at the latest, and when."""
        self._handed: queue.SimpleQueue[list[T] | None] = queue.SimpleQueue()

    def put(self, item: T) -> None:
        loop = _running_loop()
        with self._mutex:
            self._gathered.append(item)
            if loop is None or len(self._gathered) >= _MOST:
                self._hand_over(loop)
            elif self._planned is None or self._planned[0] is not loop:  # which may be closed
                self._planned = (loop, loop.call_later(LINGER_S, self.hand_over))

    def hand_over(self) -> None:
        """Let the writer have what was gathered."""
        with self._mutex:
            self._hand_over(_running_loop())

    def close(self) -> None:
        """Hand over what is there; `take` says afterwards that there is no more."""
        with self._mutex:
            self._hand_over(_running_loop())
            self._handed.put(None)

    def take(self) -> list[T] | None:
        """Wait for what is handed over next; None once it was closed."""
        return self._handed.get()

    def take_more(self) -> list[T] | None:
        """What was handed over in the meantime; `queue.Empty` if nothing was."""
        return self._handed.get_nowait()

    def _hand_over(self, loop: asyncio.AbstractEventLoop | None) -> None:
        if self._planned is not None and self._planned[0] is loop:
            self._planned[1].cancel()  # only its own loop may; elsewhere it finds little to do
        self._planned = None
        if self._gathered:
            self._handed.put(self._gathered)
            self._gathered = []


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
