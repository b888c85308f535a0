"""The surface of runs, with the control plane's shape of errors."""

from msgspec.structs import replace

from batten.protocols.macp.errors import ErrorBody
from batten.serve.http.control_plane import control_error
from batten.serve.http.macp import runs
from batten.serve.http.macp.service import RunService
from batten.serve.http.table import Surface


def macp(service: RunService | None) -> Surface:
    """The surface; without a service, to document it."""
    routes = runs.ROUTES
    if service is None:
        from batten.serve.http.macp.replies import REPLIES

        routes = tuple(replace(one, reply=REPLIES[one.path]) for one in routes)
    return Surface(
        name="macp",
        prefix="/runs",
        routes=routes,
        service=service,
        error=control_error,
        error_reply=ErrorBody,
        error_names={"not_found": "RUN_NOT_FOUND"},
    )
