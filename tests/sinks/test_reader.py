"""One reader: order per run, bounded waiting, back-off, dead letters, and one process at a time."""

import asyncio
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from batten.contract.envelope import Envelope
from batten.contract.errors import Conflict, FenceLost, NotFound
from batten.journal.sqlite import SqliteJournal
from batten.journal.workers import this_worker
from batten.sinks import store as store_module
from batten.sinks.contract import Attempt, Message
from batten.sinks.running import Sinks, close_reader, open_reader, tell
from batten.sinks.store import SinkStore
from tests.journal.given import FINISHED, started, text
from tests.sinks.receiving import BAD, DOWN, OK, Clock, Receiver, pass_time, settle, sink

HOUR = 3600.0


async def run_of(journal: SqliteJournal, facts: int = 3) -> str:
    """A run with so many facts beyond its first two."""
    lease = await started(journal)
    for number in range(facts - 1):
        await journal.append(lease.run_id, [text(str(number))], fence=lease.fence)
    await journal.append(lease.run_id, [FINISHED], fence=lease.fence)
    return lease.run_id


async def test_every_fact_is_told_once_and_in_order(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver
) -> None:
    runs = [await run_of(journal, 200) for _ in range(3)]
    reader = await open_reader(sink(receiver), journal, store)
    assert await settle(reader) is None
    assert {run: receiver.of(run) for run in runs} == {run: list(range(202)) for run in runs}
    row = store.sink("plain")
    assert row is not None
    assert (row.position, row.delivered, row.pending) == (await journal.position(), 606, 0)


async def test_a_new_sink_begins_with_the_next_fact(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver
) -> None:
    await run_of(journal)
    reader = await open_reader(sink(receiver, from_start=False), journal, store)
    await settle(reader)
    assert receiver.tries == []
    later = await run_of(journal)
    await settle(reader)
    assert receiver.of(later) == [0, 1, 2, 3, 4]


async def test_a_message_that_fails_holds_up_its_own_run_only(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver, clock: Clock
) -> None:
    stuck, free = await run_of(journal), await run_of(journal)
    receiver.answer = lambda one: DOWN if one.run_id == stuck and one.body == b"1" else OK
    reader = await open_reader(sink(receiver), journal, store)
    await settle(reader)
    assert receiver.of(free) == [0, 1, 2, 3, 4]
    assert receiver.of(stuck) == [0]
    later = await run_of(journal)
    await settle(reader)
    assert receiver.of(later) == [0, 1, 2, 3, 4]
    receiver.answer = lambda one: OK
    await pass_time(reader, store, clock, HOUR)
    assert receiver.of(stuck) == [0, 1, 2, 3, 4]


async def test_a_bug_of_a_transport_is_a_failed_attempt(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver, clock: Clock
) -> None:
    def fail(one: Message) -> Attempt:
        raise KeyError(one.message_id)

    run_id = await run_of(journal)
    receiver.answer = fail
    reader = await open_reader(sink(receiver), journal, store)
    await settle(reader)
    row = store.sink(reader.sink.name)
    assert row is not None
    assert row.problem.startswith("KeyError")
    receiver.answer = lambda one: OK
    await pass_time(reader, store, clock, HOUR)
    assert receiver.of(run_id) == [0, 1, 2, 3, 4]


async def test_pauses_grow_to_an_hour_and_end_in_a_dead_letter_after_72_hours(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver, clock: Clock
) -> None:
    run = await run_of(journal, 1)
    receiver.answer = lambda one: DOWN
    times: list[float] = []
    began = clock.seconds = 1_700_000_000.0  # before the facts: their patience begins now
    reader = await open_reader(sink(receiver, give_up_s=72 * HOUR), journal, store)
    while not store.entries(status="dead"):
        tries = len(receiver.tries)
        pause = await reader.step()
        times += [clock.seconds - began] * (len(receiver.tries) - tries)
        clock.seconds += pause or 0.0
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) > 72
    assert all(pause <= 1.1 * HOUR for pause in pauses)
    assert max(pauses) > 0.9 * HOUR
    assert times[-1] == pytest.approx(72 * HOUR)
    [dead] = store.entries(status="dead")
    assert (dead.message.run_id, dead.message.body, dead.problem) == (run, b"0", DOWN.problem)


async def test_a_clock_that_is_set_back_holds_up_nothing(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver, clock: Clock
) -> None:
    receiver.answer = lambda message: DOWN
    run = await run_of(journal)
    reader = await open_reader(sink(receiver), journal, store)
    await pass_time(reader, store, clock, HOUR)
    receiver.answer = lambda message: OK
    clock.seconds -= 365 * 24 * HOUR
    assert await settle(reader) is None
    assert receiver.of(run) == list(range(5))


async def test_a_clock_that_is_set_forward_gives_up_nothing_at_once(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver, clock: Clock
) -> None:
    receiver.answer = lambda message: DOWN
    run = await run_of(journal)
    reader = await open_reader(sink(receiver, give_up_s=72 * HOUR), journal, store)
    await settle(reader)
    clock.seconds += 365 * 24 * HOUR
    assert await settle(reader) != 0  # it pauses as before
    assert store.entries(status="dead") == []
    receiver.answer = lambda message: OK
    await pass_time(reader, store, clock, HOUR)
    assert receiver.of(run) == list(range(5))


async def test_a_receiver_that_returns_after_an_hour_gets_everything_in_order(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver, clock: Clock
) -> None:
    runs = [await run_of(journal) for _ in range(20)]
    receiver.answer = lambda one: DOWN
    reader = await open_reader(sink(receiver), journal, store)
    await pass_time(reader, store, clock, HOUR)
    assert receiver.taken == []
    assert len(receiver.tries) < 200  # one message at a time is tried, with pauses
    receiver.answer = lambda one: OK
    await pass_time(reader, store, clock, 60)
    assert {run: receiver.of(run) for run in runs} == {run: [0, 1, 2, 3, 4] for run in runs}


async def test_what_waits_is_bounded_and_the_cursor_waits_with_it(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver, clock: Clock
) -> None:
    runs = [await run_of(journal, 60) for _ in range(20)]
    receiver.answer = lambda one: DOWN
    reader = await open_reader(sink(receiver, max_pending=200), journal, store)
    await pass_time(reader, store, clock, HOUR)
    assert store.pending("plain") <= 200 + 128
    assert reader.position < await journal.position()
    receiver.answer = lambda one: OK
    await pass_time(reader, store, clock, 2 * HOUR)
    assert {run: receiver.of(run) for run in runs} == {run: list(range(62)) for run in runs}


class Counting:
    """A fold with a memory: each message says how many facts the run had by then."""

    def __init__(self) -> None:
        self.count = 0

    def take(self, envelope: Envelope) -> Iterable[Message]:
        self.count += 1
        yield Message(
            message_id=f"{envelope.run_id}/{self.count}",
            run_id=envelope.run_id,
            type=envelope.type,
            occurred_at=envelope.occurred_at,
            body=str(self.count - 1).encode(),
        )


def counting(run_id: str) -> Counting:
    return Counting()


async def test_a_fold_that_was_dropped_is_folded_again(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver
) -> None:
    leases = [await started(journal) for _ in range(700)]
    wanted = sink(receiver, fold=counting)
    reader = await open_reader(wanted, journal, store)
    await settle(reader)
    for lease in leases:
        await journal.append(lease.run_id, [text("a"), FINISHED], fence=lease.fence)
    await settle(reader)
    for lease in leases:
        assert receiver.of(lease.run_id) == [0, 1, 2, 3]


async def test_in_flight_is_bounded_and_one_per_run(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver
) -> None:
    for _ in range(12):
        await run_of(journal)
    flying: list[str] = []
    most = 0

    async def answer(one: Message) -> Attempt:
        nonlocal most
        assert one.run_id not in flying
        flying.append(one.run_id)
        most = max(most, len(flying))
        for _ in range(3):
            await asyncio.sleep(0)
        flying.remove(one.run_id)
        return OK

    receiver.answer = answer
    reader = await open_reader(sink(receiver, in_flight=4), journal, store)
    await settle(reader)
    assert most == 4
    assert len(receiver.taken) == 60


async def test_dead_letters_are_listed_replayed_and_dropped(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver
) -> None:
    run = await run_of(journal)
    receiver.answer = lambda one: BAD if one.body in (b"1", b"3") else OK
    reader = await open_reader(sink(receiver), journal, store)
    await settle(reader)
    assert receiver.of(run) == [0, 2, 4]
    dead = store.entries(status="dead")
    assert [(one.message.body, one.answer, one.problem) for one in dead] == [
        (b"3", 400, BAD.problem),
        (b"1", 400, BAD.problem),
    ]
    store.drop([dead[0].id])
    receiver.answer = lambda one: OK
    store.replay([dead[1].id])
    with pytest.raises(Conflict, match="still waits"):
        store.drop([dead[1].id])
    await settle(reader)
    assert receiver.of(run) == [0, 2, 4, 1]
    assert store.entries() == []
    with pytest.raises(NotFound, match="no message"):
        store.replay([dead[0].id])
    # Totals only grow, whatever becomes of messages and sinks.
    kind = reader.sink.name.partition(":")[0]
    assert store.totals(kind) == {"delivered": 4, "failed": 2}
    store.remove(reader.sink.name)
    assert store.totals(kind) == {"delivered": 4, "failed": 2}


async def test_a_log_keeps_what_was_delivered_and_tells_it_again(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver
) -> None:
    run = await run_of(journal, 1)
    reader = await open_reader(sink(receiver, logs=True), journal, store)
    await settle(reader)
    log = store.entries("plain", "delivered")
    assert [(one.message.body, one.attempts, one.answer) for one in log] == [
        (b"2", 1, 200),
        (b"1", 1, 200),
        (b"0", 1, 200),
    ]
    store.replay([log[0].id])
    await settle(reader)
    assert receiver.of(run) == [0, 1, 2, 2]


async def test_a_cancelled_round_forgets_nothing(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver, clock: Clock
) -> None:
    run, other = await run_of(journal), await run_of(journal)

    async def hang(one: Message) -> Attempt:
        if one.run_id == run and one.body == b"2":
            await asyncio.Event().wait()
        return OK

    receiver.answer = hang
    reader = await open_reader(sink(receiver), journal, store)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await reader.step()
    assert receiver.of(other) == [0, 1, 2, 3, 4]
    await close_reader(reader, store)
    receiver.answer = lambda one: OK
    again = await open_reader(sink(receiver), journal, store)
    await settle(again)
    assert receiver.of(run) == [0, 1, 2, 3, 4]


async def test_one_process_at_a_time_reads_for_a_sink(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run_of(journal)
    first = await open_reader(sink(receiver), journal, store)
    other = this_worker().rsplit("-", 2)[0] + "-1-0"  # the first process of the machine: it lives
    with monkeypatch.context() as patched:
        patched.setattr(store_module, "this_worker", lambda: other)
        with pytest.raises(Conflict, match="reads for the sink"):
            store.claim("plain")
        store.release(first.lease)
        store.claim("plain")
    with pytest.raises(FenceLost):
        await first.step()
    row = store.sink("plain")
    assert row is not None
    assert row.position == 0  # the fenced reader moved nothing


async def test_the_next_process_goes_on_where_a_killed_one_stopped(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver, tmp_path: Path
) -> None:
    run = await run_of(journal)
    reader = await open_reader(sink(receiver), journal, store)
    await settle(reader)
    await store_dead_worker(store)
    second = SinkStore.open(str(tmp_path))
    try:
        later = await run_of(journal)
        again = await open_reader(sink(receiver), journal, second)
        await settle(again)
        assert (receiver.of(run), receiver.of(later)) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])
    finally:
        second.close()


async def store_dead_worker(store: SinkStore) -> None:
    """Let the lease belong to a process of this machine that is gone."""
    gone = this_worker().rsplit("-", 2)[0] + "-4194303-1"
    with store.writing() as db:
        db.execute("UPDATE sinks SET worker_id = ?", (gone,))


async def test_telling_ends_at_its_bound_and_the_next_process_tells_the_rest(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver
) -> None:
    run = await run_of(journal)

    async def hang(one: Message) -> Attempt:
        await asyncio.Event().wait()
        return OK

    slow, quick = Receiver(), receiver
    slow.answer = hang
    both = [sink(slow, "slow"), sink(quick, "quick")]
    assert not await tell(both, journal, store, since=0, within_s=0.2)
    assert quick.of(run) == [0, 1, 2, 3, 4]
    slow.answer = lambda one: OK
    assert await tell(both, journal, store, since=0, within_s=30)
    assert (slow.of(run), quick.of(run)) == ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4])


async def test_the_process_of_sinks_tells_new_facts_as_they_come(
    journal: SqliteJournal, store: SinkStore, receiver: Receiver
) -> None:
    arrived = asyncio.Event()

    def answer(one: Message) -> Attempt:
        if one.type == FINISHED.TYPE:
            arrived.set()
        return OK

    receiver.answer = answer
    configured = [sink(receiver)]
    running = asyncio.create_task(Sinks(journal, store, lambda: configured).run())
    try:
        for _ in range(3):
            arrived.clear()
            run = await run_of(journal)
            async with asyncio.timeout(20):
                await arrived.wait()
            assert receiver.of(run) == [0, 1, 2, 3, 4]
    finally:
        running.cancel()
        await asyncio.wait([running])
    row = store.sink("plain")
    assert row is not None
    assert not row.is_read
    assert receiver.closed == 1
