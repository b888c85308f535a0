"""Reads the journal for one sink: facts to messages, messages to the receiver, then the cursor.

A message that is not taken waits in the store, and the later ones of its run wait behind it; other
runs go on. While the receiver takes nothing at all, one message at a time is tried. A receiver that
takes batches gets them one after another.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from math import inf

from msgspec.structs import replace

from batten.contract.envelope import timestamp
from batten.contract.errors import BattenError
from batten.journal.contract import Stored
from batten.sinks.backoff import wait_s
from batten.sinks.contract import Attempt, BatchTransport, Feed, Message, Sink, Transport
from batten.sinks.folds import Folds
from batten.sinks.imported import happened_here
from batten.sinks.store import Entry, SinkLease, SinkStore

PAGE = 128
_LONGEST_PAUSE_S = 30.0
_FEWEST = 8
"""Attempts before a message is given up: about two minutes."""
_TRIP = 3
"""Failures in a row, without a success, after which the rest of a page waits untried."""
_BACK_AFTER = 3
"""Failed rounds after which a success means that the receiver was away and is back."""
_TRIM_EVERY = 100

_log = logging.getLogger("batten.sinks")


class SinkReader:
    """Tells one sink. The caller holds the lease for as long as it calls `step`."""

    def __init__(self, sink: Sink, journal: Feed, store: SinkStore, lease: SinkLease) -> None:
        self.sink = sink
        self._journal = journal
        self._store = store
        self.lease = lease
        self._folds = Folds(sink, journal)
        self._transport: Transport | None = None
        self._batching: BatchTransport | None = None
        """The same transport, if it takes batches."""
        self.position = lease.position
        """The cursor: everything up to here is delivered, waits in the store, or is dead."""
        self._failed_rounds = 0
        self._pause_until = 0.0
        self._rounds = 0

    async def step(self, most: int = PAGE) -> float | None:
        """Do the next round, of so many facts. Returns the seconds until there is more to do; 0 for
        at once, None for not before the next wake-up: facts that came meanwhile wait for it.
        """
        pause_s = self._pause_until - self._store.now()
        if 0.0 < pause_s <= _LONGEST_PAUSE_S:  # longer if the clock was set back
            return pause_s
        width = 1 if self._failed_rounds else max(self.sink.in_flight, self.batch)
        entries = self._store.due(self.sink.name, width)
        if entries:
            await self._round(_lanes(entries), width)
            return 0.0
        if self._store.pending(self.sink.name) < self.sink.max_pending:
            page = await self._journal.feed(after=self.position, limit=most)
            if page:
                await self._tell(page, width)
            if len(page) == most:
                return 0.0
        soonest = self._store.next_at(self.sink.name)
        return None if soonest is None else max(0.0, soonest - self._store.now())

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()

    def renew(self) -> None:
        """Keep the lease while there is nothing to do."""
        self._store.renew(self.lease)

    async def _tell(self, page: Sequence[Stored], width: int) -> None:
        folded = [(stored, await self._folds.messages(stored)) for stored in page]
        telling = [(stored, made) for stored, made in folded if made]
        here = happened_here(self._store, (stored for stored, _ in telling)) if telling else ()
        messages = [one for stored, made in telling if stored.position in here for one in made]
        now = self._store.now()
        entries = [_fresh(self.sink, one, now) for one in messages]
        blocked = self._store.blocked(self.sink.name) if entries else set[str]()
        waiting = [one for one in entries if one.message.run_id in blocked]
        lanes = _lanes([one for one in entries if one.message.run_id not in blocked])
        await self._round(lanes, width, waiting, position=page[-1].position)

    async def _round(
        self,
        lanes: Sequence[Sequence[Entry]],
        width: int,
        waiting: Sequence[Entry] = (),
        position: int | None = None,
    ) -> None:
        """Try the messages of all lanes, and store what became of them. Cancelling it stores what
        is known by then; what was on its way is tried again.
        """
        round_ = _Round(self, lanes, 1 if self._failed_rounds else _TRIP)
        try:
            await round_.run(width)
        finally:
            # In the order of their facts: the number of a message is its place in its run.
            told = sorted([*round_.entries(), *waiting], key=lambda one: one.message.position)
            self._keep(told, round_, position)

    def _keep(self, told: Sequence[Entry], round_: "_Round", position: int | None) -> None:
        was_away = self._failed_rounds >= _BACK_AFTER and round_.delivered > 0
        problem: str | None = None
        if round_.delivered:
            self._failed_rounds, self._pause_until, problem = 0, 0.0, ""
        elif round_.failures:
            self._failed_rounds += 1
            pause = wait_s(self._failed_rounds - 1, longest_s=_LONGEST_PAUSE_S)
            self._pause_until = self._store.now() + pause
        problem = round_.problem or problem
        self._store.commit(
            self.lease,
            told,
            position=position,
            delivered=round_.delivered,
            problem=problem,
            logs=self.sink.logs,
        )
        if position is not None:
            self.position = position
        if was_away:
            self._store.hurry(self.lease)
        self._rounds += 1
        if self.sink.logs and self._rounds % _TRIM_EVERY == 0:
            self._store.trim(self.sink.name)

    @property
    def is_stuck(self) -> bool:
        """Whether its receiver took nothing when it was last tried."""
        return self._failed_rounds > 0

    def _connected(self) -> Transport:
        if self._transport is None:
            self._transport = transport = self.sink.connect()
            # Once: to compare with a protocol takes as long as to fold a fact.
            self._batching = transport if isinstance(transport, BatchTransport) else None
        return self._transport

    @property
    def batch(self) -> int:
        """Messages of one request, at most."""
        self._connected()
        return 1 if self._batching is None else self._batching.most

    async def attempt(self, entries: Sequence[Entry]) -> list[Entry]:
        """Send messages in one request; the entries afterwards."""
        messages = [entry.message for entry in entries]
        transport = self._connected()
        attempts: Sequence[Attempt]
        try:
            if len(messages) > 1 and self._batching is not None:
                attempts = await self._batching.send_all(messages)
            else:
                attempts = [await transport.send(message) for message in messages]
        except BattenError as error:
            attempts = [Attempt(result="retry", problem=str(error))] * len(messages)
        except Exception as error:  # a bug on the way to one receiver must not end all sinks
            _log.error("sink %s: an attempt failed", self.sink.name, exc_info=error)
            problem = f"{type(error).__name__}: {error}"[:500]
            attempts = [Attempt(result="retry", problem=problem)] * len(messages)
        return [self.after(*pair) for pair in zip(entries, attempts, strict=True)]

    def after(self, entry: Entry, attempt: Attempt) -> Entry:
        """The entry after an attempt: delivered, waiting for the next one, or dead."""
        now = self._store.now()
        tried = replace(
            entry,
            attempts=entry.attempts + 1,
            answer=attempt.status,
            problem=attempt.problem,
        )
        if attempt.result == "delivered":
            return replace(tried, status="delivered", told_at=timestamp(int(now * 1e9)))
        left_s = inf if self.sink.give_up_s is None else entry.since + self.sink.give_up_s - now
        # A clock that was set forward makes a message old at once.
        gives_up = left_s <= 0.0 and tried.attempts >= _FEWEST
        if attempt.result == "refused" or gives_up:
            _log.error(
                "sink %s: message %s of %s is a dead letter: %s",
                *(self.sink.name, tried.message.message_id, tried.message.run_id, tried.problem),
            )
            return replace(tried, status="dead")
        pause = max(wait_s(tried.attempts, tried.message.message_id), attempt.retry_after_s or 0.0)
        if left_s > 0.0:  # one last try when its time is over
            pause = min(pause, left_s)
        return replace(tried, next_at=now + pause)


class _Round:
    """One try of the first messages of many runs; the next of a run follows a success."""

    def __init__(self, reader: SinkReader, lanes: Sequence[Sequence[Entry]], trip: int) -> None:
        self._reader = reader
        self._lanes = [list(lane) for lane in lanes]
        self._trip = trip
        self.delivered = 0
        self.failures = 0
        self.problem = ""

    async def run(self, width: int) -> None:
        size = min(width, self._reader.batch)
        if size > 1:
            await self._send_batches(size)
            return
        waiting = iter(self._lanes)

        async def work() -> None:
            for lane in waiting:
                await self._walk(lane)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(width, len(self._lanes))):
                group.create_task(work())

    async def _walk(self, lane: list[Entry]) -> None:
        for index, entry in enumerate(lane):
            if not self.delivered and self.failures >= self._trip:
                return
            [lane[index]] = await self._reader.attempt([entry])
            self._count(lane[index])
            if lane[index].status == "pending":
                return

    async def _send_batches(self, size: int) -> None:
        places = [(lane, index) for lane in self._lanes for index in range(len(lane))]
        for start in range(0, len(places), size):
            if not self.delivered and self.failures >= self._trip:
                return
            # The later messages of a run wait behind one that was not taken.
            batch = [
                (lane, index)
                for lane, index in places[start : start + size]
                if not any(one.status == "pending" and one.attempts for one in lane[:index])
            ]
            tried = await self._reader.attempt([lane[index] for lane, index in batch])
            for (lane, index), after in zip(batch, tried, strict=True):
                lane[index] = after
                self._count(after)

    def _count(self, after: Entry) -> None:
        if after.status == "delivered":
            self.delivered += 1
        else:
            self.problem = after.problem
        if after.status == "pending":
            self.failures += 1

    def entries(self) -> list[Entry]:
        return [entry for lane in self._lanes for entry in lane]


def _lanes(entries: Sequence[Entry]) -> list[list[Entry]]:
    """The messages by run, each in order."""
    lanes: dict[str, list[Entry]] = {}
    for entry in entries:
        lanes.setdefault(entry.message.run_id, []).append(entry)
    return list(lanes.values())


def _fresh(sink: Sink, message: Message, now: float) -> Entry:
    """A message that was never tried. Its patience began when its fact happened."""
    try:
        happened = datetime.fromisoformat(message.occurred_at).timestamp()
    except ValueError:
        happened = now
    return Entry(sink=sink.name, message=message, status="pending", since=min(happened, now))
