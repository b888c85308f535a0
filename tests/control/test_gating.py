"""The start of a run whose call has to be approved."""

import asyncio

from batten.control.gating import Gating
from batten.journal.contract import RunRow
from tests.agent.stage import Stage

from .service import BY, PATIENCE_S, Service, serving


async def started(service: Service, gating: Gating) -> RunRow:
    task_id = await service.create(execution_kind="shell", shell_command="touch proof")
    async with asyncio.timeout(PATIENCE_S):
        return await gating.once_asked(await service.tasks.start(task_id, by=BY))


async def test_a_start_does_not_wait_for_a_question_where_no_worker_takes_it(stage: Stage) -> None:
    async with serving(stage) as service:
        service.worker.stop()
        gating = Gating(service.tasks, lambda: 0, taken_s=0.01, moment_s=1000)
        assert (await started(service, gating)).status == "queued"


async def test_a_start_waits_for_the_question_that_a_worker_elsewhere_asks(stage: Stage) -> None:
    async with serving(stage) as service:
        gating = Gating(service.tasks, lambda: 0, taken_s=1000, moment_s=1000)
        assert (await started(service, gating)).status == "awaiting_approval"
