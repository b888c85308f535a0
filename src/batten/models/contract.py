"""The seam between the agent and any model.

A model turns a `ModelRequest` into a stream of `ModelEvent`s. A stream that ends well
ends in exactly one `Done`. One that stalls, breaks or lies raises `ProviderError`;
it never ends silently. Closing the iterator ends the call.
"""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from batten.contract.conversation import Message, Text, Thinking, ToolCall
from batten.contract.facts.assistant import StopReason, Usage

if TYPE_CHECKING:
    from batten.models.pricing import Price


class ToolSpec(Struct, frozen=True):
    """A tool as the model is told of it."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON Schema of the arguments: an object."""


class ModelRequest(Struct, frozen=True, kw_only=True):
    model: str
    """The provider's own name of the model, without the provider."""
    system: str = ""
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int = 8192
    temperature: float | None = None
    thinking_tokens: int = 0
    """How many tokens the model may think; 0 does not ask for thinking."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the final answer, for models that hold to one natively."""


class TextDelta(Struct, frozen=True, tag="text_delta"):
    block: int
    text: str


class ThinkingDelta(Struct, frozen=True, tag="thinking_delta"):
    block: int
    text: str


class ToolCallDelta(Struct, frozen=True, tag="tool_call_delta"):
    """A piece of a tool call's JSON, for whoever shows progress; the call comes whole later."""

    block: int
    call_id: str
    name: str
    fragment: str


class BlockDone(Struct, frozen=True, tag="block_done"):
    """A block is whole. Blocks end in the order they have in the message."""

    block: int
    content: Text | Thinking | ToolCall


class Done(Struct, frozen=True, tag="done"):
    """The message is whole."""

    stop_reason: StopReason
    usage: Usage
    message_id: str = ""
    model: str = ""
    """The model that answered, if the provider names it."""
    note: str = ""
    """The provider's words for a refusal or a filter."""
    upstream: str = ""
    """Who answered, if the provider passes calls on and says to whom."""


ModelEvent = TextDelta | ThinkingDelta | ToolCallDelta | BlockDone | Done


class Model(Protocol):
    """One model of one provider."""

    @property
    def provider(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def native_schema(self) -> bool:
        """Whether `output_schema` is held to by the provider."""
        ...

    @property
    def context_tokens(self) -> int:
        """How many tokens a request and its answer may have together."""
        ...

    @property
    def price(self) -> "Price | None":
        """The price of its tokens; None if no price file lists it."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]: ...

    async def aclose(self) -> None:
        """Close kept connections."""
        ...
