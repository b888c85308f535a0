"""What a model is shown and what it answers: messages made of blocks."""

from typing import Any, Literal

from msgspec import Struct


class Text(Struct, frozen=True, tag="text"):
    text: str


class Thinking(Struct, frozen=True, tag="thinking"):
    """A model's reasoning. `opaque` goes back to the same provider as it came."""

    text: str
    provider: str
    opaque: str = ""
    """The provider's signature or encrypted form; empty if it gave none."""


class ToolCall(Struct, frozen=True, tag="tool_call"):
    """A tool the model asks for. `raw` is set instead of `input` if its JSON was unreadable."""

    id: str
    name: str
    input: dict[str, Any]
    raw: str | None = None


class Image(Struct, frozen=True, tag="image"):
    mime: str
    data: bytes


class ToolResult(Struct, frozen=True, tag="tool_result"):
    """What the model is told of one call."""

    call_id: str
    name: str
    output: str
    is_error: bool = False
    images: tuple[Image, ...] = ()


Block = Text | Thinking | ToolCall | Image | ToolResult


class Message(Struct, frozen=True):
    role: Literal["user", "assistant"]
    blocks: tuple[Block, ...]

    def text(self) -> str:
        """The message's text blocks, joined."""
        return "".join(block.text for block in self.blocks if isinstance(block, Text))

    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(block for block in self.blocks if isinstance(block, ToolCall))
