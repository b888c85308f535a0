"""The committed schemas: what the generator gives, and what our own events satisfy."""

import json
import subprocess
import sys
from typing import Any

import jsonschema_rs
import pytest
from msgspec import UNSET, structs
from scripts.event_schemas import envelope_schema, payload_schema, schemas

from batten.contract.envelope import Envelope
from batten.contract.facts import FACTS
from batten.contract.outcomes import ENDINGS

from .journals import GOLDEN, LINES, ROOT

FILES = schemas()
OTHERS = {"openapi.json", "runner-openapi.json", "batten.d.ts"}
"""Of other scripts."""
PAYLOADS = {type_: json.loads(FILES[f"events/v1/{type_}.schema.json"]) for type_ in FACTS}


def valid(schema: dict[str, Any], value: object) -> bool:
    return jsonschema_rs.validator_for(schema, validate_formats=True).is_valid(value)


def test_the_committed_schemas_are_those_generated() -> None:
    committed = {
        path.relative_to(ROOT / "schemas").as_posix(): path.read_bytes()
        for path in (ROOT / "schemas").rglob("*")
        if path.is_file() and path.name not in OTHERS
    }
    assert committed == FILES


def test_nothing_generated_is_out_of_date() -> None:
    command = [sys.executable, "-m", "scripts.generate_schemas", "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (check.stdout, check.stderr, check.returncode) == ("", "", 0)


def test_there_is_a_schema_for_every_type_and_for_the_envelope() -> None:
    assert set(FILES) == {
        "outcomes.json",
        "events/v1/envelope.schema.json",
        *(f"events/v1/{type_}.schema.json" for type_ in FACTS),
    }


@pytest.mark.parametrize("path", [path for path in FILES if path.endswith(".schema.json")])
def test_a_schema_is_valid_in_its_dialect_and_open_to_additions(path: str) -> None:
    schema = json.loads(FILES[path])
    jsonschema_rs.meta.validate(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"].startswith("urn:batten:events:v1:")
    assert b'"additionalProperties": false' not in FILES[path]


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_events_satisfy_the_schemas(name: str) -> None:
    for line in GOLDEN[name]:
        event = json.loads(line)
        assert valid(envelope_schema(), event), event
        schema = payload_schema(event["type"], ours=name != "elsewhere")
        assert valid(schema, event["data"]), event


@pytest.mark.parametrize("type_", FACTS)
def test_a_schema_requires_what_is_always_written(type_: str) -> None:
    """A field with a default other than unset is in every event; so are those we promise."""
    fact, required = FACTS[type_], set(PAYLOADS[type_]["required"])
    for field in structs.fields(fact):
        promised = field.encode_name in fact.ALWAYS
        assert (field.encode_name in required) == (field.default is not UNSET or promised)
    assert set(fact.ALWAYS) <= required


@pytest.mark.parametrize("type_", FACTS)
def test_a_payload_without_a_required_field_does_not_satisfy_its_schema(type_: str) -> None:
    schema = PAYLOADS[type_]
    event = next(event for event in map(json.loads, LINES) if event["type"] == type_)
    for field in schema["required"]:
        assert not valid(schema, {k: v for k, v in event["data"].items() if k != field})


def test_the_envelope_schema_has_the_keys_of_the_envelope() -> None:
    schema = envelope_schema()
    assert tuple(schema["properties"]) == Envelope.__struct_fields__
    assert set(schema["properties"]) - set(schema["required"]) == {"task_id", "session_id"}


@pytest.mark.parametrize(
    "changed",
    [
        {"schema_version": "2"},
        {"event_id": "evt_1"},
        {"event_id": "evt_01M1DZPWGPEATTGW6000CX6DEU"},
        {"run_id": "task_01M1DZPWFMEATTGW6000CX6DE0"},
        {"task_id": ""},
        {"session_id": None},
        {"sequence": -1},
        {"occurred_at": "yesterday"},
        {"type": "finished"},
        {"type": "Run.finished"},
        {"type": "run..finished"},
        {"data": None},
        {"data": []},
    ],
    ids=str,
)
def test_the_envelope_schema_refuses(changed: dict[str, Any]) -> None:
    event = json.loads(LINES[0])
    assert valid(envelope_schema(), event)
    assert not valid(envelope_schema(), event | changed)


def test_the_outcome_file_is_the_table() -> None:
    table = json.loads(FILES["outcomes.json"])
    assert list(table) == list(ENDINGS)
    assert {outcome: row["exit_code"] for outcome, row in table.items()} == {
        outcome: ending.exit_code for outcome, ending in ENDINGS.items()
    }


def test_the_notes_under_fields_are_in_their_schema() -> None:
    property_ = PAYLOADS["tool.failed"]["properties"]["output"]
    assert property_["description"] == "The result exactly as the model receives it."
    assert property_["x-batten-addition"] is True
    assert "x-batten-addition" not in PAYLOADS["tool.failed"]["properties"]["tool_name"]
    assert PAYLOADS["session.closed"]["x-batten-addition"] is True


def test_the_page_shows_an_envelope_of_a_golden_journal() -> None:
    page = (ROOT / "docs" / "events.md").read_bytes()
    sample = page.partition(b"```json\n")[2].partition(b"\n```")[0]
    assert sample in LINES
