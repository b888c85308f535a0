"""The rows of the dashboard: numbers over a window of time, and what participants did."""

import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from batten.serve.http.answers import Expiring
from batten.serve.http.macp.service import RunService
from batten.serve.http.table import Call, Reply, Route
from batten.serve.http.validation import instant, invalid

if TYPE_CHECKING:  # loaded with the first request
    from batten.control.views.dashboard import Query


class OverviewParameters(Struct, frozen=True, kw_only=True, rename="camel"):
    window: Literal["1h", "6h", "24h", "7d", "30d"] | UnsetType = UNSET
    """The time up to now; 24h if nothing else is given."""
    range: Literal["24h", "7d", "30d"] | UnsetType = UNSET
    """An older name of `window`."""
    from_: str | UnsetType = msgspec.field(default=UNSET, name="from")
    """The ISO 8601 time of the start, in place of a window."""
    to: str | UnsetType = UNSET
    """The ISO 8601 time of the end, with `from`; now if it is left out."""
    scenario_ref: str | UnsetType = UNSET
    """Only runs with this source, or with this in their scenario, in either case."""
    environment: str | UnsetType = UNSET
    """Only runs whose metadata has exactly this environment."""


async def overview(call: Call) -> Reply:
    service: RunService = call.service
    asked: OverviewParameters = call.query

    async def make() -> Expiring:
        found = await service.views.board.numbers(_query(asked))
        return Expiring(found.numbers, found.until_ms)

    numbers = await service.answers.get(asked, make, service.views.board.mark)
    health = await _health(service)
    return Reply(numbers.body[:-1] + b',"runtimeHealth":' + health + b"}")


async def _health(service: RunService) -> bytes:
    """Of a runtime elsewhere as it was a moment ago: asking it takes longer than all the rest."""
    from batten.control.observer.link import RuntimeHealth

    told = await service.watch.runtime()
    has_runtime = told.runtime_kind != "none"
    return msgspec.json.encode(
        RuntimeHealth(told.ok and has_runtime, told.runtime_kind, told.detail)
    )


def _query(asked: OverviewParameters) -> "Query":
    from batten.control.views.dashboard import range_query, window_query
    from batten.protocols.macp.metrics import unix_ms

    now_ms = time.time_ns() // 1_000_000
    fits = {"scenario_ref": asked.scenario_ref or "", "environment": asked.environment or ""}
    end_ms = None if asked.to is UNSET else unix_ms(instant("to", asked.to))
    if asked.from_ is UNSET:
        return window_query(now_ms, asked.window or asked.range or "24h", **fits)
    start_ms = unix_ms(instant("from", asked.from_))
    if end_ms is not None and start_ms > end_ms:
        raise invalid("`from` must not be later than `to`", "from")
    return range_query(now_ms, start_ms, end_ms, **fits)


async def agent_metrics(call: Call) -> Reply:
    service: RunService = call.service

    async def make() -> Any:
        return await service.views.board.agents()

    return await service.answers.get(call.path, make, service.views.board.mark)


def _row(path: str, handler: Any, summary: str, query: Any = None) -> Route:
    return Route(
        method="GET",
        path=path,
        handler=handler,
        summary=summary,
        tag="dashboard",
        query=query,
        timeout_s=120.0,
    )


ROUTES: tuple[Route, ...] = (
    _row(
        "/dashboard/overview",
        overview,
        "What the runs of a time amount to: numbers, recent runs, charts",
        OverviewParameters,
    ),
    _row(
        "/dashboard/agents/metrics",
        agent_metrics,
        "What each participant did in all runs, those in the most runs first",
    ),
)
