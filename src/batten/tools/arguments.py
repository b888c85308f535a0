"""Checks a call's arguments against the tool's JSON Schema.

Most schemas are plain: an object of typed properties. These are checked here, since loading a
validator costs more than a whole turn. Richer schemas go to jsonschema-rs.
"""

from typing import Any, cast

_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
_OUTER = {"type", "properties", "required", "additionalProperties", "description", "title"}
_INNER = {"type", "description", "title", "enum", "items", "properties", "required", "default"}


def problems(schema: dict[str, Any], arguments: dict[str, Any], validator: Any) -> list[str]:
    """The mismatches, each with its path. `validator` builds one for a rich schema."""
    if _is_plain(schema, _OUTER):
        return _plain_problems(schema, arguments, "")
    return [
        f"{'.'.join(map(str, error.instance_path)) or 'arguments'}: {error.message}"
        for error in validator().iter_errors(arguments)
    ]


def _is_plain(schema: Any, known: set[str]) -> bool:
    if not isinstance(schema, dict):
        return False
    keywords = cast("dict[str, Any]", schema)
    kind = keywords.get("type")  # may be a list of types
    if not keywords.keys() <= known or not isinstance(kind, str) or kind not in _TYPES:
        return False
    if keywords.get("additionalProperties", True) is not True:
        return False
    properties: Any = keywords.get("properties", {})
    names: Any = keywords.get("required", [])
    if not isinstance(properties, dict) or not isinstance(keywords.get("enum", []), list):
        return False
    if not isinstance(names, list) or not all(isinstance(one, str) for one in cast("Any", names)):
        return False
    inner: list[Any] = [*cast("dict[str, Any]", properties).values()]
    if "items" in keywords:
        inner.append(keywords["items"])
    return all(_is_plain(one, _INNER) for one in inner)


def _plain_problems(schema: dict[str, Any], value: Any, place: str) -> list[str]:
    here = place or "arguments"
    if not _is_of_type(value, schema["type"]):
        return [f"{here}: {_shown(value)} is not of type {schema['type']}"]
    found: list[str] = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{here}: {_shown(value)} is not one of {schema['enum']}")
    if schema["type"] == "object":
        missing = [name for name in schema.get("required", ()) if name not in value]
        found += [f"{here}: {name!r} is required" for name in missing]
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                found += _plain_problems(inner, value[name], f"{place}.{name}" if place else name)
    elif schema["type"] == "array" and "items" in schema:
        for index, item in enumerate(value):
            found += _plain_problems(schema["items"], item, f"{place}[{index}]")
    return found


def _is_of_type(value: object, wanted: str) -> bool:
    """As in JSON Schema: `true` is not a number, and 3.0 is an integer."""
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[wanted])


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
