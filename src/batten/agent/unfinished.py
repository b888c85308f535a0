"""The cost of a model call that gave no usable message: cancelled, broken off, or unusable."""

from typing import Literal

from msgspec import UNSET

from batten.contract.facts import CostCallUnfinished
from batten.contract.facts.assistant import Usage
from batten.journal.recorder import Recorder
from batten.models.contract import Model
from batten.models.pricing import call_cost


class Meter:
    """What one attempt at a call cost so far. A request's `report` is `take`."""

    def __init__(self, recorder: Recorder, turn: int) -> None:
        self._recorder = recorder
        self._turn = turn
        self._usage: Usage | None = None

    def take(self, usage: Usage) -> None:
        self._usage = usage

    def record(self, model: Model, reason: Literal["cancelled", "broken"]) -> None:
        """Record the call with the usage reported so far: the provider may charge more.

        A call to a model that costs nothing is left out.
        """
        found, usage, self._usage = model.price, self._usage, None
        if found is not None and found.is_free:
            return
        usage = usage or Usage()
        cost = call_cost(found, usage)
        self._recorder.record(
            CostCallUnfinished(
                turn_index=self._turn,
                provider=model.provider,
                model=model.name,
                reason=reason,
                usage=usage,
                cost_micros_usd=cost,
                price_as_of=None if found is None else found.as_of,
                cost_unknown=UNSET if cost is None else True,
            )
        )


def unusable(turn: int, model: Model, usage: Usage) -> CostCallUnfinished:
    """A whole message that could not be used; its usage is known."""
    found = model.price
    return CostCallUnfinished(
        turn_index=turn,
        provider=model.provider,
        model=model.name,
        reason="unusable",
        usage=usage,
        cost_micros_usd=call_cost(found, usage),
        price_as_of=None if found is None else found.as_of,
    )
