"""Replays: descriptors that work as they are, pace, states at any event."""

import time

import pytest

from batten.protocols.macp.metrics import milliseconds
from tests.service.macp.plane import Plane, decided
from tests.service.serving import Json


@pytest.fixture
async def run(plane: Plane) -> str:
    """The path of a run that has ended."""
    return await plane.run_of(await plane.speak(decided))


async def test_descriptor_has_addresses_that_work_as_they_are(plane: Plane, run: str) -> None:
    asked = {"mode": "instant", "speed": 2.5, "fromSeq": 3, "toSeq": 7}
    answer = await plane.posted(f"{run}/replay", asked)
    assert answer.status == 201
    assert answer.json == {
        **asked,
        "runId": run.removeprefix("/runs/"),
        "streamUrl": f"{run}/replay/stream?mode=instant&speed=2.5&fromSeq=3&toSeq=7",
        "stateUrl": f"{run}/replay/state",
    }
    frames = await plane.frames(answer.json["streamUrl"])
    assert [frame.id for frame in frames] == ["3", "4", "5", "6", "7"]
    assert await plane.get(answer.json["stateUrl"]) == await plane.get(f"{run}/state")
    usual = await plane.post(f"{run}/replay")
    assert (usual["mode"], usual["speed"]) == ("timed", 1)
    assert "fromSeq" not in usual


async def test_instant_and_step_replays_have_every_event_as_the_list_has_it(
    plane: Plane, run: str
) -> None:
    events = await plane.get(f"{run}/events")
    for mode in ("instant", "step"):
        frames = await plane.frames(f"{run}/replay/stream?mode={mode}")
        assert [frame.json for frame in frames] == events
        assert [frame.id for frame in frames] == [str(event["seq"]) for event in events]
        assert {frame.event for frame in frames} == {"canonical_event"}
    rest = await plane.frames(f"{run}/replay/stream?mode=step", Last_Event_Id="5")
    assert [frame.json for frame in rest] == events[5:]


async def test_timed_replay_keeps_distances_by_speed(plane: Plane, run: str) -> None:
    events = await plane.get(f"{run}/events")
    began = time.monotonic()
    frames = await plane.frames(f"{run}/replay/stream?mode=timed&speed=0.5")
    lasted_ms = (time.monotonic() - began) * 1000
    assert [frame.json for frame in frames] == events
    assert lasted_ms >= 2 * milliseconds(events[0]["ts"], events[-1]["ts"])


async def test_d27_numbers_in_the_query_of_a_replay_are_parsed(plane: Plane, run: str) -> None:
    frames = await plane.frames(f"{run}/replay/stream?mode=timed&speed=1000&fromSeq=2&toSeq=4")
    assert [frame.id for frame in frames] == ["2", "3", "4"]
    for query in ("speed=0", "speed=nan", "fromSeq=0", "toSeq=x", "mode=slow", "fromSeq=3&toSeq=2"):
        refused = await plane.refused("GET", f"{run}/replay/stream?{query}")
        assert refused == (400, "VALIDATION_ERROR"), query


async def test_state_at_an_event_is_the_fold_up_to_it(plane: Plane, run: str) -> None:
    events = await plane.get(f"{run}/events")
    for event in events:
        state = await plane.get(f"{run}/replay/state?seq={event['seq']}")
        assert state["timeline"]["latestSeq"] == state["timeline"]["totalEvents"] == event["seq"]
        recent = state["timeline"]["recent"][-1]
        assert (recent["id"], recent["type"]) == (event["id"], event["type"])
    whole = await plane.get(f"{run}/state")
    assert await plane.get(f"{run}/replay/state?seq={len(events)}") == whole
    assert await plane.get(f"{run}/replay/state?seq=100000") == whole
    empty = await plane.get(f"{run}/replay/state?seq=0")
    assert (empty["run"]["status"], empty["participants"]) == ("queued", [])


async def test_replay_refuses_what_is_wrong(plane: Plane, run: str) -> None:
    unknown = "/runs/0190b2f0-0000-7000-8000-000000000009/replay"
    for method, path in (("POST", ""), ("GET", "/stream"), ("GET", "/state?seq=1")):
        body: Json | None = {} if method == "POST" else None
        assert await plane.refused(method, unknown + path, body) == (404, "RUN_NOT_FOUND")
    assert await plane.refused("GET", f"{unknown}/state?seq=0") == (404, "RUN_NOT_FOUND")
    for seq in ("-1", "x", "1.5", "99999999999999999999"):
        refused = await plane.refused("GET", f"{run}/replay/state?seq={seq}")
        assert refused == (400, "VALIDATION_ERROR"), seq
    for body in ({"speed": "fast"}, {"mode": "slow"}, {"pace": 1}, {"fromSeq": 2, "toSeq": 1}):
        refused = await plane.refused("POST", f"{run}/replay", body)
        assert refused == (400, "VALIDATION_ERROR"), body
