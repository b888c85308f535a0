"""Reads coordination sessions from the journal: the whole session, or its messages as they come."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from msgspec import Struct

from batten.contract import facts
from batten.contract.envelope import decode, decode_fact
from batten.contract.errors import StoreDamaged
from batten.control.coordination.ids import journal_session
from batten.control.coordination.records import (
    Keeping,
    mode_of,
    policy_from,
    read_accepted,
    read_event,
    told_change,
    told_judgements,
)
from batten.coordination.engine import Accepted, Engine, Event, rebuild
from batten.journal.contract import Journal, RunRow, Stored

_FRAMES = frozenset({facts.MacpMessageAccepted.TYPE, facts.MacpSessionChanged.TYPE})
_JUDGEMENTS = frozenset({facts.MacpSessionBound.TYPE, facts.MacpCommitmentEvaluated.TYPE})
_PAGE = 256
_FEW = 16


class StoredSession(Struct, frozen=True):
    """A session as its facts tell it."""

    engine: Engine
    run_id: str
    fixed: facts.MacpSessionBound
    first: Accepted
    events: list[Event]
    """Those after the first."""
    first_sequence: int
    """The place of SessionStart in the run."""
    noted: list[tuple[str, str]]
    """Senders and ids of its signals and progress."""


async def find_run(journal: Journal, session_id: str) -> RunRow | None:
    """The run of a session; None if the journal has none."""
    row = await journal.session(journal_session(session_id))
    if row is None or row.last_run_id is None:
        return None
    return await journal.run(row.last_run_id)


async def load(keeping: Keeping, run_id: str) -> StoredSession | None:
    """Fold the facts of a run; None if no session was opened in it. Raises `StoreDamaged`."""
    fixed: facts.MacpSessionBound | None = None
    first: Accepted | None = None
    first_sequence = 0
    events: list[Event] = []
    noted: list[tuple[str, str]] = []
    after = -1
    while page := await keeping.journal.read(run_id, after=after, limit=_PAGE):
        after = page[-1].sequence
        for stored in page:
            if not stored.type.startswith("macp."):
                continue
            fact = decode_fact(stored.body)
            if isinstance(fact, facts.MacpSessionBound):
                fixed = fact
                continue
            if isinstance(fact, facts.MacpFrameObserved) and fact.kind == "envelope":
                noted.append((fact.sender or "", fact.message_id or ""))
            if not isinstance(fact, facts.MacpMessageAccepted | facts.MacpSessionChanged):
                continue
            if fixed is None:
                raise StoreDamaged(f"run {run_id} has messages before it was bound to a session")
            event = await read_event(fact, fixed, keeping)
            if first is None and isinstance(event, Accepted):
                first, first_sequence = event, stored.sequence
            elif event is not None:
                events.append(event)
    if fixed is None:
        return None
    if first is None:
        raise StoreDamaged(f"run {run_id} has a session without a message")
    engine = rebuild(first, mode_of(fixed), policy_from(fixed.policy), events)
    return StoredSession(engine, run_id, fixed, first, events, first_sequence, noted)


async def follow(
    keeping: Keeping,
    run_id: str,
    *,
    after_ordinal: int = 0,
    with_judgements: bool = False,
    with_suspensions: bool = False,
) -> AsyncGenerator[list[Accepted], None]:
    """Accepted messages with a greater ordinal, then each new one once it is durable.

    A cancelled session ends with a SessionCancel, in the place after its last message. No gap, no
    repeat, at the reader's pace: the journal is the buffer. Never ends by itself. With judgements
    come also what the policy said, with suspensions what was suspended and resumed, between the
    messages where it happened.
    """
    fixed, first_sequence = await _fixed(keeping, run_id)
    # Other facts may lie between messages, never fewer places than ordinals. The message at
    # `after_ordinal`, if there is one, is read too: it tells the place of a cancellation.
    after = first_sequence + after_ordinal - 2 if after_ordinal else -1
    types = _FRAMES | _JUDGEMENTS if with_judgements else _FRAMES
    pages = keeping.journal.follow(run_id, after=after, types=types)
    last = 0
    async with aclosing(pages):
        async for page in pages:
            new: list[Accepted] = []
            for stored in page:
                if stored.type in _JUDGEMENTS:
                    if last >= after_ordinal:
                        new += told_judgements(decode(stored.body), fixed, last)
                    continue
                accepted = await _frame(stored, fixed, keeping, last)
                if accepted is None:
                    continue
                is_beside = accepted.ordinal == last
                last = accepted.ordinal
                if is_beside:
                    if with_suspensions and last >= after_ordinal:
                        new.append(accepted)
                elif last > after_ordinal:
                    new.append(accepted)
            if new:
                yield new


async def _frame(
    stored: Stored, fixed: facts.MacpSessionBound, keeping: Keeping, last: int
) -> Accepted | None:
    """What a stream sends for a fact; `last` is the ordinal of the message before it."""
    match decode_fact(stored.body):
        case facts.MacpMessageAccepted() as accepted:
            return await read_accepted(accepted, fixed, keeping)
        case facts.MacpSessionChanged() as changed:
            return told_change(changed, fixed, stored.sequence, last)
        case _:
            raise StoreDamaged(f"fact {stored.sequence} of run {stored.run_id} is no message")


async def _fixed(keeping: Keeping, run_id: str) -> tuple[facts.MacpSessionBound, int]:
    journal = keeping.journal
    bound = await first_of(journal, run_id, facts.MacpSessionBound.TYPE)
    if bound is not None:
        fixed = decode_fact(bound.body)
        assert isinstance(fixed, facts.MacpSessionBound)
        message = facts.MacpMessageAccepted.TYPE
        first = await first_of(journal, run_id, message, after=bound.sequence)
        if first is not None:
            return fixed, first.sequence
    raise StoreDamaged(f"run {run_id} is no coordination session")


async def first_of(journal: Journal, run_id: str, type_: str, *, after: int = -1) -> Stored | None:
    """The first fact of a type in a run; None if it has none.

    It is among the first facts, unless others gave something to a run that waited for its session.
    """
    limit = _FEW
    while page := await journal.read(run_id, after=after, limit=limit):
        for stored in page:
            if stored.type == type_:
                return stored
        after, limit = page[-1].sequence, _PAGE
    return None
