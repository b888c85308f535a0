"""A line of JSON, both ways, for every protocol that is spoken in lines. What cannot be read is a
value that says why, so that a surface can answer it and go on.
"""

from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

Fault = Literal["too_long", "not_utf8", "too_deep", "not_json", "not_an_object"]


class Malformed(Struct, frozen=True):
    """A line that holds no message."""

    fault: Fault
    problem: str
    """In words, for whoever wrote the line."""


def read(line: bytes) -> dict[str, Any] | Malformed:
    """The object of a line."""
    try:
        value: object = msgspec.json.decode(line)
    except RecursionError:
        return Malformed("too_deep", "the line is nested too deeply")
    except (msgspec.DecodeError, ValueError) as error:
        try:
            line.decode()
        except UnicodeDecodeError as undecodable:
            return Malformed("not_utf8", f"the line is not UTF-8 text: {undecodable.reason}")
        return Malformed("not_json", f"the line is not JSON: {error}")
    if not isinstance(value, dict):
        return Malformed("not_an_object", "the line is not a JSON object")
    return cast("dict[str, Any]", value)


def too_long(size: int, longest: int) -> Malformed:
    return Malformed("too_long", f"the line has {size} bytes; at most {longest} are read")


def encode(frame: object) -> bytes:
    """A frame as one line, with its end."""
    return msgspec.json.encode(frame) + b"\n"
