"""Reads and writes lines of JSON, for every line protocol. An unreadable line is a value with a
reason, so that a surface can answer it and continue."""

from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from batten.contract.depth import is_too_deep
from batten.contract.envelope import on_one_line
from batten.contract.surrogates import decode_lone

Fault = Literal["too_long", "not_utf8", "too_deep", "not_json", "not_an_object"]


class Malformed(Struct, frozen=True):
    """A line without a message."""

    fault: Fault
    problem: str
    """The reason, for the author of the line."""
    members: dict[str, Any] = {}
    """Of an object that is too long or too deep: the members that could be read, with None for
    arrays and objects."""


_DEEPEST = 200
"""Levels of nesting: a value is walked, stored and echoed where less stack is left."""
_HEAD = 1 << 16
"""Bytes of a deep line that are searched for members."""


def read(line: bytes) -> dict[str, Any] | Malformed:
    """The object in a line."""
    try:
        value = decode(line)
    except RecursionError:
        return _too_deep(members_of(line[:_HEAD]))
    except UnicodeDecodeError as undecodable:
        return Malformed("not_utf8", f"the line is not UTF-8 text: {undecodable.reason}")
    except ValueError as error:
        return Malformed("not_json", f"the line is not JSON: {error}")
    if not isinstance(value, dict):
        return Malformed("not_an_object", "the line is not a JSON object")
    message = cast("dict[str, Any]", value)
    # Few lines have so many brackets at all.
    if line.count(b"{") + line.count(b"[") > _DEEPEST and is_too_deep(message, _DEEPEST):
        return _too_deep(
            {name: None if isinstance(one, dict | list) else one for name, one in message.items()}
        )
    return message


def decode(line: bytes) -> object:
    """The value in a line. Raises `ValueError`, for bytes that are not UTF-8 `UnicodeDecodeError`,
    and `RecursionError`.

    Half of a character, as of an emoji that a client cut, is replaced: it is valid JSON, and the
    sender of a request that cannot be read waits for an answer to its id.
    """
    try:
        value: object = msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError):
        line.decode()
        value = decode_lone(line)
        if value is None:
            raise
    return value


def _too_deep(members: dict[str, Any]) -> Malformed:
    return Malformed("too_deep", "the line is nested too deeply", members)


def too_long(longest: int, head: bytes = b"") -> Malformed:
    """`head` is the beginning of the line."""
    return Malformed("too_long", f"the line has more than {longest} bytes", members_of(head))


def members_of(head: bytes) -> dict[str, Any]:
    """The members of an object of which only the beginning is known, as far as they are complete;
    None for arrays and objects."""
    import re

    token = re.compile(rb'\s*("(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s"{}\[\],:]+(?=[\s,}\]]))')
    members: dict[str, Any] = {}
    name: Any = None
    depth = place = 0
    while (found := token.match(head, place)) and (depth or (found[1] == b"{" and not place)):
        place, text = found.end(), found[1]
        if text in b"{[":
            depth += 1
            if depth == 2 and isinstance(name, str):
                members[name] = None
        elif text in b"}]":
            depth -= 1
        elif depth == 1 and text == b",":
            name = None
        elif depth == 1 and text != b":":
            try:
                value = msgspec.json.decode(text)
            except (msgspec.DecodeError, ValueError):
                break
            if name is None:
                name = value
            elif isinstance(name, str):
                members[name] = value
    return members


def encode(frame: object) -> bytes:
    """A frame as one line, with its newline."""
    return on_one_line(msgspec.json.encode(frame)) + b"\n"
