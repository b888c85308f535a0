"""`POST /runs` on a real service, and sessions that real agents open on a real runtime."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from batten.contract.ids import from_uuid
from batten.journal.sqlite import SqliteJournal
from tests.agent.stage import bash, end, say
from tests.coordination.published import sdk
from tests.service.macp.describing import (
    DECISION,
    DescribedPlane,
    described_planes,
    descriptor,
)
from tests.service.serving import PATIENCE_S, Json, Service

UUID4 = "9b2f0c1a-5d1e-4c7b-8a3f-0123456789ab"
UUID7 = "0190b2f0-0000-7000-8000-0000000000aa"
UNFIT_FOR_AGENTS: tuple[Json, ...] = (
    {"workingDirectory": "/no/such/directory", "model": "scripted/x.json"},
    {"model": "openai/gpt-4o"},
    {"model": "nobody/nothing"},
    {"allow": ["Nothing(x)"], "model": "scripted/x.json"},
)
WRONG_ID = "session.sessionId must be a UUID v4/v7 or base64url 22+ chars"


async def test_a_described_run_waits_for_its_session_and_becomes_it(
    described: DescribedPlane,
) -> None:
    made = await described.create()
    run_id, session_id = made["runId"], made["sessionId"]
    assert made["status"] == "queued"
    queued = await described.get(f"/runs/{run_id}")
    assert (queued["status"], queued["runtimeSessionId"]) == ("queued", session_id)
    assert (queued["runtimeKind"], queued["traceId"]) == ("embedded", made["traceId"])
    assert await described.types(run_id) == ["run.created"]

    await described.open(session_id)
    running = await described.until(run_id, "running")
    assert running["startedAt"] >= queued["createdAt"]
    await described.decide(session_id)
    record = await described.until(run_id, "completed")
    state = await described.get(f"/runs/{run_id}/state")
    assert record["metadata"]["finalAction"] == "decision.selected"
    assert record["metadata"]["finalConfidence"] == state["decision"]["current"]["confidence"] == 1
    types = await described.types(run_id)
    assert types[:6] == [
        "run.created",
        "run.started",
        "session.bound",
        "participant.seen",
        "participant.seen",
        "session.state.changed",
    ]
    assert types[-2:] == ["session.state.changed", "run.completed"]
    assert [types.count(name) for name in ("run.created", "run.started", "run.completed")] == [
        1
    ] * 3
    bound = (await described.get(f"/runs/{run_id}/events?type=session.bound"))["data"][0]["data"]
    assert (bound["sessionId"], bound["modeName"]) == (session_id, DECISION)
    assert bound["initiator"] == "lead"
    assert "sessionDiffers" not in record["metadata"]


async def test_d12_a_repeated_key_answers_with_the_stored_run_and_starts_nothing(
    described: DescribedPlane,
) -> None:
    body = {**descriptor(), "execution": {"idempotencyKey": "once"}}
    first = await described.create(body)
    assert UUID(first["runId"]).version == 5  # one that is made of a name
    assert await described.create(body) == first
    await described.open(first["sessionId"])
    other = {**descriptor("x", modeName="other"), "execution": {"idempotencyKey": "once"}}
    assert await described.create(other) == {**first, "status": "running"}
    await described.decide(first["sessionId"])
    record = await described.until(first["runId"], "completed")
    assert record["idempotencyKey"] == "once"
    assert await described.create(body) == {**first, "status": "completed"}


async def test_a_key_answers_with_its_run_although_the_events_were_pruned(
    described: DescribedPlane,
) -> None:
    body = {
        **descriptor(sessionId="pruned-session-0123456789"),
        "execution": {"idempotencyKey": "pruned"},
    }
    made = await described.create(body)
    await described.open(made["sessionId"])
    await described.decide(made["sessionId"])
    await described.until(made["runId"], "completed")
    journal = SqliteJournal.open(described.service.stage.home)
    try:
        run_id = from_uuid(made["runId"], "run")
        assert await journal.prune(run_id, before=6, reason="age") is not None
    finally:
        journal.close()
    assert await described.refused("GET", f"/runs/{made['runId']}") == (404, "RUN_NOT_FOUND")
    assert await described.create(body) == {**made, "status": "completed"}


async def test_the_next_run_of_a_deleted_run_s_key_is_another_run(
    described: DescribedPlane,
) -> None:
    for tag in ("one", "two"):
        body = {
            **descriptor(metadata={"cancellationDelegated": True}),
            "execution": {"idempotencyKey": "again", "tags": [tag]},
        }
        made = await described.create(body)
        path = f"/runs/{made['runId']}"
        await described.post(f"{path}/cancel")
        record, state = await described.get(path), await described.get(f"{path}/state")
        assert record["tags"] == [tag]
        sessions = {record["runtimeSessionId"], state["run"]["runtimeSessionId"]}
        assert sessions == {made["sessionId"]}
        tasks = (await described.get("/hecate/v1/tasks"))["data"]
        task = next(one for one in tasks if one["latest_run_id"] == from_uuid(made["runId"], "run"))
        runs = await described.get(f"/hecate/v1/tasks/{task['id']}/runs")
        assert [one["task_id"] for one in runs["data"]] == [task["id"]]
        assert (await described.service.request("DELETE", path)).status == 204


@pytest.mark.own_service
async def test_one_key_makes_one_run_although_two_servers_are_asked_at_once(
    described: DescribedPlane,
) -> None:
    other = Service(described.service.stage, ("--no-runtime", "--workers", "0"))
    await other.start()
    try:
        beside = DescribedPlane(other)
        for number in range(5):
            body = {**descriptor(), "execution": {"idempotencyKey": f"key {number}"}}
            askers = [described, beside] * 6
            made = await asyncio.gather(*(one.create(body) for one in askers))
            assert len({tuple(one.items()) for one in made}) == 1
        listed = await described.get("/hecate/v1/tasks?limit=100")
    finally:
        await other.stop()
    assert len(listed["data"]) == 5


async def test_d8_and_d11_the_descriptor_is_the_run_s_metadata(described: DescribedPlane) -> None:
    metadata = {
        "environment": "staging",
        "scenarioRef": "fraud@1.2.0",
        "source": "scenario",
        "sourceRef": "fraud",
    }
    body: Json = {
        **descriptor(metadata=metadata, sessionId=UUID7),
        "mode": "sandbox",
        "runtime": {"kind": "rust", "version": "0.5"},
        "execution": {"tags": ["a"], "requester": {"actorId": "u1", "actorType": "user"}},
    }
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    made = await described.create(body, traceparent=parent, tracestate="vendor=1, other=2")
    queued = await described.service.get("/events?event_type=run.queued&limit=500")
    assert queued[-1]["data"]["identity"] == {"tracestate": "vendor=1, other=2"}
    assert (made["sessionId"], made["traceId"]) == (UUID7, parent.split("-")[1])
    record = await described.get(f"/runs/{made['runId']}")
    assert (record["mode"], record["tags"]) == ("sandbox", ["a", "sandbox"])
    assert (record["runtimeKind"], record["runtimeVersion"]) == ("rust", "0.5")
    assert (record["sourceKind"], record["sourceRef"]) == ("scenario", "fraud")
    assert record["traceId"] == made["traceId"]
    told = record["metadata"]
    assert (told["environment"], told["scenarioRef"]) == ("staging", "fraud@1.2.0")
    assert told["requester"] == body["execution"]["requester"]
    assert told["executionRequest"] == body
    assert record["createdAt"].endswith("Z")
    await described.open(UUID7)
    assert (await described.until(made["runId"], "running"))["runtimeKind"] == "rust"


def without(body: Json, *path: str) -> Json:
    *way, last = path
    within = body
    for name in way:
        within = within[name]
    del within[last]
    return body


REFUSED: dict[str, Any] = {
    "kickoff": {**descriptor(), "kickoff": []},
    "commitments": {**descriptor(), "commitments": []},
    "policyHints": {**descriptor(), "policyHints": {}},
    "session kickoff": descriptor(kickoff=[{"from": "a"}]),
    "initiatorParticipantId": descriptor(initiatorParticipantId="lead"),
    "participants[].role": descriptor(participants=[{"id": "a", "role": "voter"}]),
    "no session": without(descriptor(), "session"),
    "no runtime": without(descriptor(), "runtime"),
    "no modeName": without(descriptor(), "session", "modeName"),
    "empty modeName": descriptor(modeName=""),
    "no participants": descriptor(participants=[]),
    "too many participants": descriptor(*map(str, range(1001))),
    "ttlMs 0": descriptor(ttlMs=0),
    "ttlMs text": descriptor(ttlMs="60000"),
    "mode": {**descriptor(), "mode": "test"},
    "kind": {**descriptor(), "runtime": {"kind": "java"}},
    "long key": {**descriptor(), "execution": {"idempotencyKey": "k" * 256}},
    "actorType": {**descriptor(), "execution": {"requester": {"actorType": "robot"}}},
    "callback without a url": descriptor(metadata={"cancelCallback": {}}),
    "callback of a file": descriptor(metadata={"cancelCallback": {"url": "file:///etc/passwd"}}),
    "bearer with a line break": descriptor(
        metadata={"cancelCallback": {"url": "http://a/", "bearer": "a\nb"}}
    ),
    "delegation text": descriptor(metadata={"cancellationDelegated": "yes"}),
    "large tags": {**descriptor(), "execution": {"tags": ["x" * 200_000]}},
    "an array": [],
}


@pytest.fixture(scope="module")
def told() -> dict[str, str]:
    """What the message of a refusal names."""
    return {
        "participants[].role": "role",
        "too many participants": "Maximum 1000 participants per session",
        "kind": "runtime provider 'java' is not registered",
        "no session": "session",
        "ttlMs text": "session.ttlMs",
    }


@pytest.mark.own_service
async def test_d5_a_descriptor_that_is_none_is_refused_and_makes_nothing(
    described: DescribedPlane, told: dict[str, str]
) -> None:
    for name, body in REFUSED.items():
        status, code, message = await described.told("POST", "/runs", body)
        assert (status, code) == (400, "VALIDATION_ERROR"), name
        assert told.get(name, "") in message, message
    deep: Any = []
    for _ in range(70):
        deep = [deep]
    assert (await described.told("POST", "/runs", descriptor(metadata={"deep": deep})))[0] == 400
    for path in ("/runs", "/runs/validate"):
        answer = await described.service.request(
            "POST", path, msgspec.json.encode(descriptor()), {"Content-Type": "text/plain"}
        )
        assert (answer.status, answer.json["errorCode"]) == (415, "VALIDATION_ERROR")
    large = await described.post("/runs/validate", REFUSED["large tags"])
    assert (large["valid"], len(large["errors"])) == (False, 1)
    assert (await described.get("/hecate/v1/tasks"))["data"] == []


async def test_a_large_descriptor_is_kept_whole_and_shown_without_its_largest_metadata(
    described: DescribedPlane,
) -> None:
    metadata = {"environment": "prod", "note": "é" * 500_000, "cancellationDelegated": True}
    body = descriptor(metadata=metadata)
    assert (await described.post("/runs/validate", body))["valid"] is True
    made = await described.create(body)
    shown = (await described.get(f"/runs/{made['runId']}"))["metadata"]
    asked = shown["executionRequest"]["session"]
    assert asked["metadata"] == {**metadata, "note": "[left out: 1000002 bytes]"}
    assert asked["participants"] == body["session"]["participants"]
    cloned = await described.post(f"/runs/{made['runId']}/clone", {"tags": ["again"]})
    for one in (made, cloned):
        record = await described.post(f"/runs/{one['runId']}/cancel")
        assert (record["status"], record["metadata"]["environment"]) == ("cancelled", "prod")


@pytest.mark.own_service
async def test_session_ids_are_those_that_the_runtime_opens(described: DescribedPlane) -> None:
    for given in (UUID4, UUID7, "abcdefghijklmnopqrstuv", "A-_" * 10):
        made = await described.create(descriptor(sessionId=given))
        assert made["sessionId"] == given
        await described.open(given)
        assert (await described.until(made["runId"], "running"))["runtimeSessionId"] == given
    uuid1 = "a8098c1a-f86e-11da-bd1a-00112444be1e"
    for given in ("", "short", UUID4.upper(), uuid1, "x" * 129, "with space in the middle of it"):
        refused = await described.told("POST", "/runs", descriptor(sessionId=given))
        assert refused == (400, "INVALID_SESSION_ID", WRONG_ID)


@pytest.mark.own_service
async def test_a_session_has_one_run(described: DescribedPlane) -> None:
    body = descriptor(sessionId=UUID4)
    made = await described.create(body)
    expected = (409, "SESSION_ALREADY_EXISTS")
    assert await described.refused("POST", "/runs", body) == expected
    await described.open(UUID4)
    assert await described.refused("POST", "/runs", body) == expected
    await described.decide(UUID4)
    await described.until(made["runId"], "completed")
    assert await described.refused("POST", "/runs", body) == expected
    started = await described.speak(opened)
    assert await described.refused("POST", "/runs", descriptor(sessionId=started)) == expected


def opened(client: Any) -> str:
    session = sdk.DecisionSession(client)
    session.start(intent="decide", participants=["lead"], ttl_ms=60_000)
    session_id: str = session.session_id
    return session_id


async def test_the_initiator_s_mode_and_policy_count_and_the_difference_is_told(
    described: DescribedPlane,
) -> None:
    made = await described.create(
        descriptor(modeName="macp.mode.task.v1", policyVersion="policy.strict")
    )
    await described.open(made["sessionId"])
    record = await described.until(made["runId"], "running")
    assert record["metadata"]["sessionDiffers"] == {
        "modeName": {"asked": "macp.mode.task.v1", "opened": DECISION},
        "policyVersion": {"asked": "policy.strict", "opened": "policy.default"},
    }
    asked = record["metadata"]["executionRequest"]["session"]
    assert asked["modeName"] == "macp.mode.task.v1"
    state = await described.get(f"/runs/{made['runId']}/state")
    assert state["run"]["modeName"] == DECISION


async def test_a_run_whose_session_never_opens_fails_also_after_a_restart(tmp_path: Path) -> None:
    environ = {"SESSION_POLL_TIMEOUT_MS": "1500"}
    async with described_planes(tmp_path, environ=environ) as plane:
        made = await plane.create()
        await plane.service.kill()
        await plane.service.start()
        record = await plane.until(made["runId"], "failed")
        assert record["errorCode"] == "RUNTIME_TIMEOUT"
        assert record["errorMessage"] == "the session did not open within 1500 ms"
        assert await plane.types(made["runId"]) == ["run.created", "run.failed"]
        with pytest.raises(sdk.MacpAckError) as refused:
            await plane.open(made["sessionId"])
    assert refused.value.failure.code == "SESSION_NOT_OPEN"


async def test_two_servers_end_an_overdue_run_once(tmp_path: Path) -> None:
    environ = {"SESSION_POLL_TIMEOUT_MS": "400"}
    async with described_planes(tmp_path, environ=environ) as plane:
        other = Service(plane.service.stage, ("--no-runtime", "--workers", "0"))
        await other.start()
        try:
            made = [await plane.create() for _ in range(20)]
            for one in made:
                await plane.until(one["runId"], "failed")
                types = await plane.types(one["runId"])
                assert types == ["run.created", "run.failed"]
        finally:
            await other.stop()


async def test_workers_leave_runs_that_wait_for_a_session(tmp_path: Path) -> None:
    async with described_planes(tmp_path, "--workers", "1") as plane:
        waiting = [await plane.create() for _ in range(3)]
        run = await plane.service.started(plane.service.stage.scenario([say("Hi."), end()]))
        assert (await run.ended())["status"] == "completed"
        for one in waiting:
            record = await plane.get(f"/runs/{one['runId']}")
            assert (record["status"], record["startedAt"]) == ("queued", None)


async def test_a_session_elsewhere_is_not_opened_here(tmp_path: Path) -> None:
    environ = {"RUNTIME_ADDRESS": "127.0.0.1:1", "SESSION_POLL_TIMEOUT_MS": "60000"}
    async with described_planes(tmp_path, environ=environ) as plane:
        made = await plane.create({**descriptor(), "runtime": {"kind": "rust"}})
        with pytest.raises(sdk.MacpAckError) as refused:
            await plane.open(made["sessionId"])
        assert refused.value.failure.code == "SESSION_ALREADY_EXISTS"
        here = await plane.create()
        await plane.open(here["sessionId"])
        await plane.until(here["runId"], "running")


@pytest.mark.own_service
async def test_the_callback_s_secret_is_sealed_and_never_shown(described: DescribedPlane) -> None:
    secret = "opt-shared-secret-5512"
    callback = {"url": "http://127.0.0.1:9/cancel", "bearer": secret}
    made = await described.create(descriptor(metadata={"cancelCallback": callback}))
    record = await described.get(f"/runs/{made['runId']}")
    hidden = {**callback, "bearer": "[redacted]"}
    assert record["metadata"]["cancelCallback"] == hidden
    assert record["metadata"]["executionRequest"]["session"]["metadata"] == {
        "cancelCallback": hidden
    }
    await described.service.stop()
    for path in described.service.stage.home.iterdir():
        if path.is_file():
            assert secret.encode() not in path.read_bytes(), path


async def test_an_agent_s_run_is_described_and_executed_by_a_worker(tmp_path: Path) -> None:
    async with described_planes(tmp_path, "--workers", "1") as plane:
        model = plane.service.stage.scenario([say("Done."), end()])
        body: Json = {
            **descriptor("agent", sessionId=UUID4),
            "runtime": {"kind": "agent"},
            "execution": {"idempotencyKey": "agent once", "tags": ["nightly"]},
        }
        body["session"]["metadata"] = {
            "prompt": "Say that you are done.",
            "model": model,
            "environment": "prod",
            "context": {"ticket": 7},
        }
        made = await plane.create(body)
        assert made["sessionId"] == UUID4
        record = await plane.until(made["runId"], "completed")
        assert await plane.create(body) == {**made, "status": "completed"}
        assert (record["runtimeKind"], record["runtimeSessionId"]) == ("agent", UUID4)
        assert (record["tags"], record["idempotencyKey"]) == (["nightly"], "agent once")
        assert record["metadata"]["environment"] == "prod"
        events = await plane.get(f"/runs/{made['runId']}/events?type=message.received")
        said = [one["data"]["payload"].get("text", "") for one in events["data"]]
        assert said[0] == 'Say that you are done.\n\nContext:\n{"ticket":7}'
        assert await plane.refused("POST", "/runs", {**body, "execution": {}}) == (
            409,
            "SESSION_ALREADY_EXISTS",
        )


@pytest.mark.parametrize("is_asked", [False, True])
async def test_an_agent_s_run_ends_when_its_time_has_passed(tmp_path: Path, is_asked: bool) -> None:
    flags = () if is_asked else ("--auto-allow",)
    async with described_planes(tmp_path, "--workers", "1", *flags) as plane:
        stage = plane.service.stage
        model = stage.scenario([bash("echo began > proof; sleep 60", "c1")], [say("Done."), end()])
        workspace = {"workingDirectory": str(stage.workspace), "workspaceMode": "in_place"}
        metadata = {"prompt": "wait", "model": model, **workspace}
        body = {**descriptor(ttlMs=3000, metadata=metadata), "runtime": {"kind": "agent"}}
        made = await plane.create(body)
        record = await plane.until(made["runId"], "completed", "failed", "cancelled")
        ending = ("cancelled", None) if is_asked else ("failed", "timeout")
        assert (record["status"], record["errorCode"]) == ending
        assert (stage.workspace / "proof").exists() is not is_asked


@pytest.mark.own_service
async def test_an_agent_s_run_needs_a_prompt_and_a_uuid(described: DescribedPlane) -> None:
    agent = {"runtime": {"kind": "agent"}}
    status, code, message = await described.told("POST", "/runs", {**descriptor(), **agent})
    assert (status, code) == (400, "VALIDATION_ERROR")
    assert "prompt" in message
    body = {**descriptor(sessionId="abcdefghijklmnopqrstuv", metadata={"prompt": "go"}), **agent}
    status, code, message = await described.told("POST", "/runs", body)
    assert (status, code) == (400, "INVALID_SESSION_ID")
    wrong = {"prompt": "go", "workingDirectory": "relative"}
    status, _, message = await described.told(
        "POST", "/runs", {**descriptor(metadata=wrong), **agent}
    )
    assert status == 400
    assert message.startswith("session.metadata: working_directory")
    for metadata in UNFIT_FOR_AGENTS:
        body = {**descriptor(metadata={"prompt": "go", **metadata}), **agent}
        told = await described.told("POST", "/runs", body)
        assert told[:2] == (400, "VALIDATION_ERROR"), metadata
        foreseen = await described.post("/runs/validate", body)
        assert (foreseen["valid"], foreseen["errors"]) == (False, [told[2]])
    assert (await described.get("/hecate/v1/tasks"))["data"] == []
    spelled = {"prompt": "go", "model": "scripted/x.json", "maxTurns": 2.0, "systemPrompt": None}
    body = {**descriptor(metadata=spelled), **agent}
    assert (await described.post("/runs/validate", body))["valid"] is True


@pytest.mark.own_service
async def test_validation_tells_what_is_wrong_and_creates_nothing(
    described: DescribedPlane,
) -> None:
    fine: Json = {"warnings": ["not yet"]}
    async with asyncio.timeout(PATIENCE_S):
        while fine["warnings"]:  # until the runtime has started
            fine = await described.post("/runs/validate", descriptor())
    assert (fine["valid"], fine["errors"], fine["warnings"]) == (True, [], [])
    assert fine["runtime"]["reachable"] is True
    assert DECISION in fine["runtime"]["supportedModes"]
    assert fine["runtime"]["capabilities"]
    wrong = await described.post("/runs/validate", descriptor(sessionId="short", modeName="nope"))
    assert wrong["valid"] is False
    assert wrong["errors"][0] == WRONG_ID
    assert wrong["errors"][1].startswith("Runtime does not support mode 'nope'. Supported: ")
    made = await described.create(descriptor(sessionId=UUID4))
    taken = await described.post("/runs/validate", descriptor(sessionId=UUID4))
    assert taken["valid"] is False
    assert made["sessionId"] in taken["errors"][0]
    kind = await described.post("/runs/validate", {**descriptor(), "runtime": {"kind": "java"}})
    assert kind["errors"][0].startswith("runtime provider 'java' is not registered")
    for name in ("kickoff", "no session", "too many participants"):
        assert await described.refused("POST", "/runs/validate", REFUSED[name]) == (
            400,
            "VALIDATION_ERROR",
        )
    assert len((await described.get("/hecate/v1/tasks"))["data"]) == 1


@pytest.mark.own_service
async def test_validation_warns_of_what_the_runtime_would_refuse(described: DescribedPlane) -> None:
    policy: Json = {"policyId": "policy.tasks", "mode": "macp.mode.task.v1", "rules": {}}
    async with asyncio.timeout(PATIENCE_S):  # until the runtime has started
        while (await described.posted("/runtime/policies", policy)).status == 503:
            pass
    twice = [{"id": "ann"}, {"id": "ann"}]
    for fields, warning in (
        ({"policyVersion": "policy.default"}, ""),
        ({"policyVersion": "policy.none"}, "Runtime has no policy 'policy.none'"),
        ({"policyVersion": "policy.tasks"}, "Policy 'policy.tasks' is for mode"),
        ({"ttlMs": 86_400_000}, ""),
        ({"ttlMs": 86_400_001}, "Runtimes refuse a session with a ttlMs above 86400000"),
        ({"participants": twice}, "Runtimes refuse a session that names a participant twice"),
    ):
        told = await described.post("/runs/validate", descriptor(**fields))
        assert (told["valid"], len(told["warnings"])) == (True, int(bool(warning))), fields
        assert "".join(told["warnings"]).startswith(warning)


async def test_validation_warns_of_a_runtime_that_is_not_there(tmp_path: Path) -> None:
    environ = {"RUNTIME_ADDRESS": "127.0.0.1:1"}
    async with described_planes(tmp_path, "--no-runtime", environ=environ) as plane:
        for kind in ("embedded", "rust"):
            told = await plane.post("/runs/validate", {**descriptor(), "runtime": {"kind": kind}})
            assert (told["valid"], told["errors"]) == (True, [])
            assert told["warnings"][0].startswith("Runtime not reachable: ")
            assert told["runtime"] == {"reachable": False, "supportedModes": []}


async def test_creating_a_run_is_in_the_audit_log(described: DescribedPlane) -> None:
    made = await described.create()
    page = await described.get(f"/audit?resourceId={made['runId']}")
    assert [(one["action"], one["resource"]) for one in page["data"]] == [("run.created", "run")]
    started = f"/audit?action=run.started&resourceId={from_uuid(made['runId'], 'run')}"
    assert (await described.get(started))["data"] == []
    await described.open(made["sessionId"])
    (entry,) = (await described.get(started))["data"]
    assert (entry["actor"], entry["details"]["session"]) == ("lead", made["sessionId"])


async def test_a_described_run_is_a_run_of_the_journal_too(described: DescribedPlane) -> None:
    made = await described.create()
    run_id = from_uuid(made["runId"], "run")
    row = await described.get(f"/batten/v1/runs/{run_id}")
    assert (row["kind"], row["status"]) == ("coordination", "queued")
