"""Suspends and resumes the sessions of runs."""

import asyncio
from contextlib import aclosing
from typing import Literal

from msgspec import UNSET

from batten.contract.errors import CallerError, Conflict, NotReady
from batten.contract.facts import (
    TERMINAL,
    MacpFrameObserved,
    MacpSessionChanged,
    MacpSuspensionRequested,
)
from batten.control.coordination.waiting import find_descriptor
from batten.control.described.runtimes import PATIENCE_S, RuntimeClient, timed_out
from batten.journal.contract import Journal, RunRow
from batten.journal.workers import is_gone

Wanted = Literal["suspended", "running"]
_STATES: dict[Wanted, Literal["SUSPENDED", "OPEN"]] = {"suspended": "SUSPENDED", "running": "OPEN"}
_FROM: dict[Wanted, str] = {"suspended": "running", "running": "suspended"}
_DONE: dict[Wanted, str] = {"suspended": "suspended", "running": "resumed"}
_CHANGES = frozenset({MacpSessionChanged.TYPE, MacpFrameObserved.TYPE, *TERMINAL})


async def change(
    journal: Journal,
    runtime: RuntimeClient | None,
    row: RunRow,
    status: str,
    wanted: Wanted,
    *,
    by: str,
    reason: str,
    patience_s: float = PATIENCE_S,
) -> None:
    """Bring the session of a run with this status into another. Waits until it has changed.

    Raises `Conflict` for a run that cannot have that status now, `NotReady` without a runtime or
    if it does not answer in time; it may do it later then.
    """
    if row.kind != "coordination":
        raise CallerError(
            "the run of an agent cannot be suspended: cancel it, and resume its task later",
            code="VALIDATION_ERROR",
        )
    if status == wanted:
        return
    if status != _FROM[wanted]:
        raise refused_transition(status, wanted)
    described = await find_descriptor(journal, row.run_id)
    is_elsewhere = described is not None and described.elsewhere is not UNSET
    if not is_elsewhere and (not row.worker_id or is_gone(row)):
        raise NotReady("no runtime works on the session", code="RUNTIME_UNAVAILABLE")
    following = journal.follow(row.run_id, after=row.next_sequence - 1, types=_CHANGES)
    try:
        async with asyncio.timeout(patience_s), aclosing(following) as pages:
            if is_elsewhere and described is not None:
                if runtime is None:
                    raise NotReady("no connection to the runtime", code="RUNTIME_UNAVAILABLE")
                ask = runtime.suspend if wanted == "suspended" else runtime.resume
                await ask(described.session_id, reason)
            else:
                asked = MacpSuspensionRequested(state=_STATES[wanted], by=by, reason=reason)
                await journal.append(row.run_id, [asked], fence=None)
            await anext(pages, None)
    except TimeoutError as error:
        raise timed_out(f"the session may still be {_DONE[wanted]}") from error


def refused_transition(status: str, wanted: str) -> Conflict:
    return Conflict(
        f"cannot transition run from '{status}' to '{wanted}'", code="INVALID_STATE_TRANSITION"
    )
