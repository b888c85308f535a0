"""The control plane's shape of errors."""

from typing import Any

from msgspec import to_builtins

from batten.protocols.macp.errors import STATUSES, ErrorBody
from batten.serve.http.errors import Problem

_CODES = {
    401: "UNAUTHENTICATED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    409: "CONFLICT",
    429: "RATE_LIMITED",
}


def control_error(problem: Problem) -> dict[str, Any]:
    code = problem.code
    if code not in STATUSES:
        other = "VALIDATION_ERROR" if problem.status < 500 else "INTERNAL_ERROR"
        code = _CODES.get(problem.status, other)
    body = ErrorBody(status_code=problem.status, error_code=code, message=problem.message)
    shown: dict[str, Any] = to_builtins(body)
    return shown
