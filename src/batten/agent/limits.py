"""Limits on turns and money, checked in one place before the call they limit."""

import asyncio
from typing import NoReturn

from msgspec import UNSET

from batten.agent.halt import Halt
from batten.agent.progress import Progress
from batten.agent.settings import RunSettings
from batten.contract import facts
from batten.contract.envelope import milliseconds_since
from batten.contract.facts.assistant import Usage
from batten.journal.budget import Spend
from batten.journal.contract import Journal
from batten.journal.recorder import Recorder
from batten.models.contract import Model
from batten.models.pricing import cost_micros

WARNING_PCT = 80
_LOOK_S = 0.1
_LOOKS = 10
"""Looks at the task's spending before a reservation is tried again, which finds dead workers."""


class Limits:
    """This run's remaining turns and money. Money is counted per task, in the journal."""

    def __init__(
        self,
        settings: RunSettings,
        recorder: Recorder,
        progress: Progress,
        *,
        stops_at_budget: bool = False,
    ) -> None:
        """`stops_at_budget`: no call begins once the budget is spent exactly."""
        self._settings = settings
        self._held_back = 1 if stops_at_budget else 0
        self._recorder = recorder
        self._progress = progress
        self._children = 0
        self._others = Spend()
        self._own_before = progress.cost_micros_usd

    async def begin(self) -> None:
        """Count the task's spending so far."""
        self._others = await self._spent_by_others()

    def before_turn(self, turn: int) -> None:
        """Raise `Halt` if no turns are left."""
        maximum = self._settings.max_turns
        if maximum is not None and turn > maximum:
            raise Halt("max_turns", f"the limit of {maximum} turns is reached")

    async def before_call(self, model: Model, input_tokens: int) -> None:
        """Raise `Halt` if the task's budget is spent; reserve what the call may cost.

        An estimate refuses no call: the reservation is at most the remainder, and a run waits while
        the calls of others hold all of it. So only one call can cross the budget.
        """
        budget, task_id = self._settings.budget_micros_usd, self._recorder.task_id
        if budget is None or task_id is None:
            return
        journal, run_id = self._recorder.journal, self._recorder.run_id
        most = self._most(model, input_tokens)
        limit = budget - self._held_back
        while await journal.reserve(task_id, run_id, most, limit) is None:
            spent = (await journal.spend(task_id)).cost_micros_usd
            if spent > limit:
                self._exceed(spent, budget)
            await self._wait_for_others(task_id)

    async def _wait_for_others(self, task_id: str) -> None:
        """Wait until the calls of other runs have ended, or their workers may have died."""
        journal, run_id = self._recorder.journal, self._recorder.run_id
        before = await journal.spend(task_id, but_run=run_id)
        for _ in range(_LOOKS):
            await asyncio.sleep(_LOOK_S)
            if await journal.spend(task_id, but_run=run_id) != before:
                return

    def _most(self, model: Model, input_tokens: int) -> int:
        """The most that a call may cost: our estimate of its input doubled, and a full answer."""
        found, settings = model.price, self._settings
        if found is None:
            return 0
        output = settings.max_output_tokens + settings.thinking_tokens
        return cost_micros(found, Usage(input_tokens=2 * input_tokens, output_tokens=output))

    def _exceed(self, spent: int, budget: int) -> NoReturn:
        self._recorder.record(
            facts.CostBudgetExceeded(
                cumulative_cost_micros_usd=spent, task_budget_micros_usd=budget, action="halted"
            )
        )
        before = self._settings.spent_before_micros_usd
        own, given = (spent - before) / 1e6, (budget - before) / 1e6
        raise Halt("budget", f"${own:.6f} is spent of a budget of ${given:.6f}")

    async def after_turn(self, completed: facts.TurnCompleted, children: int) -> None:
        """Record one turn with its totals and the task's."""
        warns = self._crossed(completed)
        if children != self._children:
            self._children = children
            self._others = await self._spent_by_others()
        own, others = self._progress, self._others
        spent = others.cost_micros_usd + own.cost_micros_usd
        budget = self._settings.budget_micros_usd
        self._own_before = own.cost_micros_usd
        whole = Spend(
            others.input_tokens + own.input_tokens,
            others.output_tokens + own.output_tokens,
            spent,
            others.cost_unknown or own.cost_unknown,
        )
        self._recorder.record(completed, *costs_after(whole, budget, warns=warns))

    def _crossed(self, completed: facts.TurnCompleted) -> bool:
        """Whether this run's own calls since its last turn crossed the warning threshold.

        If an earlier run or a child crossed it, that run has recorded the warning.
        """
        now = self._progress.cost_micros_usd
        # `progress` counts a turn claimed from a dead worker before it is recorded as completed.
        before = min(self._own_before, now - completed.cost_micros_usd)
        others = self._others.cost_micros_usd
        return crosses(others + before, others + now, self._settings.budget_micros_usd)

    async def _spent_by_others(self) -> Spend:
        """Spending of the task's other runs: earlier ones and children."""
        if self._recorder.task_id is None:
            return Spend()
        journal = self._recorder.journal
        whole = await journal.spend(self._recorder.task_id)
        own = await journal.ledger(self._recorder.run_id)
        return Spend(
            whole.input_tokens - sum(row.input_tokens for row in own),
            whole.output_tokens - sum(row.output_tokens for row in own),
            whole.cost_micros_usd - sum(row.cost_micros_usd or 0 for row in own),
            whole.cost_unknown and not any(row.cost_micros_usd is None for row in own),
        )


def completed_turn(
    message: facts.AssistantMessageComplete, duration_ms: int
) -> facts.TurnCompleted:
    """The totals of the turn of a message."""
    return facts.TurnCompleted(
        turn_index=message.turn_index,
        input_tokens=message.usage.input_tokens,
        output_tokens=message.usage.output_tokens,
        cached_input_tokens=message.usage.cache_read_tokens,
        cost_micros_usd=message.cost_micros_usd or 0,
        duration_ms=duration_ms,
        tool_calls=sum(block.kind == "tool_call" for block in message.blocks),
        stop_reason=message.stop_reason,
    )


async def turn_left_open(
    journal: Journal,
    task_id: str,
    message: facts.AssistantMessageComplete,
    began_at: str,
    budget: int | None,
) -> list[facts.Fact]:
    """The facts that complete a turn outside of its loop, because its run ends.

    `began_at` is the time of the turn's first fact; empty if that is gone.
    """
    duration_ms = milliseconds_since(began_at) if began_at else message.duration_ms
    completed = completed_turn(message, max(duration_ms, message.duration_ms))
    spent = await journal.spend(task_id)
    before = spent.cost_micros_usd - completed.cost_micros_usd
    warns = crosses(before, spent.cost_micros_usd, budget)
    return [completed, *costs_after(spent, budget, warns=warns)]


def costs_after(spent: Spend, budget: int | None, *, warns: bool) -> list[facts.Fact]:
    """What a task has spent at the end of a turn, and a warning if the turn gave cause for one."""
    cost = spent.cost_micros_usd
    told: list[facts.Fact] = [
        facts.CostTick(
            cumulative_input_tokens=spent.input_tokens,
            cumulative_output_tokens=spent.output_tokens,
            cumulative_cost_micros_usd=cost,
            task_budget_micros_usd=UNSET if budget is None else budget,
            task_budget_remaining_micros_usd=UNSET if budget is None else budget - cost,
            cost_unknown=True if spent.cost_unknown else UNSET,
        )
    ]
    if budget and warns:
        told.append(
            facts.CostBudgetWarning(
                threshold_pct=WARNING_PCT,
                cumulative_cost_micros_usd=cost,
                task_budget_micros_usd=budget,
            )
        )
    return told


def crosses(before: int, now: int, budget: int | None) -> bool:
    """Whether spending from `before` to `now` crosses the warning threshold of a budget."""
    return before * 100 < (budget or 0) * WARNING_PCT <= now * 100
