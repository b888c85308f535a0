"""Encodes frames as lines that the SDK can read: complete, and within its length limit."""

import re
from typing import Any, cast

import msgspec

from batten.contract.envelope import on_one_line

Frame = dict[str, Any]

LONGEST = 1 << 20
"""Characters of a line; the SDK aborts on a longer one."""
_SHORTEST_CUT = 64
_SPACES = re.compile(r"\s")
_WHOLE = frozenset({"structured_output"})
"""The caller's data: sent complete or not at all."""


def encode(frame: Frame, *, seamless: bool = False) -> bytes:
    """One line. Long texts are cut if it would be too long; the journal has them in full.

    `seamless` is for readers that lose spaces where a line arrives in several pieces.
    """
    line = _encoded(frame, seamless)
    limit = LONGEST // 2
    while len(line) > LONGEST and limit >= _SHORTEST_CUT:
        line = _encoded(_cut(frame, limit), seamless)
        limit //= 2
    if len(line) > LONGEST:
        line = _encoded(_without_data(frame), seamless)
    return line + b"\n"


def encode_whole(frame: Frame, *, seamless: bool = False) -> bytes | None:
    """One line with nothing cut, for frames that ask for a decision; None if too long."""
    line = _encoded(frame, seamless)
    return None if len(line) > LONGEST else line + b"\n"


def _encoded(frame: Frame, seamless: bool) -> bytes:
    line = on_one_line(msgspec.json.encode(frame))
    if not seamless:
        return line
    # The encoder writes no spaces between members, so each one is inside a string.
    return _SPACES.sub(lambda found: f"\\u{ord(found[0]):04x}", line.decode()).encode()


def _cut(value: object, limit: int) -> Any:
    match value:
        case str() if len(value) > limit:
            return f"{value[:limit]}… [cut here: it has {len(value)} characters]"
        case dict():
            members = cast("dict[str, Any]", value).items()
            return {key: one if key in _WHOLE else _cut(one, limit) for key, one in members}
        case list():
            return [_cut(one, limit) for one in cast("list[object]", value)]
        case _:
            return value


def _without_data(frame: Frame) -> Frame:
    """Drop the many small parts that make a frame too long, and say so in it."""
    plain = str | int | float | None
    kept: Frame = {key: one for key, one in frame.items() if isinstance(one, plain)}
    kept = _cut(kept, _SHORTEST_CUT)
    note = f"left out: a {frame.get('type')} frame of this is too long for one line"
    match frame.get("type"):
        case "assistant" | "user":
            kept["message"] = {**frame["message"], "content": [{"type": "text", "text": note}]}
        case "stream_event":
            kept["event"] = {"type": "ping"}
        case "result" if "structured_output" in frame:
            # A success without the requested output would not be one.
            note = "the structured output is too long for one line; the journal has it"
            kept |= {"subtype": "error_during_execution", "is_error": True, "errors": [note]}
            for key in ("result", "terminal_reason"):
                kept.pop(key, None)
        case _:
            kept["errors"] = [note]
    return kept
