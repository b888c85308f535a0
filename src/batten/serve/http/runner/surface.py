"""The surface of a hosted runner: who it is, its drain, its health, and its session."""

from collections.abc import Sequence

from msgspec import Struct

from batten.runner.drain import Drained
from batten.runner.identity import IdentityAnswer
from batten.runner.request import LARGEST, DrainRequest, parse
from batten.serve.http.openapi import About
from batten.serve.http.runner import sessions
from batten.serve.http.runner.access import by_key
from batten.serve.http.runner.errors import TYPES, RunnerErrorReply, runner_error
from batten.serve.http.runner.service import RunnerService
from batten.serve.http.system import WATCHING, System
from batten.serve.http.table import Call, Reply, Route, Surface

ABOUT = About(
    title="Batten: hosted runner",
    text="One session in one workspace, for a control plane: identity, drain and remote clients.",
    key_header="x-maestro-api-key",
)
WELL_KNOWN = "/.well-known/evalops/remote-runner"
_DRAIN_S = 150.0
"""More than a drain takes: its stop has a limit of its own."""


class Answers(Struct, frozen=True, kw_only=True):
    ok: bool = True


async def identity(call: Call) -> Reply:
    service: RunnerService = call.service
    return Reply(service.runner.answer(), headers=(("cache-control", "no-store"),))


async def drain(call: Call) -> Reply:
    service: RunnerService = call.service
    drained = await service.drain(parse(call.body))
    status = 200 if drained.status == "drained" else 503
    return Reply(drained, status=status, headers=(("cache-control", "no-store"),))


async def health(call: Call) -> Answers:
    return Answers()


async def readiness(call: Call) -> Answers:
    service: RunnerService = call.service
    service.runner.check_attachable()
    return Answers()


ROUTES = (
    Route(
        method="GET",
        path=f"{WELL_KNOWN}/identity",
        handler=identity,
        summary="Which runner this is, and whether clients may attach",
        tag="runner",
        scope="public",
        reply=IdentityAnswer,
        errors=("not_found",),
    ),
    Route(
        method="POST",
        path=f"{WELL_KNOWN}/drain",
        handler=drain,
        summary="Stop the session and write the manifest to go on from",
        tag="runner",
        scope="public",
        body=bytes,
        body_optional=True,
        body_type=DrainRequest,
        max_body=LARGEST,
        reply=Drained,
        other_replies=((503, Drained),),
        errors=(
            *("export_path_escapes", "export_path_unavailable"),
            *("handover_failed", "runtime_not_ready"),
        ),
        timeout_s=_DRAIN_S,
        description="Answers 503 with the same body if the session did not stop cleanly. Takes"
        " `stop_reason`, `requestedBy` and `exportPaths` too.",
    ),
    Route(
        method="GET",
        path="/healthz",
        handler=health,
        summary="Whether the process answers",
        tag="runner",
        scope="public",
        reply=Answers,
    ),
    Route(
        method="GET",
        path="/readyz",
        handler=readiness,
        summary="Whether clients may attach",
        tag="runner",
        scope="public",
        reply=Answers,
        errors=("runtime_not_ready",),
    ),
    *sessions.ROUTES,
)


def runner_surfaces(
    service: RunnerService | None, keys: Sequence[str], system: System
) -> tuple[Surface, ...]:
    """The surfaces of a runner; without a service, to document them."""
    error = runner_error(None if service is None else service.runner)
    authenticate = by_key(keys)
    system.surfaces = tuple(
        Surface(
            name=name,
            prefix="/",
            routes=routes,
            service=its_service,
            error=error,
            error_reply=RunnerErrorReply,
            error_names=TYPES,
            authenticate=authenticate,
        )
        for name, routes, its_service in (
            ("hosted runner", ROUTES, service),
            ("system", WATCHING, system),
        )
    )
    return system.surfaces
