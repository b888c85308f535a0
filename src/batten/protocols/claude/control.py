"""Lines from the SDK as commands and control requests, and the lines that answer and ask.

Keys that nobody here knows are let through: a newer SDK may send more. What the protocol
needs and a line lacks is a `PeerError`; a request that nobody here knows is one to be
answered with an error.
"""

from base64 import b64decode
from binascii import Error as NotBase64
from typing import Any, cast

import msgspec
from msgspec import Struct

from batten.contract.commands import Prompt
from batten.contract.conversation import Image
from batten.contract.errors import CallerError, PeerError
from batten.protocols.claude.line import Frame


class HookMatcher(Struct, frozen=True, rename="camel"):
    """Callbacks of the client's for one event, for the tools that match."""

    hook_callback_ids: tuple[str, ...]
    matcher: str | None = None
    timeout: float | None = None
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
    """The client asks something of us and waits for the answer."""

    request_id: str
    request: Request


class Misasked(Struct, frozen=True):
    """A request that cannot be carried out as it is; `problem` is the answer."""

    request_id: str
    problem: str


class Answered(Struct, frozen=True):
    """The client's answer to a request of ours: what it says, or why it says nothing."""

    request_id: str
    body: dict[str, Any]
    error: str | None = None


class Withdrawn(Struct, frozen=True):
    """The client no longer waits for the answer to a request of its own."""

    request_id: str


Incoming = Prompt | Asked | Misasked | Answered | Withdrawn

_IGNORED = frozenset({"keep_alive", "update_environment_variables"})


class _Message(Struct, frozen=True):
    content: str | list[dict[str, Any]]


class _Line(Struct, frozen=True):
    """What lines have, whichever kind they are of."""

    type: str
    message: _Message | None = None
    uuid: str | None = None
    request_id: str | None = None
    request: dict[str, Any] | None = None
    response: dict[str, Any] | None = None


def parse(line: bytes) -> Incoming | None:
    """What a line says; None for one that asks for nothing."""
    try:
        frame = msgspec.json.decode(line, type=_Line)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise PeerError(f"a line of input is not of this protocol: {error}") from error
    match frame.type:
        case "user" if frame.message is not None:
            return _prompt(frame.message, frame.uuid)
        case "control_request" if frame.request_id is not None and frame.request is not None:
            return _asked(frame.request_id, frame.request)
        case "control_response" if frame.response is not None:
            return _answered(frame.response)
        case "control_cancel_request" if frame.request_id is not None:
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


def _asked(request_id: str, body: Frame) -> Asked | Misasked:
    subtype = body.get("subtype")
    try:
        return Asked(request_id, msgspec.convert(body, Request))
    except msgspec.ValidationError as error:
        if "Invalid value" in str(error) and subtype is not None:
            return Misasked(request_id, f"the control request {subtype!r} is not supported")
        return Misasked(request_id, f"the control request {subtype!r} is not valid: {error}")


def _answered(response: Frame) -> Answered:
    match response:
        case {"subtype": "success", "request_id": str(request_id)}:
            return Answered(request_id, as_object(response.get("response")) or {})
        case {"subtype": "error", "request_id": str(request_id)}:
            return Answered(request_id, {}, str(response.get("error", "unknown error")))
        case _:
            raise PeerError("a control_response is neither a success nor an error of a request")


def as_object(value: object) -> Frame | None:
    """A value of JSON if it is an object."""
    return cast("Frame", value) if isinstance(value, dict) else None


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
    """A request of ours that needs no answer any more."""
    return {"type": "control_cancel_request", "request_id": request_id}


class Permission(Struct, frozen=True):
    """The client's word on a tool call."""

    granted: bool
    message: str = ""
    updated_input: dict[str, Any] | None = None
    """None if it is the input that was asked about."""
    updates: tuple[dict[str, Any], ...] = ()
    """Changes to the permissions of the session that come with it."""
    interrupt: bool = False


def permission(answer: Answered, asked_about: dict[str, Any]) -> Permission:
    """What an answer to `can_use_tool` means; `CallerError` if it makes no sense."""
    if answer.error is not None:
        raise CallerError(f"the client could not decide: {answer.error}")
    body = answer.body
    match body.get("behavior"):
        case "allow":
            updated = as_object(body.get("updatedInput"))
            if updated is None and body.get("updatedInput") is not None:
                raise CallerError("the client's updatedInput is not an object")
            given: list[object] = body.get("updatedPermissions") or []
            updates = tuple(one for update in given if (one := as_object(update)) is not None)
            return Permission(True, "", None if updated == asked_about else updated, updates)
        case "deny":
            message = str(body.get("message") or "denied by the client")
            return Permission(False, message, interrupt=body.get("interrupt") is True)
        case _:
            raise CallerError("the client's answer is neither allow nor deny")
