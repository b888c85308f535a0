"""Reads and writes lines of JSON, for every line protocol. An unreadable line is a value with a
reason, so that a surface can answer it and continue."""

from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from batten.contract.depth import is_too_deep

Fault = Literal["too_long", "not_utf8", "too_deep", "not_json", "not_an_object"]


class Malformed(Struct, frozen=True):
    """A line without a message."""

    fault: Fault
    problem: str
    """The reason, for the author of the line."""
    head: bytes = b""
    """The beginning of a line that is too long to read."""


_DEEPEST = 200
"""Levels of nesting: a value is walked, stored and echoed where less stack is left."""
_TOO_DEEP = Malformed("too_deep", "the line is nested too deeply")


def read(line: bytes) -> dict[str, Any] | Malformed:
    """The object in a line."""
    try:
        value: object = msgspec.json.decode(line)
    except RecursionError:
        return _TOO_DEEP
    except (msgspec.DecodeError, ValueError) as error:
        try:
            line.decode()
        except UnicodeDecodeError as undecodable:
            return Malformed("not_utf8", f"the line is not UTF-8 text: {undecodable.reason}")
        return Malformed("not_json", f"the line is not JSON: {error}")
    if not isinstance(value, dict):
        return Malformed("not_an_object", "the line is not a JSON object")
    message = cast("dict[str, Any]", value)
    # Few lines have so many brackets at all.
    if line.count(b"{") + line.count(b"[") > _DEEPEST and is_too_deep(message, _DEEPEST):
        return _TOO_DEEP
    return message


def too_long(longest: int, head: bytes = b"") -> Malformed:
    return Malformed("too_long", f"the line has more than {longest} bytes", head)


def encode(frame: object) -> bytes:
    """A frame as one line, with its newline."""
    return msgspec.json.encode(frame) + b"\n"
