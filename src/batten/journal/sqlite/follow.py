"""Who waits for new facts, and how they are woken: here by the writer, elsewhere by the bell.

A wake-up carries no data. It only says "read again", so two that merge lose nothing.
"""

import asyncio
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager

from batten.journal.sqlite.doorbell import Doorbell, Watch

Wakeup = tuple[asyncio.AbstractEventLoop, Callable[[], None]]


class Followers:
    """The waiting followers of one open journal, on any number of event loops."""

    def __init__(self, bell: Doorbell) -> None:
        self._bell = bell
        self._mutex = threading.Lock()
        self._events: dict[str, dict[asyncio.Event, asyncio.AbstractEventLoop]] = {}
        self._watches: dict[asyncio.AbstractEventLoop, tuple[Watch, int]] = {}
        self.own_position = 0
        """The last position this process committed: its followers were woken already."""

    @contextmanager
    def waiting(self, run_id: str) -> Generator[asyncio.Event]:
        """An event that is set whenever the run may have new facts."""
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        with self._mutex:
            self._events.setdefault(run_id, {})[event] = loop
        self._watch(loop)
        try:
            yield event
        finally:
            self._unwatch(loop)
            with self._mutex:
                waiting = self._events[run_id]
                del waiting[event]
                if not waiting:
                    del self._events[run_id]

    def wakeups(self, run_ids: Iterable[str] | None) -> list[Wakeup]:
        """What to call, and on which loop, for runs that grew; of all runs, for None."""
        if not self._events:
            return []
        with self._mutex:
            names = list(self._events) if run_ids is None else run_ids
            return [
                (loop, event.set)
                for name in names
                for event, loop in self._events.get(name, {}).items()
            ]

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        known = self._watches.get(loop)
        if known is None:
            watch = Watch(self._bell, loop, lambda: self._rung(loop))
            self._watches[loop] = (watch, 1)
        else:
            self._watches[loop] = (known[0], known[1] + 1)

    def _unwatch(self, loop: asyncio.AbstractEventLoop) -> None:
        watch, count = self._watches[loop]
        if count > 1:
            self._watches[loop] = (watch, count - 1)
        else:
            del self._watches[loop]
            watch.close()

    def _rung(self, loop: asyncio.AbstractEventLoop) -> None:
        # What another process committed before our own last commit, our writer noticed then.
        if 0 < self._bell.position() <= self.own_position:
            return
        for home, wake in self.wakeups(None):
            if home is loop:
                wake()
