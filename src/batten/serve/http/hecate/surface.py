"""The surface of Hecate: all its rows, on one service."""

from batten.protocols.hecate.errors import ErrorReply
from batten.serve.http.hecate import (
    approvals,
    artifacts,
    client_events,
    events,
    patches,
    retention,
    steps,
    system,
    tasks,
)
from batten.serve.http.hecate.errors import hecate_problem
from batten.serve.http.hecate.service import Service
from batten.serve.http.table import Surface

ROUTES = (
    *tasks.ROUTES,
    *events.ROUTES,
    *client_events.ROUTES,
    *steps.ROUTES,
    *approvals.ROUTES,
    *artifacts.ROUTES,
    *patches.ROUTES,
    *retention.ROUTES,
    *system.ROUTES,
)


def hecate(service: Service | None) -> Surface:
    """The surface; without a service, to document it."""
    return Surface(
        name="hecate",
        prefix="/hecate/v1",
        routes=ROUTES,
        service=service,
        error=hecate_problem,
        error_reply=ErrorReply,
    )
