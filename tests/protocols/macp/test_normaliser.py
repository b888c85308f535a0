"""Canonical events: numbered from 1 without gaps, of the documented types and shapes."""

from typing import Any

import msgspec
import pytest

from batten.contract import facts as f
from batten.contract.facts.assistant import Usage
from batten.contract.facts.macp import MacpDenial
from batten.contract.ids import to_uuid
from batten.contract.tracing import span_of, trace_of
from batten.protocols.macp.emitting import NormaliserState
from batten.protocols.macp.events import CANONICAL_EVENT_TYPES, DATA, CanonicalEvent, EventType
from batten.protocols.macp.llm import cost_nanos, find_call
from batten.protocols.macp.messages import TYPES
from batten.protocols.macp.normaliser import normalise
from batten.protocols.macp.redaction import broken_patterns, redact
from tests.contract.journals import GOLDEN, OF_SESSIONS
from tests.contract.journals import envelopes as golden

from .making import (
    CHAT_ID,
    RUN_ID,
    SESSION_ID,
    bound,
    canonical,
    envelopes,
    finished,
    json_text,
    observed,
    only,
    queued,
    said,
    started,
    types,
)

RUNS = [name for name in GOLDEN if name not in OF_SESSIONS]


def events_of(name: str) -> list[CanonicalEvent]:
    state = NormaliserState()
    return [event for one in golden(name) for event in normalise(state, one)]


def check(events: list[CanonicalEvent]) -> None:
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert len({event.id for event in events}) == len(events)
    for event in events:
        msgspec.convert(event.data, DATA[event.type])
        assert event.type in CANONICAL_EVENT_TYPES


@pytest.mark.parametrize("name", RUNS)
def test_every_golden_run_has_events_of_the_documented_shapes(name: str) -> None:
    events = events_of(name)
    check(events)
    assert types(events)[0] == "run.created"
    assert events_of(name) == events


@pytest.mark.parametrize("name", RUNS)
def test_a_stored_normaliser_goes_on_as_if_it_had_not_stopped(name: str) -> None:
    state = NormaliserState()
    found: list[CanonicalEvent] = []
    for one in golden(name):
        state = msgspec.json.decode(msgspec.json.encode(state), type=NormaliserState)
        found += normalise(state, one)
    assert found == events_of(name)


def test_the_document_lists_26_types() -> None:
    assert len(CANONICAL_EVENT_TYPES) == 26


def test_a_session_of_our_runtime_begins_and_ends_in_the_documented_order() -> None:
    events = events_of("panel")
    assert types(events)[:8] == [
        "run.created",
        "run.started",
        "session.bound",
        *["participant.seen"] * 3,
        "session.state.changed",
        "session.stream.opened",
    ]
    assert "policy.resolved" in types(events)
    created = events[0]
    assert created.run_id == to_uuid(golden("panel")[0].run_id)
    assert created.data["runtimeKind"] == "embedded"
    assert created.data["sessionId"] == only(events, "session.bound").data["sessionId"]
    assert created.ts == golden("panel")[0].occurred_at


def test_a_resolved_session_says_so_before_its_run_is_complete() -> None:
    accepted = f.MacpMessageAccepted(
        ordinal=2,
        message_id="m2",
        message_type="Commitment",
        sender="lead",
        timestamp_unix_ms=0,
        accepted_at_unix_ms=0,
        state="RESOLVED",
        body={"commitment_id": "c1", "outcome_positive": False},
    )
    events = canonical([queued(), started(), bound(), accepted, finished()])
    assert types(events)[-4:] == [
        "message.received",
        "decision.finalized",
        "session.state.changed",
        "run.completed",
    ]
    decision = only(events, "decision.finalized")
    assert decision.data["decodedPayload"] == {
        "commitmentId": "c1",
        "outcomePositive": False,
        "outcome_positive": False,
    }
    assert decision.data["payloadTypeName"] == "macp.v1.CommitmentPayload"


def test_denial_of_a_commitment_is_the_runtime_s_and_the_failed_message_its_sender_s() -> None:
    denied = f.MacpCommitmentEvaluated(
        message_id="m2",
        sender="lead",
        commitment_id="c1",
        policy_id="policy.default",
        decision="deny",
        denials=[MacpDenial("veto", "a critical objection", ["ann"])],
    )
    events = canonical([queued(), started(), bound(), denied])
    told = only(events, "policy.denied").data
    assert (told["sender"], told["decodedPayload"]["reasons"]) == (
        "batten-runtime",
        ["a critical objection"],
    )
    assert only(events, "message.send_failed").data["sender"] == "lead"


@pytest.mark.parametrize("message_type", TYPES)
def test_each_message_type_has_its_canonical_type(message_type: str) -> None:
    events = canonical(observed(said("ann", message_type, json_text(signalId="s", note="x"))))
    made = [event for event in events if event.data.get("messageType") == message_type]
    assert types(made)[:2] == ["message.received", TYPES[message_type]]


@pytest.mark.parametrize(
    ("message_type", "type_"),
    [
        ("ToolCall", "tool.called"),
        ("toolrequest", "tool.called"),
        ("TOOLRESULT", "tool.completed"),
        ("ToolOutput", "tool.completed"),
        ("ContextUpdate", None),
    ],
)
def test_tools_are_known_in_any_case_and_others_are_only_received(
    message_type: str, type_: EventType | None
) -> None:
    events = canonical(observed(said("ann", message_type, json_text(tool_call_id="t1"))))
    if type_ is None:
        assert types(events)[-1] == "message.received"
    else:
        subject = only(events, type_).subject
        assert (subject.kind, subject.id) == ("tool", "t1")  # type: ignore[union-attr]


def test_a_sender_is_seen_once() -> None:
    events = canonical(observed(*(said("zoe", "Signal", signal_type="x") for _ in range(3))))
    seen = [event.data["participantId"] for event in events if event.type == "participant.seen"]
    assert seen == ["lead", "ann", "zoe"]


@pytest.mark.parametrize(
    ("body", "payload"),
    [
        (b"", None),
        (b'{"a":1}', {"json": {"a": 1}, "encoding": "json"}),
        (b"\xffx", {"text": "\ufffdx", "encoding": "text", "payloadBase64": "/3g="}),
    ],
)
def test_a_payload_that_is_no_known_message_is_json_or_text(body: bytes, payload: Any) -> None:
    event = canonical(observed(said("ann", "Note", body)))[-1]
    assert event.data.get("payload") == payload


def test_contributions_to_rounds_are_read_in_both_encodings() -> None:
    mode = "ext.multi_round.v1"
    for frame in (
        said("ann", "Contribute", mode=mode, value="blue"),
        said("ann", "Contribute", '{"value":"blue"}', mode=mode),
    ):
        event = only(canonical(observed(frame)), "proposal.updated")
        payload = event.data["decodedPayload"]
        assert payload.get("json", payload) == {"value": "blue"}


def test_task_progress_is_a_percentage() -> None:
    mode = "macp.mode.task.v1"
    events = canonical(
        observed(
            said("ann", "TaskUpdate", mode=mode, task_id="t", status="half", progress=0.5),
            said("ann", "TaskFail", mode=mode, task_id="t", reason="no disk"),
            said("ann", "TaskComplete", mode=mode, task_id="t", assignee="ann"),
        )
    )
    told = [e.data["decodedPayload"] for e in events if e.type == "progress.reported"]
    assert told == [
        {"percentage": 50.0, "message": "half"},
        {"message": "no disk"},
        {"percentage": 100, "message": "completed"},
    ]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"progress": 0.07}, {"percentage": 7.0}),
        ({"progress": 0.29}, {"percentage": 29.0}),
        ({"progress": 5.0, "total": 10.0}, {"percentage": 50.0, "total": 10.0}),
        ({"progress": 7.0, "total": 100.0}, {"percentage": 7.0, "total": 100.0}),
        ({"progress": 1.0, "total": 1e-300}, {"total": 1e-300}),
        ({"progress": 42.0}, {"percentage": 42.0}),
    ],
)
def test_progress_is_a_percentage_without_the_noise_of_fractions(
    given: dict[str, Any], told: dict[str, float]
) -> None:
    event = only(canonical(observed(said("ann", "Progress", **given))), "progress.reported")
    assert event.data["decodedPayload"] == {"message": "", **told}


@pytest.mark.parametrize(
    ("payload", "prompt_tokens"),
    [
        ({"llmCall": {"promptTokens": 1}, "tokenUsage": {"promptTokens": 2}}, 1),
        ({"metadata": {"llmCall": {"prompt_tokens": 3}}, "tokenUsage": {"promptTokens": 2}}, 3),
        ({"metadata": {"tokenUsage": {"promptTokens": 4}}}, 4),
        ({"json": {"tokenUsage": {"promptTokens": 5}}, "encoding": "json"}, 5),
        ({"llmCall": {"promptTokens": "many"}, "tokenUsage": {"promptTokens": 6}}, 6),
        ({"llmCall": {"model": "m"}}, 0),
        ({"llmCall": {"promptTokens": 0}}, None),
        ({"llmCall": {"promptTokens": -1}}, None),
        ({"other": 1}, None),
    ],
)
def test_a_model_call_is_found_in_the_documented_order(
    payload: dict[str, Any], prompt_tokens: int | None
) -> None:
    call = find_call("Evaluation", payload, {})
    assert (None if call is None else call["promptTokens"]) == prompt_tokens


@pytest.mark.parametrize("signal_type", ["llm.call.completed", "risk.flag"])
@pytest.mark.parametrize("name", ["llmCall", "tokenUsage"])
@pytest.mark.parametrize("is_inner", [True, False])
def test_a_model_call_is_found_in_the_data_of_any_signal(
    signal_type: str, name: str, is_inner: bool
) -> None:
    usage: dict[str, Any] = {name: {"promptTokens": 3, "completionTokens": 4}}
    data = json_text(**({"metadata": usage} if is_inner else usage)).encode()
    events = canonical(observed(said("ann", "Signal", signal_type=signal_type, data=data)))
    assert only(events, "llm.call.completed").data["decodedPayload"]["totalTokens"] == 7


@pytest.mark.parametrize(
    ("model", "nanos"), [("gpt-4o-mini", 45_000), ("claude-3-opus", 5_175_000), ("", 255_000)]
)
def test_a_call_costs_what_its_model_does(model: str, nanos: int) -> None:
    call = {"promptTokens": 120, "completionTokens": 45, "model": model}
    assert cost_nanos(call) == nanos


def test_patterns_are_read_as_the_document_writes_them() -> None:
    given = [r"sk-[A-Za-z0-9]+", r"\\b\\d{3}-\\d{2}-\\d{4}\\b", "("]
    assert broken_patterns(given) == ["("]
    assert redact({"a": ["sk-A1 and 123-45-6789", 3]}, given) == {
        "a": ["[REDACTED] and [REDACTED]", 3]
    }
    # JavaScript names groups otherwise than Python.
    given = [r"(?<quote>['\"])pw\k<quote>", r"(?<=id=)\d+"]
    assert broken_patterns(given) == []
    assert redact("'pw' \"pw\" 'pw\" id=77", given) == "[REDACTED] [REDACTED] 'pw\" id=[REDACTED]"


def test_a_run_of_our_agent_has_the_same_view() -> None:
    message = f.AssistantMessageComplete(
        turn_index=1,
        model="gpt-4o",
        provider="openai",
        blocks=[],
        usage=Usage(100, 20),
        stop_reason="end_turn",
        cost_micros_usd=450,
        price_as_of=None,
        duration_ms=900,
        time_to_first_token_ms=None,
    )
    tool: dict[str, Any] = {"tool_call_id": "t1", "tool_name": "bash", "kind": "shell"}
    facts: list[f.Fact] = [
        queued("agent_loop"),
        started(),
        f.UserMessage(turn_index=0, text="fix it"),
        message,
        f.ToolInvoked(**tool, turn_index=1),
        f.ToolCompleted(**tool, duration_ms=5, summary="ok"),
        f.GapRunDisconnected(since_sequence=5, since_at="", reason="worker_lease_expired"),
        started(),
        finished(),
    ]
    events = canonical(facts)
    check(events)
    assert types(events) == [
        "run.created",
        "run.started",
        "session.bound",
        "participant.seen",
        "session.state.changed",
        "session.stream.opened",
        "artifact.created",
        "participant.seen",
        "message.received",
        "llm.call.completed",
        "tool.called",
        "tool.completed",
        "session.stream.opened",
        "session.stream.opened",
        "session.state.changed",
        "run.completed",
    ]
    assert events[0].data["runtimeKind"] == "agent"
    assert events[0].data["sessionId"] == to_uuid(CHAT_ID)
    assert events[0].trace.trace_id == trace_of(RUN_ID)  # type: ignore[union-attr]
    call = only(events, "llm.call.completed").data["decodedPayload"]
    assert (call["totalTokens"], call["estimatedCostUsd"]) == (120, 0.00045)
    trace = only(events, "tool.called").trace
    assert trace.span_id == span_of(RUN_ID, "tool", "t1", 1)  # type: ignore[union-attr]


def test_the_trace_of_a_caller_is_the_run_s() -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    first = msgspec.structs.replace(queued("agent_loop"), traceparent=parent)
    assert canonical([first])[0].data["traceId"] == "4bf92f3577b34da6a3ce929d0e0e4736"


def test_a_described_run_is_pinned_to_its_rules() -> None:
    state = NormaliserState()
    for one in envelopes(observed()):
        normalise(state, one)
    assert (state.version, state.session_id) == (1, SESSION_ID)
    assert state.runtime_kind == "rust"
