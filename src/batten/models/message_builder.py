"""Builds an answer from pieces: emits deltas and complete blocks, in the order of the message.

Every adapter reports through a `MessageBuilder`, so that block numbers, call ids, invalid
arguments and size limits are treated alike.
"""

import os
from collections.abc import Iterator
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from batten.contract.conversation import Text, Thinking, ToolCall
from batten.contract.depth import is_too_deep
from batten.contract.surrogates import decode_lone, paired
from batten.models.contract import BlockDone, ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta
from batten.models.faults import broken

MAX_ANSWER = 64 * 1024 * 1024
"""Limit in characters of one answer; a longer one means a faulty server."""

MAX_BLOCKS = 1000
"""Limit of blocks in one answer, for the same reason."""

_MOST_TOKENS = 10**12


class Part(Struct):
    """An incomplete block."""

    block: int
    kind: Literal["text", "thinking", "call"]
    pieces: list[str]
    call_id: str = ""
    name: str = ""
    opaque: list[str] = []
    high: str = ""
    """The first half of a surrogate pair, until its other half arrives."""
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
        """Begin a tool call; a missing or repeated id is replaced by a new one."""
        call_id = paired(call_id)
        if not call_id or call_id in self._call_ids:
            call_id = f"call_{os.urandom(12).hex()}"
        self._call_ids.add(call_id)
        self._count(call_id)
        part = self._begin(Part(len(self.parts), "call", [], call_id))
        self.name(part, name)
        return part

    def name(self, part: Part, name: str) -> None:
        """Set the name of a call, if it arrives after the beginning."""
        self._count(name)
        part.name = paired(name)

    def sign(self, part: Part, opaque: str) -> None:
        """Append to a block's opaque data, which only the provider can read."""
        self._count(opaque)
        part.opaque.append(paired(opaque))

    def grow(self, part: Part, text: str) -> TextDelta | ThinkingDelta | ToolCallDelta:
        if part.done:
            raise broken(self.provider, f"block {part.block} went on after its end")
        self._count(text)
        if part.high or not text.isascii():
            text, part.high = _cut(part.high + text)
        return self._grown(part, text)

    def _grown(self, part: Part, text: str) -> TextDelta | ThinkingDelta | ToolCallDelta:
        part.pieces.append(text)
        if part.kind == "text":
            return TextDelta(part.block, text)
        if part.kind == "thinking":
            return ThinkingDelta(part.block, text)
        return ToolCallDelta(part.block, part.call_id, part.name, text)

    def end(self, part: Part) -> tuple[ModelEvent, ...]:
        if part.done or part.block != self._next_to_end:
            raise broken(self.provider, f"block {part.block} ended out of order")
        last = (self._grown(part, paired(part.high)),) if part.high else ()
        part.done = True
        self._next_to_end += 1
        return (*last, BlockDone(part.block, self._content(part)))

    def end_all(self) -> list[ModelEvent]:
        """End the blocks still open, in order."""
        return [event for part in self.parts[self._next_to_end :] for event in self.end(part)]

    def go_on(self, kind: Literal["text", "thinking"], text: str) -> Iterator[ModelEvent]:
        """Grow the last block if it is open and of this kind; else end it and begin another."""
        last = self.parts[-1] if self.parts else None
        if last is None or last.done or last.kind != kind:
            yield from self.end_all()
            last = self.begin(kind)
        yield self.grow(last, text)

    def call(
        self, call_id: str | None, name: str, arguments: dict[str, Any] | None
    ) -> Iterator[ModelEvent]:
        """A whole call, after the end of the block before it."""
        yield from self.end_all()
        part = self.begin_call(call_id or "", name)
        yield self.grow(part, msgspec.json.encode(arguments or {}).decode())
        yield from self.end(part)

    def has_calls(self) -> bool:
        return any(part.kind == "call" for part in self.parts)

    def count_block(self) -> None:
        """Count a block; one of unknown type is counted, too, but not kept."""
        self._blocks += 1
        if self._blocks > MAX_BLOCKS:
            raise broken(self.provider, f"the answer has more than {MAX_BLOCKS} blocks")

    def _begin(self, part: Part) -> Part:
        self.count_block()
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
    if arguments.strip() in ("", "null"):  # two spellings of a call without arguments
        return ToolCall(call_id, name, {})
    try:
        value: object = msgspec.json.decode(arguments)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = decode_lone(arguments.encode())
    if isinstance(value, dict) and not is_too_deep(cast("dict[str, Any]", value)):
        return ToolCall(call_id, name, cast("dict[str, Any]", value))
    return ToolCall(call_id, name, {}, raw=arguments)


def _cut(text: str) -> tuple[str, str]:
    """The text with surrogates joined, and a first half at its end, which the next may complete."""
    high = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
    return paired(text.removesuffix(high)) if high else paired(text), high


Tokens = Any
"""A token count as a provider wrote it. Not checked while decoding: an answer that was paid for is
not given up because of its bill.
"""


def count(tokens: Tokens) -> int:
    """Clamp a provider's token count to the range of the ledger; what is no number counts as 0."""
    if type(tokens) is int:
        return min(max(tokens, 0), _MOST_TOKENS)
    return round(min(max(tokens, 0.0), _MOST_TOKENS)) if type(tokens) is float else 0
