"""The one owner of standard output: frames are written whole, in order, at the reader's pace.

What the reader takes without waiting is written from the event loop, all frames of one round
together. The rest is a thread's, so that a slow reader never stalls the run and a blocked loop
can still say its last frame. What waits here is bounded; the journal is the buffer.
"""

import asyncio
import os
import queue
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar

from batten.serve.words import Redact, plain, without_tokens

_MOST_WAITING = 1 << 20
_PIECE = 4096
"""What a pipe takes whole or not at all: a slow reader is seen to read with each of them."""
_LONGEST_LOOK_S = 0.05
_SAY_S = 0.5


class _People:
    """Whether anybody takes what is said on standard error."""

    listens = True


instead_of_people: ContextVar[Callable[[str], object] | None] = ContextVar("people", default=None)
"""Who is told what is for people, where standard error is not ours to write on."""


redact_for_people: ContextVar[Redact] = ContextVar("redact", default=without_tokens)
"""Removes secrets from lines for people."""


def say(text: str) -> None:
    """A line for people, on standard error. That nobody reads it is no reason to fail, nor to
    wait more than once.
    """
    line = f"{plain(redact_for_people.get()(text))}\n"
    listener = instead_of_people.get()
    if listener is not None:
        listener(line)
        return
    renderer = memoryview(line.encode(errors="replace"))
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    with suppress(OSError):
        while renderer and poll.poll(_SAY_S * 1000 if _People.listens else 0):
            renderer = renderer[os.write(2, renderer[:_PIECE]) :]
    _People.listens = not renderer


def warn(text: str) -> None:
    """A line of ours for people."""
    say(f"batten: {text}")


class Output:
    """Writes to one descriptor."""

    def __init__(self, descriptor: int, *, owned: bool = False) -> None:
        """A descriptor that is `owned` is closed with this."""
        self._descriptor = descriptor
        self._owned = owned
        self._on_closed: Callable[[], object] | None = None
        self._frames: deque[bytes] = deque()
        self._waiting = 0
        self._lock = threading.Lock()
        self._planned: asyncio.AbstractEventLoop | None = None
        """The loop that will write what waits at the end of its round."""
        # Asked for with each write: the descriptor, which others may share, is left as it is.
        self._at_once = hasattr(os, "RWF_NOWAIT")
        self._handed: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """True: there is something to write. False: there never will be again."""
        self._thread: threading.Thread | None = None
        self._thread_writes = False
        self._progress_at = time.monotonic()
        self._wanted: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self.closed = False

    def on_closed(self, call: Callable[[], object]) -> None:
        """What to call, once and from whichever thread writes, if the reader goes away."""
        self._on_closed = call

    def write(self, frame: bytes) -> None:
        """Queue a frame, from any thread. Nothing is written once the reader has gone away."""
        if self.closed or not frame:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        with self._lock:
            if not self._waiting:
                self._progress_at = time.monotonic()
            self._waiting += len(frame)
            self._frames.append(frame)
            if loop is None:
                self._hand_over()
            elif not self._thread_writes and self._planned is not loop:
                self._planned = loop
                loop.call_soon(self._flush)

    @property
    def has_room(self) -> bool:
        """Whether little enough is queued for what nobody must wait for."""
        return self._waiting < _MOST_WAITING

    @property
    def waiting(self) -> int:
        """Bytes that are queued."""
        return self._waiting

    def offer(self, frame: bytes) -> None:
        """Queue a frame that nobody must wait for: it is dropped while too much is queued."""
        if self.has_room:
            self.write(frame)

    async def room(self) -> None:
        """Wait while too much is queued."""
        if self._waiting < _MOST_WAITING or self.closed:
            return
        self._flush()
        while True:
            # One event for all who wait, there before they look: no wake-up is missed.
            if self._wanted is None or self._wanted[1].is_set():
                self._wanted = (asyncio.get_running_loop(), asyncio.Event())
            event = self._wanted[1]
            if self._waiting < _MOST_WAITING or self.closed:
                return
            await event.wait()

    @property
    def is_empty(self) -> bool:
        """Whether the reader was given all there is."""
        return not self._waiting

    @property
    def stalled_s(self) -> float:
        """How long the reader has taken nothing of what waits for it."""
        if not self._waiting or self.closed:
            return 0.0
        return time.monotonic() - self._progress_at

    async def drained(self, stalled_s: float) -> None:
        """Wait until all is written, the reader has left, or it took nothing for `stalled_s`."""
        self._flush()
        pause_s = 0.001
        while self._waiting and not self.closed and self.stalled_s < stalled_s:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_LOOK_S)

    def drain(self, stalled_s: float) -> None:
        """The same from a thread, where no loop may be relied on; counted from now."""
        self._progress_at = time.monotonic()
        with self._lock:
            self._hand_over()
        while self._waiting and not self.closed and self.stalled_s < stalled_s:
            time.sleep(0.001)

    def close(self) -> None:
        """All is written, or given up: the thread ends as soon as it can."""
        self._handed.put(False)
        if self._owned:
            with self._lock:
                self.closed = True
                if self._thread is None:
                    os.close(self._descriptor)

    def _flush(self) -> None:
        """On a loop: write what is taken at once, and leave the rest to the thread."""
        with self._lock:
            self._planned = None
            if self._thread_writes:
                return
            while self._frames and self._at_once and not self.closed:
                frames = self._gather()
                try:
                    written = os.pwritev(self._descriptor, [frames], -1, os.RWF_NOWAIT)
                except OSError as error:
                    self._frames.appendleft(frames)
                    if isinstance(error, BlockingIOError):
                        break
                    # A file or a terminal cannot be asked. Any other fault the thread meets too.
                    self._at_once = False
                else:
                    self._wrote(written)
                    if written < len(frames):
                        self._frames.appendleft(frames[written:])
            self._hand_over()

    def _gather(self) -> bytes:
        """The next frames that fit into one piece together, or one larger frame."""
        frames = [self._frames.popleft()]
        size = len(frames[0])
        while self._frames and size + len(self._frames[0]) <= _PIECE:
            frames.append(self._frames.popleft())
            size += len(frames[-1])
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def _wrote(self, size: int) -> None:
        self._waiting -= size
        self._progress_at = time.monotonic()

    def _hand_over(self) -> None:
        """Have the thread write what waits. The caller holds the lock."""
        if not self._frames or self._thread_writes:
            return
        self._thread_writes = True
        self._handed.put(True)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="output", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while self._handed.get():
            while frames := self._next():
                self._write_all(frames)
        if self._owned:
            os.close(self._descriptor)

    def _next(self) -> bytes:
        """What the thread writes next; nothing if it can rest."""
        with self._lock:
            if self.closed:
                self._frames.clear()
                self._waiting = 0
            if self._frames:
                return self._gather()
            self._thread_writes = False
            return b""

    def _write_all(self, frames: bytes) -> None:
        renderer = memoryview(frames)
        while renderer:
            try:
                written = os.write(self._descriptor, renderer[:_PIECE])
            except BlockingIOError:
                select.select([], [self._descriptor], [])
                continue
            except OSError:
                self.closed = True
                if self._on_closed is not None:
                    self._on_closed()
                break
            renderer = renderer[written:]
            with self._lock:
                self._wrote(written)
        self._wake()

    def _wake(self) -> None:
        wanted = self._wanted
        if wanted is None or wanted[1].is_set():
            return
        if self._waiting < _MOST_WAITING or self.closed:
            loop, event = wanted
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                return
