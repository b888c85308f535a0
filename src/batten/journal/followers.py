"""Followers of runs and of the feed in this process: commits wake them and hand them the facts.

A follower that lags behind reads the store instead: its buffer is bounded. The store itself
notices commits of other processes.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Literal

from batten.journal.contract import Stored

Wakeup = tuple[asyncio.AbstractEventLoop, Callable[[], None]]
Order = Literal["sequence", "position"]
Span = tuple[int, int, list[Stored]]
"""A committed page, after its first and last place."""

PAGE = 256
FEED = ""
"""The key of the feed where a run's id is the key of the run."""

_MOST_WAITING = 256 * 1024
"""Bytes buffered for one follower. All followers of a run share the same facts."""


class Follower:
    """One follower of one run or of the feed. The writer's thread offers, its own loop takes."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        mutex: threading.Lock,
        order: Order,
        after: int,
        types: frozenset[str] | None,
    ) -> None:
        self.loop = loop
        self.cursor = after
        """The last place that the follower has seen."""
        self._mutex = mutex
        self._order: Order = order
        self._types = types
        self._event = asyncio.Event()
        self._spans: list[Span] = []
        """Committed pages, each with its wanted facts."""
        self._size = 0
        self._behind = True
        """The follower must read the store: the buffer has a gap."""
        self._called = False

    def offer(self, span: Span | None, size: int) -> bool:
        """Buffer a committed page, or None to make it read the store. Whether to wake it.

        The caller holds the mutex.
        """
        if span is None or self._size + size > _MOST_WAITING:
            self._behind = True
        if self._behind:
            self._spans.clear()
            self._size = 0
        elif self._types is None:
            assert span is not None
            self._spans.append(span)
            self._size += size
        elif span is not None and not self._keep(span, size, self._types):
            return False
        sleeps = not self._called
        self._called = True
        return sleeps

    def _keep(self, span: Span, size: int, types: frozenset[str]) -> bool:
        """Whether the page has a wanted fact. Of a page without one only the places are kept."""
        first, last, page = span
        wanted = [stored for stored in page if stored.type in types]
        if not wanted and self._spans and self._spans[-1][1] == first - 1:
            begin, _, facts = self._spans[-1]
            self._spans[-1] = (begin, last, facts)
        else:
            self._spans.append((first, last, wanted))
            self._size += size if wanted else 0
        return bool(wanted)

    def wake(self) -> None:
        """Runs on the follower's loop."""
        self._event.set()

    async def wait(self) -> None:
        """Wait until something was offered since the last `take`."""
        await self._event.wait()

    def take(self) -> list[Stored] | None:
        """The buffered facts after the cursor; None if the store must be read.

        Later commits are buffered, or make it read the store again.
        """
        with self._mutex:
            spans, behind = self._spans, self._behind
            self._spans, self._size = [], 0
            self._behind = self._called = False
            self._event.clear()
        if behind:
            return None
        fresh: list[Stored] = []
        cursor = self.cursor
        for first, last, facts in spans:
            if last <= cursor:
                continue  # already read from the store
            if first > cursor + 1:
                return None  # another process appended in between
            fresh += facts if first > cursor else self._past(facts, cursor)
            cursor = last
        self.cursor = cursor
        return fresh

    def _past(self, facts: list[Stored], cursor: int) -> list[Stored]:
        return [stored for stored in facts if getattr(stored, self._order) > cursor]

    def give(self, page: list[Stored]) -> list[Stored]:
        """The wanted facts of a page read from the store; a full page means there may be more."""
        if page:
            self.cursor = getattr(page[-1], self._order)
        if len(page) >= PAGE:
            with self._mutex:
                self._behind = True
        if self._types is None:
            return page
        return [stored for stored in page if stored.type in self._types]

    @property
    def is_behind(self) -> bool:
        return self._behind


class Followers:
    """The waiting followers of one open journal, on any number of event loops."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._followers: dict[str, dict[Follower, None]] = {}

    @contextmanager
    def following(
        self, run_id: str, after: int, types: frozenset[str] | None = None
    ) -> Generator[Follower]:
        """A follower that wakes whenever the run, or the feed, may have new facts."""
        order: Order = "position" if run_id == FEED else "sequence"
        follower = Follower(asyncio.get_running_loop(), self._mutex, order, after, types)
        with self._mutex:
            self._followers.setdefault(run_id, {})[follower] = None
        try:
            yield follower
        finally:
            with self._mutex:
                others = self._followers[run_id]
                del others[follower]
                if not others:
                    del self._followers[run_id]

    def offer(self, grown: Mapping[str, list[Stored]]) -> list[Wakeup]:
        """Hand committed facts to followers. Returns the wake-ups to call, with their loops."""
        if not self._followers or not grown:
            return []
        wakeups: list[Wakeup] = []
        with self._mutex:
            for run_id, page in grown.items():
                if run_id in self._followers:
                    span = (page[0].sequence, page[-1].sequence, page)
                    self._offer(self._followers[run_id], span, wakeups)
            if FEED in self._followers:
                facts = [stored for page in grown.values() for stored in page]
                facts.sort(key=lambda stored: stored.position)
                span = (facts[0].position, facts[-1].position, facts)
                self._offer(self._followers[FEED], span, wakeups)
        return wakeups

    def _offer(self, followers: dict[Follower, None], span: Span, wakeups: list[Wakeup]) -> None:
        """All followers share one span: with a thousand of them, each allocation counts."""
        size = sum(len(stored.body) for stored in span[2])
        wakeups += [(each.loop, each.wake) for each in followers if each.offer(span, size)]

    def ask(self, loop: asyncio.AbstractEventLoop | None = None) -> list[Wakeup]:
        """Make all followers, or those of one loop, read the store."""
        with self._mutex:
            return [
                (each.loop, each.wake)
                for followers in self._followers.values()
                for each in followers
                if loop in (None, each.loop) and each.offer(None, 0)
            ]


async def pages(
    following: AbstractContextManager[Follower],
    watching: AbstractContextManager[None],
    read: Callable[[int], Awaitable[list[Stored]]],
    is_closed: Callable[[], bool],
) -> AsyncGenerator[list[Stored], None]:
    """Pages past the follower's cursor: from the store until it has no more, then as they commit.

    Following begins before the first read, or a fact could land between the two. A wake-up
    carries no place. It only says "read again", so two that merge lose nothing.
    """
    with following as follower, watching:
        while not is_closed():
            page = follower.take()
            if page is None:
                page = follower.give(await read(follower.cursor))
            if page:
                yield page
            elif not follower.is_behind:
                await follower.wait()


async def wake_ups(
    following: AbstractContextManager[Follower],
    watching: AbstractContextManager[None],
    is_closed: Callable[[], bool],
) -> AsyncGenerator[None, None]:
    """Yields at once, and after each wake-up; those that come together are one."""
    with following as follower, watching:
        while not is_closed():
            follower.take()
            yield
            await follower.wait()
