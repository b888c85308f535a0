"""Metrics, traces, messages and artifacts of a run."""

from typing import Any

import msgspec
import pytest

from batten.protocols.macp.metrics import milliseconds
from tests.coordination.published import sdk, sdk_policy
from tests.service.macp.plane import COMMIT, Plane, as_, decided, finish, opened
from tests.service.serving import Json

UNKNOWN = "/runs/0190b2f0-0000-7000-8000-000000000009"
CALL = {"promptTokens": 120, "completionTokens": 45, "model": "gpt-4o-mini", "latencyMs": 890}


def told(client: Any) -> str:
    """A decision in which two agents tell of model calls, and one of its progress."""
    session_id = opened(client)
    for name, call in (("ann", CALL), ("ben", {**CALL, "model": "another"})):
        client.send_signal(
            signal_type="llm.call.completed",
            data=msgspec.json.encode(call),
            correlation_session_id=session_id,
            **as_(name),
        )
    client.send_signal(
        signal_type="risk.flag", confidence=0.75, correlation_session_id=session_id, **as_("ann")
    )
    client.send_progress(
        session_id=session_id,
        mode="macp.mode.decision.v1",
        progress_token="t1",
        progress=0.4,
        total=1.0,
        message="reading",
        **as_("ben"),
    )
    finish(client, session_id)
    return session_id


async def test_metrics_count_every_event_and_tokens_once(plane: Plane) -> None:
    run = await plane.run_of(await plane.speak(told))
    events = await plane.get(f"{run}/events")
    kinds = [event["type"] for event in events]
    found = await plane.get(f"{run}/metrics")
    assert found == {
        "runId": run.removeprefix("/runs/"),
        "eventCount": len(events),
        "messageCount": 8,
        "signalCount": 3,
        "proposalCount": 2,
        "toolCallCount": 0,
        "decisionCount": 1,
        "streamReconnectCount": 0,
        "promptTokens": 240,
        "completionTokens": 90,
        "totalTokens": 330,
        "estimatedCostUsd": 0.0003,
        "firstEventAt": events[0]["ts"],
        "lastEventAt": events[-1]["ts"],
        "durationMs": milliseconds(events[0]["ts"], events[-1]["ts"]),
        "sessionState": "SESSION_STATE_RESOLVED",
    }
    assert kinds.count("llm.call.completed") == 2


async def test_d32_a_model_of_the_table_has_its_exact_price(plane: Plane) -> None:
    run = await plane.run_of(await plane.speak(told))
    llm = (await plane.get(f"{run}/state"))["llm"]
    assert [call["estimatedCostUsd"] for call in llm["calls"]] == [0.000045, 0.000255]
    assert [str(call["latencyMs"]) for call in llm["calls"]] == ["890", "890"]
    assert llm["totals"]["estimatedCostUsd"] == 0.0003


async def test_signals_and_progress_of_a_session_are_in_its_run(plane: Plane) -> None:
    run = await plane.run_of(await plane.speak(told))
    state = await plane.get(f"{run}/state")
    names = [(one["name"], one["sourceParticipantId"]) for one in state["signals"]["signals"]]
    assert names == [
        ("llm.call.completed", "ann"),
        ("llm.call.completed", "ben"),
        ("risk.flag", "ann"),
    ]
    assert state["signals"]["signals"][2]["confidence"] == 0.75
    (entry,) = state["progress"]["entries"]
    assert (entry["participantId"], entry["percentage"], entry["message"]) == ("ben", 40, "reading")


async def test_a_stranger_does_not_write_into_the_run_of_a_session(plane: Plane) -> None:
    def talk(client: Any) -> str:
        session_id = opened(client)
        client.send_signal(
            signal_type="noise", correlation_session_id=session_id, **as_("stranger")
        )
        return session_id

    run = await plane.run_of(await plane.speak(talk))
    assert (await plane.get(f"{run}/state"))["signals"]["signals"] == []


async def test_trace_is_told_with_the_status_of_its_run(plane: Plane) -> None:
    run = await plane.run_of(await plane.speak(decided))
    state = await plane.get(f"{run}/state")
    found = await plane.get(f"{run}/traces")
    assert found == {**state["trace"], "runStatus": "completed"}
    assert found["linkedArtifacts"] == [(await plane.get(f"{run}/artifacts"))[0]["id"]]
    assert found["traceId"] == (await plane.get(run))["traceId"]


async def test_messages_are_captured_from_the_stream(plane: Plane) -> None:
    session_id = await plane.speak(decided)
    run = await plane.run_of(session_id)
    found = await plane.get(f"{run}/messages")
    assert [(one["messageType"], one["sender"], one["status"]) for one in found] == [
        ("SessionStart", "lead", "accepted"),
        ("Proposal", "lead", "accepted"),
        ("Vote", "ann", "accepted"),
        ("Commitment", "lead", "accepted"),
    ]
    assert [one["recipients"] for one in found] == [["ann", "ben"], ["ann", "ben"], [], []]
    vote = found[2]
    event = next(
        one
        for one in await plane.get(f"{run}/events")
        if one["type"] == "message.received" and one["data"]["messageType"] == "Vote"
    )
    assert vote == {
        "id": event["id"],
        "runId": run.removeprefix("/runs/"),
        "runtimeSessionId": session_id,
        "messageId": event["data"]["messageId"],
        "messageType": "Vote",
        "category": "session",
        "sender": "ann",
        "recipients": [],
        "status": "accepted",
        "payloadDescriptor": {"value": event["data"]["payload"]},
        "ack": None,
        "errorMessage": None,
        "createdAt": event["ts"],
        "acceptedAt": event["ts"],
        "updatedAt": event["ts"],
    }


async def test_a_denied_commitment_is_a_rejected_message(plane: Plane) -> None:
    def talk(client: Any) -> str:
        rules = sdk_policy.VotingRules(algorithm="majority")
        client.register_policy(
            sdk_policy.build_decision_policy("policy.majority", "", voting=rules)
        )
        session = sdk.DecisionSession(client, policy_version="policy.majority")
        session.start(intent="decide", participants=["lead", "ann"], ttl_ms=60_000)
        session.propose("p1", "merge")
        with pytest.raises(sdk.MacpAckError):
            session.commit(action="decision.selected", **COMMIT)
        session_id: str = session.session_id
        return session_id

    run = await plane.run_of(await plane.speak(talk))
    *accepted, refused = await plane.get(f"{run}/messages")
    assert [one["status"] for one in accepted] == ["accepted", "accepted"]
    shown = [refused[name] for name in ("messageType", "sender", "status", "errorMessage")]
    assert shown == ["Commitment", "lead", "rejected", "nobody voted APPROVE or REJECT"]
    assert refused["acceptedAt"] is None
    state = await plane.get(f"{run}/state")
    assert state["outboundMessages"] == {"total": 3, "queued": 0, "accepted": 2, "rejected": 1}
    assert state["policy"]["quorumStatus"] == "pending"


async def test_an_attached_artifact_is_listed_and_told_of(plane: Plane) -> None:
    run = await plane.run_of(await plane.speak(opened))
    (trace,) = await plane.get(f"{run}/artifacts")
    assert (trace["kind"], trace["label"]) == ("trace", "Root run trace")
    assert trace["inline"] == {"traceId": (await plane.get(run))["traceId"]}
    asked = {"kind": "json", "label": "scores", "inline": {"a": [1, {"b": None}]}}
    answer = await plane.posted(f"{run}/artifacts", asked)
    assert answer.status == 201
    assert {name: answer.json[name] for name in asked} == asked
    linked = await plane.post(
        f"{run}/artifacts", {"kind": "report", "label": "r", "uri": "https://reports.test/1"}
    )
    assert (linked["uri"], linked["inline"]) == ("https://reports.test/1", None)
    assert await plane.get(f"{run}/artifacts") == [trace, answer.json, linked]
    page = await plane.get(f"{run}/events?type=artifact.created")
    told_of = page["data"][1:]
    assert [event["data"] for event in told_of] == [
        {"kind": "json", "label": "scores", "artifactId": answer.json["id"]},
        {
            "kind": "report",
            "label": "r",
            "artifactId": linked["id"],
            "uri": "https://reports.test/1",
        },
    ]
    assert (await plane.get(f"{run}/traces"))["linkedArtifacts"] == [
        trace["id"],
        answer.json["id"],
        linked["id"],
    ]


async def test_artifacts_can_be_attached_after_the_end(plane: Plane) -> None:
    run = await plane.run_of(await plane.speak(decided))
    made = await plane.post(f"{run}/artifacts", {"kind": "log", "label": "late"})
    assert (await plane.get(f"{run}/artifacts"))[-1] == made
    assert (await plane.get(run))["status"] == "completed"
    frames = await plane.frames(f"{run}/stream?afterSeq=0")
    assert frames[-1].json["type"] == "artifact.created"


async def test_observability_refuses_what_is_wrong(plane: Plane) -> None:
    for name in ("metrics", "traces", "messages", "artifacts"):
        assert await plane.refused("GET", f"{UNKNOWN}/{name}") == (404, "RUN_NOT_FOUND")
    good = {"kind": "json", "label": "x"}
    assert await plane.refused("POST", f"{UNKNOWN}/artifacts", good) == (404, "RUN_NOT_FOUND")
    run = await plane.run_of(await plane.speak(opened))
    wrong: list[Json] = [{"kind": "movie"}, {"label": ""}, {"inline": []}, {"more": 1}]
    for change in wrong:
        refused = await plane.refused("POST", f"{run}/artifacts", {**good, **change})
        assert refused == (400, "VALIDATION_ERROR"), change
    assert await plane.refused("POST", f"{run}/artifacts", {"kind": "log"}) == (
        400,
        "VALIDATION_ERROR",
    )
