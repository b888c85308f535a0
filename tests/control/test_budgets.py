"""The budget of a task: over all its runs, raised by a resume, held also by the service."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from batten.contract.errors import CallerError
from batten.contract.facts import (
    CostBudgetExceeded,
    CostTick,
    RunCancelled,
    RunFailed,
    RunFinished,
    RunQueued,
    RunResumedFromEvent,
    TurnCompleted,
)
from batten.control.approvals import Answer, answer_approval, find_approval, time_out
from tests.agent.stage import Stage
from tests.agent.test_costs import DONE, PRICES, TURN, step
from tests.contract.order import check_order
from tests.models.server import ModelServer, Reply

from .service import BY, Service, serving

WANTED = {"prompt": "go", "requested_model": "anthropic/priced"}


@asynccontextmanager
async def priced(
    stage: Stage, replies: Sequence[Reply], *flags: str, asking: bool = False
) -> AsyncGenerator[Service, None]:
    """A service whose model costs `TURN` a call. It allows every tool, unless it is `asking`."""
    path = stage.directory / "prices.json"
    path.write_bytes(PRICES)
    async with ModelServer(replies) as model:
        stage.environ.update({**model.environ(), "BATTEN_PRICES": str(path)})
        allowed = () if asking else ("--auto-allow",)
        async with serving(stage, *allowed, *flags) as service:
            yield service


async def test_line_48_the_ceiling_counts_the_runs_before(stage: Stage) -> None:
    async with priced(stage, [step(1), DONE, step(2), step(3)]) as service:
        row = await service.run(**WANTED, budget_micros_usd=3 * TURN - 1)
        assert (row.status, row.cost_micros_usd) == ("completed", 2 * TURN)
        task = str(row.task_id)
        again = await service.tasks.go_on(task, row.run_id, "more", by=BY)
        again = await service.ended(again.run_id)
        queued = await service.fact(again.run_id, RunQueued)
        assert queued.prior_cost_micros_usd == 2 * TURN
        assert (await service.fact(again.run_id, RunFailed)).code == "budget_exceeded"
        types = await service.types(again.run_id)
        assert types.index("cost.budget_exceeded") < types.index("run.failed")
        exceeded = await service.fact(again.run_id, CostBudgetExceeded)
        assert exceeded.cumulative_cost_micros_usd == 3 * TURN


async def test_a_budget_that_is_spent_exactly_ends_the_task(stage: Stage) -> None:
    async with priced(stage, [DONE]) as service:
        row = await service.run(**WANTED, budget_micros_usd=TURN)
        assert (row.status, row.cost_micros_usd) == ("completed", TURN)
        again = await service.tasks.go_on(str(row.task_id), row.run_id, "more", by=BY)
        again = await service.ended(again.run_id)
        assert (again.status, again.cost_micros_usd) == ("failed", 0)
        exceeded = await service.fact(again.run_id, CostBudgetExceeded)
        assert exceeded == CostBudgetExceeded(TURN, TURN, "halted")


async def test_the_cost_before_a_run_is_that_of_the_runs_it_continues(stage: Stage) -> None:
    async with priced(stage, [DONE]) as service:
        first = await service.run(**WANTED)
        task = str(first.task_id)
        retried = await service.tasks.retry(task, first.run_id, by=BY)
        await service.ended(retried.run_id)
        second = await service.tasks.go_on(task, retried.run_id, "more", by=BY)
        await service.ended(second.run_id)
        third = await service.tasks.go_on(task, second.run_id, "more", by=BY)
        await service.ended(third.run_id)
        for run_id, prior in ((second.run_id, TURN), (third.run_id, 2 * TURN)):
            queued = await service.fact(run_id, RunQueued)
            resumed = await service.fact(run_id, RunResumedFromEvent)
            assert (queued.prior_cost_micros_usd, resumed.prior_cost_micros_usd) == (prior, prior)


async def test_line_48_a_run_that_waited_keeps_what_it_cost_before(stage: Stage) -> None:
    async with priced(stage, [step(1), DONE], asking=True) as service:
        row = await service.tasks.start(await service.create(**WANTED), by=BY)
        request = await service.parked(row.run_id)
        assert (await service.row(row.run_id)).cost_micros_usd == TURN
        await service.answer(request, granted=True)
        row = await service.ended(row.run_id)
        assert (row.status, row.cost_micros_usd) == ("completed", 2 * TURN)
        assert (await service.fact(row.run_id, RunFinished)).cost_micros_usd == 2 * TURN


@pytest.mark.parametrize("ending", ["rejected", "timed out", "cancelled"])
async def test_a_run_that_ends_while_its_call_waits_tells_what_its_turn_cost(
    stage: Stage, ending: str
) -> None:
    async with priced(stage, [step(1)], asking=True) as service:
        task = await service.create(**WANTED, budget_micros_usd=TURN + 1)
        row = await service.tasks.start(task, by=BY)
        request = await service.parked(row.run_id)
        match ending:
            case "rejected":
                await answer_approval(
                    service.tasks, task, request.request_id, Answer(granted=False, by=BY)
                )
            case "timed out":
                asking = await find_approval(service.tasks, task, request.request_id)
                assert await time_out(service.tasks, asking)
            case _:
                await service.tasks.cancel(task, row.run_id, by=BY)
        assert (await service.row(row.run_id)).status == "cancelled"
        order = ["turn.completed", "cost.tick", "cost.budget_warning", "run.cancelled"]
        assert (await service.types(row.run_id))[-4:] == order
        completed = await service.fact(row.run_id, TurnCompleted)
        assert (completed.turn_index, completed.cost_micros_usd) == (1, TURN)
        assert (completed.tool_calls, completed.stop_reason) == (1, "tool_use")
        tick = await service.fact(row.run_id, CostTick)
        assert (tick.task_budget_micros_usd, tick.task_budget_remaining_micros_usd) == (TURN + 1, 1)
        assert (tick.cumulative_cost_micros_usd, tick.cumulative_input_tokens) == (TURN, 10)
        assert (await service.fact(row.run_id, RunCancelled)).turns == 1
        check_order(await service.envelopes(row.run_id))


async def test_line_37_a_resume_raises_the_budget_before_it_is_queued(stage: Stage) -> None:
    async with priced(stage, [step(1), step(2), step(3), DONE]) as service:
        row = await service.run(**WANTED, budget_micros_usd=TURN)
        assert (await service.fact(row.run_id, RunFailed)).code == "budget_exceeded"
        task = str(row.task_id)
        with pytest.raises(CallerError, match="only be raised") as lowered:
            await service.tasks.resume(task, row.run_id, by=BY, budget_micros_usd=TURN - 1)
        assert lowered.value.code == "invalid_request"
        again = await service.tasks.resume(task, row.run_id, by=BY, budget_micros_usd=100 * TURN)
        described = await service.tasks.described(await service.tasks.find(task))
        assert described is not None
        assert described.budget_micros_usd == 100 * TURN
        assert (await service.ended(again.run_id)).status == "completed"


async def test_the_budget_of_the_service_bounds_every_task(stage: Stage) -> None:
    flags = ("--max-budget-usd", str(TURN / 1_000_000))
    async with priced(stage, [step(1), step(2), step(3)], *flags) as service:
        for wanted in (0, 100 * TURN):
            row = await service.run(**WANTED, budget_micros_usd=wanted)
            assert (await service.fact(row.run_id, RunFailed)).code == "budget_exceeded"
