"""Runs that a client described and that wait for their session to open."""

from msgspec import UNSET

from batten.contract.envelope import decode_fact
from batten.contract.facts import MacpRunDescribed
from batten.control.coordination.records import Keeping
from batten.control.coordination.store import find_run
from batten.coordination.engine import already_exists
from batten.coordination.rejection import Rejection
from batten.journal.contract import Journal, RunRow

_FIRST_FACTS = 8
"""The descriptor is among so many facts of its run."""


async def waiting_run(keeping: Keeping, session_id: str) -> RunRow | None:
    """The run that a SessionStart claims; None if no client described one.

    Raises `Rejection` if the run of this session has ended, or is not for this runtime.
    """
    row = await find_run(keeping.journal, session_id)
    if row is None:
        return None
    if row.base_sequence:
        raise already_exists(session_id)
    if row.ended_at is not None:
        raise Rejection(
            "SESSION_NOT_OPEN",
            f"run {row.run_id} waited for session {session_id} and is {row.status}: create another",
        )
    described = await find_descriptor(keeping.journal, row.run_id)
    if described is None or row.status != "queued":
        raise already_exists(session_id)
    if described.elsewhere is not UNSET:
        raise Rejection(
            "SESSION_ALREADY_EXISTS",
            f"run {row.run_id} observes session {session_id} on a runtime elsewhere",
        )
    return row


async def find_descriptor(journal: Journal, run_id: str) -> MacpRunDescribed | None:
    """What a client asked for with `POST /runs`, as it is stored; None for other runs."""
    for stored in await journal.read(run_id, limit=_FIRST_FACTS):
        if stored.type == MacpRunDescribed.TYPE:
            fact = decode_fact(stored.body)
            assert isinstance(fact, MacpRunDescribed)
            return fact
    return None
