"""JSON Schemas compiled to validators that never reach out: not for a file, not for the network."""

from typing import Any


def validator_for(schema: dict[str, Any]) -> Any:
    """A validator of the schema; `ValueError` if it is none, or refers outside itself."""
    import jsonschema_rs

    return jsonschema_rs.validator_for(schema, retriever=_refuse)


def _refuse(uri: str) -> Any:
    raise ValueError(f"a schema may refer only to itself, not to {uri}")
