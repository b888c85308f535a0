"""The client's requests: one row for each method, with the type of its params."""

from typing import Any, Literal, TypeVar, cast

import msgspec
from msgspec import Struct, field

from batten.protocols.acp.asking import NameAndValue
from batten.protocols.acp.content import Block
from batten.protocols.acp.options import SelectOption, SetOptionParams
from batten.protocols.acp.rpc import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from batten.protocols.acp.shape import Shape


class ClientCapabilities(Struct, frozen=True):
    """The client's files, terminals and forms that we may use."""

    reads: bool = False
    writes: bool = False
    terminal: bool = False
    forms: bool = False
    urls: bool = False


def capabilities_of(value: object) -> ClientCapabilities:
    """A client's capabilities. Missing or malformed ones count as absent."""
    return ClientCapabilities(
        reads=_at(value, "fs", "readTextFile") is True,
        writes=_at(value, "fs", "writeTextFile") is True,
        terminal=_at(value, "terminal") is True,
        forms=isinstance(_at(value, "elicitation", "form"), dict),
        urls=isinstance(_at(value, "elicitation", "url"), dict),
    )


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None
    return value


class Implementation(Shape, frozen=True):
    name: str
    version: str
    title: str | None = None


class InitializeParams(Shape, frozen=True):
    protocol_version: int
    client_capabilities: Any = None
    """Read by `capabilities_of`: a mistake in it does not fail `initialize`."""


class AuthenticateParams(Shape, frozen=True):
    method_id: str


class McpServer(Shape, frozen=True):
    """One server; without a type it is a command."""

    name: str
    type: str | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: tuple[NameAndValue, ...] = ()
    url: str | None = None
    headers: tuple[NameAndValue, ...] = ()


class NewSessionParams(Shape, frozen=True):
    cwd: str
    mcp_servers: list[McpServer]
    additional_directories: list[str] | None = None


class LoadSessionParams(Shape, frozen=True):
    session_id: str
    cwd: str
    mcp_servers: list[McpServer]
    additional_directories: list[str] | None = None


class ResumeSessionParams(Shape, frozen=True):
    session_id: str
    cwd: str
    mcp_servers: list[McpServer] | None = None
    additional_directories: list[str] | None = None


class ForkSessionParams(Shape, frozen=True):
    session_id: str
    cwd: str
    mcp_servers: list[McpServer] | None = None
    additional_directories: list[str] | None = None


class ListSessionsParams(Shape, frozen=True):
    cwd: str | None = None
    cursor: str | None = None


class PromptParams(Shape, frozen=True):
    session_id: str
    prompt: list[Block]


class SetModeParams(Shape, frozen=True):
    session_id: str
    mode_id: str


class CloseSessionParams(Shape, frozen=True):
    session_id: str


class DeleteSessionParams(Shape, frozen=True):
    session_id: str


class CancelParams(Shape, frozen=True):
    session_id: str


class CancelRequestParams(Shape, frozen=True):
    """The params of `$/cancel_request`, which names a request instead of a session."""

    request_id: int | str


class Method(Struct, frozen=True):
    name: str
    params: type[Shape]
    kind: Literal["request", "notification"] = "request"


METHODS = {
    method.name: method
    for method in (
        Method("initialize", InitializeParams),
        Method("authenticate", AuthenticateParams),
        Method("session/new", NewSessionParams),
        Method("session/load", LoadSessionParams),
        Method("session/resume", ResumeSessionParams),
        Method("session/fork", ForkSessionParams),
        Method("session/list", ListSessionsParams),
        Method("session/close", CloseSessionParams),
        Method("session/delete", DeleteSessionParams),
        Method("session/prompt", PromptParams),
        Method("session/set_mode", SetModeParams),
        Method("session/set_config_option", SetOptionParams),
        Method("session/cancel", CancelParams, "notification"),
        Method("$/cancel_request", CancelRequestParams, "notification"),
    )
}
"""Every method that we answer; others are unknown."""

Params = TypeVar("Params", bound=Shape)


def read_request(method: str, params: Any) -> Shape:
    """The params of a request; `RpcError` names the wrong method or field."""
    known = METHODS.get(method)
    if known is None or known.kind != "request":
        name = method[:200]
        raise RpcError(METHOD_NOT_FOUND, f"no method is named {name!r}", method=name)
    return read_params(params, known.params)


def read_params(params: Any, kind: type[Params]) -> Params:
    try:
        return msgspec.convert(params, kind)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_PARAMS, str(error)) from error


class PromptCapabilities(Shape, frozen=True):
    image: bool
    audio: bool
    embedded_context: bool


class McpCapabilities(Shape, frozen=True):
    http: bool
    sse: bool
    acp: bool


class AuthCapabilities(Shape, frozen=True):
    logout: dict[str, Any] | None


class AgentCapabilities(Shape, frozen=True):
    load_session: bool
    prompt_capabilities: PromptCapabilities
    mcp_capabilities: McpCapabilities
    session_capabilities: dict[str, dict[str, Any] | None]
    """A name with an empty object means yes, with null no."""
    auth: AuthCapabilities


class AuthMethod(Shape, frozen=True):
    id: str
    name: str
    description: str | None = None


class InitializeResult(Shape, frozen=True):
    protocol_version: int
    agent_capabilities: AgentCapabilities
    agent_info: Implementation
    auth_methods: list[AuthMethod]


class Mode(Shape, frozen=True):
    id: str
    name: str
    description: str | None = None


class ModeState(Shape, frozen=True):
    current_mode_id: str
    available_modes: list[Mode]


class NewSessionResult(Shape, frozen=True):
    """The result of `session/new` and `session/fork`."""

    session_id: str
    modes: ModeState
    config_options: list[SelectOption]
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class OpenedSessionResult(Shape, frozen=True):
    """The result of `session/load` and `session/resume`."""

    modes: ModeState
    config_options: list[SelectOption]
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class SessionInfo(Shape, frozen=True):
    session_id: str
    cwd: str
    title: str | None = None
    updated_at: str | None = None


class ListSessionsResult(Shape, frozen=True):
    sessions: list[SessionInfo]
    next_cursor: str | None = None


StopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]


class PromptResult(Shape, frozen=True):
    stop_reason: StopReason
