"""Webhooks and the audit log as the control plane has them."""

import hmac
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from batten.contract.ids import to_uuid
from tests.agent.stage import end, fail, say
from tests.service.macp.test_edge import refused
from tests.service.serving import Service, serving
from tests.sinks.http_receiver import http_receiver

ALLOW = msgspec.json.encode({"sinks": {"allow": ["127.0.0.0/8"]}}).decode()
ROW = {"id", "url", "events", "secret", "active", "createdAt", "updatedAt"}


async def test_a_webhook_is_made_listed_changed_and_removed(service: Service) -> None:
    asked = {"url": "https://example.com/h", "events": ["run.completed"], "secret": "hmac-secret"}
    made = await service.request("POST", "/webhooks", asked)
    assert made.status == 201
    row = made.json
    assert row.keys() >= ROW
    assert {name: row[name] for name in asked} == asked
    assert row["active"] is True
    [listed] = (await service.request("GET", "/webhooks")).json
    # A secret is shown once.
    assert listed == {**row, "secret": "********"}
    path = f"/webhooks/{row['id']}"
    changed = await service.request("PATCH", path, {"active": False, "events": []})
    assert (changed.status, changed.json["active"], changed.json["events"]) == (200, False, [])
    assert changed.json["url"] == asked["url"]
    for body in ({"role": "x"}, {"events": ["run.exploded"]}, {"url": "ftp://x"}):
        refused(await service.request("PATCH", path, body), 400, "VALIDATION_ERROR")
    for _ in range(2):
        gone = await service.request("DELETE", path)
        assert (gone.status, gone.body) == (204, b"")
    refused(await service.request("PATCH", path, {}), 404, "NOT_FOUND")
    assert (await service.request("GET", "/webhooks")).json == []


async def test_a_service_on_loopback_tells_receivers_beside_it_without_further_settings(
    tmp_path: Path,
) -> None:
    async with http_receiver() as receiver, serving(tmp_path, "--auto-allow") as service:
        asked = {"url": receiver.url, "events": ["run.completed"], "secret": "hmac-secret"}
        assert (await service.request("POST", "/webhooks", asked)).status == 201
        run = await service.started(service.stage.scenario([say("Hi."), end()]))
        await run.ended()
        [told] = await receiver.wait_for(1)
        assert msgspec.json.decode(told.body)["runId"] == to_uuid(run.run_id)


async def test_a_receiver_gets_the_documented_bodies_signed(tmp_path: Path) -> None:
    async with (
        http_receiver() as receiver,
        serving(tmp_path, "--auto-allow") as service,
    ):
        wanted = ["run.started", "run.completed", "run.failed", "run.cancelled"]
        asked = {"url": receiver.url, "events": wanted, "secret": "hmac-secret"}
        assert (await service.request("POST", "/webhooks", asked)).status == 201
        good = await service.started(service.stage.scenario([say("Hi."), end()], name="good"))
        await good.ended()
        bad = await service.started(
            service.stage.scenario([fail("invalid_request", "no such model")], name="bad")
        )
        await bad.ended()
        taken = await receiver.wait_for(4)
        bodies = [msgspec.json.decode(one.body) for one in taken]
        for one, body in zip(taken, bodies, strict=True):
            assert body.keys() >= {"event", "runId", "status", "timestamp"}
            assert str(UUID(body["runId"])) == body["runId"]
            assert body["timestamp"].endswith("Z")
            assert one.headers["x-macp-event"] == body["event"]
            signed = hmac.digest(b"hmac-secret", one.body, sha256).hex()
            assert one.headers["x-macp-signature"] == signed
        by_run = {
            run.run_id: [
                (body["event"], body["status"])
                for body in bodies
                if body["runId"] == to_uuid(run.run_id)
            ]
            for run in (good, bad)
        }
        assert by_run[good.run_id] == [("run.started", "running"), ("run.completed", "completed")]
        assert by_run[bad.run_id] == [("run.started", "running"), ("run.failed", "failed")]
        [failed] = [body for body in bodies if body["event"] == "run.failed"]
        assert failed["data"]["error"]


@pytest.mark.own_service
async def test_d33_a_page_of_the_audit_log_says_its_limit_and_offset(service: Service) -> None:
    for number in range(3):
        body = {"url": f"https://example.com/{number}", "secret": "hmac-secret"}
        assert (await service.request("POST", "/webhooks", body)).status == 201
    page = (await service.request("GET", "/audit?limit=2&offset=1")).json
    assert page.keys() == {"data", "total", "limit", "offset"}
    assert (page["total"], page["limit"], page["offset"]) == (3, 2, 1)
    assert [one["details"]["url"][-1] for one in page["data"]] == ["1", "0"]
    assert page["data"][0].keys() == {
        *("id", "actor", "actorType", "action", "resource", "resourceId", "details", "requestId"),
        "createdAt",
    }
    # Bounds are exclusive, whatever zone they are told in.
    at = page["data"][0]["createdAt"]
    found = (await service.request("GET", f"/audit?createdAfter={at}")).json["data"]
    assert all(one["createdAt"] > at for one in found)
    found = (await service.request("GET", f"/audit?createdBefore={at}")).json["data"]
    assert all(one["createdAt"] < at for one in found)
    for query in ("createdAfter=2000-01-01T00:00:00%2B02:00", "createdBefore=2999-01-01"):
        assert (await service.request("GET", f"/audit?{query}")).json["total"] == 3
    filtered = await service.request("GET", "/audit?action=webhook.created&resource=webhook")
    assert filtered.json["total"] == 3
    assert (await service.request("GET", "/audit?actor=nobody")).json["total"] == 0


@pytest.mark.parametrize(
    "query",
    [
        *("createdAfter=yesterday", "createdBefore=not-a-date", "createdAfter=99999-01-01"),
        *("limit=0", "limit=201", "limit=x", "offset=-1", "offset=1.5"),
    ],
)
async def test_a_bad_parameter_of_the_audit_log_is_refused(service: Service, query: str) -> None:
    message = refused(await service.request("GET", f"/audit?{query}"), 400, "VALIDATION_ERROR")
    assert query.partition("=")[0] in message
