"""Sessions that a runtime has in memory."""

import logging
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from contextlib import suppress
from typing import Any

from batten.contract.errors import BattenError
from batten.coordination.engine import Engine
from batten.coordination.envelope import Message
from batten.coordination.rejection import Rejection
from batten.coordination.session import is_overdue
from batten.journal.contract import Journal, Lease

_log = logging.getLogger("batten.coordination")
_RECENT = 512
"""Signals and progress of a session that are known again if they are sent twice."""


class NotOpened(Rejection):
    """A session that was about to open is not there: its run is another's, or was not stored."""

    def __init__(self, session_id: str) -> None:
        super().__init__("SESSION_NOT_FOUND", f"there is no session {session_id}")


class HeldSession:
    """A session in memory, and its last append."""

    def __init__(
        self,
        engine: Engine,
        run_id: str,
        lease: Lease | None,
        noted: Iterable[tuple[str, str]] = (),
    ) -> None:
        """`noted`: senders and ids of the signals and progress that the run has."""
        self.engine = engine
        self.run_id = run_id
        self.lease = lease
        """None if the session has ended, or another process works on it."""
        self.tail: Awaitable[Any] | None = None
        self._noted = deque(noted, maxlen=_RECENT)

    async def is_news(self, message: Message) -> bool:
        """Whether a signal or progress is to be noted. If it was before, waits until that is
        durable.
        """
        named = (message.sender, message.message_id)
        if named in self._noted:
            await self.settled()
            return False
        self._noted.append(named)
        return True

    @property
    def is_opening(self) -> bool:
        """Whether its start is on the way to the journal, so that nobody may hear of it yet."""
        return self.lease is None and not self.engine.session.is_terminal

    async def is_stored(self, journal: Journal) -> bool:
        """Whether the journal has the session. Waits for its start, which may fail; one that has
        ended may be deleted, or pruned.
        """
        if self.is_opening:
            with suppress(NotOpened):
                await self.settled()
                return True
            return False
        if not self.engine.session.is_terminal:
            return True
        run = await journal.run(self.run_id)
        return run is not None and not run.base_sequence

    async def settled(self) -> None:
        """Wait until everything that was applied is durable."""
        if self.tail is not None:
            await self.tail


def check_open(sessions: Iterable[HeldSession], sender: str, most: int, now_ms: int) -> None:
    """Raises `RATE_LIMITED` if the sender has started so many that are open now."""
    every = (held.engine.session for held in sessions)
    mine = (one for one in every if one.panel.initiator == sender and one.state == "OPEN")
    if sum(not is_overdue(one, now_ms) for one in mine) >= most:
        raise Rejection("RATE_LIMITED", f"{sender} has {most} open sessions")


async def renew_leases(
    journal: Journal, sessions: Sequence[HeldSession], lease_s: float
) -> list[HeldSession]:
    """Renew the leases of live sessions together: they share a commit. Returns the lost ones."""
    live = [(one, one.lease) for one in sessions if one.lease is not None]
    renewing = [journal.renew(lease, lease_s) for _, lease in live]
    lost: list[HeldSession] = []
    for (held, lease), receipt in zip(live, renewing, strict=True):
        try:
            renewed = await receipt
        except BattenError as error:
            _log.error("session of run %s was lost: %s", held.run_id, error)
            lost.append(held)
        else:
            if held.lease is lease:  # it may have ended meanwhile
                held.lease = renewed
    return lost
