"""Bundles: what is in them, their two forms, several at once; and two runs compared."""

from typing import Any

import msgspec
import pytest

from tests.coordination.published import sdk
from tests.service.macp.plane import COMMIT, Plane, as_, decided, opened
from tests.service.serving import Json

UNKNOWN = "0190b2f0-0000-7000-8000-000000000009"


async def test_d29_an_export_without_a_flag_has_its_events(plane: Plane) -> None:
    run = await plane.run_of(await plane.speak(decided))
    bundle = await plane.get(f"{run}/export")
    assert list(bundle) == [
        *("run", "session", "projection", "metrics", "artifacts"),
        *("canonicalEvents", "rawEvents", "exportedAt"),
    ]
    assert bundle["canonicalEvents"] == await plane.get(f"{run}/events")
    assert bundle["rawEvents"] == []
    assert bundle["projection"] == await plane.get(f"{run}/state")
    assert bundle["metrics"] == await plane.get(f"{run}/metrics")
    assert bundle["artifacts"] == await plane.get(f"{run}/artifacts")
    without = await plane.get(f"{run}/export?includeCanonical=false")
    assert without["canonicalEvents"] == []


async def test_export_tells_the_run_and_its_session(plane: Plane) -> None:
    session_id = await plane.speak(decided)
    run = await plane.run_of(session_id)
    record, bundle = await plane.get(run), await plane.get(f"{run}/export")
    names = "id status runtimeKind runtimeSessionId traceId createdAt startedAt endedAt tags"
    assert bundle["run"] == {name: record[name] for name in names.split()} | {
        "archivedAt": None,
        "metadata": record["metadata"],
    }
    session, events = bundle["session"], bundle["canonicalEvents"]
    by_type = {event["type"]: event for event in events}
    assert session["expiresAt"] > session["createdAt"]
    del session["expiresAt"]
    last_of_runtime = [one for one in events if one["source"]["kind"] == "runtime"][-1]
    assert session == {
        "runId": record["id"],
        "runtimeKind": "embedded",
        "runtimeSessionId": session_id,
        "modeName": "macp.mode.decision.v1",
        "modeVersion": "1.0.0",
        "configurationVersion": "config.default",
        "policyVersion": "policy.default",
        "initiatorParticipantId": "lead",
        "sessionState": "SESSION_STATE_RESOLVED",
        "lastSeenAt": last_of_runtime["ts"],
        "capabilities": {},
        "lastStreamCursor": last_of_runtime["seq"],
        "streamConnectedAt": by_type["session.stream.opened"]["ts"],
        "streamDisconnectedAt": record["endedAt"],
        "metadata": {"participants": ["lead", "ann", "ben"]},
        "createdAt": by_type["session.bound"]["ts"],
        "updatedAt": events[-1]["ts"],
    }


async def test_lines_keep_the_type_of_each_event(plane: Plane) -> None:
    run = await plane.run_of(await plane.speak(decided))
    events = await plane.get(f"{run}/events")
    limited = await plane.service.request(
        "GET", f"{run}/export/stream?includeRaw=true&eventLimit=2"
    )
    types = [msgspec.json.decode(line)["type"] for line in limited.body.splitlines()]
    assert types == ["header", *["canonical_event"] * len(events), *["raw_event"] * 2]
    for path in ("export?format=jsonl", "export/stream?includeCanonical=false"):
        answer = await plane.service.request("GET", f"{run}/{path}&includeRaw=true")
        assert answer.headers["content-type"] == "application/x-ndjson"
        lines = [msgspec.json.decode(line) for line in answer.body.splitlines()]
        header, *rest = lines
        assert header["type"] == "header"
        assert set(header) == {
            *("type", "run", "session", "projection", "metrics", "artifacts", "exportedAt")
        }
        shown = [one for one in rest if one.pop("type") == "canonical_event"]
        assert [{"type": one.pop("eventType"), **one} for one in shown] == events
        raw = rest[len(shown) :]
        assert [one["seq"] for one in raw] == list(range(len(raw)))


async def test_raw_events_are_the_facts_of_the_run(plane: Plane) -> None:
    session_id = await plane.speak(decided)
    run = await plane.run_of(session_id)
    bundle = await plane.get(f"{run}/export?includeRaw=true")
    envelopes = [one for one in bundle["rawEvents"] if one["kind"] == "stream-envelope"]
    assert [one["payload"]["envelope"]["messageType"] for one in envelopes] == [
        *("SessionStart", "Proposal", "Vote", "Commitment")
    ]
    first = envelopes[0]
    assert set(first) == {
        *("id", "runId", "seq", "ts", "kind", "sourceName", "payload"),
        *("traceId", "spanId", "createdAt"),
    }
    assert (first["runId"], first["sourceName"]) == (bundle["run"]["id"], "batten-runtime")
    assert first["payload"]["envelope"]["payloadBase64"]
    limited = await plane.get(f"{run}/export?includeRaw=true&eventLimit=2")
    assert [one["seq"] for one in limited["rawEvents"]] == [0, 1]
    assert [one["seq"] for one in limited["canonicalEvents"]] == [1, 2]


async def test_batch_export_has_every_bundle_or_none(plane: Plane) -> None:
    first = await plane.run_of(await plane.speak(decided))
    second = await plane.run_of(await plane.speak(opened))
    ids = [path.removeprefix("/runs/") for path in (second, first)]
    bundles = await plane.post("/runs/batch/export", {"runIds": ids})
    assert [bundle["run"]["id"] for bundle in bundles] == ids
    assert bundles[1]["canonicalEvents"] == await plane.get(f"{first}/events")
    assert await plane.post("/runs/batch/export", {"runIds": []}) == []
    path = "/runs/batch/export"
    refused = await plane.refused("POST", path, {"runIds": [*ids, UNKNOWN]})
    assert refused == (404, "RUN_NOT_FOUND")
    wrong: list[Json] = [{}, {"runIds": "all"}, {"runIds": ["x"]}, {"runIds": [], "more": 1}]
    for body in wrong:
        assert await plane.refused("POST", path, body) == (400, "VALIDATION_ERROR"), body


async def test_export_refuses_what_is_wrong(plane: Plane) -> None:
    run = await plane.run_of(await plane.speak(opened))
    for path in ("export", "export/stream"):
        assert await plane.refused("GET", f"/runs/{UNKNOWN}/{path}") == (404, "RUN_NOT_FOUND")
        for query in ("eventLimit=0", "eventLimit=50001", "includeRaw=maybe", "format=xml"):
            refused = await plane.refused("GET", f"{run}/{path}?{query}")
            assert refused == (400, "VALIDATION_ERROR"), query


@pytest.mark.own_service
async def test_an_export_is_in_the_audit_log(plane: Plane) -> None:
    run = await plane.run_of(await plane.speak(opened))
    await plane.get(f"{run}/export?format=json")
    found = await plane.get("/audit?action=run.exported")
    (entry,) = found["data"]
    assert (entry["resource"], entry["resourceId"]) == ("run", run.removeprefix("/runs/"))
    assert entry["details"] == {"format": "json"}


def refused_decision(client: Any) -> str:
    session = sdk.DecisionSession(client)
    session.start(intent="decide", participants=["lead", "cem"], ttl_ms=60_000)
    session.propose("p1", "merge")
    session.vote("p1", "REJECT", **as_("cem"))
    client.send_signal(signal_type="risk.flag", correlation_session_id=session.session_id)
    session.commit(action="decision.rejected", outcome_positive=False, **COMMIT)
    session_id: str = session.session_id
    return session_id


async def test_compared_runs_differ_in_what_they_differ(plane: Plane) -> None:
    left = await plane.run_of(await plane.speak(decided))
    right = await plane.run_of(await plane.speak(refused_decision))
    ids = {"leftRunId": left.removeprefix("/runs/"), "rightRunId": right.removeprefix("/runs/")}
    found = await plane.post("/runs/compare", ids)
    took = [(await plane.get(f"{run}/metrics"))["durationMs"] for run in (left, right)]
    mode = "macp.mode.decision.v1"
    assert found == {
        "left": {
            "runId": ids["leftRunId"],
            "status": "completed",
            "modeName": mode,
            "durationMs": took[0],
        },
        "right": {
            "runId": ids["rightRunId"],
            "status": "completed",
            "modeName": mode,
            "durationMs": took[1],
        },
        "statusMatch": True,
        "durationDeltaMs": took[1] - took[0],
        "confidenceDelta": -1.0,
        "participantsDiff": {"added": ["cem"], "removed": ["ann", "ben"], "common": ["lead"]},
        "signalsDiff": {"added": ["risk.flag"], "removed": []},
    }
    missing = {**ids, "rightRunId": UNKNOWN}
    assert await plane.refused("POST", "/runs/compare", missing) == (404, "RUN_NOT_FOUND")
    for body in ({}, {**ids, "leftRunId": "x"}, {**ids, "more": 1}):
        assert await plane.refused("POST", "/runs/compare", body) == (400, "VALIDATION_ERROR")
