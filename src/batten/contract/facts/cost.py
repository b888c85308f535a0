"""`cost.*`: the spending of a task in micro-USD, over the whole chain of its runs."""

from typing import Literal

from msgspec import UNSET, UnsetType

from batten.contract.facts.assistant import Usage
from batten.contract.facts.base import Fact


class CostTick(Fact, frozen=True):
    """Written after each turn. Without a budget both budget fields are absent."""

    TYPE = "cost.tick"
    cumulative_input_tokens: int
    cumulative_output_tokens: int
    cumulative_cost_micros_usd: int
    task_budget_micros_usd: int | UnsetType = UNSET
    task_budget_remaining_micros_usd: int | UnsetType = UNSET
    cost_unknown: bool | UnsetType = UNSET
    """Some call had no known price: the cost is a lower bound."""


class CostCallUnfinished(Fact, frozen=True):
    """A model call that gave no usable message, with the tokens its provider reported. It is a row
    of the ledger.
    """

    TYPE = "cost.call_unfinished"
    turn_index: int
    provider: str
    model: str
    reason: Literal["cancelled", "broken", "unusable"]
    usage: Usage
    cost_micros_usd: int | None
    price_as_of: str | None
    cost_unknown: bool | UnsetType = UNSET
    """The provider may charge more than it reported."""


class CostBudgetWarning(Fact, frozen=True):
    TYPE = "cost.budget_warning"
    threshold_pct: int
    cumulative_cost_micros_usd: int
    task_budget_micros_usd: int


class CostBudgetExceeded(Fact, frozen=True):
    TYPE = "cost.budget_exceeded"
    cumulative_cost_micros_usd: int
    task_budget_micros_usd: int
    action: Literal["halted"]
