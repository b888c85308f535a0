"""The money of a task: what its runs spent, and what they may reserve for a call."""

from collections.abc import Awaitable
from typing import Protocol

from msgspec import Struct


class Spend(Struct, frozen=True):
    """The usage of a task, over all its runs."""

    input_tokens: int = 0
    output_tokens: int = 0
    cost_micros_usd: int = 0
    cost_unknown: bool = False
    reserved_micros_usd: int = 0
    """Held by other runs of the task for calls they are making now."""


class Budget(Protocol):
    """The spending of a task, and its runs' reservations for calls in progress."""

    def reserve(
        self, task_id: str, run_id: str, micros_usd: int, limit_micros_usd: int
    ) -> Awaitable[Spend | None]:
        """Reserve money for one call: as much as is left, at most `micros_usd`.

        None if the limit is exceeded, or if other reservations hold all that is left of it. A call
        that begins at the limit exactly reserves the smallest amount, so that no other begins
        beside it.

        The reservation ends with the run's next ledger row, with `unreserve`, or with the run.
        """
        ...

    def unreserve(self, run_id: str) -> Awaitable[None]: ...

    async def spend(self, task_id: str, *, but_run: str | None = None) -> Spend:
        """Spending of a task; `reserved_micros_usd` omits the reservation of `but_run`."""
        ...


def reservable(spend: Spend, micros_usd: int, limit_micros_usd: int) -> int | None:
    """How much of `micros_usd` a call may reserve; None if nothing is left. Not 0 for a call that
    costs something.
    """
    left = limit_micros_usd - spend.cost_micros_usd - spend.reserved_micros_usd
    if left < 0 or (left == 0 and spend.reserved_micros_usd > 0):
        return None
    return max(1, min(micros_usd, left)) if micros_usd > 0 else 0
