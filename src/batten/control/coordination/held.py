"""Sessions that a runtime has in memory."""

import logging
from collections.abc import Awaitable, Sequence
from typing import Any

from batten.contract.errors import BattenError
from batten.coordination.engine import Engine
from batten.journal.contract import Journal, Lease

_log = logging.getLogger("batten.coordination")


class HeldSession:
    """A session in memory, and its last append."""

    def __init__(self, engine: Engine, run_id: str, lease: Lease | None) -> None:
        self.engine = engine
        self.run_id = run_id
        self.lease = lease
        """None if the session has ended, or another process works on it."""
        self.tail: Awaitable[Any] | None = None

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
