"""Adapts JSON Schemas for providers that enforce them.

The answer is checked against the original schema afterwards, so the provider's version may omit
keywords it does not support.
"""

from typing import Any, cast

_UNKNOWN_TO_PROVIDERS = frozenset(
    {
        "$schema",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minLength",
        "maxLength",
        "maxItems",
        "uniqueItems",
        "minProperties",
        "maxProperties",
    }
)
_NAMED = ("properties", "$defs", "definitions")
"""Keywords whose value maps names to schemas."""


def closed_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with every object closed and without limits that providers reject."""
    closed: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            closed[key] = {name: _closed(inner) for name, inner in named.items()}
        elif key in ("enum", "const", "default", "examples"):
            closed[key] = value
        elif key not in _UNKNOWN_TO_PROVIDERS:
            closed[key] = _closed(value)
    if closed.get("type") == "object" or "properties" in closed:
        closed["additionalProperties"] = False
    return closed


def _closed(value: object) -> object:
    if isinstance(value, dict):
        return closed_schema(cast("dict[str, Any]", value))
    if isinstance(value, list):
        return [_closed(item) for item in cast("list[object]", value)]
    return value


def is_strict(schema: object) -> bool:
    """Whether a schema has the form OpenAI requires of strict ones: all closed, all required."""
    if isinstance(schema, list):
        return all(is_strict(item) for item in cast("list[object]", schema))
    if not isinstance(schema, dict):
        return True
    node = cast("dict[str, Any]", schema)
    if node.get("type") == "object" or "properties" in node:
        names = cast("dict[str, Any]", node.get("properties", {}))
        if node.get("additionalProperties") is not False:
            return False
        if set(names) != set(cast("list[str]", node.get("required", []))):
            return False
    return all(is_strict(value) for value in node.values())
