"""Actions on runs of a real service: cancel, clone, archive, delete, rebuild, suspend, batches."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from batten.contract.ids import from_uuid, to_uuid
from tests.agent.stage import bash, end, say
from tests.coordination.published import sdk
from tests.service.macp.describing import DescribedPlane, described_planes, descriptor
from tests.service.macp.initiators import Asked, initiators
from tests.service.serving import Json, serving

DELEGATED = {"cancellationDelegated": True}
NO_WAY = (
    "run has no cancelCallback in metadata and no policy delegation - cannot cancel from"
    " control-plane"
)


async def running(plane: DescribedPlane, **metadata: Any) -> Json:
    """A run whose session is open."""
    made = await plane.create(descriptor(metadata=metadata))
    await plane.open(made["sessionId"])
    await plane.until(made["runId"], "running")
    return made


async def completed(plane: DescribedPlane, **metadata: Any) -> Json:
    made = await running(plane, **metadata)
    await plane.decide(made["sessionId"])
    await plane.until(made["runId"], "completed")
    return made


async def test_option_a_asks_the_initiator_who_cancels_in_its_own_name(
    described: DescribedPlane,
) -> None:
    made: Json = {}

    async def cancel_session(asked: Asked) -> None:
        await described.speak(
            lambda client: client.cancel_session(made["sessionId"], reason="told to")
        )

    async with initiators(act=cancel_session) as initiator:
        callback = {"url": initiator.url, "bearer": "opt-shared-secret"}
        made |= await running(described, cancelCallback=callback)
        record = await described.post(f"/runs/{made['runId']}/cancel", {"reason": "enough"})
    assert (record["status"], record["id"]) == ("cancelled", made["runId"])
    (asked,) = initiator.requests
    assert asked.line == "POST /agent/cancel HTTP/1.1"
    assert asked.headers["authorization"] == "Bearer opt-shared-secret"
    assert asked.body == {"runId": made["runId"], "reason": "enough"}
    events = await described.get(f"/runs/{made['runId']}/events?type=session.state.changed")
    assert events["data"][-1]["data"]["by"] == "lead"
    assert (await described.types(made["runId"])).count("run.cancelled") == 1
    log = await described.get(f"/audit?resourceId={made['runId']}&action=run.cancelled")
    assert log["total"] == 1


async def test_a_session_that_its_initiator_completes_when_asked_is_not_told_as_cancelled(
    described: DescribedPlane,
) -> None:
    made: Json = {}

    async def decide(asked: Asked) -> None:
        await described.decide(made["sessionId"])

    async with initiators(act=decide) as initiator:
        made |= await running(described, cancelCallback={"url": initiator.url})
        record = await described.post(f"/runs/{made['runId']}/cancel")
    assert record["status"] == "completed"
    log = await described.get(f"/audit?resourceId={made['runId']}&action=run.cancelled")
    assert log["total"] == 0


async def test_a_session_whose_initiator_agreed_and_did_nothing_is_cancelled_for_it(
    described: DescribedPlane,
) -> None:
    async with initiators("202 Accepted") as initiator:
        made = await running(described, cancelCallback={"url": initiator.url})
        record = await described.post(f"/runs/{made['runId']}/cancel")
    assert record["status"] == "cancelled"
    assert initiator.requests[0].body == {"runId": made["runId"], "reason": None}
    assert "authorization" not in initiator.requests[0].headers


async def test_a_callback_that_fails_is_a_502_and_leaves_the_run(
    described: DescribedPlane,
) -> None:
    moved = "location: http://127.0.0.1:1/elsewhere\r\n"
    async with (
        initiators("500 Oops") as failing,
        initiators("307 Moved", headers=moved) as moving,
    ):
        wrong = {
            failing.url: f"cancel callback {failing.url} returned 500",
            moving.url: f"cancel callback {moving.url} failed: it redirects",
            "http://127.0.0.1:1/": "cancel callback http://127.0.0.1:1/ failed: ",
            "http://10.255.255.1/": "cancel callback http://10.255.255.1/ failed: ",
        }
        for url, expected in wrong.items():
            await cannot_cancel(described, url, expected)


async def test_a_callback_that_does_not_answer_in_time_is_a_502(tmp_path: Path) -> None:
    environ = {"CANCEL_CALLBACK_TIMEOUT_MS": "300"}
    async with described_planes(tmp_path, environ=environ) as plane:
        never = asyncio.Event()

        async def hang(asked: Asked) -> None:
            await never.wait()

        async with initiators(act=hang) as silent:
            await cannot_cancel(plane, silent.url, f"cancel callback {silent.url} failed: ")
            never.set()


async def cannot_cancel(plane: DescribedPlane, url: str, expected: str) -> None:
    made = await running(plane, cancelCallback={"url": url})
    status, code, message = await plane.told("POST", f"/runs/{made['runId']}/cancel", {})
    assert (status, code) == (502, "INTERNAL_ERROR")
    assert message.startswith(expected), message
    assert (await plane.get(f"/runs/{made['runId']}"))["status"] == "running"


async def test_option_b_cancels_an_open_session_of_this_home(described: DescribedPlane) -> None:
    ignored = {"url": "http://127.0.0.1:1/", "bearer": "x"}
    made = await running(described, **DELEGATED, cancelCallback=ignored)
    record = await described.post(f"/runs/{made['runId']}/cancel", {"reason": "over budget"})
    assert record["status"] == "cancelled"
    types = await described.types(made["runId"])
    assert types[-2:] == ["session.state.changed", "run.cancelled"]
    with pytest.raises(sdk.MacpAckError):
        await described.decide(made["sessionId"])
    again = await described.post(f"/runs/{made['runId']}/cancel")
    assert again == record


async def test_a_run_that_waits_is_cancelled_and_its_session_never_opens(
    described: DescribedPlane,
) -> None:
    async with initiators() as initiator:
        for metadata in (DELEGATED, {"cancelCallback": {"url": initiator.url}}):
            made = await described.create(descriptor(metadata=metadata))
            record = await described.post(f"/runs/{made['runId']}/cancel")
            assert (record["status"], record["startedAt"]) == ("cancelled", None)
            assert await described.types(made["runId"]) == ["run.created", "run.cancelled"]
            with pytest.raises(sdk.MacpAckError) as refused:
                await described.open(made["sessionId"])
            assert refused.value.failure.code == "SESSION_NOT_OPEN"


async def test_a_run_is_cancelled_also_where_the_audit_log_cannot_be_written(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, "--no-runtime", "--workers", "0") as service:
        plane = DescribedPlane(service)
        made = await plane.create(descriptor(metadata=DELEGATED))
        for left in Path(service.stage.home).glob("audit.db*"):
            left.unlink()
        (Path(service.stage.home) / "audit.db").mkdir()
        await service.stop()
        await service.start()
        record = await plane.post(f"/runs/{made['runId']}/cancel")
        assert record["status"] == "cancelled"


async def test_cancels_at_the_same_time_end_a_run_once(described: DescribedPlane) -> None:
    waiting = await described.create(descriptor(metadata=DELEGATED))
    opened = await running(described, **DELEGATED)
    for made in (waiting, opened):
        path = f"/runs/{made['runId']}/cancel"
        records = await asyncio.gather(*(described.post(path) for _ in range(6)))
        assert {one["status"] for one in records} == {"cancelled"}
        assert (await described.types(made["runId"])).count("run.cancelled") == 1


async def test_a_run_without_callback_or_delegation_is_not_cancelled(
    described: DescribedPlane,
) -> None:
    nobody = {"cancelCallback": None, "cancellationDelegated": None}
    made = await running(described, **nobody)
    path = f"/runs/{made['runId']}/cancel"
    assert await described.told("POST", path, {}) == (400, "VALIDATION_ERROR", NO_WAY)
    await described.decide(made["sessionId"])
    done = await described.until(made["runId"], "completed")
    assert await described.post(path) == done
    assert await described.refused("POST", f"/runs/{uuid4()}/cancel") == (404, "RUN_NOT_FOUND")


async def test_a_session_whose_runtime_is_gone_is_cancelled_all_the_same(tmp_path: Path) -> None:
    async with described_planes(tmp_path) as plane:
        made = await running(plane, **DELEGATED)
        await plane.service.kill()
        await plane.service.start("--workers", "0", "--no-runtime")
        record = await plane.post(f"/runs/{made['runId']}/cancel")
        assert record["status"] == "cancelled"
        types = await plane.types(made["runId"])
        assert types[-2:] == ["session.state.changed", "run.cancelled"]


async def test_an_agent_s_run_is_cancelled_through_its_task(tmp_path: Path) -> None:
    async with described_planes(tmp_path, "--workers", "1", "--auto-allow") as plane:
        stage = plane.service.stage
        model = stage.scenario([bash("touch begun; sleep 60")], [say("late"), end()])
        metadata = {
            "prompt": "wait",
            "model": model,
            "workspaceMode": "in_place",
            "workingDirectory": str(stage.workspace),
        }
        body = {**descriptor(metadata=metadata), "runtime": {"kind": "agent"}}
        made = await plane.create(body)
        await plane.until(made["runId"], "running")
        record = await plane.post(f"/runs/{made['runId']}/cancel", {"reason": "stop"})
        assert (await plane.until(made["runId"], "cancelled"))["id"] == record["id"]


async def test_d28_a_clone_has_other_tags_and_context_and_no_key(described: DescribedPlane) -> None:
    secret = "bearer-of-the-original"
    async with initiators() as initiator:
        callback = {"url": initiator.url, "bearer": secret}
        body = {
            **descriptor(metadata={"cancelCallback": callback, "context": {"a": 1}, "x": "y"}),
            "execution": {"idempotencyKey": "k", "tags": ["old"]},
        }
        made = await described.create(body)
        path = f"/runs/{made['runId']}/clone"
        copy = await described.post(path, {"tags": ["new"], "context": {"b": 2}})
        assert copy["status"] == "queued"
        assert copy["runId"] != made["runId"]
        assert copy["sessionId"] != made["sessionId"]
        record = await described.get(f"/runs/{copy['runId']}")
        assert (record["tags"], record["idempotencyKey"]) == (["new"], None)
        asked = record["metadata"]["executionRequest"]
        assert asked["session"]["metadata"]["context"] == {"b": 2}
        assert asked["session"]["metadata"]["x"] == "y"
        assert "idempotencyKey" not in asked["execution"]
        same = await described.post(path)
        assert (await described.get(f"/runs/{same['runId']}"))["tags"] == ["old"]
        await described.post(f"/runs/{copy['runId']}/cancel")
        assert initiator.requests[0].headers["authorization"] == f"Bearer {secret}"
    log = await described.get(f"/audit?resourceId={copy['runId']}&action=run.cloned")
    assert [one["details"]["source"] for one in log["data"]] == [made["runId"]]


async def test_a_clone_needs_a_descriptor_and_takes_no_other_fields(
    described: DescribedPlane,
) -> None:
    made = await described.create()
    path = f"/runs/{made['runId']}/clone"
    assert await described.refused("POST", path, {"kickoff": []}) == (400, "VALIDATION_ERROR")
    assert await described.refused("POST", f"/runs/{uuid4()}/clone") == (404, "RUN_NOT_FOUND")

    def start(client: Any) -> str:
        session = sdk.DecisionSession(client)
        session.start(intent="decide", participants=["lead"], ttl_ms=60_000)
        session_id: str = session.session_id
        return session_id

    foreign = await described.run_of(await described.speak(start))
    assert await described.refused("POST", f"{foreign}/clone") == (400, "VALIDATION_ERROR")


async def test_archiving_counts_once_in_any_status(described: DescribedPlane) -> None:
    made = await described.create()
    path = f"/runs/{made['runId']}"
    first, *others = await asyncio.gather(*(described.post(f"{path}/archive") for _ in range(5)))
    assert others == [first] * 4
    assert (first["status"], first["tags"]) == ("queued", ["archived"])
    assert first["archivedAt"] == first["updatedAt"]
    assert await described.post(f"{path}/archive") == first
    assert await described.get(path) == first
    assert await described.types(made["runId"]) == ["run.created"]
    log = await described.get(f"/audit?resourceId={made['runId']}&action=run.archived")
    assert log["total"] == 1
    await described.open(made["sessionId"])
    later = await described.until(made["runId"], "running")
    assert (later["archivedAt"], later["tags"]) == (first["archivedAt"], ["archived"])
    assert await described.refused("POST", f"/runs/{uuid4()}/archive") == (404, "RUN_NOT_FOUND")


async def test_only_an_ended_run_is_deleted_with_its_views(described: DescribedPlane) -> None:
    made = await running(described)
    path = f"/runs/{made['runId']}"
    told = await described.told("DELETE", path)
    assert told == (
        400,
        "VALIDATION_ERROR",
        "only terminal runs (completed, failed, cancelled) can be deleted",
    )
    await described.decide(made["sessionId"])
    await described.until(made["runId"], "completed")
    asked = (described.service.request("DELETE", path) for _ in range(5))
    answers = {answer.status: answer for answer in await asyncio.gather(*asked)}
    assert (answers[204].body, answers[404].json["errorCode"]) == (b"", "RUN_NOT_FOUND")
    assert await described.refused("GET", path) == (404, "RUN_NOT_FOUND")
    assert await described.refused("GET", f"{path}/state") == (404, "RUN_NOT_FOUND")
    assert await described.refused("DELETE", path) == (404, "RUN_NOT_FOUND")
    log = await described.get(f"/audit?resourceId={made['runId']}&action=run.deleted")
    assert log["total"] == 1
    with closing(sqlite3.connect(described.service.stage.home / "views.db")) as db:
        for table in ("kept", "events", "snapshots"):
            name = from_uuid(made["runId"], "run")
            found = db.execute(f"SELECT count(*) FROM {table} WHERE run_id = ?", (name,))
            assert found.fetchone() == (0,), table
    again = await described.create(descriptor(sessionId=made["sessionId"]))
    assert again["runId"] != made["runId"]
    await described.open(made["sessionId"])
    await described.until(again["runId"], "running")


async def test_a_run_that_others_go_on_from_is_deleted_with_its_task_only(tmp_path: Path) -> None:
    async with described_planes(tmp_path, "--workers", "1") as plane:
        model = plane.service.stage.scenario([say("One."), end()], [say("Two."), end()])
        run = await plane.service.started(model)
        await run.ended()
        more = await plane.service.post(f"{run.path}/continue", {"prompt": "more"})
        assert more["id"] != run.run_id
        listed = await plane.get(f"/batten/v1/runs?task_id={run.task_id}")
        assert len(listed["data"]) == 2
        path = f"/runs/{to_uuid(run.run_id)}"
        status, code, message = await plane.told("DELETE", path)
        assert (status, code) == (409, "CONFLICT")
        assert f"DELETE /hecate/v1/tasks/{run.task_id}" in message


async def test_a_rebuilt_projection_is_the_same_and_goes_on(described: DescribedPlane) -> None:
    made = await running(described)
    path = f"/runs/{made['runId']}"
    before = await described.service.request("GET", f"{path}/state")
    events = await described.service.request("GET", f"{path}/events")
    with closing(sqlite3.connect(described.service.stage.home / "views.db")) as db:
        for table in ("kept", "events"):
            db.execute(f"UPDATE {table} SET body = '{{}}'")
        db.commit()
    rebuilt = await described.service.request("POST", f"{path}/projection/rebuild")
    assert (rebuilt.status, rebuilt.body) == (200, before.body)
    assert (await described.service.request("GET", f"{path}/state")).body == before.body
    assert (await described.service.request("GET", f"{path}/events")).body == events.body
    await described.decide(made["sessionId"])
    record = await described.until(made["runId"], "completed")
    assert record["metadata"]["finalAction"] == "decision.selected"
    seqs = [one["seq"] for one in await described.get(f"{path}/events?limit=1000")]
    assert seqs == [*range(1, len(seqs) + 1)]
    unknown = f"/runs/{uuid4()}/projection/rebuild"
    assert await described.refused("POST", unknown) == (404, "RUN_NOT_FOUND")


async def test_a_session_is_suspended_and_resumed(described: DescribedPlane) -> None:
    made = await running(described)
    path = f"/runs/{made['runId']}"
    suspended = await described.post(f"{path}/suspend", {"reason": "lunch"})
    assert suspended["status"] == "suspended"
    assert (await described.get("/runs?status=suspended"))["data"] == [suspended]
    assert (await described.get(f"{path}/state"))["run"]["status"] == "suspended"
    with pytest.raises(sdk.MacpAckError):
        await described.decide(made["sessionId"])
    assert (await described.post(f"{path}/suspend"))["status"] == "suspended"
    assert (await described.post(f"{path}/resume"))["status"] == "running"
    log = (await described.get(f"/audit?resourceId={made['runId']}"))["data"]
    told = [(one["action"], one["details"].get("reason")) for one in log]
    assert told == [
        ("run.resumed", ""),
        ("run.suspended", "lunch"),
        ("run.started", None),
        ("run.created", None),
    ]
    await described.decide(made["sessionId"])
    await described.until(made["runId"], "completed")
    for name, wanted in (("suspend", "suspended"), ("resume", "running")):
        assert await described.told("POST", f"{path}/{name}", {}) == (
            409,
            "INVALID_STATE_TRANSITION",
            f"cannot transition run from 'completed' to '{wanted}'",
        )


async def test_d9_batches_act_on_each_run_by_itself_in_the_order_of_the_request(
    described: DescribedPlane,
) -> None:
    stubborn, willing = await running(described), await running(described, **DELEGATED)
    unknown = str(uuid4())
    ids = [willing["runId"], unknown, stubborn["runId"], "no-uuid"]
    told = await described.post("/runs/batch/cancel", {"runIds": ids})
    assert told == [
        {"runId": willing["runId"], "status": "cancelled"},
        {"runId": unknown, "status": "failed", "error": f"run {unknown} not found"},
        {"runId": stubborn["runId"], "status": "failed", "error": NO_WAY},
        {"runId": "no-uuid", "status": "failed", "error": "Validation failed (uuid is expected)"},
    ]
    reason = await described.get(f"/runs/{willing['runId']}/events?type=run.cancelled")
    assert reason["data"][0]["data"]["reason"] == "batch cancel"
    told = await described.post("/runs/batch/archive", {"runIds": ids[:3]})
    assert [one["status"] for one in told] == ["archived", "failed", "archived"]
    told = await described.post("/runs/batch/delete", {"runIds": [*ids[:3], ids[0]]})
    statuses = sorted(one["status"] for one in told if one["runId"] == willing["runId"])
    assert (statuses, told[2]["status"]) == (["deleted", "failed"], "failed")
    for name in ("cancel", "archive", "delete"):
        path = f"/runs/batch/{name}"
        many = [str(uuid4())] * 201
        for given in ([], many, [1], "a", None):
            body: Json = {} if given is None else {"runIds": given}
            assert await described.refused("POST", path, body) == (400, "VALIDATION_ERROR"), body


async def test_a_batch_does_not_say_that_a_completed_run_was_cancelled(
    described: DescribedPlane,
) -> None:
    done, gone = await running(described, **DELEGATED), await running(described, **DELEGATED)
    await described.decide(done["sessionId"])
    await described.until(done["runId"], "completed")
    await described.post(f"/runs/{gone['runId']}/cancel")
    told = await described.post("/runs/batch/cancel", {"runIds": [done["runId"], gone["runId"]]})
    assert told == [
        {
            "runId": done["runId"],
            "status": "failed",
            "error": "cannot transition run from 'completed' to 'cancelled'",
        },
        {"runId": gone["runId"], "status": "cancelled"},
    ]


async def test_removed_endpoints_name_what_to_use_instead(described: DescribedPlane) -> None:
    for name, hint in (
        ("messages", "DecisionSession"),
        ("signal", "session.signal("),
        ("context", "macp_sdk.build_envelope()"),
    ):
        status, code, message = await described.told("POST", f"/runs/{uuid4()}/{name}", {"a": 1})
        assert (status, code) == (410, "ENDPOINT_REMOVED")
        assert hint in message
        assert "macp-sdk" in message
        assert await described.told("POST", f"/runs/nope/{name}") == (
            400,
            "VALIDATION_ERROR",
            "Validation failed (uuid is expected)",
        )
