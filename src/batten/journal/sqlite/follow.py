"""Who waits for new facts, and how they are told: here by the writer, elsewhere by the bell.

A follower in the writing process is given what was committed. One that was not, or that
takes its time, is only told to ask the store: what waits here for it is bounded.
"""

import asyncio
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from batten.journal.contract import Stored
from batten.journal.sqlite.doorbell import BellListener, Doorbell

Wakeup = tuple[asyncio.AbstractEventLoop, Callable[[], None]]

_MOST_WAITING = 256 * 1024
"""Bytes. All followers of a run hold the same facts, and none holds older ones than these."""


class Follower:
    """One follower of one run. The writer's thread offers, the follower's loop takes."""

    def __init__(self, loop: asyncio.AbstractEventLoop, mutex: threading.Lock) -> None:
        self.loop = loop
        self._mutex = mutex
        self._event = asyncio.Event()
        self._pages: list[list[Stored]] = []
        self._size = 0
        self._behind = True
        """Only the store knows what comes next."""
        self._called = False

    def offer(self, page: list[Stored] | None, size: int) -> bool:
        """Give it what was committed, or None to have it ask; whether it has to be woken.

        The caller holds the mutex.
        """
        if page is None or self._size + size > _MOST_WAITING:
            self._behind = True
        if self._behind:
            self._pages.clear()
            self._size = 0
        elif page is not None:
            self._pages.append(page)
            self._size += size
        sleeps = not self._called
        self._called = True
        return sleeps

    def wake(self) -> None:
        """On its loop."""
        self._event.set()

    async def wait(self) -> None:
        """Until something was offered since the last `take`."""
        await self._event.wait()

    def take(self, after: int) -> list[Stored] | None:
        """What follows `after` and was committed here; None if the store has to be asked.

        What is committed from now on is offered, or the store is to be asked again.
        """
        with self._mutex:
            pages, behind = self._pages, self._behind
            self._pages, self._size = [], 0
            self._behind = self._called = False
            self._event.clear()
        if behind:
            return None
        fresh = [stored for page in pages for stored in page if stored.sequence > after]
        # Another process may have appended in between.
        has_hole = bool(fresh) and fresh[-1].sequence - after != len(fresh)
        return None if has_hole else fresh

    def ask_again(self) -> None:
        """The store did not give everything it has."""
        with self._mutex:
            self._behind = True


class Followers:
    """The waiting followers of one open journal, on any number of event loops."""

    def __init__(self, bell: Doorbell) -> None:
        self._bell = bell
        self._mutex = threading.Lock()
        self._followers: dict[str, dict[Follower, None]] = {}
        self._watches: dict[asyncio.AbstractEventLoop, tuple[BellListener, int]] = {}
        self.own_position = 0
        """The last position this process committed: its followers were woken already."""

    @contextmanager
    def following(self, run_id: str, *, ours: bool) -> Generator[Follower]:
        """A follower that is told whenever the run may have new facts.

        Of a run of ours only what guests say is written elsewhere: that may take a moment.
        """
        loop = asyncio.get_running_loop()
        follower = Follower(loop, self._mutex)
        with self._mutex:
            self._followers.setdefault(run_id, {})[follower] = None
        self._watch(loop, ours)
        try:
            yield follower
        finally:
            self._unwatch(loop)
            with self._mutex:
                others = self._followers[run_id]
                del others[follower]
                if not others:
                    del self._followers[run_id]

    def offer(self, grown: Mapping[str, list[Stored]]) -> list[Wakeup]:
        """Give the followers of some runs what is durable now; what to call, and on which loop."""
        if not self._followers:
            return []
        wakeups: list[Wakeup] = []
        with self._mutex:
            for run_id, page in grown.items():
                followers = self._followers.get(run_id)
                if followers:
                    size = sum(len(stored.body) for stored in page)
                    wakeups += [
                        (each.loop, each.wake) for each in followers if each.offer(page, size)
                    ]
        return wakeups

    def ask(self, loop: asyncio.AbstractEventLoop | None = None) -> list[Wakeup]:
        """Have the followers, or those of one loop, ask the store."""
        with self._mutex:
            return [
                (each.loop, each.wake)
                for followers in self._followers.values()
                for each in followers
                if loop in (None, each.loop) and each.offer(None, 0)
            ]

    def _watch(self, loop: asyncio.AbstractEventLoop, ours: bool) -> None:
        watch, count = self._watches.get(loop) or (None, 0)
        if watch is None:
            watch = BellListener(self._bell, loop, lambda: self._rung(loop))
        self._watches[loop] = (watch, count + 1)
        if not ours:
            watch.listen()

    def _unwatch(self, loop: asyncio.AbstractEventLoop) -> None:
        watch, count = self._watches[loop]
        if count > 1:
            self._watches[loop] = (watch, count - 1)
        else:
            del self._watches[loop]
            watch.close()

    def _rung(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether somebody else rang."""
        # What another process committed before our own last commit, our writer noticed then.
        if 0 < self._bell.position() <= self.own_position:
            return False
        for _, wake in self.ask(loop):
            wake()
        return True
