"""Two judges of messages: the published payload schemas where they are at hand, and our types."""

import os
from pathlib import Path
from typing import Any, cast

import msgspec

from batten.protocols.maestro import outgoing

Json = dict[str, Any]


def _published() -> Path:
    """Where the published files are: named by a variable, or beside this checkout."""
    named = os.environ.get("MAESTRO_FIXTURES")
    beside = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "maestro"
    return Path(named) if named else beside


PUBLISHED = _published()
PRESENT = PUBLISHED.is_dir()

OUTGOING: dict[str, type[outgoing.Message]] = {
    str(one.__struct_config__.tag): one for one in outgoing.Message.__subclasses__()
}


def checked(message: Json) -> outgoing.Message:
    """A message that has the fields of its type, of their types, and no others."""
    read = msgspec.convert(message, OUTGOING[message["type"]])
    assert msgspec.json.decode(msgspec.json.encode(read)) == message
    return read


class Published:
    """Checks messages as the published schema files describe them."""

    def __init__(self) -> None:
        schemas = _load("headless-payload-schemas.seed-era.json")
        self._enums = _load("headless-protocol-enums.json")
        self._named: Json = {}
        for group in schemas.values():
            self._named |= group
        said = [*schemas["fromAgentSchemas"].values()]
        self._named["HeadlessFromAgentMessageSchema"] = {"kind": "union", "variants": said}
        self._by_type: dict[str, Json] = {}
        for direction in ("toAgentSchemas", "fromAgentSchemas"):
            for schema in schemas[direction].values():
                kind = schema.get("properties", {}).get("type", {})
                if kind.get("kind") == "literal":
                    self._by_type[kind["value"]] = schema

    def check(self, message: Json) -> None:
        problem = self._problem(self._by_type[message["type"]], message, message["type"])
        assert problem is None, problem

    def check_named(self, name: str, value: Json) -> None:
        problem = self._problem(self._named[name], value, name)
        assert problem is None, problem

    def _problem(self, schema: Json, value: Any, at: str) -> str | None:
        if value is None and schema.get("nullable"):
            return None
        match schema["kind"]:
            case "object":
                return self._object(schema, value, at)
            case "array":
                return self._array(schema, value, at)
            case "record":
                held = cast(Json, value)
                parts = [(schema["value"], one, f"{at}.{key}") for key, one in held.items()]
                return self._first(parts)
            case "union":
                problems = [self._problem(one, value, at) for one in schema["variants"]]
                return None if None in problems else f"{at}: {problems}"
            case "ref":
                return self._problem(self._named[schema["name"]], value, at)
            case "literal":
                return None if value == schema["value"] else f"{at}: {value!r}"
            case "enumRef":
                name = schema["name"].removeprefix("headless")
                known = self._enums[name[0].lower() + name[1:]]
                return None if value in known else f"{at}: {value!r} is none of {known}"
            case kind:
                return None if _is(kind, value) else f"{at}: {value!r} is no {kind}"

    def _object(self, schema: Json, value: Any, at: str) -> str | None:
        if not isinstance(value, dict):
            return f"{at}: {value!r} is no object"
        held = cast(Json, value)
        parts: list[tuple[Json, Any, str]] = []
        for key, one in schema["properties"].items():
            if key in held:
                parts.append((one, held[key], f"{at}.{key}"))
            elif not one.get("optional"):
                return f"{at}: {key} is missing"
        more = set(held) - set(schema["properties"])
        if more and schema.get("additionalProperties") is False:
            return f"{at}: {more} are not known"
        return self._first(parts)

    def _array(self, schema: Json, value: Any, at: str) -> str | None:
        if not isinstance(value, list):
            return f"{at}: {value!r} is no list"
        held = msgspec.convert(value, list[Any])
        if schema.get("uniqueItems") and len({repr(one) for one in held}) != len(held):
            return f"{at}: {held} has one twice"
        return self._first([(schema["items"], one, at) for one in held])

    def _first(self, parts: list[tuple[Json, Any, str]]) -> str | None:
        problems = (self._problem(*part) for part in parts)
        return next((problem for problem in problems if problem is not None), None)


def _is(kind: str, value: Any) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case _:
            assert kind == "unknown", kind
            return True


def _load(name: str) -> Json:
    loaded: Json = msgspec.json.decode((PUBLISHED / name).read_bytes())
    return loaded
