"""Requests of a Heddle client, validated before any of them takes effect."""

from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from batten.contract.errors import CallerError
from batten.protocols.heddle.hooks import Hook
from batten.protocols.heddle.versions import Spoken
from batten.protocols.json_line import Malformed

_LONGEST_NAME = 200
_LONGEST_WAIT_MS = 24 * 60 * 60 * 1000
UNKNOWN_ID = "unknown"
"""The id of a response to a line without a readable id."""


class AppAttribution(Struct, frozen=True):
    """The app on whose behalf we call the provider; since 0.3. Needs both fields."""

    referer: str = ""
    title: str = ""


class Runtime(Struct, frozen=True):
    """Where the session stores its state; since 0.4."""

    mode: str = "default"
    state_root: str | None = None
    transcript_path: str | None = None
    inherit_ambient_config: bool = False


class Permissions(Struct, frozen=True):
    """Rules in addition to those of the settings; since 0.4."""

    allow: list[str] = []
    deny: list[str] = []
    ask: list[str] = []


class Approvals(Struct, frozen=True):
    """The client answers permission requests; an addition of ours, in every version."""

    timeout_ms: Annotated[int, Meta(ge=1, le=_LONGEST_WAIT_MS)] | None = None
    """The time limit for an answer, at most a day."""


class Later(Struct, frozen=True):
    """Fields added to the config after 0.2."""

    app_attribution: AppAttribution | None = None
    runtime: Runtime | None = None
    routing: dict[str, Any] | None = None
    permissions: Permissions | None = None
    hooks: dict[str, list[Hook]] | None = None
    approvals: Approvals | None = None


_SINCE = {
    "app_attribution": "0.3.0",
    "runtime": "0.4.0",
    "routing": "0.4.0",
    "permissions": "0.4.0",
    "hooks": "0.4.0",
    "approvals": "0.2.0",
}


class Config(Struct, frozen=True):
    """The configuration of a session. With a client of 0.2, fields of later versions are unknown
    fields."""

    model: str
    system_prompt: str
    tools: list[str]
    max_iterations: int | float | None = None
    task_id: str | None = None
    worker_id: str | None = None
    app_attribution: Any = None
    runtime: Any = None
    routing: Any = None
    permissions: Any = None
    hooks: Any = None
    approvals: Any = None

    def later(self, spoken: Spoken) -> Later:
        """The additions that apply in this version; `CallerError` for an invalid one."""
        fields = {name: getattr(self, name) for name, minor in _SINCE.items() if spoken.has(minor)}
        try:
            return msgspec.convert(fields, Later)
        except msgspec.ValidationError as error:
            raise CallerError(f"Invalid config: {error}") from error


class Init(Struct, frozen=True, tag="init", tag_field="type"):
    """Open a session; a second one replaces it."""

    id: str
    config: Config
    protocol_version: str | None = None


class Send(Struct, frozen=True, tag="send", tag_field="type"):
    """A message of the user and the work on it."""

    id: str
    message: str


class Status(Struct, frozen=True, tag="status", tag_field="type"):
    """Ask for the current state."""

    id: str


class Cancel(Struct, frozen=True, tag="cancel", tag_field="type"):
    """End a send. The only response is the result of that send."""

    id: str
    target_id: str


class Permission(Struct, frozen=True, tag="permission", tag_field="type"):
    """The answer to a permission request, from a client that announced it."""

    id: str
    request_id: str
    decision: Literal["allow", "deny", "always"]
    """`always`: this tool, for the session."""
    reason: str = ""


class Shutdown(Struct, frozen=True, tag="shutdown", tag_field="type"):
    """Finish pending requests, then exit."""

    id: str


Request = Init | Send | Status | Cancel | Permission | Shutdown
REQUESTS: dict[str, type[Request]] = {
    str(one.__struct_config__.tag): one for one in get_args(Request)
}


class Misasked(Struct, frozen=True):
    """A line that is no valid request."""

    id: str
    problem: str


def unreadable(malformed: Malformed) -> Misasked:
    match malformed.fault:
        case "not_an_object":
            return Misasked(UNKNOWN_ID, "Expected JSON object")
        case "too_long" | "too_deep":
            named = malformed.members.get("id")
            request_id = named if isinstance(named, str) else UNKNOWN_ID
            return Misasked(request_id, f"Invalid JSON: {malformed.problem}")
        case "not_json" | "not_utf8":
            return Misasked(UNKNOWN_ID, "Invalid JSON")


def unknown(request_id: str, kind: str) -> Misasked:
    return Misasked(request_id, f"Unknown message type: {kind[:_LONGEST_NAME]}")


def read(message: dict[str, Any]) -> Request | Misasked:
    """The request, or the fault in the line. Unknown fields are ignored."""
    kind, request_id = message.get("type"), message.get("id")
    if not isinstance(kind, str):
        return Misasked(UNKNOWN_ID, "Missing 'type' field")
    if not isinstance(request_id, str):
        return Misasked(UNKNOWN_ID, "Missing 'id' field")
    known = REQUESTS.get(kind)
    if known is None:
        return unknown(request_id, kind)
    try:
        request = msgspec.convert(message, known)
    except msgspec.ValidationError as error:
        return Misasked(request_id, f"Invalid {kind} request: {error}")
    if isinstance(request, Send) and not request.message.strip():
        return Misasked(request_id, "Invalid send request: the message is blank")
    return request
