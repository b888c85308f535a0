"""What operators ask of sessions: facts that other processes append to their runs."""

from collections.abc import AsyncGenerator

from batten.contract.envelope import decode_fact
from batten.contract.facts import MacpSuspensionRequested, RunCancelRequested
from batten.coordination.engine import Changed, Engine
from batten.journal.contract import Journal

_TYPES = frozenset({RunCancelRequested.TYPE, MacpSuspensionRequested.TYPE})
Asked = RunCancelRequested | MacpSuspensionRequested


class OperatorRequests:
    """Reads the requests from the feed, each once."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._read_to: int | None = None

    async def begin(self) -> None:
        """Leave out what was asked before the first call of this."""
        if self._read_to is None:
            self._read_to = await self._journal.position()

    async def new(self) -> AsyncGenerator[tuple[str, Asked], None]:
        """The requests since the last time, with their runs."""
        until = await self._journal.position()
        after = until if self._read_to is None else self._read_to
        while page := await self._journal.feed(after=after, until=until, types=_TYPES):
            after = page[-1].position
            for stored in page:
                asked = decode_fact(stored.body)
                assert isinstance(asked, Asked)
                yield stored.run_id, asked
        self._read_to = until


def heed(engine: Engine, asked: Asked, now_ms: int) -> tuple[Changed | None, str]:
    """Apply a request, and name the change for watchers. Raises `SESSION_NOT_OPEN`."""
    match asked:
        case RunCancelRequested():
            return engine.cancel_anyway(asked.by, asked.reason, now_ms), "CANCELLED"
        case MacpSuspensionRequested(state="SUSPENDED"):
            return engine.suspend_anyway(asked.by, asked.reason, now_ms), "SUSPENDED"
        case MacpSuspensionRequested():
            return engine.resume_anyway(asked.by, asked.reason, now_ms), "RESUMED"
