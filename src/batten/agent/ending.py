"""The facts that end a run, and the fact that ends a call with an unknown outcome."""

from typing import Any

from msgspec import UNSET, UnsetType

from batten.agent.conversation import OUTCOME_UNKNOWN
from batten.agent.progress import Progress
from batten.contract import facts
from batten.contract.outcomes import ENDINGS, Outcome

_LONGEST_MESSAGE = 8000
_MOST_BACKGROUND = 20


def terminal_fact(
    outcome: Outcome,
    message: str,
    progress: Progress,
    duration_ms: int,
    traceback: str = "",
    by: str = "runtime",
    code: str = "",
    retriable: bool = False,
) -> facts.Fact:
    """The one fact that ends a run, read from the table of endings.

    `code`, if given, replaces the table's code, and `retriable` the table's.
    """
    ending = ENDINGS[outcome]
    unknown = True if progress.cost_unknown else UNSET
    totals: dict[str, Any] = {
        "turns": progress.turns,
        "cost_micros_usd": progress.cost_micros_usd,
        "cost_unknown": unknown,
        "duration_ms": duration_ms,
    }
    if ending.terminal == "run.finished":
        return facts.RunFinished(
            final_status="completed", background=_listed(progress.left_running), **totals
        )
    message = message[:_LONGEST_MESSAGE]
    if ending.terminal == "run.cancelled":
        return facts.RunCancelled(by=by, reason=message, outcome=outcome, **totals)
    return facts.RunFailed(
        code=code or ending.code,
        message=message,
        retriable=retriable if code else ending.retriable,
        outcome=outcome,
        traceback=traceback[-_LONGEST_MESSAGE:] or UNSET,
        **totals,
    )


def unknown_outcome(call: facts.ToolInvoked) -> facts.ToolFailed:
    """The ending of a call whose effect began and whose worker is gone. It is never run again."""
    return facts.ToolFailed(
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        kind=call.kind,
        duration_ms=0,
        summary="outcome unknown",
        output=OUTCOME_UNKNOWN,
        error="the process that ran this call is gone",
        error_kind="outcome_unknown",
    )


def _listed(left_running: list[str]) -> list[str] | UnsetType:
    """The first commands and the number of the others: an ending must always fit."""
    shown = [line[:200] for line in left_running[:_MOST_BACKGROUND]]
    more = len(left_running) - len(shown)
    return [*shown, f"… and {more} more"] if more else shown or UNSET
