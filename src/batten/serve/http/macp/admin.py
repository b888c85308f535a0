"""Rows for operators: the circuit breaker between this service and the runtime."""

from datetime import UTC, datetime, timedelta
from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from batten.contract.envelope import timestamp
from batten.control.observer.breaker import BreakerState, Transition
from batten.serve.http.macp.service import RunService
from batten.serve.http.table import Call, Route
from batten.serve.http.validation import instant

Window = Literal["1h", "6h", "24h", "7d"]
_WINDOWS: dict[Window, timedelta] = {
    "1h": timedelta(hours=1),
    "6h": timedelta(hours=6),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
}


class BreakerReset(Struct, frozen=True):
    status: Literal["ok"]
    state: BreakerState


class BreakerHistory(Struct, frozen=True):
    """The state of now, and the changes of this process, oldest first."""

    state: BreakerState
    history: list[Transition]


class HistoryParameters(Struct, frozen=True):
    window: Window | UnsetType = UNSET
    """Only changes of so long ago."""
    since: str | UnsetType = UNSET
    """Only changes of this ISO 8601 time or later; it counts more than `window`."""


async def reset_breaker(call: Call) -> BreakerReset:
    service: RunService = call.service
    breaker = service.observer.link.breaker
    breaker.reset()
    service.recorder.record(call, "circuit_breaker.reset", "circuit_breaker", "runtime")
    return BreakerReset("ok", breaker.state)


async def breaker_history(call: Call) -> BreakerHistory:
    service: RunService = call.service
    breaker = service.observer.link.breaker
    state, first = breaker.state, _first(call.query)
    return BreakerHistory(state, [one for one in breaker.history if one.entered_at >= first])


def _first(given: HistoryParameters) -> str:
    """The earliest time that is told; empty for all."""
    if given.since is UNSET and given.window is not UNSET:
        moment = datetime.now(UTC) - _WINDOWS[given.window]
        return timestamp(int(moment.timestamp() * 1000) * 1_000_000)
    return instant("since", given.since)


ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path="/admin/circuit-breaker/reset",
        handler=reset_breaker,
        summary="Call the runtime again at once",
        tag="admin",
        scope="admin",
    ),
    Route(
        method="GET",
        path="/admin/circuit-breaker/history",
        handler=breaker_history,
        summary="When calls to the runtime were stopped and resumed, and why",
        tag="admin",
        query=HistoryParameters,
    ),
)
