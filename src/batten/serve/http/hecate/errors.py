"""The error object of Hecate: the protocol's own type, and the narrower code beside it."""

from typing import Any

from batten.protocols.hecate.errors import type_of
from batten.serve.http.errors import Problem


def hecate_problem(problem: Problem) -> dict[str, Any]:
    """`{"error":{"type","message",…}}`; texts for people only where they add something."""
    kind = type_of(problem.code, problem.status)
    error: dict[str, Any] = {
        **problem.fields,
        "type": kind,
        "message": problem.message,
        "request_id": problem.request_id,
    }
    if problem.code != kind:
        error["code"] = problem.code
    if problem.user_message:
        error["user_message"] = problem.user_message
    if problem.operator_action:
        error["operator_action"] = problem.operator_action
    return {"error": error}
