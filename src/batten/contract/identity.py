"""Who a run works for, as its launcher says in the environment: ids only, recorded with the run.

Readers of the journal join their messages by it. A reader's own environment does not count: it may
belong to another run.
"""

from collections.abc import Mapping
from contextvars import ContextVar

VARIABLES: dict[str, tuple[str, ...]] = {
    "organization_id": (
        *("MAESTRO_EVALOPS_ORG_ID", "EVALOPS_ORGANIZATION_ID", "EVALOPS_ORG_ID"),
        *("MAESTRO_ENTERPRISE_ORG_ID", "MAESTRO_LLM_GATEWAY_ORG_ID"),
        "MAESTRO_REMOTE_RUNNER_ORG_ID",
    ),
    "user_id": ("MAESTRO_EVALOPS_USER_ID", "EVALOPS_USER_ID", "MAESTRO_USER_ID"),
    "workspace_id": (
        *("MAESTRO_EVALOPS_WORKSPACE_ID", "EVALOPS_WORKSPACE_ID"),
        *("MAESTRO_REMOTE_RUNNER_WORKSPACE_ID", "MAESTRO_WORKSPACE_ID"),
    ),
    "session_id": ("MAESTRO_SESSION_ID",),
    "agent_run_id": ("MAESTRO_AGENT_RUN_ID",),
    "agent_run_step_id": ("MAESTRO_AGENT_RUN_STEP_ID",),
    "agent_id": ("MAESTRO_EVALOPS_AGENT_ID", "MAESTRO_AGENT_ID"),
    "actor_id": ("MAESTRO_ACTOR_ID",),
    "principal_id": ("MAESTRO_PRINCIPAL_ID",),
    "trace_id": ("MAESTRO_TRACE_ID", "TRACE_ID", "OTEL_TRACE_ID"),
    "traceparent": ("TRACEPARENT", "TRACE_PARENT"),
    "tracestate": ("TRACESTATE", "TRACE_STATE"),
    "request_id": ("MAESTRO_REQUEST_ID",),
    "remote_runner_session_id": (
        *("MAESTRO_REMOTE_RUNNER_SESSION_ID", "MAESTRO_RUNNER_SESSION_ID"),
        "REMOTE_RUNNER_SESSION_ID",
    ),
    "objective_id": ("MAESTRO_OBJECTIVE_ID", "MAESTRO_EVALOPS_OBJECTIVE_ID"),
    "workload": ("MAESTRO_EVALOPS_WORKLOAD", "MAESTRO_WORKLOAD"),
    "conversation_id": ("MAESTRO_CONVERSATION_ID",),
    "surface": ("MAESTRO_SURFACE", "MAESTRO_EVENT_SURFACE"),
    "runtime_mode": ("MAESTRO_RUNTIME_MODE",),
    "principal_subject": ("MAESTRO_PRINCIPAL_SUBJECT", "MAESTRO_USER_SUBJECT"),
    "principal_roles": ("MAESTRO_PRINCIPAL_ROLES",),
    "principal_scopes": ("MAESTRO_PRINCIPAL_SCOPES",),
    "prompt_name": ("MAESTRO_PROMPT_NAME",),
    "prompt_label": ("MAESTRO_PROMPT_LABEL",),
    "prompt_hash": ("MAESTRO_PROMPT_HASH",),
    "prompt_source": ("MAESTRO_PROMPT_SOURCE",),
    "prompt_surface": ("MAESTRO_PROMPT_SURFACE",),
    "prompt_version": ("MAESTRO_PROMPT_VERSION",),
    "prompt_version_id": ("MAESTRO_PROMPT_VERSION_ID",),
}
"""Each id with the variables that may hold it; the first that is not blank counts."""

PREFIXES = {
    "MAESTRO_EVENT_BUS_ATTR_": "attribute.",
    "MAESTRO_PRINCIPAL_CLAIM_": "claim.",
}
"""Variables of any name: `MAESTRO_EVENT_BUS_ATTR_TASK_ID` is `attribute.task_id`."""

TRACE_IDS = ("trace_id", "traceparent", "tracestate")
"""Those among the ids that name a trace."""
SWITCHES = ("MAESTRO_EVENT_BUS", "MAESTRO_AUDIT_BUS")
"""The first of these that is not blank turns the event bus on or off."""
BUS_OFF = "event_bus_off"
"""Among the ids of a run whose launcher turned the bus off: its events are never published."""
HARD_OFF = ("MAESTRO_INTERNAL_TELEMETRY_DISABLED",)
"""Turns it off whatever the others say."""
_HOSTED = ("MAESTRO_HOSTED_RUNNER_MODE",)
"""Set by a hosted runner for its session."""
YES = ("1", "true", "yes", "on")
NO = ("0", "false", "no", "off")
_LONGEST = 512
_GATEWAY = (
    *("agent_id", "workspace_id", "objective_id", "run_id", "agent_run_id", "agent_run_step_id"),
    *("session_id", "maestro_session_id", "trace_id", "turn_id", "tool_call_id", "workload"),
    "surface",
)

current_ids: ContextVar[Mapping[str, str]] = ContextVar("current_ids", default={})  # noqa: B039
"""The ids of the run and the turn that are at work now, and of those they work for."""


def gateway_metadata(ids: Mapping[str, str]) -> dict[str, str]:
    """Ids by which a gateway joins a model call to its run; never prompts or answers."""
    run = ids.get("agent_run_id") or ids.get("run_id", "")
    made = {
        "surface": "maestro",
        **ids,
        "run_id": ids.get("run_id") or run,
        "agent_run_id": run,
        "maestro_session_id": ids.get("session_id", ""),
    }
    return {name: text for name in _GATEWAY if (text := made.get(name, "").strip())}


def identity_of(environ: Mapping[str, str]) -> dict[str, str]:
    """The ids in the environment, without those that are missing, blank or far too long."""
    found: dict[str, str] = {}
    if first(environ, SWITCHES).lower() in NO or first(environ, HARD_OFF).lower() in YES:
        found[BUS_OFF] = "true"
    for name, variables in VARIABLES.items():
        value = first(environ, variables)
        if value and len(value) <= _LONGEST:
            found[name] = value
    if is_hosted(environ):
        found.setdefault("runtime_mode", "hosted")
    for variable, value in environ.items():
        if not variable.startswith("MAESTRO_"):
            continue
        for prefix, short in PREFIXES.items():
            name = variable.removeprefix(prefix)
            if name and name != variable and 0 < len(value.strip()) <= _LONGEST:
                found[short + name.lower()] = value.strip()
    return found


def is_hosted(environ: Mapping[str, str]) -> bool:
    """Whether this is the environment of a hosted runner's session."""
    return first(environ, _HOSTED).lower() in YES


def first(environ: Mapping[str, str], variables: tuple[str, ...]) -> str:
    """The first of these variables that is not blank, trimmed; empty if none is."""
    for variable in variables:
        value = environ.get(variable, "").strip()
        if value:
            return value
    return ""
