"""The state of a conversation, as snapshots show it."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from batten.protocols.maestro import outgoing, vocabulary


class PendingTool(Struct, frozen=True, kw_only=True):
    """A call in progress, or waiting for an answer."""

    call_id: str
    request_id: str | UnsetType = UNSET
    """Set where it differs from the call's id."""
    tool: str
    display_name: str | UnsetType = UNSET
    summary_label: str | UnsetType = UNSET
    action_description: str | UnsetType = UNSET
    args: Any
    started_at_ms: int | UnsetType = UNSET

    @property
    def key(self) -> str:
        return self.request_id or self.call_id


class PendingRequest(Struct, frozen=True, kw_only=True):
    """A waiting call, with the class of its request."""

    id: str
    kind: vocabulary.RequestType
    status: Literal["pending"] = "pending"
    visibility: Literal["user"] = "user"
    session_id: str | UnsetType | None = UNSET
    tool_call_id: str
    call_id: str
    request_id: str | UnsetType = UNSET
    tool_name: str
    tool: str
    display_name: str | UnsetType = UNSET
    summary_label: str | UnsetType = UNSET
    action_description: str | UnsetType = UNSET
    args: Any
    started_at_ms: int | UnsetType = UNSET
    source: Literal["local", "platform"] = "local"


class ActiveTool(Struct, frozen=True, kw_only=True):
    call_id: str
    tool: str
    output: str


class StreamingResponse(Struct, frozen=True, kw_only=True):
    response_id: str
    text: str
    thinking: str
    usage: outgoing.UsageTotals | UnsetType = UNSET


class ActiveCommand(outgoing.CommandFields, frozen=True, kw_only=True):
    output: str
    """The end of its output."""


class Edge(Struct, frozen=True, kw_only=True):
    """One delegation to another agent, as far as it is known."""

    spawn_tool_call_id: str | UnsetType = UNSET
    wait_tool_call_id: str | UnsetType = UNSET
    """Set for every operation except a spawn."""
    child_run_id: str | UnsetType = UNSET
    thread_id: str | UnsetType = UNSET
    operation: str
    status: str


class RuntimeState(Struct, frozen=True, kw_only=True):
    protocol_version: str | UnsetType = UNSET
    client_protocol_version: str | UnsetType = UNSET
    client_info: outgoing.ClientInfo | UnsetType = UNSET
    capabilities: outgoing.ClientCapabilities | UnsetType = UNSET
    opt_out_notifications: tuple[vocabulary.Notification, ...] | UnsetType = UNSET
    connection_role: vocabulary.Role | UnsetType = UNSET
    connection_count: int = 0
    subscriber_count: int = 0
    controller_subscription_id: str | UnsetType | None = UNSET
    controller_connection_id: str | UnsetType | None = UNSET
    connections: tuple[outgoing.ConnectionState, ...] = ()
    model: str | UnsetType = UNSET
    provider: str | UnsetType = UNSET
    executor_type: vocabulary.ExecutorType | UnsetType = UNSET
    session_id: str | UnsetType | None = UNSET
    cwd: str | UnsetType = UNSET
    git_branch: str | UnsetType | None = UNSET
    current_response: StreamingResponse | UnsetType = UNSET
    pending_requests: tuple[PendingRequest, ...] = ()
    pending_approvals: tuple[PendingTool, ...] = ()
    pending_client_tools: tuple[PendingTool, ...] = ()
    pending_mcp_elicitations: tuple[PendingTool, ...] = ()
    pending_user_inputs: tuple[PendingTool, ...] = ()
    pending_tool_retries: tuple[PendingTool, ...] = ()
    active_tools: tuple[ActiveTool, ...] = ()
    active_utility_commands: tuple[ActiveCommand, ...] = ()
    active_file_watches: tuple[outgoing.ActiveWatch, ...] = ()
    tracked_tools: tuple[PendingTool, ...] = ()
    codex_subagent_edges: tuple[Edge, ...] | UnsetType = UNSET
    last_error: str | UnsetType = UNSET
    last_error_type: vocabulary.ErrorType | UnsetType = UNSET
    last_status: str | UnsetType = UNSET
    last_response_duration_ms: int | UnsetType = UNSET
    last_ttft_ms: int | UnsetType = UNSET
    is_ready: bool = False
    is_responding: bool = False


def fields_of(message: Struct, *left_out: str) -> dict[str, Any]:
    """The fields of a message by name, unconverted."""
    names = (name for name in message.__struct_fields__ if name not in left_out)
    return {name: getattr(message, name) for name in names}


def request_of(kind: vocabulary.RequestType, tool: PendingTool, session_id: Any) -> PendingRequest:
    return PendingRequest(
        id=tool.key,
        kind=kind,
        session_id=session_id,
        tool_call_id=tool.call_id,
        tool_name=tool.tool,
        **fields_of(tool),
    )
