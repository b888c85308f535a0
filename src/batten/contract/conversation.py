"""The model's side of a conversation, input and output: messages made of blocks."""

from typing import Any, Literal

from msgspec import Struct


class Text(Struct, frozen=True, tag="text"):
    text: str


class Thinking(Struct, frozen=True, tag="thinking"):
    """A model's reasoning. `opaque` returns to the same provider unchanged."""

    text: str
    provider: str
    opaque: str = ""
    """The provider's signature or encrypted form, if any."""


class ToolCall(Struct, frozen=True, tag="tool_call"):
    """A tool call by the model. `raw` replaces `input` if its JSON was unreadable."""

    id: str
    name: str
    input: dict[str, Any]
    raw: str | None = None


_PICTURES = {b"\x89PNG": "image/png", b"\xff\xd8": "image/jpeg", b"GIF8": "image/gif"}


class Image(Struct, frozen=True, tag="image"):
    mime: str
    data: bytes

    @property
    def true_mime(self) -> str | None:
        """The type that the first bytes show; None if they are no picture for a model."""
        if self.data[:4] == b"RIFF" and self.data[8:12] == b"WEBP":
            return "image/webp"
        found = (mime for start, mime in _PICTURES.items() if self.data.startswith(start))
        return next(found, None)


class File(Struct, frozen=True):
    """A file attached to a prompt. The model sees it in the prompt's text; this is its record."""

    name: str
    mime: str
    data: bytes


class ToolResult(Struct, frozen=True, tag="tool_result"):
    """The result of one call, as the model sees it."""

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
        return "".join(block.text for block in self.blocks if isinstance(block, Text))

    def tool_calls(self) -> tuple[ToolCall, ...]:
        return tuple(block for block in self.blocks if isinstance(block, ToolCall))
