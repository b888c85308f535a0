"""The rows of the dashboard: numbers over a window of time, and what participants did."""

import time
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from batten.contract.errors import BattenError
from batten.serve.http.answers import Expiring
from batten.serve.http.macp.runs import unix_ms
from batten.serve.http.macp.service import RunService
from batten.serve.http.table import Call, Reply, Route
from batten.serve.http.validation import invalid

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
    from batten.control.views.dashboard import RuntimeHealth

    if service.runtime is None:
        return msgspec.json.encode(RuntimeHealth(ok=False, runtime_kind="none"))
    try:
        return msgspec.json.encode(await service.runtime.health())
    except BattenError:
        return msgspec.json.encode(
            RuntimeHealth(ok=False, runtime_kind="unknown", detail="Runtime unreachable")
        )


def _query(asked: OverviewParameters) -> "Query":
    from batten.control.views.dashboard import range_query, window_query

    now_ms = time.time_ns() // 1_000_000
    fits = {"scenario_ref": asked.scenario_ref or "", "environment": asked.environment or ""}
    end_ms = None if asked.to is UNSET else unix_ms("to", asked.to)
    if asked.from_ is UNSET:
        return window_query(now_ms, asked.window or asked.range or "24h", **fits)
    start_ms = unix_ms("from", asked.from_)
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
