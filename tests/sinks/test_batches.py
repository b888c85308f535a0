"""Batches: many runs in one request, and each message with an outcome of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import msgspec
import pytest

from batten.contract import facts
from batten.contract.tracing import trace_of
from batten.journal.sqlite import SqliteJournal
from batten.sinks.contract import Attempt, Message
from batten.sinks.otel.environment import OtelTarget
from batten.sinks.otel.transport import OtelTransport
from batten.sinks.running import Pace, Sinks, open_reader
from batten.sinks.store import SinkStore
from tests.journal.given import FINISHED, STARTED, called, new_run
from tests.sinks.http_receiver import HttpReceiver, Received, http_receiver
from tests.sinks.receiving import DOWN, OK, Clock, Receiver, pass_time, settle, sink
from tests.sinks.test_otel import base, export, metrics_of, spans_of
from tests.sinks.test_reader import HOUR, run_of

LARGE = b'{"resourceSpans":["' + b"a" * 600_000 + b'"]}'
REJECTED = b'{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too old"}}'


class BatchReceiver(Receiver):
    """Takes batches; each message is answered by itself."""

    most = 4

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    async def send_all(self, messages: Sequence[Message]) -> Sequence[Attempt]:
        self.batches.append(len(messages))
        return [await self.send(message) for message in messages]


@pytest.fixture
async def collector() -> AsyncIterator[HttpReceiver]:
    async with http_receiver() as running:
        yield running


def transport(collector: HttpReceiver, **more: Any) -> OtelTransport:
    where = base(collector)
    target = OtelTarget(
        traces_url=f"{where}/v1/traces",
        metrics_url=f"{where}/v1/metrics",
        headers={},
        service="batten",
        plane="batten",
        **more,
    )
    return OtelTransport(target, {})


def message(number: int, body: bytes = b'{"resourceSpans":[{}]}', kind: str = "traces") -> Message:
    return Message(
        message_id=f"{kind}{number}", run_id=f"run_{number}", type=kind, occurred_at="", body=body
    )


async def test_a_collector_that_takes_longer_than_its_timeout_is_asked_again(
    collector: HttpReceiver,
) -> None:
    collector.behave = lambda one: "hang"
    sending = transport(collector, timeouts={"traces": 0.05})
    attempt = await sending.send(message(1))
    await sending.aclose()
    assert (attempt.result, attempt.problem) == ("retry", "Request timed out after 0.05s")


async def short_run(journal: SqliteJournal) -> str:
    run = new_run()
    queued = facts.RunQueued("agent_loop", "m", "p", "/w", "in_place", None)
    lease, _ = await journal.create(run, [queued, STARTED])
    assert lease is not None
    turn = facts.TurnCompleted(1, 10, 5, 0, 100, 9, 0, "end_turn")
    happened = [facts.TurnStarted(1, "m", "p", 10), called(), turn, FINISHED]
    await journal.append(run.run_id, happened, fence=lease.fence)
    return run.run_id


def holds(text: str) -> Callable[[Received], bool]:
    return lambda one: text.encode() in one.body


async def test_many_runs_share_a_request_of_each_kind(
    journal: SqliteJournal, store: SinkStore, collector: HttpReceiver
) -> None:
    runs = [await short_run(journal) for _ in range(5)]
    await export(journal, store, collector)
    assert [one.path for one in collector.taken] == ["/v1/traces", "/v1/metrics"]
    assert {span["traceId"] for span in spans_of(collector.taken)} == set(map(trace_of, runs))
    assert [one["asInt"] for one in metrics_of(collector.taken)["batten.runs"]] == ["1"] * 5


async def test_a_message_that_a_collector_refuses_does_not_take_its_batch_with_it(
    journal: SqliteJournal, store: SinkStore, collector: HttpReceiver
) -> None:
    good, bad, other = [await short_run(journal) for _ in range(3)]
    is_bad = holds(trace_of(bad))
    collector.behave = lambda one: 400 if is_bad(one) else 200
    await export(journal, store, collector, metrics=False)
    assert {span["traceId"] for span in spans_of(collector.taken)} == {
        trace_of(good),
        trace_of(other),
    }
    assert {one.message.run_id for one in store.entries("otel", "dead")} == {bad}


async def test_a_batch_that_fails_waits_whole(
    journal: SqliteJournal, store: SinkStore, collector: HttpReceiver, clock: Clock
) -> None:
    runs = [await short_run(journal) for _ in range(3)]
    collector.behave = lambda one: 503
    await export(journal, store, collector, metrics=False)
    assert {one.message.run_id for one in store.entries("otel", "pending")} == set(runs)
    assert len(collector.all) == 1
    collector.behave = lambda one: 200
    clock.seconds += HOUR
    await export(journal, store, collector, metrics=False)
    assert {span["traceId"] for span in spans_of(collector.taken)} == set(map(trace_of, runs))


async def test_a_partly_rejected_batch_is_not_sent_again(collector: HttpReceiver) -> None:
    collector.said = REJECTED
    sender = transport(collector)
    attempts = await sender.send_all([message(1), message(2)])
    await sender.aclose()
    assert [(one.result, one.problem) for one in attempts] == [("refused", "rejected: too old")] * 2
    assert len(collector.all) == 1


async def test_large_messages_are_sent_in_requests_of_their_own(collector: HttpReceiver) -> None:
    sender = transport(collector)
    some = [message(1, LARGE), message(2), message(3, LARGE), message(4, kind="metrics")]
    attempts = await sender.send_all(some)
    await sender.aclose()
    assert [one.result for one in attempts] == ["delivered"] * 4
    found = [(one.path, sum(map(len, decoded(one).values()))) for one in collector.taken]
    assert found == [("/v1/traces", 2), ("/v1/traces", 1), ("/v1/metrics", 1)]


def decoded(one: Received) -> dict[str, list[Any]]:
    return msgspec.json.decode(one.body, type=dict[str, list[Any]])


async def test_batches_are_as_large_as_the_receiver_says(
    journal: SqliteJournal, store: SinkStore
) -> None:
    receiver = BatchReceiver()
    run = await run_of(journal, 8)
    reader = await open_reader(sink(receiver), journal, store)
    await settle(reader)
    assert receiver.batches == [4, 4, 2]
    assert receiver.of(run) == list(range(10))


async def test_later_messages_of_a_run_wait_behind_one_that_its_batch_could_not_tell(
    journal: SqliteJournal, store: SinkStore, clock: Clock
) -> None:
    receiver = BatchReceiver()
    stuck, free = await run_of(journal, 8), await run_of(journal, 8)
    receiver.answer = lambda one: DOWN if one.run_id == stuck and one.body != b"0" else OK
    reader = await open_reader(sink(receiver), journal, store)
    await settle(reader)
    assert receiver.of(free) == list(range(10))
    assert receiver.of(stuck) == [0]
    # Those of its first batch were tried with it, the others were not.
    assert {one.body for one in receiver.tries if one.run_id == stuck} == {b"0", b"1", b"2", b"3"}
    receiver.answer = lambda one: OK
    await pass_time(reader, store, clock, HOUR)
    assert receiver.of(stuck) == list(range(10))


async def test_a_receiver_of_batches_that_takes_nothing_is_tried_with_one_message(
    journal: SqliteJournal, store: SinkStore, clock: Clock
) -> None:
    receiver = BatchReceiver()
    runs = [await run_of(journal) for _ in range(10)]
    receiver.answer = lambda one: DOWN
    reader = await open_reader(sink(receiver), journal, store)
    await settle(reader)
    assert receiver.batches == [4]
    await pass_time(reader, store, clock, HOUR)
    assert receiver.batches == [4]
    receiver.answer = lambda one: OK
    await pass_time(reader, store, clock, HOUR)
    assert {run: receiver.of(run) for run in runs} == {run: [0, 1, 2, 3, 4] for run in runs}


def paced(*looks: tuple[int, int]) -> list[float]:
    """The rests of readers, a comparison apart; each look has the journal's end and a position."""
    now = 0.0
    pace = Pace(lambda: now)
    found: list[float] = []
    for end, reached in looks:
        now += 10.0
        found.append(pace.rest(end, [reached, end]))
        if end - reached > 1000:
            assert pace.rest(end + 10_000, [reached]) == found[-1]  # not compared again yet
    return found


def test_readers_of_an_export_rest_long_and_less_while_even_more_comes() -> None:
    assert paced(
        (100_000, 0),  # a first look tells nothing
        (100_500, 900),  # it gains
        (102_000, 1_000),  # more was appended than read
        (104_000, 2_000),  # again
        (104_500, 50_000),  # it gains
        (105_000, 80_000),
    ) == [24, 24, 12, 6, 12, 24]


def test_readers_that_keep_up_rest_briefly_and_not_at_all_once_they_fall_behind() -> None:
    assert paced(
        (100_000, 99_900),
        (101_000, 100_000),
        (103_000, 101_000),  # more comes than they tell
        (106_000, 102_000),
        (109_000, 103_000),
        (112_000, 104_000),
        (112_100, 108_000),  # they gain
        (112_200, 112_000),  # and have caught up
    ) == [5, 5, 2.5, 1.25, 0, 0, 1, 5]


async def test_sinks_work_slowly_only_while_runs_append(
    journal: SqliteJournal, store: SinkStore
) -> None:
    receiver = BatchReceiver()
    sinks = Sinks(journal, store, lambda: [sink(receiver)])
    assert not sinks.rest()
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        telling = group.create_task(sinks.run())
        run = await run_of(journal)
        # Nothing tells of it.
        while not (sinks.rest() and receiver.of(run) == list(range(5))):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        while sinks.rest():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        telling.cancel()
