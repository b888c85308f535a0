"""The outcomes of a run: one closed set, and one table from which every ending is read.

Exit code, result subtype, terminal fact and failure code are columns here and are written nowhere
else, so they cannot disagree. Only a model's failure, a prompt that is too long and a session
that failed may have a narrower code beside their outcome.
"""

from typing import TYPE_CHECKING, Literal, get_args

from msgspec import UNSET, Struct

from batten.contract.errors import (
    BattenError,
    CallerError,
    Conflict,
    JournalError,
    NoCredentials,
    NotFound,
)

if TYPE_CHECKING:
    from batten.contract.facts.run import RunCancelled, RunFailed, RunFinished

Outcome = Literal[
    "completed",
    "cancelled",
    "max_turns",
    "budget",
    "timeout",
    "denied",
    "model_error",
    "tool_error",
    "refused",
    "filtered",
    "schema_invalid",
    "loop",
    "context_overflow",
    "hook_denied",
    "usage",
    "no_input",
    "config",
    "invalid",
    "conflict",
    "unavailable",
    "store",
    "interrupted",
    "internal",
]

TerminalType = Literal["run.finished", "run.failed", "run.cancelled"]
Subtype = Literal["success", "error", "max_turns", "budget_exceeded", "cancelled"]
RunStatus = Literal["queued", "running", "awaiting_approval", "completed", "failed", "cancelled"]


class Ending(Struct, frozen=True):
    """One row: an outcome in the terms of every surface."""

    terminal: TerminalType
    code: str
    """`run.failed.code`, unless the failure has a narrower one."""
    subtype: Subtype
    exit_code: int
    retriable: bool = False


ENDINGS: dict[Outcome, Ending] = {
    "completed": Ending("run.finished", "completed", "success", 0),
    "cancelled": Ending("run.cancelled", "cancelled", "cancelled", 124),
    "interrupted": Ending("run.cancelled", "interrupted", "cancelled", 130),
    "max_turns": Ending("run.failed", "max_turns_exceeded", "max_turns", 75),
    "budget": Ending("run.failed", "budget_exceeded", "budget_exceeded", 137),
    "timeout": Ending("run.failed", "timeout", "error", 1, retriable=True),
    "model_error": Ending("run.failed", "model_unreachable", "error", 1, retriable=True),
    "context_overflow": Ending("run.failed", "context_overflow", "error", 1),
    "hook_denied": Ending("run.failed", "hook_denied", "error", 1),
    "store": Ending("run.failed", "store_failed", "error", 1, retriable=True),
    "invalid": Ending("run.failed", "invalid_request", "error", 1),
    "conflict": Ending("run.failed", "conflict", "error", 1, retriable=True),
    "unavailable": Ending("run.failed", "unavailable", "error", 1, retriable=True),
    "internal": Ending("run.failed", "internal_error", "error", 1),
    "denied": Ending("run.failed", "permission_denied", "error", 2),
    "tool_error": Ending("run.failed", "tool_failed", "error", 2),
    "refused": Ending("run.failed", "model_refused", "error", 2),
    "filtered": Ending("run.failed", "content_filtered", "error", 2),
    "schema_invalid": Ending("run.failed", "schema_invalid", "error", 2),
    "loop": Ending("run.failed", "loop_detected", "error", 2),
    "usage": Ending("run.failed", "usage", "error", 64),
    "no_input": Ending("run.failed", "no_input", "error", 66),
    "config": Ending("run.failed", "config", "error", 78),
}

assert set(ENDINGS) == set(get_args(Outcome))


def exit_code(outcome: Outcome) -> int:
    return ENDINGS[outcome].exit_code


def outcome_of_error(error: BattenError) -> Outcome:
    """The outcome of an invocation that failed outside a run.

    Only a bug is `internal`: whoever catches one wraps it in a plain `BattenError`.
    """
    match error:
        case CallerError(code="usage"):
            return "usage"
        case NotFound():
            return "no_input"
        case NoCredentials():
            return "model_error"
        case CallerError(code="config"):
            return "config"
        case Conflict():
            return "conflict"
        case CallerError():
            return "invalid"
        case JournalError():
            return "store"
        case _:
            return "internal" if type(error) is BattenError else "unavailable"


def outcome_of_code(code: str) -> Outcome:
    """The outcome with this failure code; `internal` for an unknown code."""
    for outcome, ending in ENDINGS.items():
        if ending.code == code:
            return outcome
    return "internal"


class RunEnd(Struct, frozen=True):
    """How one run ended, as its terminal fact says."""

    outcome: Outcome
    message: str = ""
    """Why, for people; empty for a run that completed."""
    code: str = ""
    retriable: bool = False
    by: str = ""
    """The one who cancelled it."""


def ending_of(fact: "RunFinished | RunFailed | RunCancelled") -> RunEnd:
    """The ending of a run, read from its terminal fact."""
    # Imported here: facts are declared with the outcomes of this module.
    from batten.contract.facts.run import RunCancelled, RunFinished

    if isinstance(fact, RunFinished):
        return RunEnd("completed")
    if isinstance(fact, RunCancelled):
        outcome: Outcome = "cancelled" if fact.outcome is UNSET else fact.outcome
        return RunEnd(outcome, fact.reason, ENDINGS[outcome].code, by=fact.by)
    outcome = outcome_of_code(fact.code) if fact.outcome is UNSET else fact.outcome
    return RunEnd(outcome, fact.message, fact.code, fact.retriable)
