"""`assistant.*`: the output of the model."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from batten.contract.facts.base import Fact

StopReason = Literal[
    "end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "filtered", "aborted", "other"
]


class AssistantTextDelta(Fact, frozen=True):
    TYPE = "assistant.text_delta"
    turn_index: int
    block_index: int
    delta: str


class AssistantTextComplete(Fact, frozen=True):
    """The whole text of a block: the concatenation of its deltas."""

    TYPE = "assistant.text_complete"
    turn_index: int
    block_index: int
    text: str
    artifact_id: str | UnsetType = UNSET
    """The whole text, if it is too large for an event; `text` is then its beginning."""
    sealed_artifact_id: str | UnsetType = UNSET
    """The text unchanged and encrypted; present if a secret in it was replaced."""


class AssistantThinkingDelta(Fact, frozen=True):
    """Journaled only if configured; otherwise thinking is a note."""

    TYPE = "assistant.thinking_delta"
    turn_index: int
    block_index: int
    delta: str


class AssistantThinkingComplete(Fact, frozen=True):
    TYPE = "assistant.thinking_complete"
    turn_index: int
    block_index: int
    text: str


class AssistantToolCallProposed(Fact, frozen=True):
    """The model proposed a tool call. It is not yet decided and has not run."""

    TYPE = "assistant.tool_call_proposed"
    ALWAYS = ("block_index",)
    turn_index: int
    tool_call_id: str
    tool_name: str
    input: dict[str, Any]
    block_index: int | UnsetType = UNSET
    redacted_paths: list[str] | UnsetType = UNSET
    """Paths in `input` at which a secret was replaced."""
    sealed_artifact_id: str | UnsetType = UNSET
    """The model's input unchanged and encrypted; present if redaction or size altered `input`."""
    unreadable: bool | UnsetType = UNSET
    """The model's arguments are not a JSON object; `input` holds their text as `raw`."""


class MessageBlock(Struct, frozen=True):
    """One block of an assistant message, in order, and the place of its content."""

    kind: Literal["text", "thinking", "tool_call"]
    block_index: int
    tool_call_id: str | UnsetType = UNSET
    sealed_artifact_id: str | UnsetType = UNSET
    """A thinking block with its signature, encrypted, for the next call to this model."""


class Usage(Struct, frozen=True):
    """Tokens of one model call. `input_tokens` includes those read from or written to a cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


def added(one: Usage, other: Usage) -> Usage:
    """The tokens of two calls together."""
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cache_read_tokens + other.cache_read_tokens,
        one.cache_write_tokens + other.cache_write_tokens,
        one.reasoning_tokens + other.reasoning_tokens,
    )


class AssistantMessageComplete(Fact, frozen=True):
    """A model call produced a whole message; its tools begin after this. It is the ledger's row."""

    TYPE = "assistant.message_complete"
    turn_index: int
    model: str
    provider: str
    blocks: list[MessageBlock]
    usage: Usage
    stop_reason: StopReason
    cost_micros_usd: int | None
    """None: the price of this model is unknown. Never silently zero."""
    price_as_of: str | None
    duration_ms: int
    time_to_first_token_ms: int | None
    message_id: str | UnsetType = UNSET
    """The provider's id of the message."""
    answered_by: str | UnsetType = UNSET
    """The model that answered, if the provider names another than the requested one."""
    upstream: str | UnsetType = UNSET
    """The vendor behind a provider that routes calls, if it names one."""


class AssistantRetracted(Fact, frozen=True):
    """The model's stream broke off, or its worker was lost or stopped, and the call is made again:
    the turn's texts, thinking and tool calls so far are void. None of the calls was decided on or
    run."""

    TYPE = "assistant.retracted"
    turn_index: int
    reason: str
    tool_call_ids: list[str]
    """Ids of the proposed calls that are void."""


class AssistantFinalAnswer(Fact, frozen=True):
    """The model has finished: no more tool calls."""

    TYPE = "assistant.final_answer"
    turn_index: int
    summary: str
    structured_output: Any = UNSET
    """The validated object for the requested schema."""
    sealed_artifact_id: str | UnsetType = UNSET
    """That object unchanged and encrypted; present if a secret in it was replaced."""
