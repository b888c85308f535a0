"""Messages of the server: one Struct each, and their encoding as lines."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from batten.contract.envelope import on_one_line
from batten.contract.outcomes import Outcome
from batten.protocols.maestro import vocabulary

LONGEST = 10 * 1024 * 1024
"""Bytes of a line; readers of this protocol may refuse a longer one."""


Name = Annotated[str, Meta(max_length=1024)]
"""A name from the client that we repeat to it: an id, a version, the client's own."""


class ClientInfo(Struct, frozen=True):
    name: Name
    version: Name | UnsetType = UNSET


class ClientCapabilities(Struct, frozen=True, kw_only=True):
    server_requests: tuple[vocabulary.RequestType, ...] | UnsetType = UNSET
    utility_operations: tuple[vocabulary.Operation, ...] | UnsetType = UNSET
    raw_agent_events: bool | UnsetType = UNSET
    endings: bool | UnsetType = UNSET
    """An addition of ours: whether `response_end` reports the outcome of the run."""
    takes_over: bool | UnsetType = UNSET
    """An addition of ours: False leaves a run without an ending to the next prompt, which ends it;
    otherwise a resumed session finishes it.
    """


class ServerCapabilities(Struct, frozen=True, kw_only=True):
    server_requests: tuple[vocabulary.RequestType, ...]
    utility_operations: tuple[vocabulary.Operation, ...]
    raw_agent_events: bool
    connection_roles: tuple[vocabulary.Role, ...]


class Message(Struct, frozen=True, kw_only=True, tag_field="type"):
    """A message of the server. Unset fields are omitted; None is written as null."""


class HelloOk(Message, frozen=True, kw_only=True, tag="hello_ok"):
    protocol_version: str
    connection_id: str | UnsetType = UNSET
    client_protocol_version: str | UnsetType = UNSET
    client_info: ClientInfo | UnsetType = UNSET
    capabilities: ClientCapabilities | UnsetType = UNSET
    server_capabilities: ServerCapabilities | UnsetType = UNSET
    opt_out_notifications: tuple[vocabulary.Notification, ...] | UnsetType = UNSET
    role: vocabulary.Role | UnsetType = UNSET
    controller_connection_id: str | UnsetType | None = UNSET
    lease_expires_at: str | UnsetType | None = UNSET


class Ready(Message, frozen=True, kw_only=True, tag="ready"):
    protocol_version: str
    model: str
    provider: str
    executor_type: vocabulary.ExecutorType | UnsetType = UNSET
    session_id: str | None


class SessionInfo(Message, frozen=True, kw_only=True, tag="session_info"):
    session_id: str | None
    cwd: str
    git_branch: str | None


class ConnectionState(Struct, frozen=True, kw_only=True):
    connection_id: str
    role: vocabulary.Role
    client_protocol_version: str | UnsetType = UNSET
    client_info: ClientInfo | UnsetType = UNSET
    capabilities: ClientCapabilities | UnsetType = UNSET
    opt_out_notifications: tuple[vocabulary.Notification, ...] | UnsetType = UNSET
    subscription_count: int
    attached_subscription_count: int
    controller_lease_granted: bool
    lease_expires_at: str | UnsetType | None = UNSET


class ConnectionInfo(Message, frozen=True, kw_only=True, tag="connection_info"):
    connection_id: str | UnsetType = UNSET
    client_protocol_version: str | UnsetType = UNSET
    client_info: ClientInfo | UnsetType = UNSET
    capabilities: ClientCapabilities | UnsetType = UNSET
    opt_out_notifications: tuple[vocabulary.Notification, ...] | UnsetType = UNSET
    role: vocabulary.Role | UnsetType = UNSET
    connection_count: int | UnsetType = UNSET
    controller_connection_id: str | UnsetType | None = UNSET
    lease_expires_at: str | UnsetType | None = UNSET
    connections: tuple[ConnectionState, ...] | UnsetType = UNSET


class Compaction(Message, frozen=True, kw_only=True, tag="compaction"):
    summary: str
    first_kept_entry_index: int
    tokens_before: int
    auto: bool
    custom_instructions: str | UnsetType = UNSET
    timestamp: str


class ResponseStart(Message, frozen=True, kw_only=True, tag="response_start"):
    response_id: str


class ResponseChunk(Message, frozen=True, kw_only=True, tag="response_chunk"):
    response_id: str
    content: str
    is_thinking: bool


class UsageTotals(Struct, frozen=True, kw_only=True):
    """Each token counts in exactly one of the four counters."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    total_tokens: int
    total_cost_usd: float
    model_id: str
    provider: str


class ToolsSummary(Struct, frozen=True, kw_only=True):
    tools_used: tuple[str, ...]
    calls_succeeded: int
    calls_failed: int
    summary_labels: tuple[str, ...] | UnsetType = UNSET


class RunEnding(Struct, frozen=True, kw_only=True):
    """An addition of ours: the outcome, which the protocol cannot express."""

    run_id: str
    outcome: Outcome
    message: str = ""
    """The reason, if the run did not succeed."""
    cost_usd: float | None = None
    """None if the price is unknown."""
    structured_output: Any = UNSET
    """The answer as a JSON value; present if the prompt had an `output_schema` and it fits."""


class ResponseEnd(Message, frozen=True, kw_only=True, tag="response_end"):
    response_id: str
    usage: UsageTotals
    tools_summary: ToolsSummary
    duration_ms: int
    ttft_ms: int | UnsetType = UNSET
    ending: RunEnding | UnsetType = UNSET
    """Only for a client that requested `endings`."""


class ToolCalled(Message, frozen=True, kw_only=True, tag="tool_call"):
    call_id: str
    tool: str
    args: Any
    requires_approval: bool


class ToolStart(Message, frozen=True, kw_only=True, tag="tool_start"):
    call_id: str


class ToolOutput(Message, frozen=True, kw_only=True, tag="tool_output"):
    call_id: str
    content: str


class ToolEnd(Message, frozen=True, kw_only=True, tag="tool_end"):
    call_id: str
    success: bool
    tool: str | UnsetType = UNSET
    details: Any = UNSET
    error_code: str | UnsetType = UNSET
    approval_request_id: str | UnsetType = UNSET
    governed_outcome: str | UnsetType = UNSET


class ClientToolRequest(Message, frozen=True, kw_only=True, tag="client_tool_request"):
    call_id: str
    tool: str
    args: Any


class ServerRequest(Message, frozen=True, kw_only=True, tag="server_request"):
    request_id: str
    request_type: vocabulary.RequestType
    call_id: str
    tool: str
    display_name: str | UnsetType = UNSET
    summary_label: str | UnsetType = UNSET
    action_description: str | UnsetType = UNSET
    args: Any
    reason: str
    started_at_ms: int | UnsetType = UNSET


class ServerRequestResolved(Message, frozen=True, kw_only=True, tag="server_request_resolved"):
    request_id: str
    request_type: vocabulary.RequestType
    call_id: str
    resolution: vocabulary.Resolution
    reason: str | UnsetType = UNSET
    resolved_by: vocabulary.ResolvedBy
    started_at_ms: int | UnsetType = UNSET
    resolved_at_ms: int | UnsetType = UNSET


class RawAgentEvent(Message, frozen=True, kw_only=True, tag="raw_agent_event"):
    event_type: str
    event: Any


class CommandFields(Struct, frozen=True, kw_only=True):
    """A running command, as its start and a snapshot show it."""

    command_id: str
    command: str
    cwd: str | UnsetType = UNSET
    shell_mode: vocabulary.ShellMode
    terminal_mode: vocabulary.TerminalMode
    pid: int | UnsetType = UNSET
    columns: int | UnsetType = UNSET
    rows: int | UnsetType = UNSET
    owner_connection_id: str | UnsetType = UNSET


class CommandStarted(
    Message, CommandFields, frozen=True, kw_only=True, tag="utility_command_started"
):
    pass


class CommandResized(Message, frozen=True, kw_only=True, tag="utility_command_resized"):
    command_id: str
    columns: int
    rows: int


class CommandOutput(Message, frozen=True, kw_only=True, tag="utility_command_output"):
    command_id: str
    stream: vocabulary.Stream
    content: str


class CommandExited(Message, frozen=True, kw_only=True, tag="utility_command_exited"):
    command_id: str
    success: bool
    exit_code: int | UnsetType | None = UNSET
    signal: str | UnsetType | None = UNSET
    reason: str | UnsetType = UNSET


class FileMatch(Struct, frozen=True):
    path: str
    score: int


class FileSearchResults(Message, frozen=True, kw_only=True, tag="utility_file_search_results"):
    search_id: str
    query: str
    cwd: str
    results: tuple[FileMatch, ...]
    truncated: bool


class FileReadResult(Message, frozen=True, kw_only=True, tag="utility_file_read_result"):
    read_id: str
    path: str
    relative_path: str
    cwd: str
    content: str
    start_line: int
    end_line: int
    total_lines: int
    truncated: bool


class ActiveWatch(Struct, frozen=True, kw_only=True):
    watch_id: str
    root_dir: str
    include_patterns: tuple[str, ...] | UnsetType = UNSET
    exclude_patterns: tuple[str, ...] | UnsetType = UNSET
    debounce_ms: int
    owner_connection_id: str | UnsetType = UNSET


class WatchStarted(
    Message, ActiveWatch, frozen=True, kw_only=True, tag="utility_file_watch_started"
):
    pass


class WatchEvent(Message, frozen=True, kw_only=True, tag="utility_file_watch_event"):
    watch_id: str
    change_type: vocabulary.ChangeType
    path: str
    relative_path: str
    timestamp: int
    is_directory: bool


class WatchStopped(Message, frozen=True, kw_only=True, tag="utility_file_watch_stopped"):
    watch_id: str
    reason: str | UnsetType = UNSET


class Status(Message, frozen=True, kw_only=True, tag="status"):
    message: str


class Error(Message, frozen=True, kw_only=True, tag="error"):
    request_id: str | UnsetType = UNSET
    message: str
    fatal: bool
    error_type: vocabulary.ErrorType


_encode = msgspec.json.Encoder().encode


def encode(message: Message) -> bytes:
    """One line. A message that cannot be encoded is replaced by an error."""
    try:
        line = on_one_line(_encode(message))
    except (TypeError, ValueError, RecursionError) as error:
        return _refused(message, str(error))
    if len(line) >= LONGEST:
        return _refused(message, f"it has {len(line)} bytes; {LONGEST} are the most")
    return line + b"\n"


def _refused(message: Message, reason: str) -> bytes:
    kind = str(message.__struct_config__.tag)
    error = Error(
        message=f"Failed to emit headless message: {kind}: {reason}",
        fatal=False,
        error_type="protocol",
    )
    return _encode(error) + b"\n"
