"""The examples and the agents of `macp-sdk-python`, run while the control plane observes them."""

import asyncio
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from tests.serve.grpc.test_published_examples import block_with, quick_start, run
from tests.service.macp.describing import DECISION, DescribedPlane, descriptor
from tests.service.macp.plane import Plane
from tests.service.serving import PATIENCE_S

PANEL = ["lead", "ann", "ben"]
KICKOFF = {"proposal_id": "p1", "option": "merge", "rationale": "tests pass"}


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


def agent(directory: Path, plane: Plane, session_id: str, name: str) -> Any:
    """An agent that the SDK makes from a bootstrap, as a launcher writes it."""
    context: dict[str, Any] = {
        "participant_id": name,
        "session_id": session_id,
        "mode": DECISION,
        "runtime_url": plane.address,
        "auth_token": name,
        "participants": PANEL,
        "secure": False,
        "allow_insecure": True,
        "mode_version": "1.0.0",
        "configuration_version": "config.default",
    }
    if name == "lead":
        context["initiator"] = {
            "session_start": {"intent": "decide", "ttl_ms": 60_000},
            "kickoff": {"message_type": "Proposal", "payload": KICKOFF},
        }
    path = directory / f"{name}.json"
    path.write_bytes(msgspec.json.encode(context))
    return import_module("macp_sdk.agent.runner").from_bootstrap(str(path))


async def test_agents_that_the_sdk_runs_from_a_bootstrap_decide_a_described_run(
    described: DescribedPlane, tmp_path: Path
) -> None:
    made = await described.create(descriptor(*PANEL))
    await described.speak(lambda client: client.initialize())  # the runtime listens
    lead, *others = (agent(tmp_path, described, made["sessionId"], name) for name in PANEL)
    voted: list[str] = []

    def commit(message: Any, context: Any) -> None:
        voted.append(message.sender)
        if len(voted) == len(others):
            context.actions.commit("decision.selected", "tests", reason="agreed")

    def vote(message: Any, context: Any) -> None:
        context.actions.vote("p1", "APPROVE")

    lead.on("Vote", commit)
    for other in others:
        other.on("Proposal", vote)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        leading = group.create_task(asyncio.to_thread(lead.run))
        await described.until(made["runId"], "running")  # the others need the session
        for other in others:
            group.create_task(asyncio.to_thread(other.run))
        await leading
    record = await described.until(made["runId"], "completed")
    assert record["metadata"]["finalConfidence"] == 1
    state = await described.get(f"/runs/{made['runId']}/state")
    assert [one["status"] for one in state["participants"]] == ["completed"] * 3
    assert sorted(voted) == ["ann", "ben"]
