"""Routes of the server itself: health, readiness, metrics and documentation."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from batten.contract.errors import BattenError
from batten.serve.http.docs_page import POLICY, docs_page
from batten.serve.http.errors import HecateError, HttpError, hecate_error, problem
from batten.serve.http.metrics import Metrics
from batten.serve.http.openapi import SERVICE, About, openapi
from batten.serve.http.plane_watch import BreakerState, PlaneWatch, RuntimeState
from batten.serve.http.table import Call, Reply, Route, Surface

Check = Callable[[], Awaitable[str]]
"""Returns why the server cannot work; empty if it can."""


class Health(Struct, frozen=True):
    """The process answers."""

    status: str
    time: str
    version: str
    sandbox: dict[str, Any] | UnsetType = UNSET
    """What confines commands on this machine."""
    ok: bool = True
    service: str = "macp-control-plane"


class Readiness(Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether the server can take work: with status 200 if it can, else with 503."""

    status: Literal["ready", "not_ready"]
    ok: bool
    checks: dict[str, str]
    """`ok` for each part, else what is wrong."""
    database: Literal["ok", "unhealthy"] | UnsetType = UNSET
    runtime: RuntimeState | UnsetType = UNSET
    stream_consumer: Literal["ok", "unhealthy"] | UnsetType = UNSET
    circuit_breaker: BreakerState | UnsetType = UNSET
    error: HecateError | UnsetType = UNSET


class System:
    """What those routes need."""

    def __init__(
        self,
        *,
        version: str,
        metrics: Metrics,
        checks: Mapping[str, Check] | None = None,
        watch: PlaneWatch | None = None,
        sandbox: Mapping[str, Any] | None = None,
        about: About = SERVICE,
        is_closed: bool = False,
    ) -> None:
        """`is_closed`: without the routes of documentation."""
        self.version = version
        self.metrics = metrics
        self.checks = dict(checks or {})
        """One by the name `store` is the database of the control plane."""
        self.watch = watch
        self.sandbox = UNSET if sandbox is None else dict(sandbox)
        self.about = about
        self.is_closed = is_closed
        self.surfaces: tuple[Surface, ...] = ()
        self._document = b""
        self._page = b""

    @property
    def document(self) -> bytes:
        """The OpenAPI document, built when first asked for."""
        if not self._document:
            self._document = msgspec.json.encode(openapi(self.surfaces, self.version, self.about))
        return self._document

    @property
    def page(self) -> bytes:
        if not self._page:
            self._page = docs_page(msgspec.json.decode(self.document)).encode()
        return self._page


def with_system(surfaces: Iterable[Surface], system: System) -> tuple[Surface, ...]:
    """These surfaces and that of the server itself, which documents them all."""
    routes = (*HEALTH, replace(METRICS, scope="public"), *(() if system.is_closed else DOCUMENTS))
    own = Surface(name="system", prefix="/", routes=routes, service=system)
    system.surfaces = (*surfaces, own)
    return system.surfaces


async def _health(call: Call) -> Health:
    system: System = call.service
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Health("ok", time, system.version, system.sandbox)


async def _readiness(call: Call) -> Readiness | Reply:
    system: System = call.service
    found = {name: await _checked(check) for name, check in system.checks.items()}
    plane: dict[str, Any] = {}
    if system.watch is not None:
        plane = await _look(system.watch, found)
    wrong = [f"{name}: {why}" for name, why in found.items() if why != "ok"]
    if not wrong:
        return Readiness(status="ready", ok=True, checks=found, **plane)
    error = HttpError("runtime_not_ready", "; ".join(wrong), fields={"checks": found})
    told = problem(error, call.request_id)
    body = Readiness(status="not_ready", ok=False, checks=found, **plane)
    return Reply(
        {**msgspec.to_builtins(body), **hecate_error(told)},
        status=told.status,
        headers=told.headers,
    )


async def _checked(check: Check) -> str:
    try:
        return await check() or "ok"
    except BattenError as error:
        return error.code


async def _look(watch: PlaneWatch, found: dict[str, str]) -> dict[str, Any]:
    """The members of the control plane; adds its checks to those that were `found`."""
    runtime = await watch.runtime()
    breaker = watch.breaker_state
    broken = watch.broken_streams
    found["database"] = found.get("store", "ok")
    found["runtime"] = "ok" if runtime.ok else runtime.detail
    found["streamConsumer"] = "ok" if not broken else f"not connected: {broken}"
    found["circuitBreaker"] = "ok" if breaker != "OPEN" else breaker
    return {
        "database": _word(found["database"] == "ok"),
        "runtime": runtime,
        "stream_consumer": _word(not broken),
        "circuit_breaker": breaker,
    }


def _word(is_well: bool) -> str:
    return "ok" if is_well else "unhealthy"


async def _metrics(call: Call) -> Reply:
    system: System = call.service
    await system.metrics.refresh()
    kind = "text/plain; version=0.0.4; charset=utf-8"
    return Reply(system.metrics.text().encode(), content_type=kind)


async def _document(call: Call) -> Reply:
    system: System = call.service
    return Reply(system.document)


async def _page(call: Call) -> Reply:
    system: System = call.service
    headers = (("content-security-policy", POLICY),)
    return Reply(system.page, headers=headers, content_type="text/html; charset=utf-8")


HEALTH = (
    Route(
        method="GET",
        path="/healthz",
        handler=_health,
        summary="Whether the process answers",
        tag="system",
        scope="public",
        reply=Health,
    ),
    Route(
        method="GET",
        path="/readyz",
        handler=_readiness,
        summary="Whether the server can take work",
        tag="system",
        scope="public",
        reply=Readiness,
        other_replies=((503, Readiness),),
        errors=("runtime_not_ready",),
    ),
)
METRICS = Route(
    method="GET",
    path="/metrics",
    handler=_metrics,
    summary="Metrics for Prometheus",
    tag="system",
    reply=bytes,
    content_type="text/plain",
)
DOCUMENTS = (
    Route(
        method="GET",
        path="/docs",
        handler=_page,
        summary="These routes, for people",
        tag="system",
        is_page=True,
        reply=bytes,
        content_type="text/html",
    ),
    Route(
        method="GET",
        path="/docs-json",
        handler=_document,
        summary="These routes as an OpenAPI document",
        tag="system",
    ),
)
WATCHING = (METRICS, *DOCUMENTS)
