"""The tasks of a service and one worker on a real journal, all in this process."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from batten.contract.envelope import Envelope
from batten.contract.facts import Fact
from batten.control.pool import specifying
from batten.control.tasks import Tasks
from batten.control.worker import Worker
from batten.journal.contract import RequestRow, RunRow
from batten.journal.workers import this_worker
from batten.protocols.hecate.creation import new_task
from batten.protocols.hecate.steps import Step
from batten.protocols.hecate.tasks import CreateTask
from batten.protocols.hecate.view import RunView
from batten.session.history import envelopes_of
from batten.session.requests import resolve
from batten.wiring.opener import SessionOpener
from batten.wiring.spec import TaskGrants
from tests.agent.stage import Stage

PATIENCE_S = 30
BY = "ann"
Found = TypeVar("Found", bound=Fact)


class Service:
    def __init__(self, stage: Stage, opener: SessionOpener) -> None:
        self.stage = stage
        self.opener = opener
        self.journal = opener.journal
        self.tasks = Tasks(opener.journal, opener.home, opener.base)
        self.worker = Worker(opener, specifying(opener), this_worker())

    async def create(self, **fields: Any) -> str:
        """A task as a client describes it, by its id."""
        request = msgspec.convert(fields, CreateTask)
        return (await self.tasks.create(new_task(request, by=BY))).task_id

    async def run(self, **fields: Any) -> RunRow:
        """A run of a new task, once it has ended."""
        row = await self.tasks.start(await self.create(**fields), by=BY)
        return await self.ended(row.run_id)

    async def ended(self, run_id: str) -> RunRow:
        return await self.until(run_id, "completed", "failed", "cancelled")

    async def until(self, run_id: str, *statuses: str) -> RunRow:
        """The run once it has one of these statuses."""
        async with asyncio.timeout(PATIENCE_S), aclosing(self.journal.follow(run_id)) as pages:
            async for _ in pages:
                row = await self.row(run_id)
                if row.status in statuses:
                    return row
        raise AssertionError("the journal was closed")

    async def reached(self, run_id: str, *types: str) -> None:
        """Wait until the run has a fact of one of these types."""
        following = self.journal.follow(run_id, types=frozenset(types))
        async with asyncio.timeout(PATIENCE_S), aclosing(following) as pages:
            await anext(pages)

    async def row(self, run_id: str) -> RunRow:
        row = await self.journal.run(run_id)
        assert row is not None
        return row

    async def file(self, run_id: str, name: str) -> Path:
        """A file in the workspace of a run."""
        return Path((await self.row(run_id)).workspace_path) / name

    async def envelopes(self, run_id: str) -> list[Envelope]:
        return [envelope async for envelope in envelopes_of(self.journal, run_id)]

    async def types(self, run_id: str) -> list[str]:
        return [envelope.type for envelope in await self.envelopes(run_id)]

    async def fact(self, run_id: str, kind: type[Found]) -> Found:
        """The only fact of this kind."""
        facts = [envelope.data for envelope in await self.envelopes(run_id)]
        (found,) = [fact for fact in facts if isinstance(fact, kind)]
        return found

    async def steps(self, run_id: str) -> list[Step]:
        view = RunView()
        for envelope in await self.envelopes(run_id):
            view.take(envelope)
        return list(view.steps)

    async def pending(self, run_id: str) -> RequestRow:
        """The question that a parked run waits with."""
        await self.until(run_id, "awaiting_approval")
        (request,) = [one for one in await self.journal.requests(run_id) if one.status == "pending"]
        return request

    async def parked(self, run_id: str) -> RequestRow:
        """The same, once the run has no worker any more; parking writes no fact."""
        request = await self.pending(run_id)
        async with asyncio.timeout(PATIENCE_S):
            while (await self.row(run_id)).worker_id:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.005)
        return request

    async def answer(self, request: RequestRow, *, granted: bool) -> None:
        await resolve(
            self.journal,
            self.tasks.redactor,
            request.request_id,
            granted=granted,
            by="operator",
            seal_key=self.tasks.seal_key,
        )


@asynccontextmanager
async def serving(
    stage: Stage, *flags: str, grants: TaskGrants | None = None
) -> AsyncGenerator[Service, None]:
    """`grants`: what tasks may name; nothing of their own if None."""
    spec = msgspec.structs.replace(
        stage.spec(*flags), workspace=None, surface="hecate", tasks=grants or TaskGrants()
    )
    opener = SessionOpener(spec)
    service = Service(stage, opener)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.worker.run())
        try:
            yield service
        finally:
            service.worker.stop()
    opener.close()
