"""Errors as Hecate tells them: a type of its closed list, and the code as a narrower reason."""

import msgspec
import pytest

from batten.contract.errors import BattenError, CallerError, Conflict, NoCredentials, NotFound
from batten.protocols.hecate.errors import ErrorReply
from batten.serve.http.errors import HttpError, problem
from batten.serve.http.hecate.errors import hecate_problem


@pytest.mark.parametrize(
    ("error", "type_", "code"),
    [
        (CallerError("prompt is missing"), "invalid_request", ""),
        (NotFound("there is no task"), "not_found", ""),
        (Conflict("it has an active run"), "conflict", ""),
        (Conflict("ada was first", code="already_resolved"), "conflict", "already_resolved"),
        (NoCredentials("no model is named"), "model_not_configured", "config"),
        (HttpError("method_not_allowed", "use GET"), "invalid_request", "method_not_allowed"),
        (HttpError("overloaded", "too many streams"), "unavailable", "overloaded"),
    ],
)
def test_an_error_has_a_type_of_the_protocol_and_its_code_if_that_says_more(
    error: BattenError, type_: str, code: str
) -> None:
    told = hecate_problem(problem(error, "req_1"))
    detail = msgspec.convert(told, ErrorReply).error
    assert (detail.type, detail.code, detail.message) == (type_, code, error.message)
    assert detail.request_id == "req_1"


def test_the_wrong_field_is_named() -> None:
    wrong = HttpError("invalid_request", "`turn` must be an integer", fields={"field": "turn"})
    assert hecate_problem(problem(wrong, ""))["error"]["field"] == "turn"
