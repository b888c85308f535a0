"""Streams of events: every reader gets every stored byte, whatever happens on the way."""

import asyncio
import resource
import time
from collections.abc import AsyncIterator

import pytest

from batten.contract.facts import (
    CostCallUnfinished,
    CostTick,
    Fact,
    RunStarted,
    SessionOpened,
    TurnCompleted,
    Unknown,
)
from batten.contract.facts.assistant import Usage
from batten.contract.ids import SessionId, new_run_id, new_session_id, new_task_id, session_stream
from batten.journal.contract import Lease, NewRun
from batten.journal.sqlite import SqliteJournal
from batten.journal.workers import this_worker
from tests.journal.given import FINISHED, QUEUED, text
from tests.serve.http.wire import clients, request
from tests.service.crowd import Client, Seen, frames
from tests.service.proxy import proxying
from tests.service.serving import PATIENCE_S, Run, Service
from tests.service.streaming import all_frames, reading


class Writer:
    """A run that this process executes, in the home of the service."""

    def __init__(self, journal: SqliteJournal) -> None:
        self.journal = journal
        self.task_id = new_task_id()
        self.run_id = new_run_id()
        self._lease: Lease | None = None

    async def begin(self) -> Seen:
        new = NewRun(
            run_id=self.run_id, kind="agent_loop", worker_id=this_worker(), task_id=self.task_id
        )
        self._lease, _ = await self.journal.create(new, [QUEUED])
        return Seen(self.task_id, self.run_id)

    async def write(self, *facts: Fact) -> None:
        assert self._lease is not None
        await self.journal.append(self.run_id, facts, fence=self._lease.fence)

    async def bodies(self) -> list[bytes]:
        return [one.body for one in await self.journal.read(self.run_id, limit=100_000)]


@pytest.fixture(scope="module")
def flags() -> tuple[str, ...]:
    return ("--workers", "0")


@pytest.fixture
async def writer(service: Service) -> AsyncIterator[Writer]:
    journal = SqliteJournal.open(service.stage.home)
    try:
        yield Writer(journal)
    finally:
        journal.close()


async def _crowd(service: Service, writer: Writer, readers: int, events: int, seed: int) -> None:
    """Readers of one run through a bad network, while it is written."""
    await writer.begin()
    async with proxying(service.url, seed) as proxy:
        seen = [Seen(writer.task_id, writer.run_id) for _ in range(readers)]
        ways = [Client(service, proxy) for _ in seen]
        async with asyncio.TaskGroup() as group:
            for way, one in zip(ways, seen, strict=True):
                group.create_task(way.follow(one))
            for number in range(events):
                await writer.write(text(f"number {number} " + "x" * (number % 700)))
                await asyncio.sleep(0.002)
            proxy.gentle = True
            await writer.write(FINISHED)
    stored = await writer.bodies()
    assert len(stored) == events + 2
    for one in seen:
        assert one.bodies == stored
    assert set(proxy.harms) > {"cut", "reset", "stall"}
    assert sum(way.lost for way in ways) > readers // 4, "the network was too good"


async def test_readers_behind_a_bad_network_get_every_stored_byte(
    service: Service, writer: Writer
) -> None:
    await _crowd(service, writer, readers=40, events=200, seed=1)


@pytest.mark.soak
async def test_a_thousand_readers_behind_a_bad_network_get_every_stored_byte(
    service: Service, writer: Writer
) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    await _crowd(service, writer, readers=1000, events=500, seed=time.time_ns())


async def _first_frames(service: Service, path: str, count: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    async with clients() as opened, asyncio.timeout(PATIENCE_S):
        connection = await opened.connect_to(service.url)
        await connection.send(request("GET", f"/hecate/v1{path}"))
        await connection.head()
        async for frame in frames(connection):
            found.append(frame)
            if len(found) == count:
                break
    return found


async def test_a_reader_gets_what_is_in_the_ring_and_what_no_longer_is(
    service: Service, writer: Writer
) -> None:
    seen = await writer.begin()
    for number in range(8):
        await writer.write(*(text(f"{number} " + "x" * 400) for _ in range(500)))
    first = asyncio.ensure_future(_first_frames(service, f"{seen.path}/events", 4101))
    recent = asyncio.ensure_future(
        _first_frames(service, f"{seen.path}/events?after_sequence=3990", 110)
    )
    for _ in range(100):
        await writer.write(text("and on"))
    await writer.write(FINISHED)
    stored = list(enumerate(await writer.bodies()))
    assert await first == stored[:4101]
    assert await recent == stored[3991:4101]


async def test_a_cursor_beyond_the_end_waits_for_what_follows_it(
    service: Service, writer: Writer
) -> None:
    seen = await writer.begin()
    reading = asyncio.ensure_future(
        _first_frames(service, f"{seen.path}/events?after_sequence=5", 2)
    )
    for number in range(8):
        await writer.write(text(str(number)))
    assert [number for number, _ in await reading] == [6, 7]


async def test_a_reader_with_all_of_an_ended_run_is_sent_away(
    service: Service, writer: Writer
) -> None:
    seen = await writer.begin()
    await writer.write(text("x"), FINISHED)
    last = len(await writer.bodies()) - 1
    # A browser would open an empty stream at such an address again and again.
    for cursor in (last, last + 1, 2**64 - 1):
        async with reading(service, f"{seen.path}/events?after_sequence={cursor}") as stream:
            assert stream.status == 204
    listed = await service.ask("GET", f"{seen.path}/events?limit=5&after_sequence={2**64 - 1}")
    assert (listed.status, listed.json) == (200, {"object": "list", "data": []})


async def test_a_stream_that_begins_after_the_ending_of_its_run_ends(
    service: Service, writer: Writer
) -> None:
    seen = await writer.begin()
    await writer.write(text("x"), FINISHED)
    last = len(await writer.bodies()) - 1
    late = Unknown(type="external.note", data={})
    await writer.journal.append(seen.run_id, [late, late], fence=None)
    frames_after = await all_frames(service, f"{seen.path}/events?after_sequence={last}")
    assert [int(frame.id) for frame in frames_after] == [last + 1, last + 2]
    await writer.journal.prune(seen.run_id, before=last + 3, reason="age")
    frames_after = await all_frames(service, f"{seen.path}/events?after_sequence=1")
    assert [frame.json["type"] for frame in frames_after] == ["gap.events_pruned"]
    shown = await service.get(seen.path)
    assert (shown["status"], shown["last_sequence"]) == ("completed", last + 3)
    # What was pruned is not counted as nothing.
    assert not {"step_count", "approval_count", "artifact_count"} & set(shown)


async def test_the_frame_of_a_turn_has_what_its_task_has_cost(
    service: Service, writer: Writer
) -> None:
    seen = await writer.begin()
    turn = TurnCompleted(
        turn_index=1,
        input_tokens=10,
        output_tokens=5,
        cached_input_tokens=0,
        cost_micros_usd=20,
        duration_ms=1,
        tool_calls=0,
        stop_reason="end_turn",
    )
    # Child runs and runs that this one does not continue are not among its own facts.
    await writer.write(turn)
    await writer.write(CostTick(31, 16, 63), FINISHED)
    frames = await all_frames(service, f"{seen.path}/stream?after_sequence=0")
    [told] = [frame for frame in frames if "turn" in frame.json["data"]]
    assert told.json["data"]["event_type"] == "turn.completed"
    assert told.json["data"]["turn"]["task_cumulative_cost_micros_usd"] == 63


async def test_a_task_tells_its_first_start_and_that_its_cost_is_a_lower_bound(
    service: Service, writer: Writer
) -> None:
    run = await service.started("scripted/none.json")
    await service.post(f"{run.path}/cancel")
    assert not {"started_at", "cost_unknown"} & set(await run.task())  # it was never claimed
    again = Run(service, run.task_id, (await service.post(f"{run.path}/retry"))["id"])
    lease = await writer.journal.claim(again.run_id, this_worker(), 30)
    facts = (
        RunStarted(worker_id="w", lease_until=lease.until),
        CostCallUnfinished(1, "anthropic", "m", "broken", Usage(), None, None),
        FINISHED,
    )
    await writer.journal.append(again.run_id, facts, fence=lease.fence)
    shown, task = await again.now(), await run.task()
    assert task["started_at"] == shown["started_at"]
    assert (task["cost_unknown"], shown["cost_unknown"]) == (True, True)


async def test_a_pruned_run_is_streamed_from_its_first_survivor(
    service: Service, writer: Writer
) -> None:
    seen = await writer.begin()
    await writer.write(*(text(str(number)) for number in range(20)), FINISHED)
    await writer.journal.prune(seen.run_id, before=15, reason="age")
    found = await _first_frames(service, f"{seen.path}/events?after_sequence=3", 100)
    assert [number for number, _ in found] == list(range(15, 23))
    assert [body for _, body in found] == await writer.bodies()


async def test_the_feed_waits_for_a_fact_that_its_filter_selects(
    service: Service, writer: Writer
) -> None:
    position = await writer.journal.position()
    path = f"/events?after_sequence={position}&wait=30&event_type=run.finished"
    waiting = asyncio.ensure_future(service.ask("GET", path))
    await writer.begin()
    await writer.write(text("a"), text("b"))
    await writer.write(FINISHED)
    answer = await asyncio.wait_for(waiting, PATIENCE_S)
    assert [one["type"] for one in answer.json["data"]] == ["run.finished"]
    assert answer.json["next_after_sequence"] == await writer.journal.position()


async def test_a_filtered_stream_misses_nothing_behind_pages_without_a_match(
    service: Service, writer: Writer
) -> None:
    other = Writer(writer.journal)
    for lone in (writer, other):
        await lone.begin()
    for _ in range(4):
        await other.write(*(text("noise") for _ in range(500)))
    await writer.write(FINISHED)
    for _ in range(4):
        await other.write(*(text("noise") for _ in range(500)))
    path = f"/events/stream?event_type=run.finished&task_id={writer.task_id}"
    async with clients() as opened, asyncio.timeout(PATIENCE_S):
        connection = await opened.connect_to(service.url)
        await connection.send(request("GET", f"/hecate/v1{path}"))
        await connection.head()
        seen = b""
        while b"data: " not in seen:
            seen += await connection.chunk()
    assert b'"type":"run.finished"' in seen


@pytest.mark.own_service
async def test_streams_of_sessions_are_in_the_feed_only_by_their_type(
    service: Service, writer: Writer
) -> None:
    session_id = new_session_id()
    stream = session_stream(SessionId(session_id))
    opened = SessionOpened(workspace_path="/work", task_id=writer.task_id, surface="hecate")
    new = NewRun(run_id=stream, kind="session", task_id=writer.task_id, session_id=session_id)
    await writer.journal.create(new, [opened])
    await writer.begin()
    await writer.write(FINISHED)
    everything = await service.ask("GET", "/events")
    assert {one["run_id"] for one in everything.json["data"]} == {writer.run_id}
    sessions = await service.ask("GET", "/events?event_type=session.opened")
    assert [one["run_id"] for one in sessions.json["data"]] == [stream]


@pytest.mark.own_service
async def test_a_stop_answers_readers_that_wait(service: Service, writer: Writer) -> None:
    seen = await writer.begin()
    paths = (f"{seen.path}/events?wait=60&after_sequence=50", "/events?wait=60&event_type=no.such")
    async with clients() as opened, asyncio.timeout(PATIENCE_S):
        waiting = [await opened.connect_to(service.url) for _ in paths]
        for connection, path in zip(waiting, paths, strict=True):
            await connection.send(request("GET", f"/hecate/v1{path}"))
        # Answered in order on one loop: those before have begun.
        assert (await service.ask("GET", "/system/stats")).status == 200
        assert await service.stop() == 0
        answers = [await connection.answer() for connection in waiting]
    assert [(answer.status, answer.json["data"]) for answer in answers] == [(200, []), (200, [])]
