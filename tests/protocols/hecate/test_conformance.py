"""The protocol's own contract, line by line, on events that we wrote and on the golden journals."""

import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from scripts.event_schemas import envelope_schema

from batten.contract import facts as f
from batten.contract.envelope import Envelope, decode, encode, payload, timestamp
from batten.protocols.hecate.streams import event_list
from batten.protocols.hecate.view import RunView
from tests.contract.journals import LINES

from .making import RUN, TASK, enveloped, stored

FIXTURES = {
    path.stem: json.loads(path.read_bytes())
    for path in sorted((Path(__file__).parent / "fixtures").glob("*.json"))
}
EVENTS: list[dict[str, Any]] = [event for run in FIXTURES.values() for event in run]
CORE = {
    *("run.queued", "run.started", "run.finished", "run.failed", "run.cancelled"),
    *("run.resumed_from_event", "run.checkpoint_saved"),
    *("turn.started", "turn.completed", "turn.failed"),
    *("assistant.text_delta", "assistant.text_complete", "assistant.tool_call_proposed"),
    "assistant.final_answer",
    *("tool.invoked", "tool.started", "tool.completed", "tool.failed", "tool.cancelled"),
    *("tool.timed_out", "tool.shell.command", "tool.shell.output_chunk", "tool.shell.exited"),
    *("tool.file.patch", "tool.file.applied", "tool.file.reverted"),
    *("approval.requested", "approval.resolved", "approval.timed_out"),
    *("cost.tick", "cost.budget_warning", "cost.budget_exceeded"),
    *("policy.tool_blocked", "policy.model_rewrote"),
    *("error.tool_unavailable", "error.model_capability_missing", "error.upstream"),
    *("gap.events_pruned", "gap.run_disconnected"),
}
LEGACY = re.compile(
    r"(approval\.(approved|rejected)|run\.(claimed|running|completed|resumed|resume_requested)"
    r"|step\..*|model\.call\..*)$"
)
each_event = pytest.mark.parametrize(
    "event", EVENTS, ids=lambda event: f"{event['type']}-{event['event_id'][-2:]}"
)


def of_type(type_: str) -> list[dict[str, Any]]:
    """The payloads of a type, in our fixtures and in the golden journals."""
    ours = [event["data"] for event in EVENTS if event["type"] == type_]
    stored_ones = [json.loads(line) for line in LINES]
    return ours + [event["data"] for event in stored_ones if event["type"] == type_]


def test_line_01_an_event_keeps_its_ids_and_its_type() -> None:
    event = json.loads(stored(f.RunStarted("w", "2026-01-01T00:00:00.000Z"), 4).body)
    assert event["schema_version"] == "1"
    assert re.fullmatch("evt_[0-9A-HJKMNP-TV-Z]{26}", event["event_id"])
    assert (event["run_id"], event["task_id"], event["sequence"], event["type"]) == (
        RUN,
        TASK,
        4,
        "run.started",
    )


def test_line_02_times_are_utc() -> None:
    zoned = datetime.fromisoformat("2026-09-02T10:00:00.250+02:00")
    assert timestamp(round(zoned.timestamp() * 1000) * 1_000_000) == "2026-09-02T08:00:00.250Z"


def test_line_03_a_payload_keeps_its_keys_and_has_none_of_the_storage_s() -> None:
    data = {"note": "x", "n": 0}
    event = json.loads(stored(f.Unknown(type="external.note", data=data)).body)
    assert event["data"] == data
    assert not {"request_id", "trace_id", "run"} & set(event["data"])


@each_event
def test_line_04_a_stored_id_is_kept(event: dict[str, Any]) -> None:
    assert decode(json.dumps(event).encode()).event_id == event["event_id"]


def test_line_05_an_event_without_a_payload_has_an_empty_object() -> None:
    body = stored(f.Unknown(type="external.ping", data={})).body
    assert body.endswith(b'"data":{}}')


def test_line_06_the_same_event_has_the_same_bytes_each_time() -> None:
    for line in LINES:
        envelope = decode(line)
        again = msgspec.structs.replace(envelope, data=payload(envelope.data))
        assert encode(again) == encode(again) == line


def test_line_07_a_finished_run_says_completed_and_keeps_a_cost_of_zero() -> None:
    data = json.loads(stored(f.RunFinished("completed", 1, 0, 56)).body)["data"]
    assert data == {
        "final_status": "completed",
        "turns": 1,
        "cost_micros_usd": 0,
        "duration_ms": 56,
    }


def test_line_08_a_resumed_run_names_the_run_before_and_its_cost() -> None:
    data = json.loads(stored(f.RunResumedFromEvent(RUN, 3, 900)).body)["data"]
    assert data == {"from_run_id": RUN, "from_sequence": 3, "prior_cost_micros_usd": 900}


def test_line_09_other_payloads_keep_their_zeros() -> None:
    data = json.loads(stored(f.TurnCompleted(1, 0, 0, 0, 0, 0, 0, "end_turn")).body)["data"]
    assert [value for value in data.values() if value == 0] == [0] * 6


@each_event
def test_lines_10_to_16_an_event_is_well_formed(event: dict[str, Any]) -> None:
    assert jsonschema_rs.is_valid(envelope_schema(), event)
    assert event["schema_version"] == "1"
    assert re.fullmatch("run_[0-9A-HJKMNP-TV-Z]{26}", event["run_id"])
    assert event["sequence"] >= 0
    assert datetime.fromisoformat(event["occurred_at"]).tzinfo is not None
    assert not LEGACY.match(event["type"])
    assert event["type"] in CORE
    assert isinstance(event["data"], dict)


@pytest.mark.parametrize("name", FIXTURES)
def test_line_12_sequences_of_a_run_have_no_gap(name: str) -> None:
    assert [event["sequence"] for event in FIXTURES[name]] == list(range(len(FIXTURES[name])))


CHECKS: list[tuple[int, str, Callable[[dict[str, Any]], bool]]] = [
    (
        17,
        "run.queued",
        lambda data: (
            all(data[key] for key in ("kind", "model", "provider"))
            or (data["kind"] == "coordination" and {"model", "provider"} <= data.keys())
        ),
    ),
    (
        18,
        "run.started",
        lambda data: bool(data["worker_id"] and datetime.fromisoformat(data["lease_until"])),
    ),
    (
        19,
        "run.finished",
        lambda data: data["final_status"] == "completed" and data["duration_ms"] >= 0,
    ),
    (
        20,
        "run.failed",
        lambda data: bool(data["code"] and data["message"]) and isinstance(data["retriable"], bool),
    ),
    (21, "run.cancelled", lambda data: bool(data["by"]) and isinstance(data["reason"], str)),
    (
        22,
        "run.resumed_from_event",
        lambda data: (
            bool(re.fullmatch("run_[0-9A-HJKMNP-TV-Z]{26}", data["from_run_id"]))
            and data["from_sequence"] >= 0
        ),
    ),
    (23, "run.checkpoint_saved", lambda data: bool(data["checkpoint_id"])),
]


@pytest.mark.parametrize(("line", "type_", "holds"), CHECKS, ids=[str(row[0]) for row in CHECKS])
def test_lines_17_to_23_payloads_of_runs_have_their_fields(
    line: int, type_: str, holds: Callable[[dict[str, Any]], bool]
) -> None:
    found = of_type(type_)
    assert found
    assert all(holds(data) for data in found)


def test_line_24_core_events_have_no_thinking_and_no_artifacts() -> None:
    experimental = ("assistant.thinking", "artifact.", "tool.edit.", "tool.multi_edit.")
    assert not [event for event in EVENTS if event["type"].startswith(experimental)]


def test_lines_25_and_26_every_group_and_every_type_of_a_run_occurs() -> None:
    types = {event["type"] for event in EVENTS}
    groups = ("run.", "turn.", "assistant.text", "tool.", "tool.shell.", "approval.", "cost.")
    for group in (*groups, "policy.", "error.", "gap."):
        assert any(type_.startswith(group) for type_ in types), group
    assert "assistant.final_answer" in types
    assert {type_ for type_ in CORE if type_.startswith("run.")} <= types


def test_line_27_the_schema_requires_all_but_task_and_session() -> None:
    assert envelope_schema()["required"] == [
        *("schema_version", "event_id", "run_id", "sequence", "occurred_at", "type", "data")
    ]


@pytest.mark.parametrize("name", FIXTURES)
def test_lines_59_and_60_a_list_of_stored_events_is_the_same_each_time(name: str) -> None:
    bodies = [json.dumps(event).encode() for event in FIXTURES[name]]
    page = [
        msgspec.structs.replace(stored(f.Unknown(type="x.y", data={}), n), body=body)
        for n, body in enumerate(bodies)
    ]
    assert event_list(page) == event_list(list(page))
    assert json.loads(event_list(page))["data"] == FIXTURES[name]
    assert FIXTURES[name][0]["sequence"] == 0


def test_line_64_a_complete_text_is_its_deltas_together() -> None:
    deltas = "".join(data["delta"] for data in of_type("assistant.text_delta")[:2])
    assert of_type("assistant.text_complete")[0]["text"] == deltas


def without_artifacts(data: dict[str, Any]) -> dict[str, Any]:
    """A payload without any reference to an artifact."""
    return {key: value for key, value in data.items() if not re.search("artifact_ids?$", key)}


def test_line_66_a_run_can_be_shown_with_all_artifact_ids_removed() -> None:
    for line in LINES:
        event = json.loads(line)
        if event["type"].startswith(("artifact.", "session.", "task.")):
            continue
        event["data"] = without_artifacts(event["data"])
        view = RunView()
        view.take(decode(json.dumps(event).encode()))
        assert view.sequence == event["sequence"]
        view.activity()


def test_line_68_a_prune_marker_names_its_range() -> None:
    for data in of_type("gap.events_pruned"):
        assert 0 <= data["first_pruned_sequence"] <= data["last_pruned_sequence"]
        assert data["reason"] == "retention_window"


def test_line_69_a_resumption_is_the_first_event_of_its_run() -> None:
    resumed = [event for event in EVENTS if event["type"] == "run.resumed_from_event"]
    assert [event["sequence"] for event in resumed] == [0]


def test_an_event_of_an_unknown_type_passes_through_the_view() -> None:
    view = RunView()
    view.take(enveloped(f.Unknown(type="weather.changed", data={"to": "rain"}), 0))
    made: Envelope = enveloped(f.Unknown(type="weather.changed", data={"to": "rain"}), 0)
    assert (view.event_type, view.steps) == (made.type, [])
