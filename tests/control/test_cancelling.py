"""Cancels that meet the answer to a question of their run."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from batten.contract.facts import RunCancelled, RunCancelRequested
from batten.control.pool import specifying
from batten.control.tasks import Tasks
from batten.control.worker import Worker
from batten.journal.contract import Journal, RequestRow
from batten.journal.workers import this_worker
from tests.agent.stage import Stage, bash, say
from tests.contract.order import check_order

from .service import BY, serving


class Overtaken:
    """A journal to whose questions an answer comes just after they were read."""

    def __init__(self, journal: Journal, answer: Callable[[RequestRow], Awaitable[None]]) -> None:
        self._journal = journal
        self._answer = answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    async def requests(self, run_id: str) -> list[RequestRow]:
        rows = await self._journal.requests(run_id)
        for row in rows:
            if row.status == "pending":
                await self._answer(row)
        return rows


@pytest.mark.parametrize("granted", [True, False])
async def test_a_cancel_that_an_answer_overtakes_ends_the_run_at_once(
    stage: Stage, granted: bool
) -> None:
    model = stage.scenario([bash("touch made", "c1")], [say("done")])
    async with serving(stage) as service:
        task = await service.create(prompt="go", requested_model=model)
        row = await service.tasks.start(task, by=BY)
        await service.parked(row.run_id)

        async def answer(request: RequestRow) -> None:
            await service.answer(request, granted=granted)

        journal = cast("Journal", Overtaken(service.journal, answer))
        tasks = Tasks(journal, service.opener.home, service.opener.base)
        ended = await tasks.cancel(task, row.run_id, by=BY, reason="not now")
        assert (ended.status, ended.worker_id) == ("cancelled", "")
        last = await service.fact(row.run_id, RunCancelled)
        assert (last.by, last.reason) == (BY, "not now")
        types = await service.types(row.run_id)
        assert types[-5:-3] == ["run.cancel_requested", "approval.resolved"]
        assert types[-3:] == ["turn.completed", "cost.tick", "run.cancelled"]
        (request,) = await service.journal.requests(row.run_id)
        assert request.decision == ("approved" if granted else "rejected")
        assert not (await service.file(row.run_id, "made")).exists()


async def test_a_cancel_that_waits_for_the_next_worker_completes_the_turn(stage: Stage) -> None:
    model = stage.scenario([bash("touch made", "c1")], [say("done")])
    async with serving(stage) as service:
        task = await service.create(prompt="go", requested_model=model)
        row = await service.tasks.start(task, by=BY)
        request = await service.parked(row.run_id)
        service.worker.stop()
        await service.answer(request, granted=True)
        asked = RunCancelRequested(by=BY, reason="not now")
        await service.journal.append(row.run_id, [asked], fence=None)
        worker = Worker(service.opener, specifying(service.opener), this_worker())
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            assert (await service.ended(row.run_id)).status == "cancelled"
            worker.stop()
        types = await service.types(row.run_id)
        assert types[-4:] == ["run.started", "turn.completed", "cost.tick", "run.cancelled"]
        assert types.count("run.cancel_requested") == 1
        check_order(await service.envelopes(row.run_id))
        assert not (await service.file(row.run_id, "made")).exists()
