"""Errors of a hosted runner: the shape that its control plane reads."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field

from batten.runner.runner import Runner
from batten.serve.http.errors import ErrorShape, HttpError, Problem

DOMAIN = "maestro.hosted_runner"
OWNED_ELSEWHERE = "runtime_owned_elsewhere"
NOT_READY = "runtime_not_ready"
_REQUESTED = "requested_maestro_session_id"

_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
TYPES = {
    "invalid_request": "bad_request",
    "protocol_error": "bad_request",
    "refused": "access_denied",
    "forbidden": "access_denied",
    "unauthorized": "unauthenticated",
}
"""Our codes in the words of the protocol; the others are the same."""

_TEXTS = {413: "Payload too large: "}
"""How texts of a status begin."""


class ErrorInfo(Struct, frozen=True, kw_only=True):
    type_: str = field(default="type.googleapis.com/google.rpc.ErrorInfo", name="@type")
    reason: str
    domain: str = DOMAIN
    metadata: dict[str, str] | UnsetType = UNSET


class RunnerErrorReply(Struct, frozen=True, kw_only=True):
    """An error. Clients decide by `error_type`; the text is for people and may change."""

    error: str
    code: str
    """The name of the status in gRPC."""
    error_type: str
    request_id: str = ""
    details: tuple[ErrorInfo, ...] | UnsetType = UNSET


def runner_error(runner: Runner | None) -> ErrorShape:
    """The shape; errors of the runner itself tell which one it is."""

    def shape(problem: Problem) -> Any:
        error_type = problem.fields.get("error_type", TYPES.get(problem.code, problem.code))
        details: tuple[ErrorInfo, ...] | UnsetType = UNSET
        if runner is not None and error_type in (NOT_READY, OWNED_ELSEWHERE):
            metadata = _metadata(runner)
            if runner.draining:
                metadata["draining"] = "true"
            if _REQUESTED in problem.fields:
                metadata[_REQUESTED] = problem.fields[_REQUESTED]
            details = (ErrorInfo(reason=error_type, metadata=metadata),)
        return RunnerErrorReply(
            error=_TEXTS.get(problem.status, "") + problem.message,
            code=_NAMES.get(problem.status, "UNKNOWN"),
            error_type=error_type,
            request_id=problem.request_id,
            details=details,
        )

    return shape


def owned_elsewhere(requested: str | None) -> HttpError:
    """The runner has another session than the one that was asked for."""
    fields = {} if requested is None else {_REQUESTED: requested}
    return HttpError(
        OWNED_ELSEWHERE,
        "Hosted runner is bound to another session; name that one in sessionId",
        fields=fields,
    )


def _metadata(runner: Runner) -> dict[str, str]:
    identity = runner.identity
    named = {
        "runner_session_id": identity.runner_session_id,
        "owner_instance_id": identity.owner_instance_id,
        "workspace_id": identity.workspace_id,
        "agent_run_id": identity.agent_run_id,
        "maestro_session_id": runner.bound,
    }
    return {name: value for name, value in named.items() if value}
