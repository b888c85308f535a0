"""A control plane's request to drain a runner."""

from typing import Any, cast

import msgspec
from msgspec import Struct

from batten.contract.errors import CallerError

LARGEST = 64_000
"""Bytes of a request."""
WHOLE = (".",)
"""The default export: the whole workspace."""


class DrainRequest(Struct, frozen=True, kw_only=True):
    reason: str | None = None
    requested_by: str | None = None
    export_paths: tuple[str, ...] = WHOLE


def received(request: DrainRequest | dict[str, Any] | None) -> DrainRequest:
    """A request made within the process, validated as if it had come over the wire."""
    try:
        body = msgspec.json.encode(request)
    # Not text, not JSON, too large a number, nested too deeply.
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise CallerError(f"Drain request cannot be written as JSON: {error}") from None
    return parse(body)


def parse(body: bytes) -> DrainRequest:
    """Decode a request; an empty body and `null` mean the defaults."""
    if len(body) > LARGEST:
        raise CallerError(
            f"Drain request has {len(body)} bytes; {LARGEST} are the most", code="too_large"
        )
    if not body.strip():
        return DrainRequest()
    try:
        return checked(msgspec.json.decode(body))
    # Bad UTF-8 and deep nesting raise other errors than msgspec's own.
    except (ValueError, RecursionError) as error:
        raise CallerError(f"Drain request is not valid JSON: {error}") from None


def checked(value: object) -> DrainRequest:
    if value is None:
        return DrainRequest()
    if not isinstance(value, dict):
        raise CallerError("Drain request must be an object")
    fields = cast(dict[str, Any], value)
    return DrainRequest(
        reason=_text(fields, "reason", "stop_reason"),
        requested_by=_text(fields, "requested_by", "requestedBy"),
        export_paths=_paths(_named(fields, "export_paths", "exportPaths")),
    )


def _named(fields: dict[str, Any], name: str, alias: str) -> Any:
    """The value under either of two names; the first has precedence."""
    found = fields.get(name)
    return fields.get(alias) if found is None else found


def _text(fields: dict[str, Any], name: str, alias: str) -> str | None:
    value = _named(fields, name, alias)
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
