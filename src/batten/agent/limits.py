"""Limits, checked in one place before the call they limit: turns and money."""

from msgspec import UNSET

from batten.agent.halt import Halt
from batten.agent.settings import RunSettings
from batten.contract.facts import (
    CostBudgetExceeded,
    CostBudgetWarning,
    CostTick,
    TurnCompleted,
)
from batten.contract.facts.assistant import Usage
from batten.journal.contract import Spend
from batten.journal.recorder import Recorder
from batten.models.contract import Model
from batten.models.pricing import cost_micros, price

WARNING_PCT = 80
_TYPICAL_ANSWER_TOKENS = 1000


class Limits:
    """What this run may still spend. Money is counted per task, in the journal."""

    def __init__(self, settings: RunSettings, recorder: Recorder) -> None:
        self._settings = settings
        self._recorder = recorder
        self._spend = Spend()
        self._warned = False
        if recorder.task_id is not None:
            self._spend = recorder.journal.spend(recorder.task_id, but_run=recorder.run_id)

    @property
    def cost_unknown(self) -> bool:
        return self._spend.cost_unknown

    async def before_call(self, turn: int, model: Model, input_tokens: int) -> None:
        """Raise `Halt` if another call would pass a limit; hold the money it may need."""
        maximum = self._settings.max_turns
        if maximum is not None and turn > maximum:
            raise Halt("max_turns", f"the limit of {maximum} turns is reached")
        budget = self._settings.budget_micros_usd
        if budget is None or self._recorder.task_id is None:
            return
        found = price(model.provider, model.name)
        guess = Usage(input_tokens=input_tokens, output_tokens=_TYPICAL_ANSWER_TOKENS)
        held = await self._recorder.journal.reserve(
            self._recorder.task_id,
            self._recorder.run_id,
            0 if found is None else cost_micros(found, guess),
            budget,
        )
        if held is None:
            spent = self._recorder.journal.spend(self._recorder.task_id).cost_micros_usd
            self._recorder.record(
                CostBudgetExceeded(
                    cumulative_cost_micros_usd=spent,
                    task_budget_micros_usd=budget,
                    action="halted",
                )
            )
            raise Halt("budget", f"${spent / 1e6:.6f} is spent of a budget of ${budget / 1e6:.6f}")

    def after_turn(self, completed: TurnCompleted, cost: int | None) -> None:
        """Count one turn; its totals and the task's become facts."""
        before = self._spend
        self._spend = Spend(
            before.input_tokens + completed.input_tokens,
            before.output_tokens + completed.output_tokens,
            before.cost_micros_usd + (cost or 0),
            before.cost_unknown or cost is None,
        )
        spent = self._spend.cost_micros_usd
        budget = self._settings.budget_micros_usd
        self._recorder.record(
            completed,
            CostTick(
                cumulative_input_tokens=self._spend.input_tokens,
                cumulative_output_tokens=self._spend.output_tokens,
                cumulative_cost_micros_usd=spent,
                task_budget_micros_usd=UNSET if budget is None else budget,
                task_budget_remaining_micros_usd=UNSET if budget is None else budget - spent,
                cost_unknown=True if self._spend.cost_unknown else UNSET,
            ),
        )
        if budget and not self._warned and spent * 100 >= budget * WARNING_PCT:
            self._warned = True
            self._recorder.record(
                CostBudgetWarning(
                    threshold_pct=WARNING_PCT,
                    cumulative_cost_micros_usd=spent,
                    task_budget_micros_usd=budget,
                )
            )
