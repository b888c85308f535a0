"""The facts against the protocol's own names: all are there, and ours are only additions."""

import ast
import json

import pytest
from msgspec import NODEFAULT, structs
from scripts.published import PUBLISHED, is_addition

from batten.contract.envelope import decode_fact
from batten.contract.facts import FACTS, GUEST, TERMINAL, TOOL_TERMINAL, Fact, Unknown

from .journals import LINES, ROOT

LEGACY = {
    "approval.approved",
    "approval.rejected",
    "run.claimed",
    "run.running",
    "run.completed",
    "run.resumed",
    "run.resume_requested",
    "model.call.started",
    "model.call.completed",
    "model.call.failed",
}
ADDED = {
    "run.cancel_requested",
    "assistant.message_complete",
    "assistant.retracted",
    "policy.tool_decided",
    "hook.dispatched",
    "hook.completed",
    "tool.file_write.applied",
    "gap.artifact_capped",
    "request.opened",
    "request.closed",
    "context.pruned",
    "context.compacted",
    "cost.call_unfinished",
    "session.opened",
    "session.configured",
    "session.utility_started",
    "session.utility_ended",
    "session.closed",
    "task.created",
    "task.updated",
    "workspace.changed_by_command",
    "macp.session_bound",
    "macp.message_accepted",
    "macp.session_changed",
    "macp.commitment_evaluated",
    "macp.panel_convened",
    "macp.run_archived",
    "macp.run_described",
    "macp.suspension_requested",
    "macp.frame_observed",
}
NEVER_IN_DATA = {"run", "steps", "artifacts", "snapshot", "trace_id"}


def first(type_: str) -> dict[str, object]:
    event: dict[str, object] = next(e for e in map(json.loads, LINES) if e["type"] == type_)
    return event


def test_every_type_of_the_protocol_is_a_fact() -> None:
    assert set(PUBLISHED) <= set(FACTS)


def test_the_types_that_are_ours_are_these() -> None:
    assert {type_ for type_ in FACTS if is_addition(type_)} == ADDED


@pytest.mark.parametrize("type_", PUBLISHED)
def test_a_fact_has_every_field_of_the_protocol(type_: str) -> None:
    assert set(PUBLISHED[type_]) <= set(FACTS[type_].__struct_fields__)


@pytest.mark.parametrize("type_", PUBLISHED)
def test_required_fields_are_the_protocol_s_and_no_others(type_: str) -> None:
    required = {
        field.encode_name
        for field in structs.fields(FACTS[type_])
        if field.default is NODEFAULT and field.default_factory is NODEFAULT
    }
    assert required == {name for name, needed in PUBLISHED[type_].items() if needed}


@pytest.mark.parametrize("type_", PUBLISHED)
def test_an_event_without_additions_and_options_is_still_its_fact(type_: str) -> None:
    event = first(type_)
    data = event["data"]
    assert isinstance(data, dict)
    event["data"] = {name: data[name] for name, needed in PUBLISHED[type_].items() if needed}
    assert type(decode_fact(json.dumps(event).encode())) is FACTS[type_]


def test_an_mcp_call_may_end_without_a_summary() -> None:
    event = first("tool.completed") | {
        "data": {
            "tool_call_id": "c1",
            "tool_name": "mcp__notes__list",
            "kind": "mcp",
            "mcp_server": "notes",
            "mcp_tool": "list",
            "result": "dispatched",
            "duration_ms": 88,
        }
    }
    assert type(decode_fact(json.dumps(event).encode())) is FACTS["tool.completed"]


def test_earlier_and_later_names_are_no_facts() -> None:
    assert not LEGACY & set(FACTS)
    for type_ in LEGACY:
        event = first("run.queued") | {"type": type_}
        assert isinstance(decode_fact(json.dumps(event).encode()), Unknown)


def test_earlier_and_later_names_are_written_nowhere() -> None:
    found = {
        (path.name, node.value)
        for path in (ROOT / "src").rglob("*.py")
        if not {"webhooks", "macp"} & {*path.parts}  # the control plane's own names
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Constant) and node.value in LEGACY
    }
    assert found == set()


@pytest.mark.parametrize("type_", FACTS)
def test_a_payload_holds_none_of_what_belongs_to_storage(type_: str) -> None:
    assert not NEVER_IN_DATA & set(FACTS[type_].__struct_fields__)


@pytest.mark.parametrize("type_", FACTS)
def test_a_fact_cannot_be_changed(type_: str) -> None:
    fact = decode_fact(json.dumps(first(type_)).encode())
    with pytest.raises(AttributeError):
        setattr(fact, fact.__struct_fields__[0], "other")


def test_an_unknown_fact_cannot_be_changed() -> None:
    fact = Unknown(type="weather.changed", data={})
    with pytest.raises(AttributeError):
        fact.type = "run.started"  # type: ignore[misc]  # the point of the test


@pytest.mark.parametrize("type_", FACTS)
def test_a_fact_knows_its_type(type_: str) -> None:
    fact = decode_fact(json.dumps(first(type_)).encode())
    assert isinstance(fact, Fact)
    assert (fact.type, fact.TYPE) == (type_, type_)


def test_the_named_sets_contain_known_types_only() -> None:
    assert set(FACTS) >= TERMINAL | TOOL_TERMINAL | GUEST
    assert not GUEST & (TERMINAL | TOOL_TERMINAL)
