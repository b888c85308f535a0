"""What waits for the writer's thread.

What one round of an event loop puts here is handed over together, at the end of the round or
as soon as somebody waits for it: the writer would else commit the first fact by itself, and
the fact that matters would wait for two commits.
"""

import asyncio
import queue
import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """Many threads put, one takes. What is put is taken in that order."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._gathered: list[T] = []
        self._planned: asyncio.AbstractEventLoop | None = None
        """The loop that hands over at the end of its round."""
        self._handed: queue.SimpleQueue[list[T] | None] = queue.SimpleQueue()

    def put(self, item: T) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        with self._mutex:
            self._gathered.append(item)
            if loop is None:
                self._hand_over()
            elif self._planned is not loop:
                self._planned = loop
                loop.call_soon(self.hand_over)

    def hand_over(self) -> None:
        """Let the writer have what was gathered."""
        with self._mutex:
            self._hand_over()

    def close(self) -> None:
        """Hand over what is there; `take` says afterwards that there is no more."""
        with self._mutex:
            self._hand_over()
            self._handed.put(None)

    def take(self) -> list[T] | None:
        """Wait for what is handed over next; None once it was closed."""
        return self._handed.get()

    def take_more(self) -> list[T] | None:
        """What was handed over in the meantime; `queue.Empty` if nothing was."""
        return self._handed.get_nowait()

    def _hand_over(self) -> None:
        self._planned = None
        if self._gathered:
            self._handed.put(self._gathered)
            self._gathered = []
