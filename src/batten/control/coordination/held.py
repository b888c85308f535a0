"""A session that a runtime has in memory."""

from collections.abc import Awaitable
from typing import Any

from batten.coordination.engine import Engine
from batten.journal.contract import Lease


class HeldSession:
    """A session in memory, and the receipt of its last append."""

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
