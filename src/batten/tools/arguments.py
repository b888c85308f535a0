"""Do a call's arguments fit the tool's JSON Schema?

Most tools have a plain schema: an object of typed properties. Those are checked here,
since loading a validator costs more than a whole turn. Anything richer goes to jsonschema-rs.
"""

from typing import Any

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
    """What does not fit, each with its place. `validator` makes one for a rich schema."""
    if _is_plain(schema, _OUTER):
        return list(_plain_problems(schema, arguments, ""))
    return [
        f"{'.'.join(map(str, error.instance_path)) or 'arguments'}: {error.message}"
        for error in validator().iter_errors(arguments)
    ]


def _is_plain(schema: Any, known: set[str]) -> bool:
    if not isinstance(schema, dict) or not schema.keys() <= known:
        return False
    if schema.get("type") not in _TYPES or schema.get("additionalProperties", True) is not True:
        return False
    inner = [*schema.get("properties", {}).values()]
    if "items" in schema:
        inner.append(schema["items"])
    return all(_is_plain(one, _INNER) for one in inner)


def _plain_problems(schema: dict[str, Any], value: Any, place: str) -> list[str]:
    wanted = schema["type"]
    fits = isinstance(value, _TYPES[wanted]) and (wanted == "boolean") == isinstance(value, bool)
    if wanted == "integer" and isinstance(value, float) and value.is_integer():
        fits = True
    here = place or "arguments"
    if not fits:
        return [f"{here}: {_shown(value)} is not of type {wanted}"]
    found: list[str] = []
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{here}: {_shown(value)} is not one of {schema['enum']}")
    if wanted == "object":
        missing = [name for name in schema.get("required", ()) if name not in value]
        found += [f"{here}: {name!r} is required" for name in missing]
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                found += _plain_problems(inner, value[name], f"{place}.{name}" if place else name)
    elif wanted == "array" and "items" in schema:
        for index, item in enumerate(value):
            found += _plain_problems(schema["items"], item, f"{place}[{index}]")
    return found


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
