"""The messages of the server as this project reads their description, apart from its code.

One line a message: each field with its type, a question mark where it may be absent. What is not
named may not be there. Where a field is optional in the protocol and always sent by us, it is
required here.
"""

from typing import Any, cast

import msgspec

Json = dict[str, Any]

SETS = {
    "Role": "viewer controller",
    "Request": "approval client_tool mcp_elicitation user_input tool_retry",
    "Resolution": "approved denied completed failed answered retried skipped aborted cancelled",
    "By": "user policy client runtime",
    "Notification": "status heartbeat connection_info compaction",
    "Executor": "live replay",
    "Fault": "transient fatal tool cancelled protocol",
    "Operation": "command_exec file_search file_watch file_read",
    "Stream": "stdout stderr",
    "Shell": "shell direct",
    "Terminal": "pipe pty",
    "Change": "create modify delete rename",
}
PARTS = {
    "Client": "name:text version?:text",
    "Capabilities": "server_requests?:[Request] utility_operations?:[Operation] "
    "raw_agent_events?:flag",
    "Server": "server_requests:[Request] utility_operations:[Operation] raw_agent_events:flag "
    "connection_roles:[Role]",
    "Connection": "connection_id:text role:Role client_protocol_version?:text client_info?:Client "
    "capabilities?:Capabilities opt_out_notifications?:[Notification] subscription_count:count "
    "attached_subscription_count:count controller_lease_granted:flag lease_expires_at:text|null",
    "Usage": "input_tokens:count output_tokens:count cache_read_tokens:count "
    "cache_write_tokens:count total_tokens:count total_cost_usd:number model_id:text "
    "provider:text",
    "Tools": "tools_used:[text] calls_succeeded:count calls_failed:count summary_labels?:[text]",
    "Match": "path:text score:number",
}
_GREETED = (
    "client_protocol_version?:text client_info?:Client capabilities?:Capabilities "
    "opt_out_notifications?:[Notification] role:Role controller_connection_id:text|null "
    "lease_expires_at:text|null connection_id:text "
)
MESSAGES = {
    "hello_ok": "protocol_version:text server_capabilities:Server " + _GREETED,
    "ready": "protocol_version:text model:text provider:text executor_type:Executor "
    "session_id:text",
    "session_info": "session_id:text cwd:text git_branch:text|null",
    "connection_info": "connection_count:count connections:[Connection] " + _GREETED,
    "compaction": "summary:text first_kept_entry_index:count tokens_before:count auto:flag "
    "custom_instructions?:text timestamp:text",
    "response_start": "response_id:text",
    "response_chunk": "response_id:text content:text is_thinking:flag",
    "response_end": "response_id:text usage:Usage tools_summary:Tools duration_ms:count "
    "ttft_ms?:count",
    "tool_call": "call_id:text tool:text args:any requires_approval:flag",
    "tool_start": "call_id:text",
    "tool_output": "call_id:text content:text",
    "tool_end": "call_id:text success:flag tool:text details:any error_code?:text "
    "approval_request_id?:text governed_outcome?:text",
    "client_tool_request": "call_id:text tool:text args:any",
    "server_request": "request_id:text request_type:Request call_id:text tool:text "
    "display_name:text summary_label?:text action_description?:text args:any reason:text "
    "started_at_ms:count",
    "server_request_resolved": "request_id:text request_type:Request call_id:text "
    "resolution:Resolution reason?:text resolved_by:By started_at_ms:count resolved_at_ms:count",
    "raw_agent_event": "event_type:text event:any",
    "utility_command_started": "command_id:text command:text cwd:text shell_mode:Shell "
    "terminal_mode:Terminal pid:count columns?:count rows?:count owner_connection_id:text",
    "utility_command_resized": "command_id:text columns:count rows:count",
    "utility_command_output": "command_id:text stream:Stream content:text",
    "utility_command_exited": "command_id:text success:flag exit_code:integer|null "
    "signal:text|null reason?:text",
    "utility_file_search_results": "search_id:text query:text cwd:text results:[Match] "
    "truncated:flag",
    "utility_file_read_result": "read_id:text path:text relative_path:text cwd:text content:text "
    "start_line:count end_line:count total_lines:count truncated:flag",
    "utility_file_watch_started": "watch_id:text root_dir:text include_patterns?:[text] "
    "exclude_patterns?:[text] debounce_ms:count owner_connection_id:text",
    "utility_file_watch_event": "watch_id:text change_type:Change path:text relative_path:text "
    "timestamp:count is_directory:flag",
    "utility_file_watch_stopped": "watch_id:text reason?:text",
    "status": "message:text",
    "error": "request_id?:text message:text fatal:flag error_type:Fault",
}


def problem(message: Json) -> str | None:
    """What is wrong with a message of the server; None if nothing is."""
    kind = message.get("type")
    if not isinstance(kind, str) or kind not in MESSAGES:
        return f"{kind!r} is no type"
    return _fields("type:text " + MESSAGES[kind], message, kind)


def _fields(described: str, value: Any, at: str) -> str | None:
    if not isinstance(value, dict):
        return f"{at}: {value!r} is no object"
    held = dict(cast(Json, value))
    for field in described.split():
        name, _, kind = field.partition(":")
        if name.rstrip("?") in held:
            wrong = _value(kind, held.pop(name.rstrip("?")), f"{at}.{name}")
            if wrong is not None:
                return wrong
        elif not name.endswith("?"):
            return f"{at}: {name} is missing"
    return f"{at}: {sorted(held)} are not known" if held else None


def _value(kind: str, value: Any, at: str) -> str | None:
    if kind.endswith("|null"):
        return None if value is None else _value(kind.removesuffix("|null"), value, at)
    if kind.startswith("["):
        return _list(kind[1:-1], value, at)
    if kind in PARTS:
        return _fields(PARTS[kind], value, at)
    if kind in SETS:
        return None if value in SETS[kind].split() else f"{at}: {value!r} is no {kind}"
    return None if _is(kind, value) else f"{at}: {value!r} is no {kind}"


def _list(kind: str, value: Any, at: str) -> str | None:
    if not isinstance(value, list):
        return f"{at}: {value!r} is no list"
    held = msgspec.convert(value, list[Any])
    if kind in SETS and len(set(held)) != len(held):
        return f"{at}: {held} has one twice"
    return next((wrong for one in held if (wrong := _value(kind, one, at))), None)


def _is(kind: str, value: Any) -> bool:
    whole = isinstance(value, int) and not isinstance(value, bool)
    match kind:
        case "text":
            return isinstance(value, str)
        case "flag":
            return isinstance(value, bool)
        case "count":
            return whole and value >= 0
        case "integer":
            return whole
        case "number":
            return whole or isinstance(value, float)
        case _:
            assert kind == "any", kind
            return True
