"""The one owner of standard output: frames are written whole, in order, at the reader's pace.

A thread does the writing, so that a slow reader never stalls the run and a blocked event
loop can still say its last frame. What waits here is bounded; the journal is the buffer.
"""

import asyncio
import os
import queue
import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from batten.cli.words import plain, without_secrets

_MOST_WAITING = 1 << 20
_PIECE = 4096
"""What a pipe takes whole or not at all: a slow reader is seen to read with each of them."""
_LONGEST_LOOK_S = 0.05
_SAY_S = 0.5


def say(text: str) -> None:
    """A line for people, on standard error. That nobody reads it is no reason to fail or wait."""
    view = memoryview(f"{plain(without_secrets(text))}\n".encode(errors="replace"))
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    with suppress(OSError):
        while view and poll.poll(_SAY_S * 1000):
            view = view[os.write(2, view[:_PIECE]) :]


class Output:
    """Writes to one descriptor."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._on_closed: Callable[[], object] | None = None
        self._frames: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._waiting = 0
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._progress_at = time.monotonic()
        self._wanted: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self.closed = False

    def on_closed(self, call: Callable[[], object]) -> None:
        """What to call, once and from the writing thread, if the reader goes away."""
        self._on_closed = call

    def write(self, frame: bytes) -> None:
        """Queue a frame. Nothing is written once the reader has gone away."""
        if self.closed or not frame:
            return
        with self._lock:
            if not self._waiting:
                self._progress_at = time.monotonic()
            self._waiting += len(frame)
        self._frames.put(frame)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="output", daemon=True)
            self._thread.start()

    def offer(self, frame: bytes) -> None:
        """Queue a frame that nobody must wait for: it is dropped while too much is queued."""
        if self._waiting < _MOST_WAITING:
            self.write(frame)

    async def room(self) -> None:
        """Wait while too much is queued."""
        if self._waiting < _MOST_WAITING or self.closed:
            return
        event = asyncio.Event()
        self._wanted = (asyncio.get_running_loop(), event)
        while self._waiting >= _MOST_WAITING and not self.closed:
            event.clear()
            await event.wait()
        self._wanted = None

    @property
    def stalled_s(self) -> float:
        """How long the reader has taken nothing of what waits for it."""
        if not self._waiting or self.closed:
            return 0.0
        return time.monotonic() - self._progress_at

    async def drained(self, stalled_s: float) -> None:
        """Wait until all is written, the reader has left, or it took nothing for `stalled_s`."""
        pause_s = 0.001
        while self._waiting and not self.closed and self.stalled_s < stalled_s:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_LOOK_S)

    def drain(self, stalled_s: float) -> None:
        """The same from a thread, where no loop may be relied on; counted from now."""
        self._progress_at = time.monotonic()
        while self._waiting and not self.closed and self.stalled_s < stalled_s:
            time.sleep(0.001)

    def _run(self) -> None:
        while True:
            frame = self._frames.get()
            self._progress_at = time.monotonic()
            if not self.closed:
                self._write_all(frame)
            with self._lock:
                self._waiting -= len(frame)
            self._wake()

    def _write_all(self, frame: bytes) -> None:
        view = memoryview(frame)
        while view:
            try:
                written = os.write(self._descriptor, view[:_PIECE])
            except BlockingIOError:
                select.select([], [self._descriptor], [])
                continue
            except OSError:
                self.closed = True
                if self._on_closed is not None:
                    self._on_closed()
                return
            view = view[written:]
            self._progress_at = time.monotonic()

    def _wake(self) -> None:
        wanted = self._wanted
        if wanted is not None and (self._waiting < _MOST_WAITING or self.closed):
            loop, event = wanted
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                return
