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
from batten.control.described.runtimes import RuntimeClient
from batten.journal.contract import Journal, RunRow
from batten.journal.workers import is_gone

Wanted = Literal["suspended", "running"]
_STATES: dict[Wanted, Literal["SUSPENDED", "OPEN"]] = {"suspended": "SUSPENDED", "running": "OPEN"}
_FROM: dict[Wanted, str] = {"suspended": "running", "running": "suspended"}
_CHANGES = frozenset({MacpSessionChanged.TYPE, MacpFrameObserved.TYPE, *TERMINAL})
_PATIENCE_S = 5.0


async def change(
    journal: Journal,
    runtime: RuntimeClient | None,
    row: RunRow,
    status: str,
    wanted: Wanted,
    *,
    by: str,
    reason: str,
) -> None:
    """Bring the session of a run with this status into another. Waits until it has changed.

    Raises `Conflict` for a run that cannot have that status now, `NotReady` without a runtime.
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
    async with asyncio.timeout(_PATIENCE_S), aclosing(following) as pages:
        if is_elsewhere and described is not None:
            if runtime is None:
                raise NotReady("no connection to the runtime", code="RUNTIME_UNAVAILABLE")
            ask = runtime.suspend if wanted == "suspended" else runtime.resume
            await ask(described.session_id, reason)
        else:
            asked = MacpSuspensionRequested(state=_STATES[wanted], by=by, reason=reason)
            await journal.append(row.run_id, [asked], fence=None)
        await anext(pages, None)


def refused_transition(status: str, wanted: str) -> Conflict:
    return Conflict(
        f"cannot transition run from '{status}' to '{wanted}'", code="INVALID_STATE_TRANSITION"
    )
