"""Classifies errors: by the outcome of a run, or else by their text."""

from msgspec import UNSET

from batten.contract.outcomes import Outcome
from batten.protocols.maestro.outgoing import Error
from batten.protocols.maestro.vocabulary import ErrorType

_WORDS: tuple[tuple[ErrorType, tuple[str, ...]], ...] = (
    ("cancelled", ("abort", "interrupted", "cancel")),
    ("transient", ("rate limit", "overloaded", "timeout", "temporar")),
    ("tool", ("tool", "permission", "approval")),
    ("protocol", ("parse", "json", "protocol")),
)
"""The first row with a matching word decides."""

_OF_TOOLS: frozenset[Outcome] = frozenset({"tool_error", "denied", "hook_denied"})
_OF_CLIENTS: frozenset[Outcome] = frozenset({"cancelled", "interrupted"})


def classify(message: str, *, fatal: bool = False) -> ErrorType:
    """The class of an error known only by its text."""
    text = message.lower()
    for kind, words in _WORDS:
        if any(word in text for word in words):
            return kind
    return "fatal" if fatal else "tool"


def class_of(outcome: Outcome, *, retriable: bool) -> ErrorType:
    """The class of a run's ending. `fatal` here: a retry gives the same result."""
    if outcome in _OF_CLIENTS:
        return "cancelled"
    if retriable:
        return "transient"
    return "tool" if outcome in _OF_TOOLS else "fatal"


def said(message: str) -> Error:
    """An error the session survives."""
    return Error(message=message, fatal=False, error_type=classify(message))


def of_tool(message: str, request_id: str | None = None) -> Error:
    """An error of a utility, with its id, or of a file; its text does not affect the class."""
    about = UNSET if request_id is None else request_id
    return Error(request_id=about, message=message, fatal=False, error_type="tool")


def broken(message: str) -> Error:
    """The other side broke the protocol; the session survives."""
    return Error(message=message, fatal=False, error_type="protocol")


def not_started(message: str) -> Error:
    """The session failed to start."""
    text = f"Headless startup failed: {message}"
    return Error(message=text, fatal=True, error_type="fatal")
