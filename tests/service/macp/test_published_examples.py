"""The examples that `macp-sdk-python` ships, run while the control plane observes them."""

import asyncio
from typing import Any

from tests.serve.grpc.test_published_examples import block_with, quick_start, run
from tests.service.macp.plane import Plane


async def test_the_sdk_s_own_examples_are_runs_of_the_control_plane_from_start_to_commitment(
    plane: Plane,
) -> None:
    await plane.speak(lambda client: client.initialize())  # the runtime listens
    for program in (quick_start(), block_with("AsyncDecisionSession")):
        await asyncio.to_thread(run, plane.address, program)
    listed = await plane.get("/runs?status=completed&sortOrder=asc")
    assert (listed["total"], len(listed["data"])) == (2, 2)
    for record in listed["data"]:
        await _check_views(plane, record)
    charts = (await plane.get("/dashboard/overview"))["charts"]
    assert charts["decisionOutcome"]["data"] == [2]


async def _check_views(plane: Plane, record: dict[str, Any]) -> None:
    path = f"/runs/{record['id']}"
    events = await plane.get(f"{path}/events")
    assert [one["seq"] for one in events] == list(range(1, record["lastEventSeq"] + 1))
    types = [one["type"] for one in events]
    assert types[:3] == ["run.created", "run.started", "session.bound"]
    assert types[-1] == "run.completed"
    assert types.index("proposal.created") < types.index("decision.finalized")
    state = await plane.get(f"{path}/state")
    assert (state["run"]["status"], state["timeline"]["totalEvents"]) == ("completed", len(events))
    current = state["decision"]["current"]
    assert (current["finalized"], current["outcomePositive"]) == (True, True)
    assert record["metadata"]["finalAction"] == current["action"]
    metrics = await plane.get(f"{path}/metrics")
    assert (metrics["eventCount"], metrics["decisionCount"]) == (len(events), 1)
    frames = await plane.frames(f"{path}/stream?afterSeq=0&includeSnapshot=false")
    assert [frame.json for frame in frames] == events
