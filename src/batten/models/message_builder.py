"""An answer as it grows: pieces in, deltas and whole blocks out, in the order of the message.

Every adapter reports what it read through an `MessageBuilder`, so that block numbers, call
ids, unreadable arguments and the size of an answer are treated alike.
"""

import os
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from batten.contract.conversation import Text, Thinking, ToolCall
from batten.contract.depth import is_too_deep
from batten.models.contract import BlockDone, TextDelta, ThinkingDelta, ToolCallDelta
from batten.models.faults import broken

MAX_ANSWER = 64 * 1024 * 1024
"""Characters of one answer; no model writes as much, so more is a server gone wrong."""

MAX_BLOCKS = 1000
"""Blocks of one answer, for the same reason."""

_MOST_TOKENS = 10**12


class Part(Struct):
    """A block under way."""

    block: int
    kind: Literal["text", "thinking", "call"]
    pieces: list[str]
    call_id: str = ""
    name: str = ""
    opaque: list[str] = []
    done: bool = False

    def text(self) -> str:
        return "".join(self.pieces)


class MessageBuilder:
    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.parts: list[Part] = []
        self._size = 0
        self._blocks = 0
        self._next_to_end = 0
        self._call_ids: set[str] = set()

    def begin(self, kind: Literal["text", "thinking"]) -> Part:
        return self._begin(Part(len(self.parts), kind, []))

    def begin_call(self, call_id: str, name: str) -> Part:
        """A tool call; one whose id is missing or used twice in the answer gets a new one."""
        if not call_id or call_id in self._call_ids:
            call_id = f"call_{os.urandom(12).hex()}"
        self._call_ids.add(call_id)
        self._count(call_id)
        part = self._begin(Part(len(self.parts), "call", [], call_id))
        self.name(part, name)
        return part

    def name(self, part: Part, name: str) -> None:
        """What a call is of, where that comes after its beginning."""
        self._count(name)
        part.name = name

    def sign(self, part: Part, opaque: str) -> None:
        """More of what only the provider can read of a block."""
        self._count(opaque)
        part.opaque.append(opaque)

    def grow(self, part: Part, text: str) -> TextDelta | ThinkingDelta | ToolCallDelta:
        if part.done:
            raise broken(self.provider, f"block {part.block} went on after its end")
        self._count(text)
        part.pieces.append(text)
        if part.kind == "text":
            return TextDelta(part.block, text)
        if part.kind == "thinking":
            return ThinkingDelta(part.block, text)
        return ToolCallDelta(part.block, part.call_id, part.name, text)

    def end(self, part: Part) -> BlockDone:
        if part.done or part.block != self._next_to_end:
            raise broken(self.provider, f"block {part.block} ended out of order")
        part.done = True
        self._next_to_end += 1
        return BlockDone(part.block, self._content(part))

    def end_all(self) -> list[BlockDone]:
        """End the blocks still open, in order."""
        return [self.end(part) for part in self.parts[self._next_to_end :]]

    def has_calls(self) -> bool:
        return any(part.kind == "call" for part in self.parts)

    def text(self) -> str:
        return "".join(part.text() for part in self.parts if part.kind == "text")

    def skip(self) -> None:
        """Count a block that is of no kind we know, and so not kept."""
        self._count_block()

    def _count_block(self) -> None:
        self._blocks += 1
        if self._blocks > MAX_BLOCKS:
            raise broken(self.provider, f"the answer has more than {MAX_BLOCKS} blocks")

    def _begin(self, part: Part) -> Part:
        self._count_block()
        self.parts.append(part)
        return part

    def _count(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_ANSWER:
            raise broken(self.provider, f"the answer is longer than {MAX_ANSWER} characters")

    def _content(self, part: Part) -> Text | Thinking | ToolCall:
        if part.kind == "text":
            return Text(part.text())
        if part.kind == "thinking":
            return Thinking(part.text(), self.provider, "".join(part.opaque))
        if not part.name:
            raise broken(self.provider, "a tool call without a name")
        return _tool_call(part.call_id, part.name, part.text())


def _tool_call(call_id: str, name: str, arguments: str) -> ToolCall:
    if not arguments.strip():
        return ToolCall(call_id, name, {})
    try:
        value: object = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and not is_too_deep(cast("dict[str, Any]", value)):
        return ToolCall(call_id, name, cast("dict[str, Any]", value))
    return ToolCall(call_id, name, {}, raw=arguments)


def count(tokens: int | None) -> int:
    """A token count from outside, brought into the range a ledger can hold."""
    return min(max(tokens or 0, 0), _MOST_TOKENS)
