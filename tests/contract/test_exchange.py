"""Events of the protocol's own reference implementation, where they are on the machine."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from scripts.event_schemas import envelope_schema, payload_schema

from batten.contract.envelope import decode, encode, payload
from batten.contract.facts import FACTS, TERMINAL, Unknown

from .journals import LINES, ROOT

EVENTS = ROOT.parent / "shared" / "fixtures" / "hecate"
if not EVENTS.is_dir():
    pytest.skip("the reference events are not on this machine", allow_module_level=True)

CURRENT = sorted((EVENTS / "core").glob("*.json"))
LATER = sorted((EVENTS / "head" / "core").glob("*.json"))


def events(path: Path) -> list[dict[str, Any]]:
    read: list[dict[str, Any]] = json.loads(path.read_bytes())
    return read


@pytest.mark.parametrize("path", CURRENT, ids=lambda path: path.stem)
def test_every_event_is_typed_and_satisfies_our_schemas(path: Path) -> None:
    for event in events(path):
        envelope = decode(json.dumps(event).encode())
        assert type(envelope.data) is FACTS[event["type"]]
        assert jsonschema_rs.is_valid(envelope_schema(), event)
        assert jsonschema_rs.is_valid(payload_schema(event["type"], ours=False), event["data"])


@pytest.mark.parametrize("path", CURRENT + LATER, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_nothing_in_an_event_is_lost_or_changed(path: Path) -> None:
    for event in events(path):
        envelope = decode(json.dumps(event).encode())
        written = json.loads(encode(msgspec.structs.replace(envelope, data=payload(envelope.data))))
        assert written["data"].items() >= event["data"].items()
        assert written | {"data": event["data"]} == event


@pytest.mark.parametrize("path", CURRENT, ids=lambda path: path.stem)
def test_a_run_has_at_most_one_ending_and_no_holes(path: Path) -> None:
    run = events(path)
    assert [event["sequence"] for event in run] == list(range(len(run)))
    assert len([event for event in run if event["type"] in TERMINAL]) <= 1


def test_the_later_names_pass_through_as_unknown() -> None:
    renamed = [
        event for path in LATER for event in events(path) if event["type"].startswith("model.call.")
    ]
    assert renamed
    for event in renamed:
        fact = decode(json.dumps(event).encode()).data
        assert fact == Unknown(type=event["type"], data=event["data"])


def test_our_events_satisfy_the_published_envelope_schema() -> None:
    schema = json.loads((EVENTS / "schema" / "envelope.schema.json").read_bytes())
    validator = jsonschema_rs.validator_for(schema, validate_formats=True)
    assert all(validator.is_valid(json.loads(line)) for line in LINES)
