"""Sessions that a runtime has in memory."""

import logging
from collections import deque
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

from batten.contract.errors import BattenError
from batten.coordination.engine import Engine
from batten.coordination.envelope import Message
from batten.journal.contract import Journal, Lease

_log = logging.getLogger("batten.coordination")
_RECENT = 512
"""Signals and progress of a session that are known again if they are sent twice."""


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

    async def settled(self) -> None:
        """Wait until everything that was applied is durable."""
        if self.tail is not None:
            await self.tail


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
