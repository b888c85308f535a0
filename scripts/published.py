"""Types and field names of version 1 of the event protocol. Facts have all of them; other types
and fields are additions of ours, and the schemas and the protocol page mark them.
"""

_CALL = "tool_call_id tool_name?"
_TERMINAL_TOOL = "tool_call_id tool_name kind duration_ms summary? result_artifact_id?"
_MCP = "mcp_server? mcp_tool? result?"
_PROPOSED = f"{_CALL} path patch_artifact_id summary auto_apply"
_REQUESTED = f"{_CALL} method url header_keys"
_RESPONSE = f"{_CALL} status duration_ms body_artifact_id? body_truncated?"

_NAMED: dict[str, str] = {
    "run.queued": "kind model provider workspace_path workspace_mode prior_run_id",
    "run.started": "worker_id lease_until",
    "run.finished": "final_status turns cost_micros_usd duration_ms",
    "run.failed": "code message retriable turns",
    "run.cancelled": "by reason",
    "run.resumed_from_event": "from_run_id from_sequence prior_cost_micros_usd",
    "run.checkpoint_saved": "checkpoint_id",
    "turn.started": "turn_index model provider input_tokens_estimate",
    "turn.completed": "turn_index input_tokens output_tokens cached_input_tokens"
    " cost_micros_usd duration_ms tool_calls stop_reason",
    "turn.failed": "turn_index code message will_retry",
    "assistant.text_delta": "turn_index block_index delta",
    "assistant.text_complete": "turn_index block_index text",
    "assistant.thinking_delta": "turn_index block_index delta",
    "assistant.thinking_complete": "turn_index block_index text",
    "assistant.tool_call_proposed": "turn_index tool_call_id tool_name input redacted_paths?",
    "assistant.final_answer": "turn_index summary",
    "user.message": "turn_index text",
    "user.attachment": "turn_index kind mime artifact_id",
    "tool.invoked": "tool_call_id tool_name kind turn_index mcp_server? mcp_tool?",
    "tool.started": "tool_call_id tool_name kind",
    "tool.completed": f"{_TERMINAL_TOOL} {_MCP} error?",
    "tool.failed": f"{_TERMINAL_TOOL} {_MCP} error?",
    "tool.cancelled": f"{_TERMINAL_TOOL} {_MCP} error?",
    "tool.timed_out": f"{_TERMINAL_TOOL} {_MCP} error? after_ms?",
    "tool.shell.command": f"{_CALL} argv cwd env_keys sandbox_layer timeout_ms?",
    "tool.shell.output_chunk": f"{_CALL} stream data byte_offset",
    "tool.shell.exited": f"{_CALL} exit_code signal stdout_bytes stderr_bytes truncated",
    "tool.edit.proposed": _PROPOSED,
    "tool.edit.applied": f"{_CALL} patch_artifact_id applied_at",
    "tool.edit.reverted": "patch_artifact_id reverted_by reason",
    "tool.multi_edit.proposed": f"{_CALL} patch_artifact_ids summary auto_apply",
    "tool.multi_edit.applied": f"{_CALL} patch_artifact_ids applied_at",
    "tool.multi_edit.reverted": "patch_artifact_ids reverted_by reason",
    "tool.file.patch": f"{_CALL} path artifact_id operation? artifact_status? before_existed?",
    "tool.file.applied": "artifact_id path artifact_status?",
    "tool.file.reverted": "artifact_id path artifact_status? before_existed?",
    "tool.glob.completed": f"{_CALL} pattern matches match_count truncated",
    "tool.grep.completed": f"{_CALL} pattern files_searched matches match_count truncated",
    "tool.file_read.completed": f"{_CALL} path size_bytes lines snippet_artifact_id?",
    "tool.file_write.proposed": _PROPOSED,
    "tool.todo_write.updated": f"{_CALL} todos",
    "tool.http.requested": _REQUESTED,
    "tool.http.response": _RESPONSE,
    "tool.web_fetch.requested": _REQUESTED,
    "tool.web_fetch.response": f"{_RESPONSE} extracted_text_artifact_id?",
    "tool.web_search.requested": _REQUESTED,
    "tool.web_search.response": f"{_RESPONSE} hits?",
    "approval.requested": "approval_id tool_call_id kind summary policy_reason",
    "approval.resolved": "approval_id decision by comment scope?",
    "approval.timed_out": "approval_id after_seconds",
    "artifact.created": "artifact_id kind size_bytes summary created_by_event_id?",
    "artifact.referenced": "artifact_id by_event_id relation",
    "artifact.updated": "artifact_id field old_value new_value",
    "cost.tick": "cumulative_input_tokens cumulative_output_tokens cumulative_cost_micros_usd"
    " task_budget_micros_usd? task_budget_remaining_micros_usd?",
    "cost.budget_warning": "threshold_pct cumulative_cost_micros_usd task_budget_micros_usd",
    "cost.budget_exceeded": "cumulative_cost_micros_usd task_budget_micros_usd action",
    "policy.tool_blocked": "tool_call_id tool_name reason policy_id? kind? mcp_server? mcp_tool?"
    " result?",
    "policy.model_rewrote": "from_model to_model reason",
    "error.tool_unavailable": "tool_name reason",
    "error.model_capability_missing": "model missing_capability fallback_strategy",
    "error.upstream": "provider status message retriable attempt max_attempts",
    "gap.events_pruned": "first_pruned_sequence last_pruned_sequence pruned_at reason",
    "gap.run_disconnected": "since_sequence since_at reason",
}
"""Field names as the protocol spells them; `?` marks optional ones."""

PUBLISHED: dict[str, dict[str, bool]] = {
    type_: {name.rstrip("?"): not name.endswith("?") for name in names.split()}
    for type_, names in _NAMED.items()
}
"""The fields of each type, and whether each is required."""


def is_addition(type_: str, field: str | None = None) -> bool:
    """Whether the protocol does not define this type, or this field of it."""
    named = PUBLISHED.get(type_)
    return named is None or (field is not None and field not in named)
