"""The seam between the agent and any model.

A model turns a `ModelRequest` into a stream of `ModelEvent`s. A successful stream ends in exactly
one `Done`. One that stalls, breaks or violates its protocol raises `ProviderError`; it never ends
silently. Closing the iterator ends the call.
"""

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from batten.contract.conversation import Message, Text, Thinking, ToolCall
from batten.contract.facts.assistant import StopReason, Usage

if TYPE_CHECKING:
    from batten.models.pricing import Price


class ToolSpec(Struct, frozen=True):
    """A tool as described to the model."""

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
    """Limit of thinking tokens; 0 requests no thinking."""
    output_schema: dict[str, Any] | None = None
    """JSON Schema of the final answer, for models that enforce one natively."""
    report: Callable[[Usage], None] | None = None
    """Called with the usage reported so far if the call ends without `Done`."""


class TextDelta(Struct, frozen=True, tag="text_delta"):
    block: int
    text: str


class ThinkingDelta(Struct, frozen=True, tag="thinking_delta"):
    block: int
    text: str


class ToolCallDelta(Struct, frozen=True, tag="tool_call_delta"):
    """A piece of a tool call's JSON, to show progress; `BlockDone` has the whole call."""

    block: int
    call_id: str
    name: str
    fragment: str


class BlockDone(Struct, frozen=True, tag="block_done"):
    """A block is complete. Blocks end in the order they have in the message."""

    block: int
    content: Text | Thinking | ToolCall


WINDOW_FULL = "model_context_window_exceeded"
"""The note of an answer cut off where the context window ended, before its own limit."""


class Done(Struct, frozen=True, tag="done"):
    """The message is complete."""

    stop_reason: StopReason
    usage: Usage
    message_id: str = ""
    model: str = ""
    """The model that answered, if the provider names it."""
    note: str = ""
    """The provider's explanation of a refusal or a filter; or `WINDOW_FULL`."""
    upstream: str = ""
    """The provider that answered, if a gateway names it."""


ModelEvent = TextDelta | ThinkingDelta | ToolCallDelta | BlockDone | Done


class Model(Protocol):
    @property
    def provider(self) -> str: ...

    @property
    def name(self) -> str: ...

    @property
    def native_schema(self) -> bool:
        """Whether the provider enforces `output_schema`."""
        ...

    @property
    def context_tokens(self) -> int:
        """Limit of tokens for a request and its answer together."""
        ...

    @property
    def price(self) -> "Price | None":
        """The price of its tokens; None if no price file lists it."""
        ...

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]: ...

    async def aclose(self) -> None:
        """Close kept connections."""
        ...
