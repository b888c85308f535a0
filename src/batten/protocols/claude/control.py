"""Parses lines from the SDK to commands and control requests, and builds our requests and answers.

Unknown keys are ignored: a newer SDK may send more. A line without a required field is a
`PeerError`; an unknown request and an invalid answer are values, so that the surface can answer
them.
"""

from base64 import b64decode
from binascii import Error as NotBase64
from typing import Annotated, Any, cast

import msgspec
from msgspec import Struct

from batten.contract.commands import Prompt
from batten.contract.conversation import Image
from batten.contract.depth import DEEPEST, is_too_deep
from batten.contract.errors import CallerError, PeerError
from batten.protocols.claude.line import Frame
from batten.protocols.json_line import decode

LONGEST_ID = 256
"""Characters of a request's id: the answer repeats it."""
_LONGEST_NAME = 60


class HookMatcher(Struct, frozen=True, rename="camel"):
    """Callbacks of the client for one event, for the tools that match."""

    hook_callback_ids: tuple[str, ...]
    matcher: str | None = None
    timeout: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Seconds."""
    on_failure: str | None = None


class Initialize(Struct, frozen=True, tag="initialize", tag_field="subtype", rename="camel"):
    hooks: dict[str, tuple[HookMatcher, ...]] | None = None
    agents: dict[str, dict[str, Any]] | None = None
    skills: tuple[str, ...] | None = None
    system_prompt: str | tuple[str, ...] | None = None
    append_system_prompt: str | None = None
    forward_subagent_text: bool = False


class InterruptTurn(Struct, frozen=True, tag="interrupt", tag_field="subtype"):
    pass


class SetPermissionMode(Struct, frozen=True, tag="set_permission_mode", tag_field="subtype"):
    mode: str


class SetModel(Struct, frozen=True, tag="set_model", tag_field="subtype"):
    model: str | None = None


class McpStatus(Struct, frozen=True, tag="mcp_status", tag_field="subtype"):
    pass


class McpReconnect(Struct, frozen=True, tag="mcp_reconnect", tag_field="subtype", rename="camel"):
    server_name: str


class McpToggle(Struct, frozen=True, tag="mcp_toggle", tag_field="subtype", rename="camel"):
    server_name: str
    enabled: bool


class GetContextUsage(Struct, frozen=True, tag="get_context_usage", tag_field="subtype"):
    pass


class RewindFiles(Struct, frozen=True, tag="rewind_files", tag_field="subtype"):
    user_message_id: str
    dry_run: bool = False
    """Say what would change, and change nothing."""


class StopTask(Struct, frozen=True, tag="stop_task", tag_field="subtype"):
    task_id: str


Request = (
    Initialize
    | InterruptTurn
    | SetPermissionMode
    | SetModel
    | McpStatus
    | McpReconnect
    | McpToggle
    | GetContextUsage
    | RewindFiles
    | StopTask
)


class Asked(Struct, frozen=True):
    """A request of the client, which waits for the answer."""

    request_id: str
    request: Request


class Misasked(Struct, frozen=True):
    """A request that cannot be executed; `problem` is the answer."""

    request_id: str
    problem: str


class Answered(Struct, frozen=True):
    """The client's answer to a request of ours: its content or its error."""

    request_id: str
    body: dict[str, Any]
    error: str | None = None


class Withdrawn(Struct, frozen=True):
    """The client withdrew a request of its own."""

    request_id: str


Incoming = Prompt | Asked | Misasked | Answered | Withdrawn

_IGNORED = frozenset({"keep_alive", "update_environment_variables"})


class _Message(Struct, frozen=True):
    content: str | list[dict[str, Any]]


class _Line(Struct, frozen=True):
    """Fields common to all lines."""

    type: str
    message: _Message | None = None
    uuid: str | None = None
    request_id: Any = None
    request: Any = None
    response: Any = None


def _line(line: bytes) -> _Line:
    try:
        return msgspec.json.decode(line, type=_Line)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, ValueError):
        return msgspec.convert(decode(line), type=_Line)  # with half of a character in it


def parse(line: bytes) -> Incoming | None:
    """The meaning of a line; None for one without effect."""
    try:
        frame = _line(line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PeerError(f"a line of input is not of this protocol: {error}") from error
    match frame.type:
        case "user" if frame.message is not None:
            return _prompt(frame.message, frame.uuid)
        case "control_request":
            return _request(frame.request_id, frame.request)
        case "control_response":
            return _answered(frame.response)
        case "control_cancel_request" if isinstance(frame.request_id, str):
            return Withdrawn(frame.request_id)
        case kind if kind in _IGNORED:
            return None
        case kind:
            raise PeerError(
                f"a line of input of type {kind[:40]!r} is not one of user, control_request, "
                "control_response and control_cancel_request, or lacks what those must have"
            )


def _prompt(message: _Message, uuid: str | None) -> Prompt:
    if isinstance(message.content, str):
        return Prompt(text=message.content, prompt_id=uuid)
    texts: list[str] = []
    images: list[Image] = []
    for block in message.content:
        match block:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "image", "source": {"media_type": str(mime), "data": str(data)}}:
                images.append(Image(mime, _decoded(data)))
            case _:
                kind = str(block.get("type"))[:40]
                raise PeerError(
                    f"a user line has a block of type {kind!r}; texts and base64 images are taken"
                )
    return Prompt(text="\n".join(texts), images=tuple(images), prompt_id=uuid)


def _decoded(data: str) -> bytes:
    try:
        return b64decode(data, validate=True)
    except (NotBase64, ValueError) as error:
        raise PeerError(f"an image of a user line is not base64: {error}") from error


def _request(request_id: object, body: object) -> Asked | Misasked:
    if not isinstance(request_id, str) or len(request_id) > LONGEST_ID:
        problem = f"the request_id of a control request is a text of up to {LONGEST_ID} characters"
        return Misasked("", problem)
    request = as_object(body)
    if request is None or is_too_deep(request):
        problem = f"a control request is an object nested up to {DEEPEST} deep, with a subtype"
        return Misasked(request_id, problem)
    subtype = repr(request.get("subtype"))[:_LONGEST_NAME]
    try:
        return Asked(request_id, msgspec.convert(request, Request))
    except msgspec.ValidationError as error:
        if "Invalid value" in str(error) and request.get("subtype") is not None:
            return Misasked(request_id, f"the control request {subtype} is not supported")
        return Misasked(request_id, f"the control request {subtype} is not valid: {error}")


def _answered(body: object) -> Answered:
    response = as_object(body) or {}
    request_id = response.get("request_id")
    if not isinstance(request_id, str):
        raise PeerError("a control_response does not say which request it answers")
    if is_too_deep(response):
        return Answered(request_id, {}, f"the answer is nested more than {DEEPEST} deep")
    match response.get("subtype"):
        case "success":
            value = response.get("response")
            content = {} if value is None else as_object(value)
            if content is None:
                return Answered(request_id, {}, "its answer is no object")
            return Answered(request_id, content)
        case "error":
            return Answered(request_id, {}, str(response.get("error", "unknown error")))
        case _:
            return Answered(request_id, {}, "its answer is neither a success nor an error")


def as_object(value: object) -> Frame | None:
    return cast("Frame", value) if isinstance(value, dict) else None


def as_list(value: object) -> list[object] | None:
    """A JSON value if it is a list; a missing one is empty."""
    if value is None:
        return []
    return cast("list[object]", value) if isinstance(value, list) else None


def success(request_id: str, response: Frame | None = None) -> Frame:
    body: Frame = {"subtype": "success", "request_id": request_id, "response": response or {}}
    return {"type": "control_response", "response": body}


def refusal(request_id: str, error: str) -> Frame:
    body = {"subtype": "error", "request_id": request_id, "error": error}
    return {"type": "control_response", "response": body}


def ask(request_id: str, subtype: str, **fields: Any) -> Frame:
    request = {"subtype": subtype, **fields}
    return {"type": "control_request", "request_id": request_id, "request": request}


def withdraw(request_id: str) -> Frame:
    return {"type": "control_cancel_request", "request_id": request_id}


class Permission(Struct, frozen=True):
    """The client's decision on a tool call."""

    granted: bool
    message: str = ""
    updated_input: dict[str, Any] | None = None
    """None if the input is unchanged."""
    updates: tuple[dict[str, Any], ...] = ()
    """Changes to the session's permissions that come with the decision."""
    interrupt: bool = False


def permission(answer: Answered, asked_about: dict[str, Any]) -> Permission:
    """The decision in an answer to `can_use_tool`; `CallerError` if it is invalid."""
    if answer.error is not None:
        raise CallerError(f"the client could not decide: {answer.error}")
    body = answer.body
    match body.get("behavior"):
        case "allow":
            updated = as_object(body.get("updatedInput"))
            if updated is None and body.get("updatedInput") is not None:
                raise CallerError("the client's updatedInput is not an object")
            updates = _updates(body.get("updatedPermissions"))
            return Permission(True, "", None if updated == asked_about else updated, updates)
        case "deny":
            message = str(body.get("message") or "denied by the client")
            return Permission(False, message, interrupt=body.get("interrupt") is True)
        case _:
            raise CallerError("the client's answer is neither allow nor deny")


def _updates(value: object) -> tuple[Frame, ...]:
    listed = as_list(value)
    updates = [one for update in listed or () if (one := as_object(update)) is not None]
    if listed is None or len(updates) < len(listed):
        raise CallerError("the client's updatedPermissions are no list of objects")
    return tuple(updates)
