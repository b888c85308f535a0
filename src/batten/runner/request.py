"""What a control plane asks for when it drains a runner."""

from typing import Any, cast

import msgspec
from msgspec import Struct

from batten.contract.errors import CallerError

LARGEST = 64_000
"""Bytes of a request."""
WHOLE = (".",)
"""What is exported where nothing is named: the workspace."""


class DrainRequest(Struct, frozen=True, kw_only=True):
    reason: str | None = None
    requested_by: str | None = None
    export_paths: tuple[str, ...] = WHOLE


def received(given: DrainRequest | dict[str, Any] | None) -> DrainRequest:
    """A request that is handed over within a process, read as if it had been sent."""
    try:
        body = msgspec.json.encode(given)
    # Not text, not JSON, too large a number, nested too deeply.
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise CallerError(f"Drain request cannot be written as JSON: {error}") from None
    return parse(body)


def parse(body: bytes) -> DrainRequest:
    """A request as it is sent; an empty body and `null` ask for what is usual."""
    if len(body) > LARGEST:
        raise CallerError(
            f"Drain request has {len(body)} bytes; {LARGEST} are the most", code="too_large"
        )
    if not body.strip():
        return DrainRequest()
    try:
        return checked(msgspec.json.decode(body))
    # Bad UTF-8 and deep nesting are no decode errors of the library's own.
    except (ValueError, RecursionError) as error:
        raise CallerError(f"Drain request is not valid JSON: {error}") from None


def checked(value: object) -> DrainRequest:
    """A request from its JSON value."""
    if value is None:
        return DrainRequest()
    if not isinstance(value, dict):
        raise CallerError("Drain request must be an object")
    given = cast(dict[str, Any], value)
    return DrainRequest(
        reason=_text(given, "reason", "stop_reason"),
        requested_by=_text(given, "requested_by", "requestedBy"),
        export_paths=_paths(_named(given, "export_paths", "exportPaths")),
    )


def _named(given: dict[str, Any], name: str, alias: str) -> Any:
    """The value under either of two names; the first has precedence."""
    found = given.get(name)
    return given.get(alias) if found is None else found


def _text(given: dict[str, Any], name: str, alias: str) -> str | None:
    value = _named(given, name, alias)
    if value is None:
        return None
    if not isinstance(value, str):
        raise CallerError(f"Drain {name} must be a string")
    return value.strip() or None


def _paths(value: object) -> tuple[str, ...]:
    if value is None:
        return WHOLE
    if not isinstance(value, list):
        raise CallerError("Drain export_paths must be an array of paths")
    entries = cast(list[object], value)
    return tuple(map(_path, entries)) or WHOLE


def _path(entry: object) -> str:
    if not isinstance(entry, str) or not entry.strip():
        raise CallerError("Drain export_paths entries must be non-empty strings")
    if "\0" in entry:
        raise CallerError("Drain export_paths entries must not contain NUL")
    return entry.strip()
