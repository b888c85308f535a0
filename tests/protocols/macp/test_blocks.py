"""Blocks of the state: what they keep, how much of it, and the rules beyond the disagreements."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from batten.contract import facts as f
from batten.contract.ids import to_uuid
from batten.coordination.payloads import SESSION_START, write
from tests.protocols.macp.making import (
    at,
    bound,
    canonical,
    json_text,
    observed,
    queued,
    said,
    shown,
    started,
)

CALL = {"promptTokens": 1, "completionTokens": 2, "model": "gpt-4o"}


def block(state: dict[str, Any], *path: str) -> list[Any]:
    value: Any = state
    for name in path:
        value = value[name]
    entries: list[Any] = value
    return entries


CAPS: dict[tuple[str, ...], tuple[int, Callable[[int], f.Fact]]] = {
    ("timeline", "recent"): (50, lambda n: said("ann", "Note", json_text(n=n))),
    ("decision", "current", "proposals"): (50, lambda _: said("ann", "Evaluation", "{}")),
    ("progress", "entries"): (100, lambda n: said("ann", "Progress", progress=n / 1000)),
    ("signals", "signals"): (200, lambda n: said("ann", "Signal", signal_type=f"s{n}")),
    ("llm", "calls"): (100, lambda _: said("ann", "Note", json_text(llmCall=CALL))),
    ("policy", "commitmentEvaluations"): (
        50,
        lambda n: said("runtime", "PolicyCommitmentEvaluated", json_text(commitmentId=f"c{n}")),
    ),
    ("graph", "edges"): (300, lambda n: said(f"agent{n}", "Vote", "{}")),
}
"""The block, its cap, and a frame that adds an entry."""


@pytest.mark.parametrize("path", CAPS)
def test_a_block_keeps_the_newest_entries_up_to_its_cap(path: tuple[str, ...]) -> None:
    most, frame = CAPS[path]
    state = shown(observed(*(frame(number) for number in range(most + 20))))
    kept = block(state, *path)
    assert len(kept) == most
    assert kept[-1]["ts"] == at(most + 23)
    if path[0] == "llm":
        assert state["llm"]["totals"]["callCount"] == most + 20


def test_an_acknowledged_signal_says_when_and_by_whom() -> None:
    emitted = said("ann", "Signal", signal_type="risk.flag", confidence=0.5)
    ack = said("lead", "SignalAck", json_text(signalId=emitted.message_id))
    stray = said("lead", "SignalAck", json_text(signalId="another"))
    [signal] = shown(observed(emitted, ack, stray))["signals"]["signals"]
    assert signal == {
        "id": emitted.message_id,
        "name": "risk.flag",
        "sourceParticipantId": "ann",
        "ts": at(4),
        "confidence": 0.5,
        "payload": {"signalType": "risk.flag", "confidence": 0.5},
        "acknowledgedAt": at(5),
        "acknowledgedBy": "lead",
    }


def test_the_severity_of_a_signal_may_be_in_its_data() -> None:
    data = msgspec.json.encode({"severity": "high", "confidence": 0.25})
    [signal] = shown(observed(said("ann", "Signal", signal_type="risk", data=data)))["signals"][
        "signals"
    ]
    assert (signal["severity"], signal["confidence"]) == ("high", 0.25)


def test_a_model_call_beside_a_message_counts_once() -> None:
    message = f.MacpMessageAccepted(
        ordinal=2,
        message_id="m-2",
        message_type="Vote",
        sender="ann",
        timestamp_unix_ms=0,
        accepted_at_unix_ms=0,
        state="OPEN",
        body={"vote": "APPROVE"},
        metadata={"toolCallId": "call_1", "llmCall": CALL},
    )
    inside = replace(message, message_id="m-3", body={"vote": "APPROVE", "tokenUsage": CALL})
    events = canonical([queued(), started(), bound(), message, inside])
    calls = [event for event in events if event.type == "llm.call.completed"]
    assert [call.data["messageId"] for call in calls] == ["m-2", "m-3"]
    assert [call.data["decodedPayload"]["totalTokens"] for call in calls] == [3, 3]


def test_a_quorum_is_of_those_who_were_declared() -> None:
    facts = [queued(), started(), bound(participants=("ann", "ben", "cem"))]
    vote = said("ann", "Vote", proposal_id="p1", vote="APPROVE")
    [tally] = shown([*facts, said("lead", "Proposal", proposal_id="p1"), vote])["policy"][
        "voteTally"
    ]
    assert (tally["threshold"], tally["quorum"]) == (2, {"required": 3, "cast": 1})


def test_an_artifact_of_the_control_plane_is_told_by_its_own_kind() -> None:
    attached = f.ArtifactCreated(
        artifact_id="art_01M7K9R1V6EDY8VHY62AQH24WC",
        kind="tool_result_blob",
        size_bytes=2,
        summary="scores",
        metadata={"control_plane": {"kind": "report", "uri": "https://reports.test/1"}},
        by="key",
    )
    event = canonical([queued(), started(), bound(), attached])[-1]
    assert event.data == {
        "kind": "report",
        "label": "scores",
        "artifactId": to_uuid(attached.artifact_id),
        "uri": "https://reports.test/1",
    }


def test_a_participant_that_is_declared_with_blanks_around_it_is_one_participant() -> None:
    start = write(SESSION_START, {"participants": ["lead", " ann\n"]})
    told = shown(observed(said("lead", "SessionStart", start)))
    participants = told["participants"]
    assert [(one["participantId"], one["status"]) for one in participants] == [
        ("lead", "active"),
        ("ann", "waiting"),
    ]
    assert [one["id"] for one in told["graph"]["nodes"]] == ["lead", "ann", "__start"]
