"""JSON Schemas of the event protocol, built from the facts; `generate_schemas` writes them.

Readers accept unknown fields, so no schema closes an object. Properties and types that the
protocol does not define carry `x-batten-addition`.
"""

import inspect
from typing import Any

import msgspec

from batten.contract.envelope import SCHEMA_VERSION
from batten.contract.facts import FACTS
from batten.contract.outcomes import ENDINGS
from batten.serve.http.field_notes import notes_of
from scripts.published import is_addition

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ADDITION = "x-batten-addition"

_NESTED = {
    value.__name__: value
    for module in map(inspect.getmodule, FACTS.values())
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, msgspec.Struct)
}
"""The structs inside facts, by name."""

_ULID = "[0-9A-HJKMNP-TV-Z]{26}"
TYPE_PATTERN = r"^[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+$"


def schemas() -> dict[str, bytes]:
    """Every generated file: its path under `schemas/`, and its bytes."""
    files = {"events/v1/envelope.schema.json": _pretty(envelope_schema())}
    for type_ in FACTS:
        files[f"events/v1/{type_}.schema.json"] = _pretty(payload_schema(type_))
    files["outcomes.json"] = _pretty(_outcomes())
    return dict(sorted(files.items()))


def envelope_schema() -> dict[str, Any]:
    """The envelope of every type; each type has a schema of its own for `data`."""
    return {
        "$schema": DIALECT,
        "$id": "urn:batten:events:v1:envelope",
        "title": "Event envelope",
        "description": "A fact with its place and time. Order by `sequence`, not by `occurred_at`.",
        "type": "object",
        "properties": {
            "schema_version": {"const": SCHEMA_VERSION},
            "event_id": _id("evt"),
            "run_id": _id("run"),
            "task_id": _id("task"),
            "session_id": _id("chat"),
            "sequence": {"type": "integer", "minimum": 0},
            "occurred_at": {"type": "string", "format": "date-time"},
            "type": {"type": "string", "pattern": TYPE_PATTERN},
            "data": {"type": "object"},
        },
        "required": [
            "schema_version",
            "event_id",
            "run_id",
            "sequence",
            "occurred_at",
            "type",
            "data",
        ],
    }


def payload_schema(type_: str, *, ours: bool = True) -> dict[str, Any]:
    """The schema of `data` in envelopes of this type.

    `ours` requires what we always write; otherwise only what every writer of the protocol does.
    """
    fact = FACTS[type_]
    _, components = msgspec.json.schema_components([fact], ref_template="#/$defs/{name}")
    body = components.pop(fact.__name__)
    if ours:
        body["required"] = always_written(fact)
        for name, component in components.items():
            component["required"] = always_written(_NESTED[name])
    for name, note in notes_of(fact).items():
        if name in body["properties"]:
            body["properties"][name]["description"] = note
    for name in body["properties"]:
        if not is_addition(type_) and is_addition(type_, name):
            body["properties"][name][ADDITION] = True
    schema = {"$schema": DIALECT, "$id": f"urn:batten:events:v1:{type_}", **body, "title": type_}
    if is_addition(type_):
        schema[ADDITION] = True
    if components:
        schema["$defs"] = components
    return schema


def always_written(struct: type[msgspec.Struct]) -> list[str]:
    """The fields that every event of ours holds. A reader accepts an event without those that have
    a default: other programs need not write them."""
    names = getattr(struct, "ALWAYS", ())
    return [
        field.encode_name
        for field in msgspec.structs.fields(struct)
        if field.default is not msgspec.UNSET or field.encode_name in names
    ]


def _id(prefix: str) -> dict[str, str]:
    return {"type": "string", "pattern": f"^{prefix}_{_ULID}$"}


def _outcomes() -> dict[str, Any]:
    return {outcome: msgspec.to_builtins(ending) for outcome, ending in ENDINGS.items()}


def _pretty(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
