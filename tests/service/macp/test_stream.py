"""`GET /runs/:id/stream`: a snapshot, every event once and in order, heartbeats, a clean end."""

import asyncio

from tests.service.macp.plane import Plane, decided, finish, opened
from tests.service.serving import PATIENCE_S
from tests.service.streaming import reading_at


async def test_stream_has_a_snapshot_then_live_events_and_ends_with_the_run(plane: Plane) -> None:
    session_id = await plane.speak(opened)
    run = await plane.run_of(session_id)
    seen = await plane.get(f"{run}/events")
    async with reading_at(plane.service, f"{run}/stream") as stream:
        frames = stream.frames()
        first = await anext(frames)
        assert (first.event, first.id) == ("snapshot", "")
        assert first.json == await plane.get(f"{run}/state")
        await plane.speak(lambda client: finish(client, session_id))
        rest = [frame async for frame in frames if frame.event != "heartbeat"]
    events = await plane.get(f"{run}/events")
    assert [frame.json for frame in rest] == events[len(seen) :]
    assert {frame.event for frame in rest} == {"canonical_event"}
    assert rest[-1].json["type"] == "run.completed"


async def test_stream_of_an_ended_run_ends_after_its_last_event(plane: Plane) -> None:
    run = await plane.run_of(await plane.speak(decided))
    events = await plane.get(f"{run}/events")
    snapshot, *rest = await plane.frames(f"{run}/stream?afterSeq=0")
    assert snapshot.event == "snapshot"
    assert [frame.json for frame in rest] == events
    alone = await plane.frames(f"{run}/stream")
    assert [frame.event for frame in alone] == ["snapshot"]


async def test_d25_a_snapshot_comes_first_unless_it_is_declined(plane: Plane) -> None:
    run = await plane.run_of(await plane.speak(decided))
    declined = await plane.frames(f"{run}/stream?includeSnapshot=false&afterSeq=3")
    assert [int(frame.id) for frame in declined[:2]] == [4, 5]
    assert {frame.event for frame in declined} == {"canonical_event"}
    wanted = await plane.frames(f"{run}/stream?includeSnapshot=true")
    assert [frame.event for frame in wanted] == ["snapshot"]


async def test_d26_only_canonical_events_have_an_id_which_is_their_seq(plane: Plane) -> None:
    run = await plane.run_of(await plane.speak(opened))
    async with reading_at(plane.service, f"{run}/stream?afterSeq=0&heartbeatMs=1000") as stream:
        ids: dict[str, set[str]] = {"snapshot": set(), "canonical_event": set()}
        async for frame in stream.frames():
            ids.setdefault(frame.event, set()).add(frame.id)
            if frame.event == "canonical_event":
                assert frame.id == str(frame.json["seq"])
            if frame.event == "heartbeat":
                assert set(frame.json) == {"ts"}
                break
    events = await plane.get(f"{run}/events")
    assert ids == {
        "snapshot": {""},
        "canonical_event": {str(seq) for seq in range(1, len(events) + 1)},
        "heartbeat": {""},
    }


async def test_reader_that_left_after_a_heartbeat_resumes_without_gap_or_repeat(
    plane: Plane,
) -> None:
    session_id = await plane.speak(opened)
    run = await plane.run_of(session_id)
    seen: list[str] = []
    path = f"{run}/stream?afterSeq=0&heartbeatMs=1000"
    async with reading_at(plane.service, path) as stream:
        async for frame in stream.frames():
            if frame.id:
                seen.append(frame.id)
            if frame.event == "heartbeat":
                break
    await plane.speak(lambda client: finish(client, session_id))
    # A browser repeats the query of its first request beside the header.
    seen += [one.id for one in await plane.frames(path, Last_Event_Id=seen[-1]) if one.id]
    events = await plane.get(f"{run}/events")
    assert seen == [str(event["seq"]) for event in events]
    answer = await plane.service.request("GET", path, headers={"Last-Event-Id": seen[-1]})
    assert answer.status == 204, "a browser must not connect to an ended run again"
    again = await plane.frames(f"{run}/stream", Last_Event_Id="none")
    assert [frame.event for frame in again] == ["snapshot"]


async def test_many_readers_of_a_run_get_the_same_events(plane: Plane) -> None:
    session_id = await plane.speak(opened)
    run = await plane.run_of(session_id)
    has_begun = [asyncio.Event() for _ in range(20)]

    async def read(begun: asyncio.Event) -> list[str]:
        async with reading_at(plane.service, f"{run}/stream?afterSeq=0") as stream:
            begun.set()
            return [frame.data async for frame in stream.frames() if frame.id]

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        readers = [group.create_task(read(begun)) for begun in has_begun]
        for begun in has_begun:
            await begun.wait()
        await plane.speak(lambda client: finish(client, session_id))
    events = await plane.service.request("GET", f"{run}/events")
    expected = [frame.data for frame in await plane.frames(f"{run}/stream?afterSeq=0") if frame.id]
    assert all(reader.result() == expected for reader in readers)
    assert "[" + ",".join(expected) + "]" == events.body.decode()


async def test_stream_refuses_unknown_runs_and_bad_parameters(plane: Plane) -> None:
    unknown = "/runs/0190b2f0-0000-7000-8000-000000000009/stream"
    assert await plane.refused("GET", unknown) == (404, "RUN_NOT_FOUND")
    assert await plane.refused("GET", "/runs/batch/stream") == (400, "VALIDATION_ERROR")
    for query in ("afterSeq=-1", "afterSeq=x", "heartbeatMs=999", "includeSnapshot=maybe"):
        assert await plane.refused("GET", f"{unknown}?{query}") == (400, "VALIDATION_ERROR")
