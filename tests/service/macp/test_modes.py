"""One session of each mode by the published SDK, and every view of it as a person expects it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.protocols.macp.json_values import list_of, object_of
from batten.protocols.macp.metrics import milliseconds
from tests.service.macp.expected import EXPECTED, Expected
from tests.service.macp.plane import Plane, planes
from tests.service.macp.sessions import SESSIONS
from tests.service.serving import Json

_TIMES = frozenset(("ts", "latestActivityAt", "resolvedAt", "startedAt", "endedAt"))


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    async with planes(tmp_path) as running:
        yield running


class Seen(msgspec.Struct, frozen=True):
    """A run with the short names that expectations use."""

    run_id: str
    session_id: str
    events: list[Json]
    names: dict[str, str]

    def shown(self, value: Any) -> Any:
        """A value of an answer with short names, and without times."""
        if (members := object_of(value)) is not None:
            return {key: self.shown(one) for key, one in members.items() if key not in _TIMES}
        if (entries := list_of(value)) is not None:
            return [self.shown(one) for one in entries]
        return self.names.get(value, value) if isinstance(value, str) else value


def seen(run_id: str, session_id: str, events: list[Json]) -> Seen:
    names = {run_id: "r", session_id: "s"}
    messages = [one["data"]["messageId"] for one in events if one["type"] == "message.received"]
    names |= {message_id: f"m{number}" for number, message_id in enumerate(messages, 1)}
    for event in events:
        if event["type"] == "decision.finalized":
            names[event["subject"]["id"]] = "c"
        if event["type"] == "artifact.created":
            names[event["subject"]["id"]] = "a"
    return Seen(run_id, session_id, events, names)


def line(event: Json) -> str:
    subject = event["subject"]
    sender = event["data"].get("sender", "")
    return f"{event['type']} {subject['kind']}:{subject['id']} {sender}".strip()


def state_of(expected: Expected, run: Seen, mode: str) -> Json:
    """The whole state, from what a person wrote down of it."""
    people = expected.statuses
    invited = [name for name in expected.participants if name != "lead"]
    trace = run.run_id.replace("-", "")
    special = [("__start", "start"), ("__decision", "decision"), ("__outcome", "output")]
    if any("__proposal" in edge for edge in expected.edges):
        special.insert(1, ("__proposal", "proposal"))
    policy: Json = {
        "policyVersion": "policy.default",
        "policyDescription": "No vote is demanded and nothing vetoes; the initiator commits.",
        "outcomePositive": expected.current["outcomePositive"],
        "commitmentEvaluations": [{"commitmentId": "c", "decision": "allow", "reasons": []}],
        "quorumStatus": "reached",
    }
    if expected.tally:
        policy["voteTally"] = [_tally(one, len(expected.participants)) for one in expected.tally]
    return {
        "run": {
            "runId": "r",
            "status": "completed",
            "modeName": mode,
            "runtimeSessionId": "s",
            "traceId": trace,
        },
        "participants": [_participant(name, last) for name, last in people.items()],
        "graph": {
            "nodes": [
                *({"id": name, "kind": "participant", "status": _status(last)}
                  for name, last in people.items()),
                *({"id": id_, "kind": kind, "status": "completed"} for id_, kind in special),
            ],
            "edges": [
                "__start>lead session.bound",
                *(f"lead>{name} fanout" for name in invited),
                *(f"lead>{name} SessionStart" for name in invited),
                *expected.edges,
            ],
        },
        "decision": {
            "current": {
                **expected.current,
                "reasons": ["agreed"],
                "finalized": True,
                "resolvedBy": "lead",
                "proposals": expected.contributions,
            }
        },
        "signals": [call[0] for call in expected.calls],
        "progress": expected.progress,
        "timeline": {"latestSeq": len(expected.events), "totalEvents": len(expected.events)},
        "trace": {"traceId": trace, "spanCount": 1, "linkedArtifacts": ["a"]},
        "outboundMessages": {
            "total": expected.counts["messageCount"],
            "queued": 0,
            "accepted": expected.counts["messageCount"],
            "rejected": 0,
        },
        "policy": policy,
        "llm": expected.calls,
    }  # fmt: skip


def _status(last: str) -> str:
    return "skipped" if last == "-" else "completed"


def _participant(name: str, last: str) -> Json:
    shown = {"participantId": name, "status": _status(last)}
    return shown if last == "-" else {**shown, "latestSummary": last}


def _tally(tally: tuple[str, int, int], voters: int) -> Json:
    id_, allow, deny = tally
    return {
        "commitmentId": id_,
        "allow": allow,
        "deny": deny,
        "threshold": (voters + 1) // 2,
        "quorum": {"required": voters, "cast": allow + deny},
    }


def shortened(state: Json) -> Json:
    """A state with the long blocks in the form of the expectations."""
    short = dict(state)
    del short["timeline"]["recent"]
    del short["trace"]["lastSpanId"]
    short["graph"]["edges"] = [
        f"{one['from']}>{one['to']} {one['kind']}" for one in state["graph"]["edges"]
    ]
    current = short["decision"]["current"]
    current["proposals"] = [
        (
            *(one["participantId"], one["action"]),
            *(one.get("vote"), one.get("confidence"), one["reasons"]),
        )
        for one in current["proposals"]
    ]
    short["signals"] = [one["sourceParticipantId"] for one in state["signals"]["signals"]]
    short["progress"] = [
        (one["participantId"], one["percentage"], one["message"])
        for one in state["progress"]["entries"]
    ]
    short["llm"] = [
        (one["participantId"], one["model"], one["totalTokens"], one["estimatedCostUsd"])
        for one in state["llm"]["calls"]
    ]
    return short


@pytest.mark.parametrize("mode", SESSIONS)
async def test_every_view_of_a_session_is_what_a_person_expects(plane: Plane, mode: str) -> None:
    expected = EXPECTED[mode]
    session_id = await plane.speak(SESSIONS[mode])
    path = await plane.run_of(session_id)
    events = await plane.get(f"{path}/events")
    run = seen(path.removeprefix("/runs/"), session_id, events)
    first, last = events[0]["ts"], events[-1]["ts"]
    assert [line(event) for event in run.shown(events)] == expected.events
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))

    state = await plane.get(f"{path}/state")
    assert [one["id"] for one in state["timeline"]["recent"]] == [one["id"] for one in events]
    assert shortened(run.shown(state)) == state_of(expected, run, mode)

    metrics = await plane.get(f"{path}/metrics")
    counts = {name: value for name, value in metrics.items() if isinstance(value, int) and value}
    took = milliseconds(first, last)
    assert counts == {
        **expected.counts,
        "eventCount": len(events),
        "decisionCount": 1,
        **({"durationMs": took} if took else {}),
    }
    assert metrics["estimatedCostUsd"] == sum(call[3] for call in expected.calls)
    assert (metrics["firstEventAt"], metrics["lastEventAt"]) == (first, last)
    assert metrics["sessionState"] == "SESSION_STATE_RESOLVED"

    record = await plane.get(path)
    assert (record["status"], record["lastEventSeq"]) == ("completed", len(events))
    assert (record["createdAt"], record["endedAt"]) == (first, last)
    assert record["metadata"]["finalAction"] == expected.current["action"]
    assert record["metadata"]["finalOutcomePositive"] == expected.current["outcomePositive"]

    traces = await plane.get(f"{path}/traces")
    assert run.shown(traces["linkedArtifacts"]) == ["a"]
    assert (traces["runStatus"], traces["traceId"]) == ("completed", record["traceId"])

    messages = await plane.get(f"{path}/messages")
    assert len(messages) == expected.counts["messageCount"]
    assert {one["status"] for one in messages} == {"accepted"}

    bundle = await plane.get(f"{path}/export?includeRaw=true")
    assert bundle["canonicalEvents"] == events
    assert bundle["projection"] == state
    assert bundle["metrics"] == metrics
    assert bundle["session"]["metadata"] == {"participants": expected.participants}
    replayed = await plane.frames(f"{path}/replay/stream?mode=instant")
    assert [frame.json for frame in replayed] == events
