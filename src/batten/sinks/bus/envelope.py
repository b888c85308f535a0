"""The envelope of an event: a CloudEvent in the spelling of the platform's catalogue."""

from collections.abc import Mapping
from typing import Any

import msgspec

from batten.contract.errors import CallerError
from batten.sinks.bus.correlation import HEADERS_ONLY, Correlation

CATALOGUE = {
    "maestro.sessions.session.started": "MaestroSession",
    "maestro.sessions.session.suspended": "MaestroSession",
    "maestro.sessions.session.resumed": "MaestroSession",
    "maestro.sessions.session.closed": "MaestroSession",
    "maestro.events.approval_hit": "ApprovalHit",
    "maestro.events.sandbox_violation": "SandboxViolation",
    "maestro.events.firewall_block": "FirewallBlock",
    "maestro.events.tool_call.attempted": "ToolCallAttempt",
    "maestro.events.tool_call.completed": "ToolCallResult",
    "maestro.events.prompt_variant.selected": "PromptVariantSelected",
    "maestro.events.context.learned": "MaestroLearnedContext",
    "maestro.events.skill.invoked": "SkillInvocation",
    "maestro.events.skill.succeeded": "SkillOutcome",
    "maestro.events.skill.failed": "SkillOutcome",
    "maestro.events.eval.scored": "MaestroEvalScore",
    "maestro.ambient_agent.routing.selected": "AmbientAgentRoutingSelected",
    "maestro.ambient_agent.plan.cost_limited": "AmbientAgentPlanCostLimited",
    "maestro.ambient_agent.plan.completed": "AmbientAgentPlanCompleted",
}
"""Each type, which is also its subject, with the message of its data."""

CONTEXT_VERSION = "evalops.context.v1"

_EXTENSIONS = {
    "organization_id": "organization_id",
    "user_id": "user_id",
    "workspace_id": "workspace_id",
    "maestro_session_id": "session_id",
    "agent_run_id": "agent_run_id",
    "agent_run_step_id": "agent_run_step_id",
    "trace_id": "trace_id",
    "traceparent": "traceparent",
    "tracestate": "tracestate",
    "request_id": "request_id",
}
_OF_ATTRIBUTES = ("source_issue", "task_id")
_encode = msgspec.json.Encoder().encode

Event = dict[str, Any]


def event(
    event_type: str,
    data: Mapping[str, Any],
    correlation: Correlation,
    *,
    event_id: str,
    time: str,
    source: str,
) -> Event:
    """One event. Fields of `data` that are None are left out."""
    message = CATALOGUE.get(event_type)
    if message is None:
        raise CallerError(f"{event_type} is not in the catalogue of events")
    inner = {name: value for name, value in correlation.items() if name not in HEADERS_ONLY}
    made: Event = {
        "spec_version": "1.0",
        "id": event_id,
        "type": event_type,
        "source": source,
        "subject": event_type,
        "time": time,
        "data_content_type": "application/protobuf",
    }
    if tenant := _text(correlation.get("organization_id")):
        made["tenant_id"] = tenant
    known = {name: value for name, value in data.items() if value is not None}
    made["data"] = {
        "correlation": inner,
        **known,
        "@type": f"type.googleapis.com/maestro.v1.{message}",
    }
    made["extensions"] = _extensions(message, correlation, known)
    return made


def _extensions(message: str, correlation: Correlation, data: Mapping[str, Any]) -> dict[str, str]:
    made = {
        "dataschema": f"buf.build/evalops/proto/maestro.v1.{message}",
        "evalops_context_version": CONTEXT_VERSION,
    }
    attributes: Mapping[str, Any] = correlation.get("attributes") or {}
    found = {name: correlation.get(key) for name, key in _EXTENSIONS.items()}
    found |= {name: attributes.get(name) for name in _OF_ATTRIBUTES}
    found["tool_execution_id"] = data.get("tool_execution_id")
    return made | {name: text for name, value in found.items() if (text := _text(value))}


def encoded(made: Event) -> bytes:
    """The bytes of an event; equal events give equal bytes."""
    return _encode(made)


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""
