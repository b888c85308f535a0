"""The surface of Hecate: all its rows, on one service."""

from typing import Any

from msgspec.structs import replace

from batten.control.supervisor import Supervisor
from batten.control.tasks import Tasks
from batten.protocols.hecate.errors import ErrorReply, type_of
from batten.serve.http.errors import Problem, hecate_error
from batten.serve.http.hecate import events, tasks
from batten.serve.http.hecate.service import Service
from batten.serve.http.table import Surface

ROUTES = (*tasks.ROUTES, *events.ROUTES)


def error_reply(problem: Problem) -> dict[str, Any]:
    """An error by the protocol's closed list of types; our own code is a narrower reason."""
    told = hecate_error(problem)["error"]
    type_ = type_of(problem.code, problem.status)
    narrower = {} if problem.code == type_ else {"code": problem.code}
    return {"error": {**told, "type": type_, **narrower}}


SURFACE = Surface(
    name="hecate", prefix="/hecate/v1", routes=ROUTES, error=error_reply, error_reply=ErrorReply
)
"""The table without a service, for its documentation."""


def hecate(of: Tasks, workers: Supervisor) -> Surface:
    return replace(SURFACE, service=Service(of))
