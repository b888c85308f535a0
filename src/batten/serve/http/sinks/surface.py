"""The surfaces of webhooks and of the audit log, with the control plane's shape of errors."""

from batten.protocols.macp.errors import ErrorBody
from batten.serve.http.control_plane import CONTROL_CODES, ControlPlaneEdge, control_error
from batten.serve.http.sinks import audit, webhooks
from batten.serve.http.sinks.service import SinkService
from batten.serve.http.table import Surface


def sinks(service: SinkService | None, edge: ControlPlaneEdge | None = None) -> tuple[Surface, ...]:
    """The surfaces; without a service, to document them."""
    return tuple(
        Surface(
            name=name,
            prefix=f"/{name}",
            routes=routes,
            service=service,
            error=control_error,
            error_reply=ErrorBody,
            error_names=CONTROL_CODES,
            edge=edge,
        )
        for name, routes in (("webhooks", webhooks.ROUTES), ("audit", audit.ROUTES))
    )
