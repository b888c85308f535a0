"""Questions of a run to the user as the client's forms and URLs, and the answers."""

from typing import Any, Literal

import msgspec

from batten.contract.errors import PeerError
from batten.protocols.acp.shape import Shape

ELICIT = "elicitation/create"

_ANSWER = "answer"
"""The field for the answer to a plain question."""


class FormParams(Shape, frozen=True, tag_field="mode", tag="form"):
    session_id: str
    message: str
    requested_schema: dict[str, Any]
    tool_call_id: str | None = None


class UrlParams(Shape, frozen=True, tag_field="mode", tag="url"):
    """A URL to visit; the user's actions there are not reported."""

    session_id: str
    message: str
    elicitation_id: str
    url: str
    tool_call_id: str | None = None


class ElicitResult(Shape, frozen=True):
    action: str
    content: dict[str, Any] | None = None


def mode_of(detail: dict[str, Any]) -> Literal["form", "url"]:
    """The mode that a question needs."""
    return "url" if detail.get("mode") == "url" else "form"


def params_of(
    session_id: str, call_id: str | None, question: str, detail: dict[str, Any]
) -> FormParams | UrlParams:
    """A tool server's question passes unchanged; a model's question gets a field for its answer."""
    if mode_of(detail) == "url":
        return UrlParams(
            session_id=session_id,
            message=question,
            elicitation_id=str(detail.get("elicitationId", "")),
            url=str(detail.get("url", "")),
            tool_call_id=call_id,
        )
    schema = detail.get("requestedSchema") or _one_answer(detail.get("options"))
    return FormParams(
        session_id=session_id, message=question, requested_schema=schema, tool_call_id=call_id
    )


def _one_answer(options: list[str] | None) -> dict[str, Any]:
    field: dict[str, Any] = {"type": "string", "title": "Answer"}
    if options:
        field["enum"] = options
    return {"type": "object", "properties": {_ANSWER: field}, "required": [_ANSWER]}


def text_of(result: ElicitResult, detail: dict[str, Any]) -> str | None:
    """The answer, or None if the user gave none; `PeerError` for an invalid one."""
    if result.action != "accept":
        return None
    content = result.content or {}
    if mode_of(detail) == "url" or "requestedSchema" in detail:
        return msgspec.json.encode(content).decode()
    answer = content.get(_ANSWER)
    if not isinstance(answer, str):
        raise PeerError(f"the client's answer has no {_ANSWER!r}")
    return answer
