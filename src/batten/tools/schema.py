"""Compiles JSON Schemas to validators that never read a file or use the network."""

from typing import Any


def validator_for(schema: dict[str, Any]) -> Any:
    """`ValueError` if the schema is invalid or refers outside itself."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(schema, retriever=_refuse)
    except jsonschema_rs.ValidationError as error:
        # Its text has several lines, of which these are the first.
        place = ".".join(map(str, error.instance_path))
        raise ValueError(f"{place}: {error.message}" if place else error.message) from error


def _refuse(uri: str) -> Any:
    raise ValueError(f"a schema may refer only to itself, not to {uri}")
