"""The five classes of server requests: their messages, and the meaning of an answer or its absence.

A request belongs to a tool call. Some classes are answered with content, the others with a
decision.
"""

from typing import Any

from msgspec import UNSET, Struct

from batten.contract import facts
from batten.contract.cutting import shortened
from batten.contract.facts.approval import QUESTION_TIMED_OUT
from batten.contract.marks import exact
from batten.protocols.maestro.incoming import (
    ClientToolResult,
    Content,
    ImageContent,
    ServerRequestResponse,
    TextContent,
    ToolResponse,
)
from batten.protocols.maestro.outgoing import ServerRequest, ServerRequestResolved
from batten.protocols.maestro.vocabulary import RequestType, Resolution, ResolvedBy, RetryAction

APPROVAL_TIMED_OUT = "Approval request timed out"
_TIMED_OUT: dict[RequestType, str] = {
    **QUESTION_TIMED_OUT,
    "approval": APPROVAL_TIMED_OUT,
    "tool_retry": "Tool retry request timed out",
}
_FAILED: dict[RequestType, str] = {
    "client_tool": "Client tool result reported an error",
    "mcp_elicitation": "MCP elicitation request reported an error",
    "user_input": "User input request reported an error",
}
_WORDS: dict[RequestType, str] = {"approval": "approval", "tool_retry": "tool retry request"}
_RETRIES: dict[RetryAction, Resolution] = {
    "retry": "retried",
    "skip": "skipped",
    "abort": "aborted",
}
_LONGEST_LABEL = 80
_SUBJECTS = (
    *("command", "file_path", "pattern", "url", "query", "description", "prompt", "question"),
    "path",
)
"""Arguments that say what a call is about, the most telling first."""


class Answer(Struct, frozen=True, kw_only=True):
    """The meaning of a client's answer for the waiting run."""

    granted: bool
    text: str = ""
    halt: bool = False
    """End the run."""
    content: tuple[Content, ...] = ()


class Pending(Struct, frozen=True, kw_only=True):
    """An open request."""

    request_id: str
    request_type: RequestType
    call_id: str
    is_sent: bool
    """Whether the client received a `server_request`; it then also receives the resolution."""
    started_at_ms: int


def not_pending(request_type: RequestType, key: str, value: str) -> str:
    """The error for an answer without an open request."""
    return f"No pending {_WORDS.get(request_type, 'client tool request')} found for {key}: {value}"


def not_answered(answer: ServerRequestResponse, waiting: RequestType | None) -> str:
    """The same in a shared session; `waiting` is the class of the open request with that id."""
    if waiting not in (None, answer.request_type):
        return f"Pending request {answer.request_id} is {waiting}, not {answer.request_type}"
    return f"No pending server request found for request_id: {answer.request_id}"


def meaning(answer: ServerRequestResponse | ToolResponse | ClientToolResult) -> Answer:
    """The meaning of an answer; missing fields count as a refusal."""
    match answer:
        case ToolResponse():
            return _decided(bool(answer.approved), answer)
        case ClientToolResult():
            return _done(answer.content, answer.is_error)
        case ServerRequestResponse(request_type="approval"):
            return _decided(bool(answer.approved), answer)
        case ServerRequestResponse(request_type="tool_retry"):
            action = answer.decision_action or "abort"
            return Answer(
                granted=action == "retry", text=answer.reason or "", halt=action == "abort"
            )
        case _:
            return _done(answer.content, answer.is_error)


def _decided(approved: bool, answer: ServerRequestResponse | ToolResponse) -> Answer:
    result = answer.result
    if approved:
        return Answer(granted=True, text=(result and result.output) or "Approved")
    return Answer(granted=False, text=(result and result.error) or "Denied by user")


def _done(content: tuple[Content, ...], is_error: bool) -> Answer:
    return Answer(granted=not is_error, text=text_of(content), content=content)


def text_of(content: tuple[Content, ...]) -> str:
    """Content blocks as one text; an image is represented by its type."""
    return "\n".join(map(_shown, content))


def _shown(block: Content) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent():
            return f"[image:{block.mime_type}]"


def label_of(tool: str, args: dict[str, Any]) -> str:
    """The label of a call: the first line of its subject, or the name of the tool."""
    given: list[object] = [args.get(name) for name in _SUBJECTS]
    labels = [_label(one) for one in given if isinstance(one, str)]
    return next((label for label in labels if label), tool)


def _label(text: str) -> str:
    first, _, more = text.strip().partition("\n")
    return shortened(exact(f"{first} …" if more else first), _LONGEST_LABEL)


def put(
    fact: facts.ApprovalRequested | facts.RequestOpened, *, tool: str, args: Any, at_ms: int
) -> ServerRequest:
    """The message for a request."""
    label = _label(fact.summary)
    if isinstance(fact, facts.ApprovalRequested):
        return ServerRequest(
            request_id=fact.approval_id,
            request_type="approval",
            call_id=fact.tool_call_id,
            tool=fact.kind,
            display_name=fact.kind.replace("_", " ").capitalize(),
            summary_label=label or UNSET,
            action_description=exact(fact.summary) or UNSET,
            args=args,
            reason=exact(fact.policy_reason),
            started_at_ms=at_ms,
        )
    return ServerRequest(
        request_id=fact.request_id,
        request_type=fact.request_class,
        call_id=fact.tool_call_id,
        tool=tool,
        display_name=tool.replace("_", " ").capitalize(),
        summary_label=label or UNSET,
        args=fact.detail,
        reason=_reason(fact, tool),
        started_at_ms=at_ms,
    )


def _reason(fact: facts.RequestOpened, tool: str) -> str:
    match fact.request_class:
        case "client_tool":
            return f"Client tool {tool} requires local execution"
        case "user_input":
            return "Agent requested structured user input"
        case "mcp_elicitation":
            return "MCP server requested additional user input"
        case _:
            return exact(fact.summary) or "Tool retry decision required"


def resolved(
    pending: Pending,
    fact: facts.ApprovalResolved | facts.ApprovalTimedOut | facts.RequestClosed,
    *,
    at_ms: int,
    cancelled: str,
) -> ServerRequestResolved:
    """The only message that ends a request; `cancelled` is the reason if it has no answer."""
    resolution, reason = _outcome(pending.request_type, fact)
    if resolution == "cancelled" and not reason:
        reason = cancelled
    return ServerRequestResolved(
        request_id=pending.request_id,
        request_type=pending.request_type,
        call_id=pending.call_id,
        resolution=resolution,
        reason=reason or UNSET,
        resolved_by=_by(pending.request_type, fact),
        started_at_ms=pending.started_at_ms,
        resolved_at_ms=max(at_ms, pending.started_at_ms),
    )


def _outcome(
    kind: RequestType, fact: facts.ApprovalResolved | facts.ApprovalTimedOut | facts.RequestClosed
) -> tuple[Resolution, str]:
    match fact:
        case facts.ApprovalTimedOut():
            return "denied", APPROVAL_TIMED_OUT
        case facts.ApprovalResolved(decision="cancelled"):
            return "cancelled", fact.comment
        case facts.ApprovalResolved():
            return "approved" if fact.decision == "approved" else "denied", fact.comment
        case facts.RequestClosed(resolution="timed_out"):
            return "cancelled" if kind == "tool_retry" else "failed", _TIMED_OUT[kind]
        case facts.RequestClosed(resolution="cancelled"):
            return "cancelled", str(fact.answer.get("text", ""))
        case facts.RequestClosed() if kind == "tool_retry":
            return _retried(fact), str(fact.answer.get("text", ""))
        case facts.RequestClosed(resolution="failed"):
            return "failed", _FAILED[kind]
        case _:
            return "completed" if kind == "client_tool" else "answered", ""


def _retried(fact: facts.RequestClosed) -> Resolution:
    if fact.resolution == "answered":
        return _RETRIES["retry"]
    return _RETRIES["abort" if fact.answer.get("halt") is True else "skip"]


def _by(
    kind: RequestType, fact: facts.ApprovalResolved | facts.ApprovalTimedOut | facts.RequestClosed
) -> ResolvedBy:
    by = "policy" if isinstance(fact, facts.ApprovalTimedOut) else fact.by
    if by == "client":
        return "user" if kind == "approval" else "client"
    if by in ("policy", "runtime"):
        return "policy" if by == "policy" else "runtime"
    return "user"
