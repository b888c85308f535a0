"""A session's run that this process writes, in the home of a service."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from batten.contract.facts import Fact
from batten.contract.ids import new_run_id
from batten.journal.contract import Lease, NewRun
from batten.journal.sqlite import SqliteJournal
from batten.journal.workers import this_worker
from batten.protocols.macp.ids import run_uuid
from tests.protocols.macp.making import described, finished, queued, said, snapshot, started
from tests.service.serving import Service


class WrittenRun:
    """An observed session; each message makes two canonical events."""

    def __init__(self, journal: SqliteJournal, lease: Lease) -> None:
        self._journal = journal
        self._lease = lease
        self.path = f"/runs/{run_uuid(lease.run_id)}"

    async def write(self, *facts: Fact) -> None:
        await self._journal.append(self._lease.run_id, facts, fence=self._lease.fence)

    async def evaluate(self, count: int, reason: str = "because") -> None:
        await self.write(
            *(
                said("ann", "Evaluation", proposal_id="p1", recommendation="APPROVE", reason=reason)
                for _ in range(count)
            )
        )

    async def end(self) -> None:
        await self.write(finished())


@asynccontextmanager
async def written_run(service: Service) -> AsyncGenerator[WrittenRun]:
    journal = SqliteJournal.open(service.stage.home)
    try:
        new = NewRun(run_id=new_run_id(), kind="coordination", worker_id=this_worker())
        first = [queued(), described(), started(), snapshot()]
        lease, _ = await journal.create(new, first)
        assert lease is not None
        yield WrittenRun(journal, lease)
    finally:
        journal.close()
