"""The surfaces of the control plane, with its shape of errors."""

from msgspec.structs import replace

from batten.protocols.macp.errors import ErrorBody
from batten.serve.http.control_plane import CONTROL_CODES, ControlPlaneEdge, control_error
from batten.serve.http.macp import (
    actions,
    admin,
    compare,
    creating,
    dashboard,
    export,
    listing,
    observability,
    removed,
    replay,
    runs,
    runtime,
    streams,
)
from batten.serve.http.macp.service import RunService
from batten.serve.http.table import Surface

_ROUTES = (
    *listing.ROUTES,
    *dashboard.ROUTES,
    *runs.ROUTES,
    *streams.ROUTES,
    *replay.ROUTES,
    *export.ROUTES,
    *compare.ROUTES,
    *observability.ROUTES,
    *creating.ROUTES,
    *actions.ROUTES,
    *removed.ROUTES,
    *runtime.ROUTES,
    *admin.ROUTES,
)
_PREFIXES = ("/runs", "/events", "/dashboard", "/runtime", "/admin")
"""Each is a surface: an unknown path below it is answered in the control plane's shape."""


def macp(service: RunService | None, edge: ControlPlaneEdge | None = None) -> tuple[Surface, ...]:
    """The surfaces; without a service, to document them."""
    routes = _ROUTES
    if service is None:
        from batten.serve.http.macp.replies import REPLIES

        routes = tuple(replace(one, reply=REPLIES[f"{one.method} {one.path}"]) for one in routes)
    return tuple(
        Surface(
            name=f"macp{prefix.replace('/', '.')}",
            prefix=prefix,
            routes=tuple(one for one in routes if _is_below(one.path, prefix)),
            service=service,
            error=control_error,
            error_reply=ErrorBody,
            error_names=CONTROL_CODES
            | ({"not_found": "RUN_NOT_FOUND"} if prefix == "/runs" else {}),
            edge=edge,
        )
        for prefix in _PREFIXES
    )


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")
