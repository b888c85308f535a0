"""What a run asks people, put as forms and addresses of the client's, and what they answered."""

from typing import Any, Literal

import msgspec

from batten.contract.errors import PeerError
from batten.protocols.acp.shape import Shape

ELICIT = "elicitation/create"

_ANSWER = "answer"
"""The one field of a question in plain words."""


class FormParams(Shape, frozen=True, tag_field="mode", tag="form"):
    """Values to be filled in."""

    session_id: str
    message: str
    requested_schema: dict[str, Any]
    tool_call_id: str | None = None


class UrlParams(Shape, frozen=True, tag_field="mode", tag="url"):
    """An address to be visited; what happens there is not told here."""

    session_id: str
    message: str
    elicitation_id: str
    url: str
    tool_call_id: str | None = None


class ElicitResult(Shape, frozen=True):
    action: str
    content: dict[str, Any] | None = None


def mode_of(detail: dict[str, Any]) -> Literal["form", "url"]:
    """How a question can be put at all."""
    return "url" if detail.get("mode") == "url" else "form"


def params_of(
    session_id: str, call_id: str | None, question: str, detail: dict[str, Any]
) -> FormParams | UrlParams:
    """A tool server's question is put as it is; one of the model's has a field for its answer."""
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
    """What was answered, None if nothing was; `PeerError` for an answer that does not say."""
    if result.action != "accept":
        return None
    content = result.content or {}
    if mode_of(detail) == "url" or "requestedSchema" in detail:
        return msgspec.json.encode(content).decode()
    answer = content.get(_ANSWER)
    if not isinstance(answer, str):
        raise PeerError(f"the client's answer has no {_ANSWER!r}")
    return answer
