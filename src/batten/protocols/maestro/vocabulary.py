"""The closed sets of the protocol, as this version spells them."""

from typing import Literal, get_args

Role = Literal["viewer", "controller"]
RequestType = Literal["approval", "client_tool", "mcp_elicitation", "user_input", "tool_retry"]
Resolution = Literal[
    "approved",
    "denied",
    "completed",
    "failed",
    "answered",
    "retried",
    "skipped",
    "aborted",
    "cancelled",
]
ResolvedBy = Literal["user", "policy", "client", "runtime"]
RetryAction = Literal["retry", "skip", "abort"]
Notification = Literal["status", "heartbeat", "connection_info", "compaction"]
ThinkingLevel = Literal["off", "minimal", "low", "medium", "high", "ultra"]
ApprovalMode = Literal["auto", "prompt", "fail"]
ExecutorType = Literal["live", "replay"]
ErrorType = Literal["transient", "fatal", "tool", "cancelled", "protocol"]
Operation = Literal["command_exec", "file_search", "file_watch", "file_read"]
Stream = Literal["stdout", "stderr"]
ShellMode = Literal["shell", "direct"]
TerminalMode = Literal["pipe", "pty"]
ChangeType = Literal["create", "modify", "delete", "rename"]

REQUEST_TYPES: tuple[RequestType, ...] = get_args(RequestType)
OPERATIONS: tuple[Operation, ...] = get_args(Operation)
ROLES: tuple[Role, ...] = ("controller", "viewer")
INTERACTIVE: tuple[RequestType, ...] = ("mcp_elicitation", "user_input", "tool_retry")
"""Classes that need an answer from a controller, in the order in which a viewer's are refused."""
