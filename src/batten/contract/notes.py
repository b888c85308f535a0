"""Pieces of a model's answer while it streams, for surfaces that subscribe. They are not stored."""

from msgspec import Struct


class Note(Struct, frozen=True, kw_only=True):
    """A piece of an answer, shown after the facts that it followed."""

    turn_index: int
    after: int
    """The number of `assistant.*` facts of its turn recorded before it."""
    block_index: int
    text: str
    attempt: int = 0
    """How often the turn's answer was taken back before it."""


class ThinkingPiece(Note, frozen=True):
    """A piece of a model's reasoning, without secrets."""


class ToolInputPiece(Note, frozen=True):
    """A piece of the JSON of an unfinished tool call, without secrets."""

    tool_call_id: str
    tool_name: str
