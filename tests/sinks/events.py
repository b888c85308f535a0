"""A check of bus events against the catalogue: the required keys of each message, and the allowed
ones."""

import re
from typing import Any, cast

from batten.sinks.bus.envelope import CATALOGUE
from batten.sinks.bus.fixture import publisher_fixture

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
_CORRELATION = {
    *("organization_id", "user_id", "workspace_id", "session_id", "agent_run_id"),
    *("agent_run_step_id", "agent_id", "actor_id", "principal_id", "trace_id", "request_id"),
    *("parent_event_id", "remote_runner_session_id", "objective_id", "conversation_id"),
    "attributes",
}
_EXTENSIONS = {
    *("dataschema", "evalops_context_version", "organization_id", "user_id", "workspace_id"),
    *("maestro_session_id", "agent_run_id", "agent_run_step_id", "trace_id", "traceparent"),
    *("tracestate", "request_id", "source_issue", "task_id", "tool_execution_id"),
}
_REQUIRED = {
    "MaestroSession": "state surface runtime_mode",
    "ApprovalHit": "action decision_mode occurred_at",
    "SandboxViolation": "operation resource occurred_at",
    "FirewallBlock": "operation target occurred_at",
    "ToolCallAttempt": "tool_call_id tool_name attempted_at",
    "ToolCallResult": "tool_call_id status completed_at",
    "MaestroLearnedContext": (
        "learning_id statement dimension confidence_score confidence_reason evidence learned_at"
    ),
    "SkillInvocation": "skill_metadata tool_call_id invoked_at",
    "SkillOutcome": "skill_metadata turn_status status outcome_at",
    "PromptVariantSelected": "prompt_id prompt_name prompt_metadata selected_at",
    "MaestroEvalScore": "eval_run_id scenario_id tool_call_id scored_at",
    "AmbientAgentRoutingSelected": "repository upstream_event_id selected_at",
    "AmbientAgentPlanCostLimited": "repository upstream_event_id limited_at",
    "AmbientAgentPlanCompleted": "repository upstream_event_id completed_at",
}
_PLAN = (
    "task_type complexity provider model tier estimated_cost_usd cost_limit_usd success"
    " actual_cost_usd"
)
_OPTIONAL = {
    "MaestroSession": (
        "principal workspace_root repository git_ref runtime_version runner_profile started_at"
        " suspended_at resumed_at closed_at close_reason close_message metadata"
    ),
    "ApprovalHit": (
        "approval_request_id governance_decision_id command risk_level policy_id reason context"
        " metadata"
    ),
    "SandboxViolation": "policy_id workspace_root attempted_path reason context",
    "FirewallBlock": "rule_id protocol port reason context",
    "ToolCallAttempt": (
        "tool_execution_id prompt_metadata skill_metadata tool_namespace tool_version capability"
        " connector_id mutates_resource risk_level safe_arguments redactions idempotency_key"
        " metadata"
    ),
    "ToolCallResult": (
        "tool_execution_id prompt_metadata skill_metadata approval_request_id governed_outcome"
        " duration safe_output redactions error_code error_message metadata"
    ),
    "MaestroLearnedContext": "subject_thing_id subject_key tool_call_id tool_execution_id",
    "SkillInvocation": "prompt_metadata invocation_id skill_id tool_execution_id",
    "SkillOutcome": (
        "prompt_metadata invocation_id skill_id tool_call_id tool_execution_id error_category"
        " error_message stop_reason evaluation_tool_name evaluation_tool_call_id"
        " evaluation_tool_execution_id evaluation_score evaluation_threshold"
        " evaluation_assertion_count evaluation_rationale"
    ),
    "PromptVariantSelected": "version_id",
    "MaestroEvalScore": (
        "prompt_metadata skill_metadata tool_execution_id tool_name score threshold passed scorer"
        " rationale assertion_count"
    ),
    "AmbientAgentRoutingSelected": _PLAN,
    "AmbientAgentPlanCostLimited": _PLAN,
    "AmbientAgentPlanCompleted": _PLAN,
}
_STABLE: dict[str, list[str]] = publisher_fixture()["stable_untyped_keys"]
"""The keys that Platform knows of maps without a type."""


def check_event(event: dict[str, Any]) -> None:
    """Raise unless the event is one of the catalogue, whole and without a null."""
    envelope = {
        *("spec_version", "id", "type", "source", "subject", "time", "data_content_type"),
        *("data", "extensions"),
    }
    assert envelope <= event.keys() <= {*envelope, "tenant_id"}
    assert event["spec_version"] == "1.0"
    assert event["data_content_type"] == "application/protobuf"
    assert event["subject"] == event["type"]
    assert _TIME.fullmatch(event["time"])
    message = CATALOGUE[event["type"]]
    data = dict(event["data"])
    assert data.pop("@type") == f"type.googleapis.com/maestro.v1.{message}"
    correlation = data.pop("correlation")
    assert {"workspace_id", "session_id"} <= correlation.keys() <= _CORRELATION
    required = set(_REQUIRED[message].split())
    assert required <= data.keys() <= required | set(_OPTIONAL[message].split()), event
    for name in ("prompt_metadata", "skill_metadata", "safe_arguments", "safe_output"):
        assert data.get(name, {}).keys() <= set(_STABLE[name])
    if message == "MaestroSession":
        state = data["state"].rpartition("_")[2].lower()
        ats = {name for name in data if name.endswith("_at")}
        assert ats == {f"{state}_at"}
    extensions = event["extensions"]
    assert extensions["dataschema"] == f"buf.build/evalops/proto/maestro.v1.{message}"
    assert extensions.keys() <= _EXTENSIONS
    assert all(isinstance(value, str) and value.strip() for value in extensions.values())
    assert correlation.get("agent_run_step_id") != data.get("tool_call_id", "")
    _check_no_null(event)


def _check_no_null(value: Any) -> None:
    assert value is not None
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = list(cast("dict[str, Any]", value).values())
    elif isinstance(value, list):
        inner = list(value)  # pyright: ignore[reportUnknownArgumentType]
    for one in inner:
        _check_no_null(one)
