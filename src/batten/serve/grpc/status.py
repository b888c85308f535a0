"""A rejection as a gRPC status, with its code of the registry as metadata."""

from importlib import import_module
from typing import Any

from batten.coordination.rejection import Code, Rejection

grpc: Any = import_module("grpc")

_STATUSES: dict[Code, str] = {
    "UNAUTHENTICATED": "UNAUTHENTICATED",
    "FORBIDDEN": "PERMISSION_DENIED",
    "PAYLOAD_TOO_LARGE": "RESOURCE_EXHAUSTED",
    "RATE_LIMITED": "RESOURCE_EXHAUSTED",
    "STREAM_LAGGED": "RESOURCE_EXHAUSTED",
    "INTERNAL_ERROR": "INTERNAL",
    "INVALID_SESSION_ID": "INVALID_ARGUMENT",
    "INVALID_POLICY_DEFINITION": "INVALID_ARGUMENT",
    "INVALID_REQUEST": "INVALID_ARGUMENT",
    "SESSION_ALREADY_EXISTS": "ALREADY_EXISTS",
    "SESSION_NOT_FOUND": "NOT_FOUND",
    "AGENT_NOT_FOUND": "NOT_FOUND",
    "UNKNOWN_POLICY_VERSION": "NOT_FOUND",
}
"""Every other code is FAILED_PRECONDITION."""


async def abort(context: Any, rejection: Rejection) -> Any:
    """End a call with the status of a rejection; it does not return."""
    status = getattr(grpc.StatusCode, _STATUSES.get(rejection.macp_code, "FAILED_PRECONDITION"))
    trailing: list[tuple[str, str | bytes]] = [("macp-error-code", rejection.macp_code)]
    if rejection.details:
        trailing.append(("macp-error-details-bin", rejection.details))
    await context.abort(status, rejection.message, trailing_metadata=tuple(trailing))


def internal() -> Rejection:
    return Rejection("INTERNAL_ERROR", "the runtime failed; its log tells why")
