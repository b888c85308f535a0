"""The edge of the control plane's paths: keys, rates, sites that may call, the shape of errors."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, to_builtins

from batten.contract.errors import BattenError
from batten.protocols.macp.errors import INTERNAL, STATUSES, ErrorBody
from batten.serve.http.access import PUBLIC, Door, NotTheOwner, authorized
from batten.serve.http.errors import STATUS, HttpError, Problem
from batten.serve.http.keys import KeyExpired
from batten.serve.http.limits import Throttle
from batten.serve.http.table import Authenticate, Principal, Route, SentHeaders
from batten.settings.control_plane import ControlPlaneSettings

_CODES = {
    401: "UNAUTHENTICATED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    409: "CONFLICT",
    413: "PAYLOAD_TOO_LARGE",
    429: "RATE_LIMITED",
}
_METHODS = b"GET, HEAD, POST, PATCH, DELETE, OPTIONS"
_TAKEN = b"authorization, content-type, last-event-id, x-api-key, x-request-id"
_SHOWN = b"x-request-id, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, retry-after"


class ControlPlaneEdge:
    """One for all surfaces of the control plane: a client has one allowance."""

    def __init__(self, settings: ControlPlaneSettings) -> None:
        self._throttle = Throttle(settings.throttle_limit, settings.throttle_ttl_ms / 1000)
        self._origin = settings.cors_origin.lower().encode()
        self._shared: SentHeaders = (
            (b"access-control-allow-origin", settings.cors_origin.encode()),
            (b"access-control-allow-credentials", b"true"),
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", _TAKEN),
            (b"access-control-expose-headers", _SHOWN),
            (b"vary", b"origin"),
        )

    def admit(
        self,
        route: Route,
        door: Door,
        authenticate: Authenticate,
        headers: Mapping[bytes, bytes],
        address: str,
    ) -> tuple[Principal, SentHeaders]:
        """Who calls, and the headers that tell what is left of its rate.

        A client is its key, else its address; who has no valid key is counted too.
        """
        try:
            principal = authorized(route, authenticate, _with_bearer(headers))
        except KeyExpired:
            raise
        except BattenError as error:
            if error.code == "unauthorized":
                if door.is_counted:
                    self._throttle.take(address)
                if isinstance(error, NotTheOwner):
                    raise
                raise HttpError(
                    "unauthorized", _why_not(headers), headers=(("www-authenticate", "Bearer"),)
                ) from None
            raise
        if not door.is_counted or principal is PUBLIC:
            return principal, ()
        return principal, self._throttle.take(principal.key_id or address)

    def shared_with(self, origin: bytes) -> SentHeaders:
        """The headers that let pages of this origin call; none for any other."""
        return self._shared if self._origin and origin.lower() == self._origin else ()


def _with_bearer(headers: Mapping[bytes, bytes]) -> Mapping[bytes, bytes]:
    """A key without `Bearer` before it counts too."""
    given = headers.get(b"authorization")
    if given is None or b" " in given or not given or given.lower() == b"bearer":
        return headers
    return {**headers, b"authorization": b"Bearer " + given}


def _why_not(headers: Mapping[bytes, bytes]) -> str:
    given = headers.get(b"authorization", headers.get(b"x-api-key"))
    if given is None:
        return "Missing Authorization header"
    if given.strip().lower() in (b"", b"bearer"):
        return "Empty authorization token"
    return "Invalid authorization token"


def control_error(problem: Problem) -> dict[str, Any]:
    code, message = control_code(problem.code, problem.status), problem.message
    if problem.code == "internal_error":
        message = INTERNAL
    body = ErrorBody(
        status_code=problem.status,
        error_code=code,
        message=message,
        metadata=problem.fields.get("metadata", UNSET),
    )
    shown: dict[str, Any] = to_builtins(body)
    return shown


def control_code(code: str, status: int) -> str:
    """A code as the control plane tells it."""
    if code in STATUSES:
        return code
    return _CODES.get(status, "VALIDATION_ERROR" if status < 500 else "INTERNAL_ERROR")


CONTROL_CODES = {code: control_code(code, status) for code, status in STATUS.items()}
"""For the documentation of these paths."""
