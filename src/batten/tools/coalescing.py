"""Output of a command in fewer pieces than it was written in.

A program that writes byte by byte would otherwise make an event of each byte.
"""

import asyncio
from collections.abc import Callable

from batten.workspace.commands import Stream

PAUSE_S = 0.02
"""Between pieces. The first output after a pause is shown at once."""
_MOST_HELD = 32 * 1024


class Coalesced:
    """Calls `show` with pieces of the output: each stream in its order, the streams in the order in
    which they had something new."""

    def __init__(self, show: Callable[[Stream, bytes], None]) -> None:
        self._show = show
        self._loop = asyncio.get_running_loop()
        self._held: dict[Stream, bytearray] = {}
        self._size = 0
        self._next = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._error: Exception | None = None

    def add(self, name: Stream, data: bytes) -> None:
        if not data:
            return
        if not self._held and self._loop.time() >= self._next:
            self._next = self._loop.time() + PAUSE_S
            self._show(name, data)
            return
        self._held.setdefault(name, bytearray()).extend(data)
        self._size += len(data)
        if self._size >= _MOST_HELD:
            self.flush()
        elif self._timer is None:
            self._timer = self._loop.call_at(self._next, self._on_time)

    def flush(self) -> None:
        """Show all that is held. Raises what failed while nobody waited for it."""
        self.stop()
        if self._error is not None:
            raise self._error
        held, self._held, self._size = self._held, {}, 0
        self._next = self._loop.time() + PAUSE_S
        for name, data in held.items():
            self._show(name, bytes(data))

    def stop(self) -> None:
        """Show nothing more by itself."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        try:
            self.flush()
        except Exception as error:  # no caller to raise it to: `flush` does
            self._error = error
