"""The error body, and the codes that errors have."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from batten.contract.errors import BattenError, CallerError, Conflict, NotFound

ErrorCode = Literal[
    "RUN_NOT_FOUND",
    "INVALID_STATE_TRANSITION",
    "RUNTIME_UNAVAILABLE",
    "RUNTIME_TIMEOUT",
    "STREAM_EXHAUSTED",
    "SESSION_EXPIRED",
    "VALIDATION_ERROR",
    "INTERNAL_ERROR",
    "MODE_NOT_SUPPORTED",
    "CIRCUIT_BREAKER_OPEN",
    "INVALID_SESSION_ID",
    "UNKNOWN_POLICY_VERSION",
    "POLICY_DENIED",
    "INVALID_POLICY_DEFINITION",
    "SESSION_ALREADY_EXISTS",
    "FORBIDDEN",
    "NOT_FOUND",
    "CONFLICT",
    "UNAUTHENTICATED",
    "NOT_IMPLEMENTED",
    "RATE_LIMITED",
    "PAYLOAD_TOO_LARGE",
    "ENDPOINT_REMOVED",
]

STATUSES: dict[ErrorCode, int] = {
    "RUN_NOT_FOUND": 404,
    "INVALID_STATE_TRANSITION": 409,
    "RUNTIME_UNAVAILABLE": 503,
    "RUNTIME_TIMEOUT": 504,
    "STREAM_EXHAUSTED": 500,
    "SESSION_EXPIRED": 400,
    "VALIDATION_ERROR": 400,
    "INTERNAL_ERROR": 500,
    "MODE_NOT_SUPPORTED": 400,
    "CIRCUIT_BREAKER_OPEN": 503,
    "INVALID_SESSION_ID": 400,
    "UNKNOWN_POLICY_VERSION": 400,
    "POLICY_DENIED": 403,
    "INVALID_POLICY_DEFINITION": 400,
    "SESSION_ALREADY_EXISTS": 409,
    "FORBIDDEN": 403,
    "NOT_FOUND": 404,
    "CONFLICT": 409,
    "UNAUTHENTICATED": 401,
    "NOT_IMPLEMENTED": 501,
    "RATE_LIMITED": 429,
    "PAYLOAD_TOO_LARGE": 413,
    "ENDPOINT_REMOVED": 410,
}
"""The HTTP status of each code."""

GRPC_CODES: dict[int, ErrorCode] = {
    3: "VALIDATION_ERROR",
    4: "RUNTIME_TIMEOUT",
    5: "NOT_FOUND",
    6: "CONFLICT",
    7: "FORBIDDEN",
    8: "RATE_LIMITED",
    9: "CONFLICT",
    10: "CONFLICT",
    11: "VALIDATION_ERROR",
    12: "NOT_IMPLEMENTED",
    14: "RUNTIME_UNAVAILABLE",
    16: "UNAUTHENTICATED",
}
"""The code of an answer of the runtime, by its gRPC status. Others are `INTERNAL_ERROR`."""

INTERNAL = "Internal server error"
"""The text of a bug: it tells nothing of its cause."""


class ErrorBody(Struct, frozen=True, kw_only=True, rename="camel"):
    """Every error: a number for HTTP, a code for programs, a message for people."""

    status_code: int
    error_code: str
    message: str
    metadata: dict[str, Any] | UnsetType = UNSET


def error_body(
    code: ErrorCode, message: str, metadata: dict[str, Any] | UnsetType = UNSET
) -> ErrorBody:
    return ErrorBody(
        status_code=STATUSES[code], error_code=code, message=message, metadata=metadata
    )


def body_of(error: Exception) -> ErrorBody:
    """The body of an error that a handler raised; a bug does not tell its cause."""
    if not isinstance(error, BattenError):
        return error_body("INTERNAL_ERROR", INTERNAL)
    for code in STATUSES:
        if error.code == code:
            return error_body(code, error.message)
    match error:
        case NotFound():
            return error_body("NOT_FOUND", error.message)
        case Conflict():
            return error_body("CONFLICT", error.message)
        case CallerError():
            return error_body("VALIDATION_ERROR", error.message)
        case _:
            return error_body("INTERNAL_ERROR", INTERNAL)
