"""The facts that a run accepts: the same for every store."""

from batten.contract.errors import CallerError, Conflict
from batten.contract.facts import FACTS, TERMINAL, Fact, RunCancelRequested, Unknown, is_guest
from batten.contract.facts.gap import GapRunDisconnected
from batten.contract.facts.tool import ToolInvoked
from batten.journal.rows import RunFold

_GAPS = frozenset({GapRunDisconnected.TYPE})
"""Marks of missing history: accepted after a terminal fact, like facts of guests."""


def admit(run: RunFold, fact: Fact, type_: str, *, guest: bool) -> None:
    """Raise if the run does not accept this fact now."""
    if guest and not is_guest(type_):
        raise CallerError(
            f"{type_} needs the run's fence; without one only guest facts are taken",
            code="fence_required",
        )
    if run.ended_at is not None and not _follows_an_end(type_):
        again = "a second ending" if type_ in TERMINAL else type_
        raise Conflict(
            f"the run ended at {run.ended_at} ({run.outcome}) and takes no {again}",
            code="run_ended",
        )
    if run.cancel_requested and type_ == ToolInvoked.TYPE:
        raise Conflict("a cancel was requested: no effect begins any more", code="cancel_requested")
    if type(fact) is Unknown and (type_ in FACTS or not type_):
        raise CallerError(f"{type_!r} is a known type: append it as {FACTS.get(type_, Fact)!r}")


def _follows_an_end(type_: str) -> bool:
    """Whether an ended run accepts it: what guests say, except that it shall end."""
    return type_ in _GAPS or (is_guest(type_) and type_ != RunCancelRequested.TYPE)
