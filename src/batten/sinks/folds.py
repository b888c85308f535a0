"""The folds of the runs that a sink reads now. One that was dropped is folded again from facts."""

import asyncio
import logging
from typing import Protocol, cast, runtime_checkable

from msgspec.structs import replace

from batten.contract.envelope import decode
from batten.contract.errors import PeerError
from batten.contract.facts import RunQueued
from batten.journal.contract import Stored
from batten.sinks.contract import Feed, Fold, Message, Sink
from batten.sinks.sessions import SessionBefore, session_before

_log = logging.getLogger("batten.sinks")
_MOST = 512
"""Runs whose folds are kept in memory."""
_ENDS = frozenset(("run.finished", "run.failed", "run.cancelled", "session.closed"))


@runtime_checkable
class Member(Fold, Protocol):
    """A fold whose messages speak of the run's session."""

    def join(self, session: SessionBefore) -> None:
        """Take what is known of the session, before the run's first fact."""
        ...


class Folds:
    """Bounded: the fold of the run that was not heard of for the longest time is dropped."""

    def __init__(self, sink: Sink, journal: Feed) -> None:
        self._sink = sink
        self._journal = journal
        self._folds: dict[str, Fold] = {}
        self._joins: bool | None = None
        """Whether its folds speak of sessions; None before the first."""

    async def messages(self, stored: Stored) -> list[Message]:
        """The messages of a fact. Facts of one run come in order."""
        if stored.type not in self._sink.types:
            return []
        fold = self._folds.pop(stored.run_id, None)
        if fold is None:
            fold = await self._folded(stored)
        await self._join(fold, stored)
        made = _take(fold, stored)
        if stored.type not in _ENDS:
            if len(self._folds) >= _MOST:
                del self._folds[next(iter(self._folds))]
            self._folds[stored.run_id] = fold
        if made:
            await asyncio.sleep(0)  # a page of facts takes milliseconds
        return made

    async def _folded(self, stored: Stored) -> Fold:
        """The fold before this fact, from the stored facts of its run."""
        fold = self._sink.fold(stored.run_id)
        last = -1
        while last < stored.sequence - 1:
            page = await self._journal.read(stored.run_id, after=last)
            if not page:
                break
            for earlier in page:
                if earlier.sequence >= stored.sequence:
                    return fold
                if earlier.type in self._sink.types:
                    await self._join(fold, earlier)
                    _take(fold, earlier)
            last = page[-1].sequence
        return fold

    async def _join(self, fold: Fold, stored: Stored) -> None:
        """Tell a fold of a run that is queued for the first time what its session was by then."""
        if stored.sequence > 1 or stored.type != RunQueued.TYPE:
            return
        if self._joins is None:  # all folds of a sink are of one type
            self._joins = isinstance(fold, Member)
        if self._joins:
            cast(Member, fold).join(await session_before(self._journal, stored))


def _take(fold: Fold, stored: Stored) -> list[Message]:
    try:
        envelope = decode(stored.body)
    except PeerError:  # bytes that are no envelope tell nothing; `batten verify` names them
        return []
    try:
        made = list(fold.take(envelope))
    except Exception as error:  # a bug must not hold up this fact's successors for ever
        _log.error("fact %d of %s is not told", stored.sequence, stored.run_id, exc_info=error)
        return []
    return [replace(message, position=stored.position) for message in made]
