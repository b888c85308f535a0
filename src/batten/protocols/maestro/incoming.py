"""Messages of a client: one Struct each.

Unknown fields are ignored, and null is taken for a field that is not there: some clients write all
of them. An unknown type is refused.
"""

from typing import Any

import msgspec
from msgspec import Struct

from batten.contract.errors import PeerError
from batten.protocols.maestro import vocabulary
from batten.protocols.maestro.outgoing import ClientCapabilities, ClientInfo, Name

Number = int | float


class Incoming(Struct, frozen=True, kw_only=True, tag_field="type"):
    """A valid message of a client."""


class Hello(Incoming, frozen=True, kw_only=True, tag="hello"):
    protocol_version: Name | None = None
    client_info: ClientInfo | None = None
    capabilities: ClientCapabilities | None = None
    role: vocabulary.Role | None = None
    opt_out_notifications: tuple[vocabulary.Notification, ...] | None = None


class ClientTool(Struct, frozen=True, kw_only=True):
    """A tool that the client provides and runs."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}


class Init(Incoming, frozen=True, kw_only=True, tag="init", omit_defaults=True):
    """Unset fields are not written either: snapshots show the message as it was sent."""

    system_prompt: str | None = None
    append_system_prompt: str | None = None
    thinking_level: vocabulary.ThinkingLevel | None = None
    approval_mode: vocabulary.ApprovalMode | None = None
    client_tools: tuple[ClientTool, ...] | None = None
    """An addition of ours: the client's tools from now on; they replace the ones before."""


class Prompt(Incoming, frozen=True, kw_only=True, tag="prompt"):
    content: str
    attachments: tuple[str, ...] = ()
    output_schema: dict[str, Any] | None = None
    """An addition of ours: a JSON Schema that the answer to this prompt must fit."""


class Interrupt(Incoming, frozen=True, kw_only=True, tag="interrupt"):
    pass


class Cancel(Incoming, frozen=True, kw_only=True, tag="cancel"):
    pass


class ShutDown(Incoming, frozen=True, kw_only=True, tag="shutdown"):
    pass


class ToolResult(Struct, frozen=True, kw_only=True):
    success: bool
    output: str
    error: str | None = None


class TextContent(Struct, frozen=True, tag="text"):
    text: str


class ImageContent(Struct, frozen=True, tag="image", rename={"mime_type": "mimeType"}):
    data: bytes
    """Base64 on the wire."""
    mime_type: str


Content = TextContent | ImageContent


class ToolResponse(Incoming, frozen=True, kw_only=True, tag="tool_response"):
    call_id: Name
    approved: bool
    result: ToolResult | None = None


class ClientToolResult(Incoming, frozen=True, kw_only=True, tag="client_tool_result"):
    call_id: Name
    content: tuple[Content, ...]
    is_error: bool


class ServerRequestResponse(Incoming, frozen=True, kw_only=True, tag="server_request_response"):
    request_id: Name
    request_type: vocabulary.RequestType
    approved: bool | None = None
    result: ToolResult | None = None
    decision_action: vocabulary.RetryAction | None = None
    reason: str | None = None
    content: tuple[Content, ...] = ()
    is_error: bool = False


class CommandStart(Incoming, frozen=True, kw_only=True, tag="utility_command_start"):
    command_id: Name
    command: str
    cwd: str | None = None
    env: dict[str, str] = {}
    shell_mode: vocabulary.ShellMode = "shell"
    terminal_mode: vocabulary.TerminalMode = "pipe"
    allow_stdin: bool = False
    columns: Number | None = None
    rows: Number | None = None


class CommandTerminate(Incoming, frozen=True, kw_only=True, tag="utility_command_terminate"):
    command_id: Name
    force: bool = False


class CommandStdin(Incoming, frozen=True, kw_only=True, tag="utility_command_stdin"):
    command_id: Name
    content: str
    eof: bool = False


class CommandResize(Incoming, frozen=True, kw_only=True, tag="utility_command_resize"):
    command_id: Name
    columns: Number
    rows: Number


class FileSearch(Incoming, frozen=True, kw_only=True, tag="utility_file_search"):
    search_id: Name
    query: str
    cwd: str | None = None
    limit: Number | None = None


class FileRead(Incoming, frozen=True, kw_only=True, tag="utility_file_read"):
    read_id: Name
    path: str
    cwd: str | None = None
    offset: Number | None = None
    limit: Number | None = None


class WatchStart(Incoming, frozen=True, kw_only=True, tag="utility_file_watch_start"):
    watch_id: Name
    root_dir: str | None = None
    include_patterns: tuple[str, ...] = ()
    exclude_patterns: tuple[str, ...] = ()
    debounce_ms: Number | None = None


class WatchStop(Incoming, frozen=True, kw_only=True, tag="utility_file_watch_stop"):
    watch_id: Name


TYPES: dict[str, type[Incoming]] = {
    str(one.__struct_config__.tag): one for one in Incoming.__subclasses__()
}


_NESTED = ("client_info", "capabilities", "result")
"""Fields with optional fields of their own."""


def utility_id_of(message: Incoming) -> str | None:
    """The utility that a message is about, if any."""
    match message:
        case CommandStart() | CommandTerminate() | CommandStdin() | CommandResize():
            return message.command_id
        case FileSearch():
            return message.search_id
        case FileRead():
            return message.read_id
        case WatchStart() | WatchStop():
            return message.watch_id
        case _:
            return None


def read(message: dict[str, Any]) -> Incoming:
    """The message in an object; `PeerError` names the fault."""
    kind = message.get("type")
    if not isinstance(kind, str):
        raise PeerError("Failed to parse command: `type` is missing; it names the message")
    if kind not in TYPES:
        raise PeerError("Failed to parse command: Unknown headless command type")
    given = _without_nulls(message)
    for name in _NESTED:
        if isinstance(given.get(name), dict):
            given[name] = _without_nulls(given[name])
    try:
        return msgspec.convert(given, TYPES[kind])
    except (ValueError, RecursionError) as error:
        raise PeerError(f"Failed to parse command: {kind}: {error}") from error


def _without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
