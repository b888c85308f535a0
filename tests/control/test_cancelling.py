"""Cancels that meet the answer to a question of their run."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from batten.contract.facts import RunCancelled
from batten.control.tasks import Tasks
from batten.journal.contract import Journal, RequestRow
from tests.agent.stage import Stage, bash, say

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
        assert types[-3:] == ["run.cancel_requested", "approval.resolved", "run.cancelled"]
        (request,) = await service.journal.requests(row.run_id)
        assert request.decision == ("approved" if granted else "rejected")
        assert not (await service.file(row.run_id, "made")).exists()
