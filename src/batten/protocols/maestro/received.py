"""Reads values passed within a process as if they had arrived as a line: with the same checks, and
detached from the caller's object."""

from typing import Any, TypeVar

import msgspec

from batten.contract.errors import CallerError, PeerError
from batten.protocols import json_line
from batten.protocols.maestro.incoming import Incoming, read

LONGEST = 64 * 1024 * 1024
"""Bytes; the limit of a line."""

Kind = TypeVar("Kind")


def message(value: Incoming | dict[str, Any]) -> Incoming:
    """A client's message; `PeerError` names the fault."""
    try:
        return read(_object(value))
    except ValueError as error:
        raise PeerError(f"Failed to parse command: {error}") from None


def asked(value: Kind, kind: type[Kind]) -> Kind:
    """A client's request; `CallerError` names the fault."""
    try:
        return msgspec.convert(_object(value), kind)
    except ValueError as error:
        raise CallerError(f"{kind.__name__}: {error}") from None


def _object(value: object) -> dict[str, Any]:
    """The value as a JSON object; `ValueError` if it is none."""
    try:
        line = msgspec.json.encode(value)
    # Invalid Unicode, a type that is not JSON, too large a number, nested too deeply.
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"it cannot be written as JSON: {error}") from None
    found = json_line.too_long(LONGEST) if len(line) > LONGEST else json_line.read(line)
    if isinstance(found, json_line.Malformed):
        raise ValueError(found.problem)
    return found
