"""Runs the sinks of a home: all of them in a process of their own, or for a moment after a run."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress

from batten.contract.errors import BattenError, Conflict, FenceLost, JournalError
from batten.journal.contract import Journal
from batten.sinks.contract import LEASE_S, Sink
from batten.sinks.reader import SinkReader
from batten.sinks.store import SinkStore

_LOOK_EVERY_S = 1.0
"""How often to look for sinks that came, changed or went, and for leases that became free."""
_GATHER_S = 0.05
_LONGEST_GATHER_S = 1.0
"""How long facts gather before readers look again: at least, and at most."""
_QUIET_S = 2.0
"""How long there is no fact before the next one is awaited instead of looked for."""
_REST = 19.0
"""Rests while runs append, in terms of the CPU time used: a twentieth of a core is used."""
_AHEAD = 2.0
"""A reader that catches up rests only as long as it reads so many times what runs append."""

_log = logging.getLogger("batten.sinks")

Configured = Callable[[], Iterable[Sink]]
"""The sinks as they are configured now."""


class Wakeups:
    """One follower of the feed for all readers of a process.

    It wakes them with the first fact, and then gathers: waking up for each commit of a busy run
    doubled the time that its own appends took.
    """

    def __init__(
        self,
        journal: Journal,
        cpu: Callable[[], float] = time.process_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._journal = journal
        self._cpu = cpu
        self._clock = clock
        self._waiting: set[asyncio.Event] = set()
        self.position = 0
        """The end of the journal, as it was last seen."""
        self.rate = 0.0
        """Facts a second that runs append."""

    async def run(self) -> None:
        """Until cancelled."""
        self.position = await self._journal.position()
        while True:
            async with aclosing(self._journal.follow_feed(after=self.position)) as pages:
                await anext(pages, None)
            await self._look_until_quiet()

    async def _look_until_quiet(self) -> None:
        used_s, seen_at = self._cpu(), self._clock()
        quiet_s = 0.0
        while quiet_s < _QUIET_S:
            position, now = await self._journal.position(), self._clock()
            grown, self.position = position - self.position, position
            self.rate = grown / max(now - seen_at, _GATHER_S)
            seen_at = now
            if grown:
                quiet_s = 0.0
                self.wake()
            before, used_s = used_s, self._cpu()
            pause_s = min(max(_GATHER_S, _REST * (used_s - before)), _LONGEST_GATHER_S)
            await asyncio.sleep(pause_s)
            quiet_s += pause_s

    def wake(self) -> None:
        for event in self._waiting:
            event.set()

    async def wait(self, event: asyncio.Event, timeout_s: float) -> None:
        """Wait for the next fact, or until the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await event.wait()

    def add(self) -> asyncio.Event:
        event = asyncio.Event()
        self._waiting.add(event)
        return event

    def remove(self, event: asyncio.Event) -> None:
        self._waiting.discard(event)


class Pace:
    """Rests between rounds of a reader that catches up while runs append.

    Even a process that gives way slows the core beside it: they share its caches.
    """

    def __init__(self, read: int, cpu: Callable[[], float] = time.process_time) -> None:
        """`read`: the cursor of the reader."""
        self._cpu = cpu
        self._used_s = cpu()
        self._read = read

    def rest_s(self, read: int, rate: float) -> float:
        """How long to rest after a round that read up to here, while runs append so many facts a
        second. Not at all while they append none, or so many that the reader would fall behind.
        """
        before, self._used_s = self._used_s, self._cpu()
        gained, self._read = read - self._read, read
        if not rate:
            return 0.0
        used_s = self._used_s - before
        return max(0.0, min(_REST * used_s, gained / (_AHEAD * rate) - used_s))


class Sinks:
    """Reads for every configured sink that no other process reads for."""

    def __init__(
        self,
        journal: Journal,
        store: SinkStore,
        configured: Configured,
        since: int | None = None,
    ) -> None:
        """`since`: where new sinks begin."""
        self._journal = journal
        self._store = store
        self._configured = configured
        self._since = since
        self._wakeups = Wakeups(journal)
        self._version = store.version()
        self._tasks: dict[str, tuple[Sink, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wakeups.run())
            while True:
                await self._compare(group)
                await asyncio.sleep(_LOOK_EVERY_S)
                version = self._store.version()
                if version != self._version:  # another process changed something: a replay
                    self._version = version
                    self._wakeups.wake()

    async def _compare(self, group: asyncio.TaskGroup) -> None:
        """Start readers of new sinks, end those of removed ones, replace those of changed ones."""
        try:
            wanted = {sink.name: sink for sink in self._configured()}
        except BattenError as error:
            _log.warning("the sinks stay as they are: %s", error)
            return
        for name, (sink, task) in list(self._tasks.items()):
            now = wanted.get(name)
            if task.done() or now is None or now.version != sink.version:
                task.cancel()
                await asyncio.wait([task])
                del self._tasks[name]
        for name, sink in wanted.items():
            if name not in self._tasks:
                self._tasks[name] = (sink, group.create_task(self._keep(sink)))

    async def _keep(self, sink: Sink) -> None:
        """Read for a sink whenever its lease is free."""
        told = ""
        while True:
            try:
                await self._read(sink)
            except Conflict as error:
                if told != str(error):
                    _log.info("sink %s: %s", sink.name, error)
                told = str(error)
            except (FenceLost, JournalError) as error:
                _log.warning("sink %s: %s", sink.name, error)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _read(self, sink: Sink) -> None:
        reader = await open_reader(sink, self._journal, self._store, since=self._since)
        event = self._wakeups.add()
        pace = Pace(reader.position)
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(_renewing(reader))
                try:
                    while True:
                        event.clear()
                        pause = await reader.step()
                        if pause != 0:
                            longest = LEASE_S if pause is None else pause
                            await self._wakeups.wait(event, min(longest, LEASE_S))
                        elif rest_s := pace.rest_s(reader.position, self._wakeups.rate):
                            await asyncio.sleep(rest_s)
                finally:
                    renewing.cancel()
        except* (FenceLost, JournalError) as errors:
            raise errors.exceptions[0] from None
        finally:
            self._wakeups.remove(event)
            await close_reader(reader, self._store)


async def _renewing(reader: SinkReader) -> None:
    while True:
        await asyncio.sleep(LEASE_S / 3)
        reader.renew()


async def open_reader(
    sink: Sink, journal: Journal, store: SinkStore, *, since: int | None = None
) -> SinkReader:
    """Claim the sink and go on at its cursor. `since`: where a new sink begins."""
    await begin(sink, journal, store, since=since)
    lease = store.claim(sink.name)
    return SinkReader(sink, journal, store, lease)


async def begin(
    sink: Sink, journal: Journal, store: SinkStore, *, since: int | None = None
) -> None:
    """Give a new sink its first cursor: what happens from now on is told, whoever reads for it."""
    if store.sink(sink.name) is None:
        begins = 0 if sink.from_start else since
        store.add(sink.name, await journal.position() if begins is None else begins)


async def close_reader(reader: SinkReader, store: SinkStore) -> None:
    """Close the connection and give up the lease, so that the next process need not wait."""
    try:
        async with asyncio.timeout(2.0):
            await reader.aclose()
    except TimeoutError:
        _log.info("sink %s: its connection did not close in time", reader.sink.name)
    finally:
        with suppress(JournalError):
            store.release(reader.lease)


async def tell(
    sinks: Iterable[Sink], journal: Journal, store: SinkStore, *, since: int, within_s: float
) -> bool:
    """Tell all sinks what is stored by now, as far as that goes in the time. Whether it was all.

    `since` is where new sinks begin. A sink that another process reads for is left to it.
    """
    end = await journal.position()

    async def tell_one(sink: Sink) -> bool:
        try:
            reader = await open_reader(sink, journal, store, since=since)
        except Conflict:
            return True
        try:
            # Nobody else may come for a while: what waits since earlier processes is tried too.
            store.hurry(reader.lease)
            async with asyncio.timeout(within_s):
                while await reader.step() == 0:
                    pass
        except TimeoutError:
            return False
        except JournalError as error:
            _log.warning("sink %s: %s", sink.name, error)
            return False
        finally:
            await close_reader(reader, store)
        return reader.position >= end and not store.pending(sink.name)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(tell_one(sink)) for sink in sinks]
    return all(task.result() for task in tasks)
