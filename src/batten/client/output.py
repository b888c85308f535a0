"""Structured output: a type as a JSON Schema, and an answer decoded into that type.

msgspec encodes and decodes Structs, dataclasses and `TypedDict`s. pydantic does it for its own
models; it is imported only if the caller has imported it.
"""

import sys
from types import ModuleType
from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType

from batten.client.errors import NoOutput
from batten.client.result import Result
from batten.contract.depth import DEEPEST, is_too_deep
from batten.contract.errors import CallerError

Output = TypeVar("Output")

_RIGHT = "a msgspec Struct, a dataclass, a TypedDict, a pydantic model, or a JSON Schema"
_DEEPEST = 2 * DEEPEST
"""A schema has two levels for each level of the values it describes."""


class StructuredResult(Result, Generic[Output], frozen=True, kw_only=True):
    """How a run ended that had to answer with a value of one type."""

    decoded: Output | UnsetType = UNSET
    misfit: str = ""
    """Why the answer, which fits the schema, is no value of the type."""

    @property
    def output(self) -> Output:
        """The answer. Raises `NoOutput` if the run did not complete or its answer is unfit."""
        if isinstance(self.decoded, UnsetType):
            why = self.misfit or self.message or "the answer has no JSON value"
            raise NoOutput(f"{self.run_id} has no output ({self.outcome}): {why}", self.outcome)
        return self.decoded


def schema_of(kind: object) -> dict[str, Any]:
    """The JSON Schema that the worker demands. Raises `CallerError` unless it is an object's."""
    if isinstance(kind, dict):
        schema = cast("dict[str, Any]", kind)
    elif (pydantic := _pydantic_of(kind)) is not None:
        schema = pydantic.TypeAdapter(kind).json_schema()
    else:
        try:
            schema = msgspec.json.schema(kind)
        except (TypeError, ValueError) as error:
            raise CallerError(f"schema is {kind!r}; it must be {_RIGHT}: {error}") from error
    schema = _with_root(schema)
    if schema.get("type") != "object" or is_too_deep(schema, _DEEPEST):
        raise CallerError(f"schema is {kind!r}; it must describe an object: {_RIGHT}")
    _check(schema)
    return schema


def decoded(result: Result, kind: type[Output] | dict[str, Any]) -> StructuredResult[Output]:
    """The result with its answer as a value of this type; of a JSON Schema, as a plain value."""
    fields = {name: getattr(result, name) for name in Result.__struct_fields__}
    if result.structured_output is UNSET:
        return StructuredResult(**fields)
    if isinstance(kind, dict):
        return StructuredResult(**fields, decoded=cast("Output", result.structured_output))
    body = msgspec.json.encode(result.structured_output)
    try:
        if (pydantic := _pydantic_of(kind)) is not None:
            return StructuredResult(
                **fields, decoded=pydantic.TypeAdapter(kind).validate_json(body)
            )
        return StructuredResult(**fields, decoded=msgspec.json.decode(body, type=kind))
    except ValueError as error:  # msgspec's and pydantic's, and those of their validators
        return StructuredResult(**fields, misfit=str(error))


def _pydantic_of(kind: object) -> ModuleType | None:
    """The module, if the type is one of pydantic's."""
    pydantic = sys.modules.get("pydantic")
    if pydantic is None or not isinstance(kind, type):
        return None
    is_model = issubclass(kind, pydantic.BaseModel)
    return pydantic if is_model or pydantic.dataclasses.is_pydantic_dataclass(kind) else None


def _with_root(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with its first reference replaced: providers want `type: object` at the root."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    definitions = schema.get("$defs", {})
    if name not in definitions:
        return schema
    rest = {key: value for key, value in schema.items() if key not in ("$ref", "$defs")}
    root = {**definitions[name], **rest}
    others = {key: value for key, value in definitions.items() if key != name}
    if f'"#/$defs/{name}"'.encode() in msgspec.json.encode(schema["$defs"]):
        others = definitions  # the type contains itself
    return {**root, "$defs": others} if others else root


def _check(schema: dict[str, Any]) -> None:
    import jsonschema_rs

    try:
        jsonschema_rs.validator_for(schema, retriever=_refuse)
    except ValueError as error:
        raise CallerError(f"schema is not a JSON Schema: {error}") from error


def _refuse(uri: str) -> Any:
    raise ValueError(f"a schema may refer only to itself, not to {uri}")
