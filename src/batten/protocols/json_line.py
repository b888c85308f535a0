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
        value: object = msgspec.json.decode(line)
    except RecursionError:
        return _too_deep(members_of(line[:_HEAD]))
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
        return _too_deep(
            {name: None if isinstance(one, dict | list) else one for name, one in message.items()}
        )
    return message


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
    return unbroken(msgspec.json.encode(frame)) + b"\n"


def unbroken(line: bytes) -> bytes:
    """JSON with every line separator escaped: Node's `readline` splits at U+2028 and U+2029, and
    Python's `splitlines` at U+0085 too.
    """
    line = line.replace(b"\xe2\x80\xa8", rb"\u2028").replace(b"\xe2\x80\xa9", rb"\u2029")
    return line.replace(b"\xc2\x85", rb"\u0085")
