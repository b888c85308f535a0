"""What the fuzzing of an OpenAPI document needs, whichever server it describes."""

# The types of schemathesis are not complete.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportArgumentType=false

import os
from collections.abc import Callable
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.result import Ok

Operation = APIOperation[Any, Any, Any, Any]

load_all_checks()
CHECKED: list[Any] = [
    CHECKS.get_one(name)
    for name in (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
    )
]
"""Never a 5xx, and only what the document names, with the content that it describes."""
LENGTH = int(os.environ.get("BATTEN_FUZZ", "600"))
"""Requests to each operation in a soak."""


def operations_of(document: dict[str, Any]) -> dict[str, Operation]:
    """The operations by label, such as `GET /healthz`."""
    found = schemathesis.openapi.from_dict(document).get_all_operations()
    return {one.ok().label: one.ok() for one in found if isinstance(one, Ok)}


def drawn(operation: Operation, data: st.DataObject) -> Case[Any]:
    """A request, right or wrong."""
    mode = data.draw(st.sampled_from(list(GenerationMode)))
    case: Case[Any] = data.draw(operation.as_strategy(generation_mode=mode))
    return case


def name_known(case: Case[Any], known: dict[str, str]) -> None:
    """Let the path name things that exist."""
    names = case.operation.path_parameters
    chosen = {one.name: known[one.name] for one in names if one.name in known}
    case.path_parameters = {**(case.path_parameters or {}), **chosen}


def fuzz(count: int, check: Callable[[st.DataObject], None], **more: Any) -> None:
    """Check so many requests."""

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        **more,
    )
    @given(data=st.data())
    def each(data: st.DataObject) -> None:
        check(data)

    each()
