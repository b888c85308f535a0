"""Runs the sinks of a home: all of them in a process of their own, or for a moment after a run."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import aclosing, suppress

from batten.contract.errors import BattenError, Conflict, FenceLost, JournalError
from batten.journal.contract import Journal
from batten.sinks.contract import LEASE_S, Sink
from batten.sinks.reader import PAGE, SinkReader
from batten.sinks.store import SinkStore

_LOOK_EVERY_S = 1.0
"""How often to look for sinks that came, changed or went, and for leases that became free."""
_GATHER_S = 0.05
"""How long facts gather before readers look again."""
_LONGEST_GATHER_S = 0.4
"""The same while many come: a look costs as much as the facts of one run."""
_BUSY = 8
"""Facts of one look that mean that many come."""
_QUIET_S = 2.0
"""How long there is no fact before the next one is awaited instead of looked for."""
_FEW = 64
"""Facts of a round while runs append: parts of a round cannot rest."""
_COMPARE_EVERY_S = 10.0
"""How often lags are compared: within a second a slow answer looks like falling behind."""
_MANY = 1000
"""Facts that may wait for readers that keep up with runs."""
SHORT_REST = 5.0
"""Of readers that keep up: what they tell is some tenths of a second old."""
LONGEST_REST = 24.0
"""Of readers that tell of long ago. Their work meets so few appends that p99 does not show it."""

_log = logging.getLogger("batten.sinks")

Configured = Callable[[], Iterable[Sink]]
"""The sinks as they are configured now."""


class Wakeups:
    """One follower of the feed for all readers of a process.

    It wakes them with the first fact, and then gathers: waking up for each commit of a busy run
    doubled the time that its own appends took.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._waiting: set[asyncio.Event] = set()
        self.position = 0
        """The end of the journal, as it was last seen."""
        self.is_fed = False
        """Whether runs append now."""

    async def run(self) -> None:
        """Until cancelled."""
        self.position = await self._journal.position()
        while True:
            self.is_fed = False
            async with aclosing(self._journal.follow_feed(after=self.position)) as pages:
                await anext(pages, None)
            self.is_fed = True
            gather_s, quiet_s = _GATHER_S, 0.0
            while quiet_s < _QUIET_S:
                position = await self._journal.position()
                is_busy = position - self.position >= _BUSY
                gather_s = min(2 * gather_s, _LONGEST_GATHER_S) if is_busy else _GATHER_S
                if position != self.position:
                    self.position, quiet_s = position, 0.0
                    self.wake()
                await asyncio.sleep(gather_s)
                quiet_s += gather_s

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
    """How long readers rest while runs append: the longer, the less appends notice of them.

    Facts that just came are told soon. Readers with many before them, as in an export, rest long;
    while even more come than they tell, they rest less and less.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._compared_at = clock()
        self._lag: int | None = None
        self._rest = LONGEST_REST

    def rest(self, end: int, reached: Iterable[int]) -> float:
        """The rest after some work, in terms of the CPU time that the work took.

        `end` is the end of the journal, and `reached` are the positions of readers.
        """
        now, lag = self._clock(), end - min(reached, default=end)
        if lag <= _MANY:
            self._compared_at, self._lag, self._rest = now, lag, SHORT_REST
        elif now - self._compared_at >= _COMPARE_EVERY_S:
            grows = self._lag is not None and lag > self._lag
            self._rest = self._rest / 2 if grows else min(max(1.0, 2 * self._rest), LONGEST_REST)
            if self._rest < 1:
                self._rest = 0.0
            self._compared_at, self._lag = now, lag
        return self._rest


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
        self._readers: set[SinkReader] = set()
        self._pace = Pace()

    def rest(self) -> float:
        """The rest after some work, in terms of its CPU time: none while nothing is appended."""
        if not self._wakeups.is_fed:
            return 0.0
        reached = (one.position for one in self._readers if not one.is_stuck)
        return self._pace.rest(self._wakeups.position, reached)

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
        self._readers.add(reader)
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(_renewing(reader))
                try:
                    while True:
                        event.clear()
                        pause = await reader.step(_FEW if self.rest() else PAGE)
                        if pause != 0:
                            longest = LEASE_S if pause is None else pause
                            await self._wakeups.wait(event, min(longest, LEASE_S))
                finally:
                    renewing.cancel()
        except* (FenceLost, JournalError) as errors:
            raise errors.exceptions[0] from None
        finally:
            self._wakeups.remove(event)
            self._readers.discard(reader)
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
