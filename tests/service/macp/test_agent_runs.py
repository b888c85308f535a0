"""A run of our own agent on the paths of the control plane: the same views, the same streams."""

from pathlib import Path

from batten.contract.ids import to_uuid
from tests.agent.stage import bash, end, say
from tests.service.macp.plane import Plane
from tests.service.serving import serving
from tests.service.streaming import frames_at


async def test_an_agent_s_run_is_streamed_measured_and_exported(tmp_path: Path) -> None:
    async with serving(tmp_path, "--auto-allow", environ={"THROTTLE_LIMIT": "0"}) as service:
        plane = Plane(service)
        model = service.stage.scenario([bash("echo one", "call_1")], [say("done"), end()])
        run = await service.started(model, "say one")
        path = f"/runs/{to_uuid(run.run_id)}"
        frames = await frames_at(service, f"{path}/stream?afterSeq=0")
        await run.ended()
        events = await plane.get(f"{path}/events")
        assert [frame.json for frame in frames if frame.id] == events
        assert events[-1]["type"] == "run.completed"

        state = await plane.get(f"{path}/state")
        assert {one["participantId"]: one["status"] for one in state["participants"]} == {
            "agent": "completed",
            "user": "completed",
        }
        metrics = await plane.get(f"{path}/metrics")
        assert (metrics["toolCallCount"], metrics["messageCount"]) == (2, 3)
        assert metrics["totalTokens"] == state["llm"]["totals"]["totalTokens"]
        assert state["llm"]["totals"]["callCount"] == 2

        messages = await plane.get(f"{path}/messages")
        assert [(one["messageType"], one["sender"]) for one in messages] == [
            ("UserMessage", "user"),
            ("AssistantText", "agent"),
            ("FinalAnswer", "agent"),
        ]
        artifacts = await plane.get(f"{path}/artifacts")
        linked = state["trace"]["linkedArtifacts"]
        assert [one["id"] for one in artifacts] == linked
        assert artifacts[0]["label"] == "Root run trace"

        bundle = await plane.get(f"{path}/export?includeRaw=true")
        assert bundle["session"]["runtimeKind"] == "agent"
        facts = await run.events()
        assert [one["seq"] for one in bundle["rawEvents"]] == [one["sequence"] for one in facts]
        traces = await plane.get(f"{path}/traces")
        assert traces["spanCount"] == 2, "the run's own, and that of the tool call"
        compared = await plane.post(
            "/runs/compare", {"leftRunId": metrics["runId"], "rightRunId": metrics["runId"]}
        )
        assert (compared["statusMatch"], compared["durationDeltaMs"]) == (True, 0)
