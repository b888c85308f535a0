"""A thread outside the event loop that ends a process whose loop no longer answers.

The loop beats; when it has not for `patience_s`, the watchdog writes the run's ending to the
journal (which accepts one ending only), lets the owner of standard output write the last
frame, and exits by `os._exit`, so that a loop that wakes up late starts nothing.

A process that was stopped (SIGSTOP, a debugger, a frozen container) is not blocked. The thread
notices that it slept longer than intended and starts counting again.

Where C code holds the interpreter, no thread runs at all. Then an interval timer of CPU time ends
the process, and the next holder of the session writes the ending. C code that sleeps while it
holds the interpreter uses no CPU time, and looks like a stopped process: it is not ended. Its
leases expire, so that another process can claim the session, and the fence shuts this one out.

In an embedder's process the loop is not ours to judge: there is no patience, and `leave` gives up
our part of the process instead.
"""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from functools import partial

_BEAT_S = 0.5
_PAUSE_S = 1.0
"""A thread that wakes up this late was not running; half the patience, if less."""
_TIMER_MARGIN_S = 5.0


class Watchdog:
    """Watches one event loop. Its callbacks run in its own thread and return the exit code."""

    def __init__(
        self,
        patience_s: float | None,
        on_blocked: Callable[[float], int],
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._patience_s = patience_s
        self._on_blocked = on_blocked
        self._leave = leave
        self._beaten_at = time.monotonic()
        self._minds = patience_s is not None
        self._deadline: tuple[float, Callable[[], int]] | None = None
        self._stopped = threading.Event()
        self._handle: asyncio.TimerHandle | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._patience_s is not None:
            self._beat(loop, self._patience_s)
        watch = partial(copy_context().run, self._watch)  # messages for people have a context
        threading.Thread(target=watch, name="watchdog", daemon=True).start()

    def within(self, seconds: float, otherwise: Callable[[], int]) -> None:
        """End the process after this long, unless `unlimited` or `relax` is called before."""
        self._deadline = (time.monotonic() + seconds, otherwise)

    def unlimited(self) -> None:
        """Drop the deadline of `within`; the loop is still watched."""
        self._deadline = None

    def relax(self) -> None:
        """Stop watching: the work is over, and the loop may wait for a slow reader."""
        self._minds = False
        self._deadline = None
        if self._handle is not None:
            self._handle.cancel()
            signal.setitimer(signal.ITIMER_PROF, 0)

    def stop(self) -> None:
        self.relax()
        self._stopped.set()

    def _beat(self, loop: asyncio.AbstractEventLoop, patience_s: float) -> None:
        self._beaten_at = time.monotonic()
        signal.setitimer(signal.ITIMER_PROF, patience_s + _TIMER_MARGIN_S)
        self._handle = loop.call_later(_BEAT_S, self._beat, loop, patience_s)

    def _watch(self) -> None:
        looked_at, deadline = time.monotonic(), self._deadline
        pause_s = min(_PAUSE_S, (self._patience_s or _PAUSE_S) / 2)
        while not self._stopped.wait(_BEAT_S):
            now = time.monotonic()
            paused_s = now - looked_at - _BEAT_S
            if paused_s > pause_s:
                self._beaten_at = now
                if deadline is not None and deadline is self._deadline:
                    self._deadline = (deadline[0] + paused_s, deadline[1])
            looked_at, deadline = now, self._deadline
            silent_s = now - self._beaten_at
            if deadline is not None and now > deadline[0]:
                self._leave(deadline[1]())
                return
            if self._minds and silent_s > (self._patience_s or 0):
                self._leave(self._on_blocked(silent_s))
                return
