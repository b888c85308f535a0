"""Retention over HTTP: on request and in the background, with its record."""

import asyncio
from pathlib import Path

from tests.agent.stage import bash, end, say
from tests.service.serving import PATIENCE_S, Json, Run, Service, serving
from tests.service.streaming import all_frames


async def ended(service: Service) -> Run:
    run = await service.started(service.stage.scenario([say("Hello."), end()], name="talk"))
    await run.ended()
    return run


async def test_line_68_runs_beyond_the_limit_are_pruned_on_request_with_a_marker(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, "--keep-runs", "1") as service:
        runs = [await ended(service) for _ in range(3)]
        last = [(await run.now())["last_sequence"] for run in runs]
        waiting = await service.started(
            service.stage.scenario([bash("echo")], [say("Done."), end()], name="waiting")
        )
        await waiting.approval()

        asked = {"subsystems": ["runs"]}
        done: Json = await service.post("/system/retention/run", asked)

        assert (done["trigger"], done["actor"]) == ("manual", "operator")
        [result] = done["results"]
        assert result == {"name": "runs", "deleted": 2, "max_count": 1}
        for run, sequence in zip(runs[:2], last, strict=False):
            [marker] = await run.events()
            assert (marker["type"], marker["sequence"]) == ("gap.events_pruned", sequence + 1)
            pruned = marker["data"]
            assert (pruned["first_pruned_sequence"], pruned["last_pruned_sequence"]) == (
                0,
                sequence,
            )
            assert pruned["reason"] == "retention_window"
            # A cursor inside the removed range leads to what is left.
            [frame] = await all_frames(service, f"{run.path}/events", last_event_id="1")
            assert frame.id == str(sequence + 1)
            assert (await run.now())["status"] == "completed"
            # What is gone is not counted as nothing.
            assert not {"step_count", "artifact_count"} & set(await run.task())
            [state, end_] = await all_frames(service, f"{run.path}/stream")
            assert state.json == end_.json
            assert state.json["data"]["run"]["status"] == "completed"
        assert (await runs[2].events())[0]["sequence"] == 0
        assert (await waiting.events())[0]["sequence"] == 0
        assert await service.get("/system/retention/runs") == [done]

        await service.stop()
        await service.start()
        assert await service.get("/system/retention/runs?limit=5") == [done]


async def test_a_pruned_run_still_tells_how_it_ended_and_what_was_answered(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, "--keep-runs", "1") as service:
        script = service.stage.scenario([bash("rm -r /")], [say("Done."), end()], name="asks")
        task_id = await service.task(script)
        traced = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        answer = await service.ask("POST", f"/tasks/{task_id}/start", {}, traced)
        run = Run(service, task_id, answer.json["data"]["id"])
        asked = await run.approval()
        assert (await run.resolve(asked["id"], "reject", note="no")).status == 200
        before, approval = await run.ended(), await service.get(f"{run.task_path}/approvals")
        await ended(service)
        await service.post("/system/retention/run", {"subsystems": ["runs"]})
        assert [event["type"] for event in await run.events()] == ["gap.events_pruned"]

        await service.stop()
        await service.start()

        counts = {"step_count", "approval_count", "artifact_count"}
        kept = {name: before[name] for name in before.keys() - counts}
        assert await run.now() == {**kept, "last_sequence": before["last_sequence"] + 1}
        assert kept["last_error"] == "approval rejected"
        assert kept["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
        # Only the call itself is gone.
        for one in approval:
            del one["input"], one["step_id"]
        assert await service.get(f"{run.task_path}/approvals") == approval
        assert (approval[0]["kind"], approval[0]["resolution_note"]) == ("bash", "no")


async def test_the_background_removes_without_a_request(tmp_path: Path) -> None:
    flags = ("--keep-runs-size", "1", "--retention-every", "1s")
    async with serving(tmp_path, *flags) as service:
        run = await ended(service)
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await service.get("/system/retention/runs")):
                await run.until("gap.events_pruned")
        assert found[-1]["trigger"] == "scheduled"
        assert [event["type"] for event in await run.events()] == ["gap.events_pruned"]


async def test_a_pinned_artifact_stays_readable(tmp_path: Path) -> None:
    async with serving(tmp_path, "--keep-artifacts", "1") as service:
        run = await ended(service)
        made: list[Json] = []
        for body in ("b25l", "dHdv", "dGhyZWU="):
            asked = {"kind": "image", "run_id": run.run_id, "mime_type": "image/x"}
            answer = await service.ask("POST", "/artifacts", {**asked, "body_base64": body})
            made.append(answer.json["data"])
        first, second, third = (f"/artifacts/{one['id']}" for one in made)
        assert (await service.ask("PATCH", first, {"pinned": True})).status == 200

        done: Json = await service.post("/system/retention/run", {})

        assert [result["deleted"] for result in done["results"]] == [0, 2]
        assert (await service.ask("GET", f"{first}/raw")).body == b"one"
        for gone in (second, third):
            assert (await service.ask("GET", gone)).status == 404
            assert (await service.ask("GET", f"{gone}/raw")).status == 404
        listed = await service.get("/artifacts")
        assert [one["id"] for one in listed] == [made[0]["id"]]


async def test_unknown_subsystems_are_refused(service: Service) -> None:
    answer = await service.ask("POST", "/system/retention/run", {"subsystems": ["traces"]})
    assert (answer.status, answer.error["type"]) == (400, "invalid_request")
    assert (await service.ask("GET", "/system/retention/runs?limit=0")).status == 400


async def test_a_stream_that_begins_after_the_end_of_a_run_ends_too(service: Service) -> None:
    run = await ended(service)
    last = (await run.now())["last_sequence"]
    await service.post(f"{run.path}/events", {"note": "afterwards"})
    [frame] = await all_frames(service, f"{run.path}/events", last_event_id=str(last))
    assert (frame.id, frame.json["type"]) == (str(last + 1), "external.event")
