"""The surface of Hecate: all its rows, on one service."""

from typing import Any

from batten.protocols.hecate.errors import ErrorReply, type_of
from batten.serve.http.errors import Problem, hecate_error
from batten.serve.http.hecate import events, tasks
from batten.serve.http.hecate.service import Service
from batten.serve.http.table import Surface

ROUTES = (*tasks.ROUTES, *events.ROUTES)


def hecate(service: Service | None) -> Surface:
    """The surface; without a service, to document it."""
    return Surface(
        name="hecate",
        prefix="/hecate/v1",
        routes=ROUTES,
        service=service,
        error=error_reply,
        error_reply=ErrorReply,
    )


def error_reply(problem: Problem) -> dict[str, Any]:
    """An error by the protocol's closed list of types; our own code is a narrower reason."""
    told = hecate_error(problem)["error"]
    type_ = type_of(problem.code, problem.status)
    narrower = {} if problem.code == type_ else {"code": problem.code}
    return {"error": {**told, "type": type_, **narrower}}
