"""The error object, and the types that errors have."""

from typing import Literal

from msgspec import Struct

ErrorType = Literal[
    "invalid_request",
    "unauthorized",
    "forbidden",
    "not_found",
    "request_body_timeout",
    "conflict",
    "request_too_large",
    "model_not_configured",
    "provider_ambiguous",
    "unsupported_model",
    "rate_limit_exceeded",
    "quota_exceeded",
    "provider_rate_limited",
    "internal_error",
    "gateway_error",
    "provider_auth_failed",
    "provider_unavailable",
    "upstream_error",
    "route_impossible",
    "unavailable",
]

_BY_CODE: dict[str, ErrorType] = {
    "invalid_request": "invalid_request",
    "unauthorized": "unauthorized",
    "forbidden": "forbidden",
    "not_found": "not_found",
    "request_body_timeout": "request_body_timeout",
    "conflict": "conflict",
    "request_too_large": "request_too_large",
    "config": "model_not_configured",
    "model_not_configured": "model_not_configured",
    "provider_ambiguous": "provider_ambiguous",
    "unsupported_model": "unsupported_model",
    "rate_limit_exceeded": "rate_limit_exceeded",
    "quota_exceeded": "quota_exceeded",
    "provider_rate_limited": "provider_rate_limited",
    "internal_error": "internal_error",
    "gateway_error": "gateway_error",
    "provider_auth_failed": "provider_auth_failed",
    "provider_unavailable": "provider_unavailable",
    "provider_error": "upstream_error",
    "route_impossible": "route_impossible",
}
STATUS_TYPES: dict[int, ErrorType] = {
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    408: "request_body_timeout",
    409: "conflict",
    413: "request_too_large",
    429: "rate_limit_exceeded",
    500: "internal_error",
    502: "upstream_error",
    503: "unavailable",
}


class ErrorDetail(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong. Programs decide by `type`."""

    type: ErrorType
    message: str
    """What is wrong, and what would be right."""
    code: str = ""
    """A narrower reason than the type, such as `already_resolved`."""
    field: str = ""
    """The field of the request that is wrong."""
    user_message: str = ""
    """A text for people who use the client."""
    operator_action: str = ""
    """What the operator of the service can do about it."""
    request_id: str = ""
    """Names the request in the service's log."""


class ErrorReply(Struct, frozen=True, kw_only=True):
    """The answer to a request that failed."""

    error: ErrorDetail


def type_of(code: str, status: int) -> ErrorType:
    """The type of an error: by its code if the protocol has such a type, else by its status."""
    return _BY_CODE.get(code) or STATUS_TYPES.get(status, "invalid_request")
