"""Every type of the protocol: documented, exact, and the same in its schema."""

import ast
import inspect
from types import ModuleType
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from msgspec import Struct

from batten.protocols.hecate import (
    activity,
    approvals,
    artifacts,
    errors,
    events,
    runs,
    snapshots,
    steps,
    system,
    tasks,
)
from batten.protocols.hecate.errors import STATUS_TYPES, ErrorDetail, ErrorReply, type_of
from batten.protocols.hecate.runs import PageQuery
from batten.protocols.hecate.system import (
    Health,
    OsIsolation,
    RetentionReply,
    RetentionResult,
    RetentionRun,
    RunRetention,
    Sandbox,
    Stats,
    StatsReply,
)

MODULES: tuple[ModuleType, ...] = (
    activity,
    approvals,
    artifacts,
    errors,
    events,
    runs,
    snapshots,
    steps,
    system,
    tasks,
)
TYPES: list[type[Struct]] = [
    value
    for module in MODULES
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Struct) and value.__module__ == module.__name__
]
REPLIES = {
    "ApprovalList": "task_approvals",
    "ApprovalReply": "task_approval",
    "ArtifactList": "list",
    "ArtifactReply": "artifact",
    "EventList": "list",
    "EventReply": "task_run_event",
    "FeedList": "events",
    "PatchList": "task_patches",
    "PatchReply": "task_patch",
    "RetentionList": "retention_runs",
    "RetentionReply": "retention_run",
    "RunArtifactReply": "task_artifact",
    "RunList": "task_runs",
    "RunReply": "task_run",
    "SnapshotFrame": "task_run_stream_event",
    "StatsReply": "runtime_stats",
    "StepList": "task_steps",
    "StepReply": "task_step",
    "TaskList": "tasks",
    "TaskReply": "task",
}


def test_each_answer_is_named_as_the_protocol_names_it() -> None:
    named = {
        type_.__name__: type_.__struct_config__.tag
        for type_ in TYPES
        if type_.__struct_config__.tag_field == "object"
    }
    assert named == REPLIES


@pytest.mark.parametrize("type_", TYPES, ids=lambda type_: type_.__name__)
def test_a_type_can_be_described_as_json_schema(type_: type[Struct]) -> None:
    (_,), components = msgspec.json.schema_components([type_], ref_template="#/$defs/{name}")
    schema = {**components[type_.__name__], "$defs": components}
    jsonschema_rs.validator_for(schema)


@pytest.mark.parametrize(
    "type_",
    [type_ for type_ in TYPES if type_.__struct_config__.tag is None],
    ids=lambda type_: type_.__name__,
)
def test_a_request_and_an_object_say_what_they_are(type_: type[Struct]) -> None:
    (definition,) = ast.parse(inspect.getsource(type_)).body
    assert isinstance(definition, ast.ClassDef)
    assert ast.get_docstring(definition)


def accepts(type_: type[Struct], value: object) -> tuple[bool, bool]:
    """Whether the schema and the decoder take a value."""
    (_,), components = msgspec.json.schema_components([type_], ref_template="#/$defs/{name}")
    schema = {**components[type_.__name__], "$defs": components}
    try:
        msgspec.convert(value, type_)
    except msgspec.ValidationError:
        return jsonschema_rs.is_valid(schema, value), False
    return jsonschema_rs.is_valid(schema, value), True


@pytest.mark.parametrize(
    ("type_", "value", "fits"),
    [
        (tasks.CreateTask, {"prompt": "x"}, True),
        (tasks.CreateTask, {"prompt": "x", "execution_kind": ""}, True),
        (tasks.CreateTask, {"prompt": "x", "execution_kind": "magic"}, False),
        (tasks.CreateTask, {"prompt": None}, False),
        (tasks.CreateTask, {"title": "x" * 201}, False),
        (tasks.CreateTask, {"mcp_servers": [{"name": "a\n"}]}, False),
        (runs.RetryFromTurn, {"turn": 1}, True),
        (runs.RetryFromTurn, {"turn": 0}, False),
        (approvals.ResolveApproval, {"decision": " DENIED "}, True),
        (approvals.ResolveApproval, {"decision": "denied!"}, False),
        (events.AppendEvent, {"type": "external.a.b_c1"}, True),
        (events.AppendEvent, {"type": "external.x\n"}, False),
        (events.AppendEvent, {"type": "run.failed"}, False),
        (artifacts.PatchArtifact, {"pinned": 1}, False),
        (system.RunRetention, {"subsystems": ["runs", "artifacts"]}, True),
        (system.RunRetention, {"subsystems": ["everything"]}, False),
        (PageQuery, {"limit": 0}, True),
        (PageQuery, {"limit": -1}, False),
    ],
)
def test_the_schema_and_the_decoder_agree(type_: type[Struct], value: Any, fits: bool) -> None:
    assert accepts(type_, value) == (fits, fits)


def test_health_is_a_bare_object() -> None:
    health = Health(
        status="ok",
        time="2026-09-02T08:00:00.000Z",
        version="0.1",
        sandbox=Sandbox(os_isolation=OsIsolation(kind="bwrap", path="/usr/bin/bwrap")),
    )
    assert msgspec.json.decode(msgspec.json.encode(health)) == {
        "status": "ok",
        "time": "2026-09-02T08:00:00.000Z",
        "version": "0.1",
        "sandbox": {"os_isolation": {"kind": "bwrap", "path": "/usr/bin/bwrap"}},
    }


def test_statistics_and_retention_have_the_protocol_s_fields() -> None:
    assert set(Stats.__struct_fields__) == {
        "checked_at",
        "queue_depth",
        "queue_capacity",
        "queue_backend",
        "worker_count",
        "in_flight_jobs",
        "queued_runs",
        "running_runs",
        "awaiting_approval_runs",
        "oldest_queued_age_seconds",
        "oldest_running_age_seconds",
        "store_backend",
    }
    assert StatsReply.__struct_config__.tag == "runtime_stats"
    run = RetentionRun(
        started_at="a",
        finished_at="b",
        trigger="manual",
        actor="ada",
        results=[RetentionResult(name="runs", deleted=0, max_count=0, skipped=True)],
    )
    assert msgspec.to_builtins(RetentionReply(run)) == {
        "object": "retention_run",
        "data": {
            "started_at": "a",
            "finished_at": "b",
            "trigger": "manual",
            "actor": "ada",
            "results": [{"name": "runs", "deleted": 0, "max_count": 0, "skipped": True}],
        },
    }
    assert msgspec.convert({}, RunRetention) == RunRetention(subsystems=[])


@pytest.mark.parametrize(
    ("code", "status", "type_"),
    [
        ("invalid_request", 400, "invalid_request"),
        ("not_found", 404, "not_found"),
        ("conflict", 409, "conflict"),
        ("already_resolved", 409, "conflict"),
        ("base_changed", 409, "conflict"),
        ("config", 422, "model_not_configured"),
        ("quota_exceeded", 429, "quota_exceeded"),
        ("rate_limit_exceeded", 429, "rate_limit_exceeded"),
        ("store_busy", 503, "unavailable"),
        ("bad_bundle", 400, "invalid_request"),
        ("method_not_allowed", 405, "invalid_request"),
        ("novel", 500, "internal_error"),
    ],
)
def test_every_error_has_one_of_the_protocol_s_types(code: str, status: int, type_: str) -> None:
    assert type_of(code, status) == type_


def test_an_error_names_its_type_and_leaves_out_what_is_empty() -> None:
    reply = ErrorReply(error=ErrorDetail(type="not_found", message="no task is named task_x"))
    assert msgspec.to_builtins(reply) == {
        "error": {"type": "not_found", "message": "no task is named task_x"}
    }
    assert set(STATUS_TYPES) >= {401, 403, 404, 408, 409, 413, 429, 500, 502, 503}
