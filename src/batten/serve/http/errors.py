"""Errors of the HTTP surfaces: which status an error has, and the shapes they are told in."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from batten.contract.errors import (
    BattenError,
    CallerError,
    Conflict,
    JournalError,
    NotFound,
    NotReady,
    PeerError,
    ProviderError,
    Refused,
)
from batten.protocols.macp.errors import STATUSES

STATUS: dict[str, int] = {
    "invalid_request": 400,
    "workspace_invalid": 400,
    "unsupported_model": 400,
    "bad_bundle": 400,
    "protocol_error": 400,
    "invalid_config": 400,
    "export_path_escapes": 400,
    "export_path_unavailable": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "refused": 403,
    "not_found": 404,
    "stale_session": 404,
    "stale_connection": 404,
    "method_not_allowed": 405,
    "request_body_timeout": 408,
    "conflict": 409,
    "controller_lease_held": 409,
    "runtime_owned_elsewhere": 409,
    "request_too_large": 413,
    "unsupported_media_type": 415,
    "range_not_satisfiable": 416,
    "config": 422,
    "model_not_configured": 422,
    "provider_ambiguous": 422,
    "rate_limit_exceeded": 429,
    "quota_exceeded": 429,
    "provider_rate_limited": 429,
    "request_headers_too_large": 431,
    "internal_error": 500,
    "gateway_error": 500,
    "store_damaged": 500,
    "runtime_failed": 500,
    "provider_error": 502,
    "provider_auth_failed": 502,
    "provider_unavailable": 502,
    "runtime_not_ready": 503,
    "handover_failed": 503,
    "request_timeout": 503,
    "overloaded": 503,
    "route_impossible": 503,
    "store": 503,
    "store_busy": 503,
    "store_full": 503,
    "store_read_only": 503,
    "fence_lost": 503,
    **{str(code): status for code, status in STATUSES.items()},
}
"""The status of each code; those in capitals are the control plane's."""

_BY_CLASS: tuple[tuple[type[BattenError], int], ...] = (
    (NotFound, 404),
    (Conflict, 409),
    (CallerError, 400),
    (PeerError, 400),
    (Refused, 403),
    (ProviderError, 502),
    (NotReady, 503),
    (JournalError, 503),
    (BattenError, 500),
)
"""For codes that the table does not name."""

_FOR_USERS: dict[str, str] = {
    "internal_error": "Something went wrong on the server. Tell its operator the request id.",
    "runtime_not_ready": "The server is starting or stopping. Try again in a moment.",
    "overloaded": "The server has too much to do. Try again in a moment.",
    "rate_limit_exceeded": "Too many requests. Wait as long as Retry-After says.",
    "store_busy": "The store is busy. Try again in a moment.",
    "store_full": "The server's disk is full.",
}

_FOR_OPERATORS: dict[str, str] = {
    "internal_error": "Search the server's log for the request id.",
    "unauthorized": "Create a key: batten keys create NAME --scope operator",
    "store_full": "Free space on the disk of BATTEN_HOME: batten prune --older-than 30d",
    "store_read_only": "Make BATTEN_HOME writable for the user of the server.",
    "store_damaged": "Run batten verify, and restore a backup if it finds damage.",
    "config": "Run batten doctor on the server.",
}

_RETRY_S = {"runtime_not_ready": 1, "store_busy": 1, "overloaded": 1, "request_timeout": 1}


class Problem(Struct, frozen=True, kw_only=True):
    """An error as a client is told it, before its shape."""

    status: int
    code: str
    message: str
    request_id: str = ""
    fields: Mapping[str, Any] = {}
    """More about it, such as `field`; never in place of the names above."""
    headers: tuple[tuple[str, str], ...] = ()
    remedy: str = ""
    """In place of the usual one for the code."""

    @property
    def user_message(self) -> str:
        return _FOR_USERS.get(self.code, "")

    @property
    def operator_action(self) -> str:
        return self.remedy or _FOR_OPERATORS.get(self.code, "")


ErrorShape = Callable[[Problem], Any]
"""The JSON body of an error; each surface has its own."""


class HttpError(BattenError):
    """An error with a status, headers or fields of its own."""

    remedy: str = ""
    """What the operator can do, if that is not the usual for the code."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int | None = None,
        headers: tuple[tuple[str, str], ...] = (),
        fields: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.status = STATUS[code] if status is None else status
        self.headers = headers
        self.fields = fields or {}


def status_of(error: BattenError) -> int:
    """By the error's code, else by its class."""
    if isinstance(error, HttpError):
        return error.status
    status = STATUS.get(error.code)
    if status is None:
        status = next(status for kind, status in _BY_CLASS if isinstance(error, kind))
    return status


def problem(error: BaseException, request_id: str) -> Problem:
    """What a client is told. A bug gives `internal_error`, without its text."""
    if not isinstance(error, BattenError):
        return Problem(
            status=500,
            code="internal_error",
            message="the server failed; its log has the reason under this request id",
            request_id=request_id,
        )
    headers: tuple[tuple[str, str], ...] = ()
    fields: Mapping[str, Any] = {}
    remedy = ""
    if isinstance(error, HttpError):
        headers, fields, remedy = error.headers, error.fields, error.remedy
    retry_s = _RETRY_S.get(error.code)
    if retry_s is not None and not any(name == "retry-after" for name, _ in headers):
        headers = (*headers, ("retry-after", str(retry_s)))
    message = error.message
    if isinstance(error, JournalError):
        message = f"{error.plain}; the server's log has the reason under this request id"
    return Problem(
        status=status_of(error),
        code=error.code,
        message=message,
        request_id=request_id,
        fields=fields,
        headers=headers,
        remedy=remedy,
    )


class HecateError(Struct, frozen=True, rename={"type_": "type"}):
    """Clients decide by `type`; the texts are for people and may change."""

    type_: str
    message: str
    request_id: str
    user_message: str | UnsetType = UNSET
    operator_action: str | UnsetType = UNSET
    field: str | UnsetType = UNSET
    """The wrong part of a request."""


class HecateErrorReply(Struct, frozen=True):
    """An error."""

    error: HecateError


def hecate_error(problem: Problem) -> dict[str, Any]:
    """`{"error":{"type","message",…}}`; texts for people only where they add something."""
    error: dict[str, Any] = {
        **problem.fields,
        "type": problem.code,
        "message": problem.message,
        "request_id": problem.request_id,
    }
    if problem.user_message:
        error["user_message"] = problem.user_message
    if problem.operator_action:
        error["operator_action"] = problem.operator_action
    return {"error": error}
