"""Owns standard output: writes whole frames, in order, at the reader's pace.

The event loop writes everything that the pipe takes without blocking, all frames of one loop
iteration together. A thread writes the rest, so a slow reader never stalls the run, and the last
frame goes out even when the loop is blocked. The queue is bounded; the journal is the buffer.
"""

import asyncio
import errno
import fcntl
import logging
import os
import queue
import select
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING

from batten.contract.marks import plain
from batten.serve.words import Redact, without_tokens

if TYPE_CHECKING:
    import codecs

_log = logging.getLogger("batten.people")
_MOST_WAITING = 1 << 20
_PIECE = 4096
"""Bytes of an atomic pipe write: progress of a slow reader shows after each piece."""
_LONGEST_LOOK_S = 0.05
_SAY_S = 0.5


class _People:
    """Whether the reader of standard error keeps up."""

    listens = True
    display: Callable[[str], bool] | None = None
    """Shows a line among others on a terminal; False if it no longer does."""


instead_of_people: ContextVar[Callable[[str], object] | None] = ContextVar("people", default=None)
"""Receives lines for people in an embedder's process, where standard error is not ours."""


redact_for_people: ContextVar[Redact] = ContextVar("redact", default=without_tokens)
"""Removes secrets from lines for people."""


def show_lines_on(display: Callable[[str], bool] | None) -> None:
    """Pass lines for people to a live display, which would draw over them otherwise."""
    _People.display = display


def say(text: str) -> None:
    """Write a line for people to standard error. Never fails; waits for a stalled reader once."""
    _log.debug("said: %s", text)
    line = f"{plain(redact_for_people.get()(text))}\n"
    listener = instead_of_people.get()
    if listener is not None:
        listener(line)
        return
    if _People.display is not None and _People.display(line):
        return
    rest = memoryview(line.encode(errors="replace"))
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    with suppress(OSError):
        while rest and poll.poll(_SAY_S * 1000 if _People.listens else 0):
            rest = rest[os.write(2, rest[:_PIECE]) :]
    _People.listens = not rest


def put(text: str) -> None:
    """Print a text to standard output: without control characters if that is a terminal."""
    sys.stdout.write(f"{plain(text) if sys.stdout.isatty() else text}\n")


def put_bytes(data: bytes, *, text: "codecs.IncrementalDecoder | None" = None) -> None:
    """Write bytes to standard output as they are, or readable if that is a terminal.

    `text` decodes the pieces of one body.
    """
    if sys.stdout.isatty():
        decoded = data.decode(errors="replace") if text is None else text.decode(data)
        data = plain(decoded).encode(errors="replace")
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def warn(text: str) -> None:
    """Write a line for people, prefixed with the program's name."""
    say(f"batten: {text}")


class Output:
    """Queues and writes frames to one descriptor."""

    def __init__(self, descriptor: int, *, owned: bool = False, styled: bool = False) -> None:
        """An `owned` descriptor is closed by `close`. A terminal is sent no control characters
        unless the frames are `styled` by us.
        """
        self._is_plain = not styled and os.isatty(descriptor)
        self._descriptor = descriptor
        self._owned = owned
        self._on_closed: Callable[[], object] | None = None
        self._frames: deque[bytes] = deque()
        self.waiting = 0
        """Queued bytes."""
        self._lock = threading.Lock()
        self._planned: asyncio.AbstractEventLoop | None = None
        """The loop that has scheduled `_flush`."""
        # A flag of each write: others may share the descriptor, so O_NONBLOCK is not set on it.
        self._at_once = hasattr(os, "RWF_NOWAIT")
        self._handed: queue.SimpleQueue[bool] = queue.SimpleQueue()
        """True: the thread has frames to write. False: the thread should end."""
        self._thread: threading.Thread | None = None
        self._thread_writes = False
        self._progress_at = time.monotonic()
        self._wanted: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self.closed = False
        self._error = ""
        """Why nothing more can be written."""
        self._has_written = False
        self._is_lost = False
        """Whether the reader closed before it had everything."""

    @property
    def problem(self) -> str:
        """Why not everything was written; empty if it was."""
        if self.closed:
            return self._error or "it is closed" if self._is_lost else ""
        return "" if self.is_empty else f"its reader took nothing for {self.stalled_s:.0f} s"

    def on_closed(self, call: Callable[[], object]) -> None:
        """Set a callback for a closed reader. The writing thread calls it, once."""
        self._on_closed = call

    def watch_reader(self, gone: Callable[[], object]) -> None:
        """On a loop: call `gone` once the reader closes its pipe, also while nothing is written:
        the next write may be far off. Other kinds of output do not tell.
        """
        is_pipe = stat.S_ISFIFO(os.fstat(self._descriptor).st_mode)
        mode = fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        if not is_pipe or mode != os.O_WRONLY:
            return
        loop = asyncio.get_running_loop()

        def call() -> None:
            loop.remove_reader(self._descriptor)
            with self._lock:
                self._is_lost = self._is_lost or self.waiting > 0 or not self._has_written
                self._error, self.closed = os.strerror(errno.EPIPE), True
            self._wake()
            gone()

        loop.add_reader(self._descriptor, call)

    def write(self, frame: bytes) -> None:
        """Queue a frame, from any thread. Frames are dropped once the reader has closed."""
        if self.closed or not frame:
            self._is_lost = self._is_lost or bool(frame)
            return
        if self._is_plain:
            frame = plain(frame.decode(errors="replace")).encode(errors="replace")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        with self._lock:
            if not self.waiting:
                self._progress_at = time.monotonic()
            self.waiting += len(frame)
            self._frames.append(frame)
            if loop is None:
                self._hand_over()
            elif not self._thread_writes and self._planned is not loop:
                self._planned = loop
                loop.call_soon(self._flush)

    @property
    def has_room(self) -> bool:
        """Whether the queue is below its limit."""
        return self.waiting < _MOST_WAITING

    def offer(self, frame: bytes) -> None:
        """Queue an optional frame: it is dropped while the queue is full."""
        if self.has_room:
            self.write(frame)

    async def room(self) -> None:
        """Wait while the queue is full."""
        if self.waiting < _MOST_WAITING or self.closed:
            return
        self._flush()
        while True:
            # All waiters share one event, created before the check: no wake-up is missed.
            if self._wanted is None or self._wanted[1].is_set():
                self._wanted = (asyncio.get_running_loop(), asyncio.Event())
            event = self._wanted[1]
            if self.waiting < _MOST_WAITING or self.closed:
                return
            await event.wait()

    @property
    def is_empty(self) -> bool:
        """Whether all frames are written."""
        return not self.waiting

    @property
    def stalled_s(self) -> float:
        """How long the reader has read nothing of the queued bytes."""
        if not self.waiting or self.closed:
            return 0.0
        return time.monotonic() - self._progress_at

    async def drained(self, stalled_s: float) -> None:
        """Wait until all is written, the reader closes, or it reads nothing for `stalled_s`."""
        self._flush()
        pause_s = 0.001
        while self.waiting and not self.closed and self.stalled_s < stalled_s:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_LOOK_S)

    def drain(self, stalled_s: float) -> None:
        """The same from a thread, without the loop. The stall is counted from now."""
        self._progress_at = time.monotonic()
        with self._lock:
            self._hand_over()
        while self.waiting and not self.closed and self.stalled_s < stalled_s:
            time.sleep(0.001)

    def close(self) -> None:
        """End the thread as soon as its current write allows."""
        self._handed.put(False)
        if self._owned:
            with self._lock:
                self.closed = True
                if self._thread is None:
                    os.close(self._descriptor)

    def _flush(self) -> None:
        """On a loop: write without blocking, and hand the rest to the thread."""
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
                    # Files and terminals lack RWF_NOWAIT. The thread meets any other error too.
                    self._at_once = False
                else:
                    self._wrote(written)
                    if written < len(frames):
                        self._frames.appendleft(frames[written:])
            self._hand_over()

    def _gather(self) -> bytes:
        """The next frames that fit into one piece, or one larger frame."""
        frames = [self._frames.popleft()]
        size = len(frames[0])
        while self._frames and size + len(self._frames[0]) <= _PIECE:
            frames.append(self._frames.popleft())
            size += len(frames[-1])
        return frames[0] if len(frames) == 1 else b"".join(frames)

    def _wrote(self, size: int) -> None:
        self._has_written = True
        self.waiting -= size
        self._progress_at = time.monotonic()

    def _hand_over(self) -> None:
        """Have the thread write the queued frames. The caller holds the lock."""
        if not self._frames or self._thread_writes:
            return
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="output", daemon=True)
            thread.start()  # raises if the machine has no room for another: the next write tries it
            self._thread = thread
        self._thread_writes = True
        self._handed.put(True)

    def _run(self) -> None:
        while self._handed.get():
            while frames := self._next():
                self._write_all(frames)
        if self._owned:
            os.close(self._descriptor)

    def _next(self) -> bytes:
        """The next bytes for the thread; empty when the queue is."""
        with self._lock:
            if self.closed:
                self._frames.clear()
                self.waiting = 0
            if self._frames:
                return self._gather()
            self._thread_writes = False
            return b""

    def _write_all(self, frames: bytes) -> None:
        rest = memoryview(frames)
        while rest:
            try:
                written = os.write(self._descriptor, rest[:_PIECE])
            except BlockingIOError:
                select.select([], [self._descriptor], [])
                continue
            except OSError as error:
                self._error = error.strerror or str(error)
                self.closed = self._is_lost = True
                if self._on_closed is not None:
                    self._on_closed()
                break
            rest = rest[written:]
            with self._lock:
                self._wrote(written)
        self._wake()

    def _wake(self) -> None:
        wanted = self._wanted
        if wanted is None or wanted[1].is_set():
            return
        if self.waiting < _MOST_WAITING or self.closed:
            loop, event = wanted
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                return
