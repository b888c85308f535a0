"""Traces and metrics: valid OTLP, the same each time, under the caller's trace, to a collector."""

import asyncio
import re
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from google.protobuf import json_format  # type: ignore[import-untyped]
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from batten import __version__
from batten.contract import facts
from batten.contract.errors import CallerError
from batten.contract.tracing import parse_traceparent, span_of, trace_of, tracestate_of
from batten.journal.sqlite import SqliteJournal
from batten.sinks.configuration import open_telemetry
from batten.sinks.otel.environment import OtelSettings, otel_target
from batten.sinks.running import close_reader, open_reader
from batten.sinks.store import SinkStore
from tests.agent.stage import Stage, bash, call, end, say
from tests.journal.given import FAILED, FINISHED, STARTED, called, new_run
from tests.models.server import ModelServer, answer
from tests.models.wire import anthropic_turn
from tests.session.processes import batten
from tests.sinks.http_receiver import HttpReceiver, Received, http_receiver
from tests.sinks.receiving import settle

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = f"00-{TRACE}-b7ad6b7169203331-01"
Json = dict[str, Any]


@pytest.fixture
async def receiver() -> AsyncIterator[HttpReceiver]:
    async with http_receiver() as running:
        yield running


def base(receiver: HttpReceiver) -> str:
    return receiver.url.removesuffix("/hook")


def spans_of(received: list[Received]) -> list[Json]:
    """All spans, each request checked against the protocol's own definition."""
    found: list[Json] = []
    for one in received:
        if one.path == "/v1/traces":
            json_format.Parse(one.body, ExportTraceServiceRequest())
            for resource in msgspec.json.decode(one.body)["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    found += scope["spans"]
    return found


def metrics_of(received: list[Received]) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = {}
    for one in received:
        if one.path == "/v1/metrics":
            json_format.Parse(one.body, ExportMetricsServiceRequest())
            for resource in msgspec.json.decode(one.body)["resourceMetrics"]:
                for metric in resource["scopeMetrics"][0]["metrics"]:
                    kind = metric.get("sum") or metric["histogram"]
                    found.setdefault(metric["name"], []).extend(kind["dataPoints"])
    return found


def attributes(thing: Json) -> Json:
    return {one["key"]: next(iter(one["value"].values())) for one in thing["attributes"]}


def by_name(spans: list[Json]) -> dict[str, Json]:
    return {span["name"]: span for span in spans}


async def export(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver, **more: Any
) -> None:
    sink = open_telemetry(OtelSettings(endpoint=base(receiver), **more), {})
    assert sink is not None
    store.add(sink.name, 0)
    with store.writing() as db:
        db.execute("UPDATE sinks SET position = 0")
    reader = await open_reader(sink, journal, store)
    await settle(reader)
    await close_reader(reader, store)


async def whole_run(journal: SqliteJournal, identity: dict[str, str] | None = None) -> str:
    run = new_run(session_id="chat_1")
    queued = facts.RunQueued(
        "agent_loop", "m", "p", "/w", "in_place", None, identity=identity or {}
    )
    lease, _ = await journal.create(run, [queued, STARTED])
    assert lease is not None
    happened = [
        facts.TurnStarted(1, "m", "p", 10),
        called(),
        facts.PolicyToolBlocked("call_0", "rm", "never"),
        facts.ApprovalRequested("appr_1", "call_1", "bash", "?", "ask"),
        facts.ApprovalResolved("appr_1", "approved", "ann", ""),
        facts.ToolInvoked("call_1", "bash", "shell", 1),
        facts.ToolFailed("call_1", "bash", "shell", 3, error="1", error_kind="exit_status"),
        facts.TurnCompleted(1, 10, 5, 0, 100, 9, 1, "tool_use"),
        facts.TurnStarted(2, "m", "p", 10),
        called(turn=2),
        facts.TurnCompleted(2, 10, 5, 0, 100, 9, 0, "end_turn"),
        FINISHED,
    ]
    for fact in happened:
        await journal.append(run.run_id, [fact], fence=lease.fence)
    return run.run_id


async def test_a_run_is_a_trace_of_turns_calls_tools_and_questions(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver
) -> None:
    run_id = await whole_run(journal, {"user_id": "u", "organization_id": "o"})
    await export(journal, store, receiver)
    spans = spans_of(receiver.taken)
    assert {span["traceId"] for span in spans} == {trace_of(run_id)}
    assert sorted(span["name"] for span in spans) == [
        "agent.approval",
        "agent.turn",
        "agent.turn",
        "chat m",
        "chat m",
        "execute_tool bash",
        "run.lifecycle",
    ]
    root = by_name(spans)["run.lifecycle"]
    assert "parentSpanId" not in root
    assert [event["name"] for event in root["events"]] == ["policy.denied"]
    named = attributes(root)
    assert (named["run.terminal_status"], named["batten.outcome"]) == ("completed", "completed")
    assert (named["enduser.id"], named["evalops.organization_id"]) == ("u", "o")
    assert (named["maestro.session_id"], named["maestro.agent_run_id"]) == ("chat_1", run_id)
    turns = {span["spanId"] for span in spans if span["name"] == "agent.turn"}
    assert {span["parentSpanId"] for span in spans if span["name"] == "agent.turn"} == {
        root["spanId"]
    }
    inner = [span for span in spans if span["name"] not in ("agent.turn", "run.lifecycle")]
    assert {span["parentSpanId"] for span in inner} <= turns
    tool = by_name(spans)["execute_tool bash"]
    assert (tool["status"]["code"], attributes(tool)["error.type"]) == (2, "exit_status")
    chat = attributes(by_name(spans)["chat m"])
    assert chat["gen_ai.operation.name"] == "chat"
    assert chat["gen_ai.usage.input_tokens"] == "10"
    for span in spans:
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        assert len({span["spanId"] for span in spans}) == len(spans)


async def test_a_model_call_that_fails_and_a_turn_that_the_run_cuts_short_are_spans(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver
) -> None:
    run = new_run(session_id="chat_1")
    queued = facts.RunQueued("agent_loop", "m", "p", "/w", "in_place", None)
    lease, _ = await journal.create(run, [queued, STARTED])
    assert lease is not None
    happened = [
        facts.TurnStarted(1, "m", "p", 10),
        facts.TurnFailed(1, "model_overloaded", "no", will_retry=True, provider="xai"),
        facts.TurnStarted(2, "m", "p", 10),
        called(turn=2),
        facts.ApprovalRequested("appr_1", "call_1", "bash", "?", "ask"),
        facts.ApprovalResolved("appr_1", "cancelled", "ann", ""),
        FAILED,
    ]
    await journal.append(run.run_id, happened, fence=lease.fence)
    await export(journal, store, receiver)
    spans = spans_of(receiver.taken)
    ids = {span["spanId"] for span in spans}
    assert {span.get("parentSpanId", span["spanId"]) for span in spans} <= ids
    failed, done = [span for span in spans if span["name"] == "chat m"]
    assert (failed["status"]["code"], done["status"]["code"]) == (2, 1)
    named = attributes(failed)
    assert (named["gen_ai.provider.name"], named["error.type"]) == ("x_ai", "model_overloaded")
    assert [span["name"] for span in spans].count("agent.turn") == 2
    durations = metrics_of(receiver.taken)["gen_ai.client.operation.duration"]
    assert [attributes(one).get("error.type") for one in durations] == ["model_overloaded", None]


async def test_metrics_follow_the_conventions(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver
) -> None:
    await whole_run(journal)
    await export(journal, store, receiver)
    found = metrics_of(receiver.taken)
    tokens = found["gen_ai.client.token.usage"]
    assert [(attributes(one)["gen_ai.token.type"], one["sum"]) for one in tokens] == [
        ("input", 10.0),
        ("output", 5.0),
    ] * 2
    assert all(sum(map(int, one["bucketCounts"])) == 1 for one in tokens)
    assert len(found["gen_ai.client.operation.duration"]) == 2
    assert len(found["batten.tool.duration"]) == 1
    assert [one["asInt"] for one in found["batten.runs"]] == ["1"]


async def test_protobuf_says_the_same_as_json(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver
) -> None:
    await whole_run(journal, {"traceparent": CALLER, "tracestate": "a=1"})
    await export(journal, store, receiver)
    await export(journal, store, receiver, protocol="http/protobuf")
    kinds: dict[str, Any] = {
        "/v1/traces": ExportTraceServiceRequest,
        "/v1/metrics": ExportMetricsServiceRequest,
    }
    said: dict[str, list[Any]] = {"application/json": [], "application/x-protobuf": []}
    for one in receiver.taken:
        request = kinds[one.path]()
        if (type_ := one.headers["content-type"]) == "application/json":
            json_format.Parse(_with_bytes(one.body), request)
        else:
            request.ParseFromString(one.body)
        said[type_].append(request)
    assert said["application/x-protobuf"] == said["application/json"] != []


def _with_bytes(body: bytes) -> bytes:
    """OTLP's JSON as protobuf's: ids in base64 instead of hexadecimal digits."""

    def coded(found: re.Match[bytes]) -> bytes:
        return found[1] + b64encode(bytes.fromhex(found[2].decode())) + b'"'

    return re.sub(rb'("(?:traceId|spanId|parentSpanId)":")([0-9a-f]+)"', coded, body)


@pytest.mark.parametrize(
    ("partial", "status"),
    [
        (ExportTracePartialSuccess(rejected_spans=2, error_message="too old"), "dead"),
        (ExportTracePartialSuccess(error_message="only a hint"), "delivered"),
        (None, "delivered"),
    ],
)
async def test_a_collector_that_speaks_protobuf_tells_what_it_rejects(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver, partial: Any, status: str
) -> None:
    await whole_run(journal)
    answered = ExportTraceServiceResponse(partial_success=partial)
    receiver.said = b"\xff\xff" if partial is None else answered.SerializeToString()
    await export(journal, store, receiver, protocol="http/protobuf", metrics=False)
    dead = store.entries("otel", "dead")
    assert bool(dead) == (status == "dead")
    assert all(one.problem == "rejected: too old" for one in dead)


async def test_an_export_that_is_repeated_is_the_same_bytes(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver
) -> None:
    await whole_run(journal)
    await export(journal, store, receiver)
    first = [one.body for one in receiver.taken]
    receiver.taken.clear()
    await export(journal, store, receiver)
    assert [one.body for one in receiver.taken] == first


async def test_a_callers_span_is_the_parent(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver
) -> None:
    await whole_run(journal, {"traceparent": CALLER, "tracestate": "k=v"})
    await export(journal, store, receiver)
    spans = spans_of(receiver.taken)
    assert {(span["traceId"], span["traceState"]) for span in spans} == {(TRACE, "k=v")}
    assert by_name(spans)["run.lifecycle"]["parentSpanId"] == "b7ad6b7169203331"


@pytest.mark.parametrize(("flags", "is_sampled"), [("00", False), ("02", False), ("03", True)])
async def test_a_trace_that_the_caller_does_not_sample_has_no_spans(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver, flags: str, is_sampled: bool
) -> None:
    await whole_run(journal, {"traceparent": f"{CALLER[:-2]}{flags}"})
    await export(journal, store, receiver)
    assert bool(spans_of(receiver.taken)) == is_sampled
    assert "batten.runs" in metrics_of(receiver.taken)


async def test_a_child_run_hangs_under_the_call_that_started_it(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver
) -> None:
    parent = await whole_run(journal)
    child = new_run()
    queued = facts.RunQueued(
        *("agent_loop", "m", "p", "/w", "in_place", None),
        parent_run_id=parent,
        parent_tool_call_id="call_1",
    )
    lease, _ = await journal.create(child, [queued, STARTED])
    assert lease is not None
    await journal.append(child.run_id, [FINISHED], fence=lease.fence)
    await export(journal, store, receiver)
    spans = spans_of(receiver.taken)
    assert {span["traceId"] for span in spans} == {trace_of(parent)}
    tool = by_name(spans)["execute_tool bash"]
    [root] = [span for span in spans if span["spanId"] == span_of(child.run_id)]
    assert root["parentSpanId"] == tool["spanId"]


@pytest.mark.parametrize(("status", "retried"), [(503, True), (429, True), (400, False)])
async def test_a_collector_that_fails(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver, status: int, retried: bool
) -> None:
    await whole_run(journal)
    receiver.behave = lambda one: status
    await export(journal, store, receiver, metrics=False)
    row = store.sink("otel")
    assert row is not None
    assert (row.pending > 0, row.dead > 0) == (retried, not retried)


async def test_a_run_of_print_mode_is_exported_before_it_ends(
    tmp_path: Path, receiver: HttpReceiver
) -> None:
    stage = Stage(
        tmp_path / "stage",
        {
            "OTEL_ENABLED": "true",
            "OTEL_EXPORTER_OTLP_ENDPOINT": base(receiver),
            "OTEL_EXPORTER_OTLP_HEADERS": "x-team=red%20one",
            "OTEL_EXPORTER_OTLP_METRICS_HEADERS": "x-team=blue",
            "OTEL_SERVICE_NAME": "mine",
            "TRACEPARENT": CALLER,
        },
    )
    model = stage.scenario([bash("echo $TRACEPARENT")], [say("Done."), end()])
    ended = await asyncio.to_thread(
        batten, stage, "-p", "go", "--model", model, "--sandbox", "none", "--auto-allow"
    )
    assert ended.returncode == 0, ended.stderr
    spans = spans_of(receiver.taken)
    assert {span["traceId"] for span in spans} == {TRACE}
    tool = by_name(spans)["execute_tool bash"]
    shown = batten(stage, "show", "last", "--verbose").stdout.decode()
    assert f"00-{TRACE}-{tool['spanId']}-01" in shown  # the command printed its own span
    assert {(one.path, one.headers["x-team"]) for one in receiver.taken} == {
        ("/v1/traces", "red one"),
        ("/v1/metrics", "blue"),
    }
    resource = msgspec.json.decode(receiver.taken[0].body)["resourceSpans"][0]["resource"]
    assert attributes(resource)["service.name"] == "mine"


async def test_children_of_children_are_in_one_trace_with_their_commands(
    tmp_path: Path, receiver: HttpReceiver
) -> None:
    stage = Stage(
        tmp_path / "stage",
        {"OTEL_ENABLED": "1", "OTEL_EXPORTER_OTLP_ENDPOINT": base(receiver)},
    )
    stage.scenario([bash("echo $TRACEPARENT > span")], [say("Done."), end()], name="two")
    stage.scenario([call("agent", "c1", prompt="two")], [say("Done."), end()], name="one")
    model = stage.scenario(
        [call("agent", "c0", prompt="one")],
        [say("Done."), end()],
        name="root",
        children={"one": "one.json", "two": "two.json"},
    )
    ended = await asyncio.to_thread(
        batten, stage, "-p", "go", "--model", model, "--sandbox", "none", "--auto-allow"
    )
    assert ended.returncode == 0, ended.stderr
    spans = spans_of(receiver.taken)
    [trace] = {span["traceId"] for span in spans}
    ids = {span["spanId"]: span for span in spans}
    roots = [span for span in spans if span["name"] == "run.lifecycle"]
    assert len(roots) == 3
    above = [ids[one["parentSpanId"]]["name"] for one in roots if one.get("parentSpanId")]
    assert above == ["execute_tool agent"] * 2
    [tool] = [span for span in spans if span["name"] == "execute_tool bash"]
    assert (stage.workspace / "span").read_text().strip() == f"00-{trace}-{tool['spanId']}-01"


async def test_hooks_and_model_calls_are_told_the_span_and_the_callers_state(
    tmp_path: Path, receiver: HttpReceiver
) -> None:
    async with ModelServer([answer(anthropic_turn("Done."))]) as server:
        stage = Stage(
            tmp_path / "stage",
            {
                "TRACEPARENT": CALLER,
                "TRACESTATE": "a=b,c=d",
                "ANTHROPIC_API_KEY": "k",
                "ANTHROPIC_BASE_URL": server.url,
            },
        )
        hook = {"type": "command", "command": "echo $TRACEPARENT $TRACESTATE > span"}
        receiver.said = b"{}"
        posted = {"type": "http", "url": receiver.url}
        hooks = {
            "hooks": {"Stop": [{"handlers": [hook, posted]}]},
            "allowed_http_hook_urls": [receiver.url],
        }
        ended = await asyncio.to_thread(
            batten,
            stage,
            *("-p", "go", "--model", "anthropic/claude-sonnet-4-6", "--sandbox", "none"),
            *("--settings", msgspec.json.encode(hooks).decode()),
        )
        assert ended.returncode == 0, ended.stderr
        journal = SqliteJournal.open(stage.home, read_only=True)
        [run] = await journal.runs()
        journal.close()
        turn = f"00-{TRACE}-{span_of(run.run_id, 'turn', 1)}-01"
        assert (stage.workspace / "span").read_text().strip() == f"{turn} a=b,c=d"
        for headers in (server.requests[0].headers, *(one.headers for one in receiver.all)):
            assert (headers["traceparent"], headers["tracestate"]) == (turn, "a=b,c=d")
        assert len(receiver.all) == 1


async def test_the_environment_says_more_of_the_service(
    tmp_path: Path, receiver: HttpReceiver
) -> None:
    stage = Stage(
        tmp_path / "stage",
        {
            "OTEL_ENABLED": "1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": base(receiver),
            "OTEL_RESOURCE_ATTRIBUTES": (
                "service.name=agents,deployment.environment.name=a%20b, team = x,y,=z,"
                "note=hush-0123456789abcdef0123"
            ),
            "MY_API_KEY": "hush-0123456789abcdef0123",
        },
    )
    model = stage.scenario([say("Done."), end()])
    ended = await asyncio.to_thread(batten, stage, "-p", "go", "--model", model)
    assert ended.returncode == 0, ended.stderr
    assert len(receiver.taken) == 2
    requests = [msgspec.json.decode(one.body) for one in receiver.taken]
    for told in [one for request in requests for parts in request.values() for one in parts]:
        assert attributes(told["resource"]) == {
            "service.name": "agents",
            "service.version": __version__,
            "deployment.environment.name": "a b",
            "team": "x",
            "note": "<redacted>",
        }


def test_headers_and_timeouts_of_one_kind_beat_the_common_ones() -> None:
    target = otel_target(
        OtelSettings(headers={"x-team": "red"}),
        {
            "OTEL_EXPORTER_OTLP_HEADERS": "x-a=1,x-b=2",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x-a=3",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "2500",
            "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT": "700",
        },
    )
    assert target is not None
    assert target.headers == {
        "traces": {"x-team": "red", "x-a": "3"},
        "metrics": {"x-team": "red", "x-a": "1", "x-b": "2"},
    }
    assert target.timeouts == {"traces": 2.5, "metrics": 0.7}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 10), ("soon", 10), ("-1", 10), ("1.5", 10), ("1", 0.001), ("0", 30), ("9" * 5000, 30)],
)
def test_a_timeout_is_milliseconds_and_never_outlasts_a_lease(text: str, seconds: float) -> None:
    target = otel_target(OtelSettings(), {"OTEL_EXPORTER_OTLP_TIMEOUT": text})
    assert target is not None
    assert target.timeouts == {"traces": seconds, "metrics": seconds}


def test_it_is_off_unless_it_is_turned_on() -> None:
    somewhere = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318"}
    assert otel_target(None, somewhere) is None
    assert otel_target(OtelSettings(), {"OTEL_ENABLED": "0"}) is None
    assert otel_target(OtelSettings(), {"OTEL_SDK_DISABLED": "true"}) is None
    on = otel_target(None, {**somewhere, "OTEL_ENABLED": "1"})
    assert on is not None
    assert (on.traces_url, on.metrics_url) == (
        "http://a:4318/v1/traces",
        "http://a:4318/v1/metrics",
    )
    own = otel_target(
        OtelSettings(endpoint="http://b/x/"),
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c/t", "OTEL_METRICS_EXPORTER": "none"},
    )
    assert own is not None
    assert (own.traces_url, own.metrics_url) == ("http://c/t", "")
    mixed = {
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/json",
    }
    spoken = otel_target(OtelSettings(), mixed)
    assert spoken is not None
    assert spoken.protocols == {"traces": "http/protobuf", "metrics": "http/json"}
    with pytest.raises(CallerError, match="http/json"):
        otel_target(OtelSettings(), {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})


@pytest.mark.parametrize(
    "text",
    [
        *("", "00-0-0-01", f"ff-{TRACE}-b7ad6b7169203331-01", f"00-{'0' * 32}-b7ad6b7169203331-01"),
        *(f"00-{TRACE}-{'0' * 16}-01", f"{CALLER}-more", CALLER.upper(), f"{CALLER}\n00"),
    ],
)
def test_what_is_no_traceparent_is_ignored(text: str) -> None:
    assert parse_traceparent(text) is None


def test_what_is_no_tracestate_is_ignored() -> None:
    for good in ("vendor=1", "fw529a3039@dt=FfAAAAA, rojo=00f067aa0ba902b7"):
        assert tracestate_of(f" {good} ") == good
    for bad in ("", "vendor", "Vendor=1", "a=1,,b=2", "a=\x01", "a=é", "a=" + "1" * 600):
        assert tracestate_of(bad) == ""


def test_a_traceparent_of_a_later_version_is_read() -> None:
    found = parse_traceparent(f"01-{TRACE}-b7ad6b7169203331-01-more")
    assert found is not None
    assert str(found) == CALLER
