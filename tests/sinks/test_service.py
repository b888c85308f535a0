"""Webhooks, metrics and the audit log of a running service."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.contract.ids import to_uuid
from batten.contract.tracing import span_of
from tests.agent.stage import bash, call, end, say
from tests.serve.http.wire import Answer, clients
from tests.service.serving import Run, Service, serving
from tests.session.processes import batten
from tests.sinks.http_receiver import HttpReceiver, http_receiver

LAUNCHED = {
    "MAESTRO_EVALOPS_ORG_ID": "org_1",
    "MAESTRO_USER_ID": "user_1",
    "TRACEPARENT": "00-11111111111111111111111111111111-1111111111111111-01",
}
ALLOW = msgspec.json.encode({"sinks": {"allow": ["127.0.0.0/8"]}}).decode()


@pytest.fixture
async def receiver() -> AsyncIterator[HttpReceiver]:
    async with http_receiver() as running:
        yield running


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    flags = ("--auto-allow", "--settings", ALLOW)
    async with serving(tmp_path, *flags, environ=LAUNCHED) as running:
        yield running


async def ask(service: Service, method: str, path: str, body: Any = None) -> Answer:
    async with clients() as opened:
        connection = await opened.connect_to(service.url)
        return await connection.ask(method, path, body)


async def got(service: Service, method: str, path: str, body: Any = None) -> Any:
    answer = await ask(service, method, path, body)
    assert answer.status in (200, 201), answer.body
    return msgspec.json.decode(answer.body)


async def played(service: Service, name: str = "one") -> str:
    """A run that ended; its id."""
    model = service.stage.scenario([bash("echo hi")], [say("Done."), end()], name=name)
    run = await service.started(model)
    await run.until("run.finished")
    return run.run_id


async def logged(service: Service, path: str, count: int) -> list[Any]:
    """The last two deliveries, once so many are in the log: it is written after they are sent."""
    async with asyncio.timeout(60):
        while True:
            data: list[Any] = (await got(service, "GET", f"{path}/deliveries"))["data"]
            if len(data) >= count:
                return data[:2]
            await asyncio.sleep(0.02)


async def test_a_sink_of_the_settings_is_told_of_the_very_first_run(
    tmp_path: Path, receiver: HttpReceiver
) -> None:
    """Although its process starts after the service, and reads later."""
    webhooks = {"first": {"url": receiver.url, "secret": "hmac-secret"}}
    table = {"sinks": {"allow": ["127.0.0.0/8"], "webhooks": webhooks}}
    flags = ("--auto-allow", "--settings", msgspec.json.encode(table).decode())
    async with serving(tmp_path / "early", *flags) as early:
        run_id = await played(early)
        bodies = [msgspec.json.decode(one.body) for one in await receiver.wait_for(4)]
    told = [body["event"] for body in bodies if body["journalId"] == run_id]
    assert told == ["run.queued", "run.started", "run.completed"]


async def test_a_subscription_is_told_of_runs_from_then_on(
    service: Service, receiver: HttpReceiver
) -> None:
    await played(service, "before")
    made = await got(service, "POST", "/webhooks", {"url": receiver.url, "secret": "hmac-secret"})
    assert (made["active"], made["events"], made["secret"]) == (True, [], "hmac-secret")
    run_id = await played(service)
    taken = await receiver.wait_for(4)
    bodies = [msgspec.json.decode(one.body) for one in taken]
    assert [body["event"] for body in bodies if body["journalId"] == run_id] == [
        "run.queued",
        "run.started",
        "run.completed",
    ]
    listed = await got(service, "GET", "/webhooks")
    assert [(one["id"], one["secret"]) for one in listed] == [(made["id"], "********")]
    path = f"/webhooks/{made['id']}"
    log = await logged(service, path, 4)
    assert [one["status"] for one in log] == ["delivered", "delivered"]
    assert log[0]["payload"] == bodies[-1]
    assert (await ask(service, "GET", f"{path}/deliveries?before={10**30}")).status == 400
    shown = (await ask(service, "GET", "/metrics")).body.decode()
    assert 'macp_webhook_deliveries_total{status="delivered"} 4' in shown
    assert 'macp_webhook_deliveries_total{status="failed"} 0' in shown
    older = (await got(service, "GET", f"{path}/deliveries?before={log[1]['id']}"))["data"]
    assert {one["id"] for one in older}.isdisjoint({one["id"] for one in log})
    for unknown in ("zz", "99", "9" * 5000):
        missing = await ask(service, "POST", f"{path}/deliveries/{unknown}/replay")
        assert (missing.status, b"has no delivery" in missing.body) == (404, True)
    await got(service, "POST", f"{path}/deliveries/{log[0]['id']}/replay")
    again = await receiver.wait_for(5)
    assert again[4].headers["webhook-id"] == again[3].headers["webhook-id"]

    changed = await got(service, "PATCH", path, {"active": False})
    assert changed["active"] is False
    await left(service, made["id"])
    await played(service, "unheard")
    await got(service, "PATCH", path, {"active": True, "events": ["run.completed"]})
    heard = await played(service, "heard")
    last = (await receiver.wait_for(6))[5]
    assert msgspec.json.decode(last.body)["journalId"] == heard
    for _ in range(2):
        assert (await ask(service, "DELETE", path)).status == 204
    unchanged = await ask(service, "PATCH", path, {"active": True})
    assert unchanged.status == 404
    missing = await ask(service, "GET", path)
    assert (missing.status, msgspec.json.decode(missing.body)["errorCode"]) == (404, "NOT_FOUND")


async def test_a_change_of_a_subscription_to_what_it_is_leaves_no_trace(service: Service) -> None:
    wanted = {"url": "https://a.example/", "secret": "hmac-secret"}
    made = await got(service, "POST", "/webhooks", wanted)
    for body in ({}, {"active": True}, {"secret": "hmac-secret"}):
        changed = await got(service, "PATCH", f"/webhooks/{made['id']}", body)
        assert changed["updatedAt"] == made["updatedAt"]
    entries = (await got(service, "GET", f"/audit?resourceId={made['id']}"))["data"]
    assert [one["action"] for one in entries] == ["webhook.created"]


async def left(service: Service, webhook_id: str) -> None:
    """Wait until no process reads for a subscription; a change is noticed within a second."""
    line = f'batten_sink_is_read{{sink="webhook:{webhook_id}"}} 0'
    async with asyncio.timeout(30):
        while True:
            if line in (await ask(service, "GET", "/metrics")).body.decode():
                return
            await asyncio.sleep(0.1)


async def test_bad_subscriptions_are_refused_in_the_shape_of_the_control_plane(
    service: Service,
) -> None:
    for body in (
        {},
        {"url": "nowhere"},
        {"url": "https://a.example/", "events": ["run.exploded"]},
        {"url": "https://a.example/", "extra": 1},
        {"url": "https://a.example/", "secret": ""},
    ):
        answer = await ask(service, "POST", "/webhooks", body)
        told = msgspec.json.decode(answer.body)
        assert answer.status == 400, body
        assert (told["statusCode"], told["errorCode"]) == (400, "VALIDATION_ERROR")
        assert told["message"]


async def test_a_hanging_receiver_delays_no_run_and_is_seen_in_the_metrics(
    service: Service, receiver: HttpReceiver
) -> None:
    receiver.behave = lambda one: "hang"
    made = await got(service, "POST", "/webhooks", {"url": receiver.url})
    assert made["secret"].startswith("whsec_")
    for number in range(3):
        await played(service, f"run{number}")
    answer = await ask(service, "GET", "/metrics")
    name = f'{{sink="webhook:{made["id"]}"}}'
    lines = dict(line.rsplit(" ", 1) for line in answer.body.decode().splitlines())
    assert float(lines[f"batten_sink_lag_events{name}"]) >= 0
    assert float(lines[f"batten_sink_delivered_total{name}"]) == 0
    assert f"batten_sink_dead_letters{name}" in lines


async def test_a_callers_span_is_recorded_with_its_run_alone_and_a_launchers_ids_with_each(
    service: Service,
) -> None:
    caller = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    model = service.stage.scenario([say("Done."), end()])
    found: list[Any] = []
    for headers in ({"traceparent": caller}, {"traceparent": "00-x"}, None):
        task_id = await service.task(model)
        answer = await service.ask("POST", f"/tasks/{task_id}/start", {}, headers)
        run_id = msgspec.json.decode(answer.body)["data"]["id"]
        run = Run(service, task_id, run_id)
        queued = (await run.until("run.queued"))["data"]
        found.append(queued.get("traceparent"))
        # A service serves many traces: the one that it was started in is not recorded.
        assert queued["identity"] == {"organization_id": "org_1", "user_id": "user_1"}
    assert found == [caller, None, None]


async def test_a_command_of_the_service_is_told_the_callers_trace(service: Service) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    model = service.stage.scenario([bash("echo $TRACEPARENT > span")], [say("Done."), end()])
    for headers in ({"traceparent": f"00-{trace}-b7ad6b7169203331-01"}, None):
        task_id = await service.task(model)
        answer = await service.ask("POST", f"/tasks/{task_id}/start", {}, headers)
        run = Run(service, task_id, msgspec.json.decode(answer.body)["data"]["id"])
        called = await run.until("tool.invoked")
        await run.until("run.finished")
        span = span_of(run.run_id, "tool", called["data"]["tool_call_id"], 1)
        written = (service.stage.workspace / "span").read_text().strip()
        assert written == (f"00-{trace}-{span}-01" if headers else "")


async def test_the_audit_log_says_who_did_what(service: Service, receiver: HttpReceiver) -> None:
    run_id = await played(service)
    token = f"ghp_{secrets.token_hex(18)}"
    await got(service, "POST", "/webhooks", {"url": f"{receiver.url}/{token}"})
    task_id = await service.task(service.stage.scenario([say("x"), end()], name="x"))
    assert (await ask(service, "DELETE", f"/hecate/v1/tasks/{task_id}")).status == 204
    made = await asyncio.to_thread(batten, service.stage, "keys", "create", "ann", "--json")
    key = msgspec.json.decode(made.stdout)["key"]

    async def audit(query: str = "") -> Any:
        async with clients() as opened:
            connection = await opened.connect_to(service.url)
            answer = await connection.ask(
                "GET", f"/audit?{query}", None, {"authorization": f"Bearer {admin}"}
            )
            assert answer.status == 200, answer.body
            return msgspec.json.decode(answer.body)

    boss = await asyncio.to_thread(
        batten, service.stage, "keys", "create", "boss", "--scope", "admin", "--json"
    )
    admin = msgspec.json.decode(boss.stdout)["key"]
    page = await audit()
    actions = [one["action"] for one in page["data"]]
    assert page.keys() == {"data", "total", "limit", "offset"}
    assert (page["total"], page["limit"], page["offset"]) == (len(actions), 50, 0)
    assert {
        *("key.created", "task.created", "run.started", "webhook.created", "task.deleted"),
    } <= set(actions)
    for spelled in (to_uuid(run_id), to_uuid(run_id).upper(), run_id):
        [started] = (await audit(f"action=run.started&resourceId={spelled}"))["data"]
    assert (started["resource"], started["resourceId"]) == ("run", run_id)
    # Nobody had a key then.
    assert (started["actor"], started["actorType"]) == ("operator", "local")
    [created] = (await audit(f"action=task.created&resourceId={task_id}"))["data"]
    assert created["details"]["session_id"].startswith("chat_")
    assert "run_id" not in created["details"]
    [deleted] = (await audit("action=task.deleted"))["data"]
    assert deleted["resourceId"] == task_id
    assert deleted["requestId"]
    keys = (await audit("resource=key&limit=1&offset=1"))["data"]
    assert [one["details"]["name"] for one in keys] == ["ann"]
    assert (await audit("createdBefore=2000-01-01"))["total"] == 0
    whole = await audit("limit=200")
    for secret in (key, token):
        assert secret not in msgspec.json.encode(whole).decode()
    async with clients() as opened:
        connection = await opened.connect_to(service.url)
        refused = await connection.ask("GET", "/audit", None, {"authorization": f"Bearer {key}"})
        assert refused.status == 403


async def test_what_clients_decide_about_changes_and_artifacts_is_audited(service: Service) -> None:
    written = [call("write_file", path=f"{name}.txt", content="x") for name in "ab"]
    model = service.stage.scenario(written, [say("Done."), end()])
    run = await service.started(model, auto_apply=False)
    await run.until("run.finished")
    patches = await service.get(f"{run.path}/patches?status=proposed")
    first, second = (one["artifact"]["id"] for one in patches)
    for patch, decision in ((first, "apply"), (second, "reject"), (first, "revert")):
        await service.post(f"{run.path}/patches/{patch}/{decision}")
    added = {"run_id": run.run_id, "kind": "command_output", "body_base64": "eA=="}
    report = (await service.post("/artifacts", added))["id"]
    for pinned in (True, False):
        path = f"/artifacts/{report}"
        assert (await service.ask("PATCH", path, {"pinned": pinned})).status == 200
    assert (await service.ask("DELETE", path)).status == 204
    entries = (await got(service, "GET", "/audit"))["data"]
    told = [
        (one["action"], one["resourceId"], one["actor"], one["details"])
        for one in reversed(entries)
        if one["action"].startswith(("patch.", "artifact."))
    ]
    by, place = "operator", {"run_id": run.run_id}
    inverse = (await service.get(f"{run.path}/patches"))[-1]["artifact"]["id"]
    reverted = {"artifact_id": first, "inverse_artifact_id": inverse}
    assert told == [
        ("patch.applied", run.run_id, by, {"artifact_id": first}),
        ("patch.rejected", run.run_id, by, {"artifact_id": second}),
        ("patch.reverted", run.run_id, by, reverted),
        ("artifact.pinned", report, by, place),
        ("artifact.unpinned", report, by, place),
        ("artifact.deleted", report, by, place),
    ]


async def test_a_secret_in_a_callers_trace_state_is_not_recorded(tmp_path: Path) -> None:
    secret = f"hush-{secrets.token_hex(20)}"
    environ = {"MY_API_KEY": secret}
    headers = {"traceparent": LAUNCHED["TRACEPARENT"], "tracestate": f"vendor={secret}"}
    session = {
        "modeName": "macp.mode.decision.v1",
        "modeVersion": "1.0.0",
        "configurationVersion": "c",
        "ttlMs": 60000,
        "participants": [{"id": "a"}],
    }
    described = {"mode": "live", "runtime": {"kind": "rust"}, "session": session}
    async with serving(tmp_path, "--auto-allow", environ=environ) as service:
        task_id = await service.task(service.stage.scenario([say("x"), end()]))
        answer = await service.ask("POST", f"/tasks/{task_id}/start", {}, headers)
        run = Run(service, task_id, msgspec.json.decode(answer.body)["data"]["id"])
        queued = await run.until("run.queued")
        assert queued["data"]["identity"]["tracestate"] == "vendor=<redacted>"
        await run.ended()
        assert (await service.request("POST", "/runs", described, headers)).status == 202
    stored = b"".join(one.read_bytes() for one in service.stage.home.glob("journal.db*"))
    assert b"vendor=" in stored
    assert secret.encode() not in stored
