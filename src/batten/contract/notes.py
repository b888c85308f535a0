"""What is said once and not kept: pieces of a model's answer, for surfaces that asked for them."""

from msgspec import Struct


class Note(Struct, frozen=True, kw_only=True):
    """A piece of an answer, to be shown after the facts it followed."""

    turn_index: int
    after: int
    """How many `assistant.*` facts of its turn were recorded before it."""
    block_index: int
    text: str


class ThinkingPiece(Note, frozen=True):
    """A piece of a model's reasoning, without secrets."""


class ToolInputPiece(Note, frozen=True):
    """A piece of the JSON of a tool call that is not whole yet, without secrets."""

    tool_call_id: str
    tool_name: str
