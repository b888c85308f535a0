"""The surface of Hecate: all its rows, on one service."""

from batten.control.supervisor import Supervisor
from batten.control.tasks import Tasks
from batten.serve.http.hecate import events, tasks
from batten.serve.http.hecate.service import Service
from batten.serve.http.table import Surface

ROUTES = (*tasks.ROUTES, *events.ROUTES)


def hecate(of: Tasks, workers: Supervisor) -> Surface:
    return Surface(name="hecate", prefix="/hecate/v1", routes=ROUTES, service=Service(of))
