"""Routes of the server itself: health, readiness, metrics and documentation."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from batten.serve.http.docs_page import POLICY, docs_page
from batten.serve.http.errors import HttpError
from batten.serve.http.metrics import Metrics
from batten.serve.http.openapi import SERVICE, About, openapi
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


class Readiness(Struct, frozen=True):
    """The server can take work."""

    status: str
    checks: dict[str, str]
    """`ok` for each part."""


class System:
    """What those routes need."""

    def __init__(
        self,
        *,
        version: str,
        metrics: Metrics,
        checks: Mapping[str, Check] | None = None,
        sandbox: Mapping[str, Any] | None = None,
        about: About = SERVICE,
    ) -> None:
        self.version = version
        self.metrics = metrics
        self.checks = dict(checks or {})
        self.sandbox = UNSET if sandbox is None else dict(sandbox)
        self.about = about
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
    own = Surface(name="system", prefix="/", routes=(*HEALTH, *WATCHING), service=system)
    system.surfaces = (*surfaces, own)
    return system.surfaces


async def _health(call: Call) -> Health:
    system: System = call.service
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Health("ok", time, system.version, system.sandbox)


async def _readiness(call: Call) -> Readiness:
    system: System = call.service
    found = {name: await check() or "ok" for name, check in system.checks.items()}
    wrong = [f"{name}: {why}" for name, why in found.items() if why != "ok"]
    if wrong:
        raise HttpError("runtime_not_ready", "; ".join(wrong), fields={"checks": found})
    return Readiness("ready", found)


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
        reply=Readiness,
        errors=("runtime_not_ready",),
    ),
)
WATCHING = (
    Route(
        method="GET",
        path="/metrics",
        handler=_metrics,
        summary="Metrics for Prometheus",
        tag="system",
        reply=bytes,
        content_type="text/plain",
    ),
    Route(
        method="GET",
        path="/docs",
        handler=_page,
        summary="These routes, for people",
        tag="system",
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
