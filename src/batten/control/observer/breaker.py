"""The circuit breaker: calls to a runtime that keeps failing fail at once, until a probe succeeds.

A call that the runtime answers with "not found" or "permission denied" counts neither way.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from batten.contract.envelope import timestamp
from batten.contract.errors import NotReady

BreakerState = Literal["CLOSED", "OPEN", "HALF_OPEN"]
_KEPT = 200


class Transition(Struct, frozen=True, rename="camel"):
    state: BreakerState
    entered_at: str
    reason: str


class BreakerOpen(NotReady):
    """The runtime failed too often: calls are not tried for a while."""

    code = "CIRCUIT_BREAKER_OPEN"


class Breaker:
    """Counts what became of calls. Used from one event loop."""

    def __init__(
        self, threshold: int, reset_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Opens after `threshold` failures in a row, for `reset_s` after the last of them."""
        self._threshold = max(1, threshold)
        self._reset_s = reset_s
        self._clock = clock
        self._state: BreakerState = "CLOSED"
        self._in_a_row = 0
        self._failed_at = 0.0
        self._probing = False
        self._history: deque[Transition] = deque(maxlen=_KEPT)
        self.successes = 0
        self.failures = 0
        self._enter("CLOSED", "initial")

    @property
    def state(self) -> BreakerState:
        """Looking is what ends the pause of an open one."""
        elapsed_s = self._clock() - self._failed_at
        if self._state == "OPEN" and elapsed_s >= self._reset_s:
            self._probing = False
            self._enter("HALF_OPEN", f"reset timeout after {round(elapsed_s * 1000)}ms")
        return self._state

    @property
    def history(self) -> list[Transition]:
        """Oldest first; the latest 200."""
        return list(self._history)

    def admit(self) -> None:
        """Before a call, which then must be told by one of the methods below.

        Raises `BreakerOpen`; half open, for all but one call at a time.
        """
        state = self.state
        if state == "OPEN" or (state == "HALF_OPEN" and self._probing):
            left_s = max(0.0, self._reset_s - (self._clock() - self._failed_at))
            wait = f"try again in {left_s:.0f} s" if left_s else "a probe is on its way"
            raise BreakerOpen(
                f"the runtime failed {self._in_a_row} times in a row and is not called: {wait},"
                " or reset the circuit breaker"
            )
        self._probing = state == "HALF_OPEN"

    def succeeded(self) -> None:
        self.successes += 1
        self._in_a_row = 0
        self._probing = False
        if self._state == "HALF_OPEN":
            self._enter("CLOSED", "half-open probe succeeded")

    def failed(self) -> None:
        self.failures += 1
        self._in_a_row += 1
        self._failed_at = self._clock()
        self._probing = False
        if self._state == "HALF_OPEN" or self._in_a_row >= self._threshold:
            self._enter("OPEN", f"{self._in_a_row} consecutive failures")

    def passed(self) -> None:
        """The call proved nothing: it was refused for a reason of its own, or given up."""
        self._probing = False

    def reset(self) -> None:
        self._in_a_row = 0
        self._probing = False
        self._enter("CLOSED", "manual reset")

    def _enter(self, state: BreakerState, reason: str) -> None:
        if self._history and self._state == state:
            return
        self._state = state
        self._history.append(Transition(state, timestamp(), reason))
