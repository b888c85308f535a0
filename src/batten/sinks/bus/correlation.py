"""Who and what an event belongs to, and the same ids as other systems spell them."""

from collections.abc import Mapping
from typing import Any

from batten.contract.tracing import caller_of

KEYS = (
    *("organization_id", "user_id", "workspace_id", "session_id", "agent_run_id"),
    *("agent_run_step_id", "agent_id", "actor_id", "principal_id", "trace_id", "traceparent"),
    *("tracestate", "request_id", "parent_event_id", "remote_runner_session_id", "objective_id"),
    "conversation_id",
)
"""Ids of a context, in the order of the wire; `attributes` come last."""
HEADERS_ONLY = ("traceparent", "tracestate")
"""In the extensions of an event, never in its data."""

Correlation = dict[str, Any]

_SURFACES = {
    "cli": "CLI",
    "print": "CLI",
    "web": "WEB",
    "ide": "IDE",
    "vscode": "IDE",
    "jetbrains": "IDE",
    "acp": "IDE",
    "github": "GITHUB_AGENT",
    "github-agent": "GITHUB_AGENT",
    "desktop": "DESKTOP",
    "remote": "REMOTE_RUNNER",
    "remote-runner": "REMOTE_RUNNER",
}
_MODES = {
    "headless": "HEADLESS",
    "hosted": "HOSTED",
    "remote": "REMOTE_ATTACHED",
    "remote-attached": "REMOTE_ATTACHED",
}


def surface_of(name: str) -> str:
    return f"MAESTRO_SURFACE_{_SURFACES.get(name.strip().lower(), 'TUI')}"


def runtime_mode_of(name: str) -> str:
    return f"MAESTRO_RUNTIME_MODE_{_MODES.get(name.strip().lower(), 'LOCAL')}"


def correlation_of(
    identity: Mapping[str, str], workspace: str, session: str = "unknown", run: str = ""
) -> Correlation:
    """The context that a launcher's ids give. The others stand in for ids that it did not name."""
    caller = caller_of(identity)
    usual = {
        # Nothing on the platform joins by a path; the organization is the next wider place.
        "workspace_id": identity.get("organization_id") or workspace,
        "session_id": session,
        "agent_run_id": run,
        "trace_id": "" if caller is None else caller.trace_id,
    }
    found = {name: identity.get(name) or usual.get(name, "") for name in KEYS}
    made: Correlation = {name: value for name, value in found.items() if value}
    attributes = {
        name.removeprefix("attribute."): value
        for name, value in identity.items()
        if name.startswith("attribute.")
    }
    if attributes:
        made["attributes"] = attributes
    return made


def merged(*layers: Mapping[str, Any]) -> Correlation:
    """Later layers win; a value that is missing or None erases nothing; attributes merge by key."""
    made: Correlation = {}
    attributes: dict[str, str] = {}
    for layer in layers:
        made |= {
            name: value
            for name, value in layer.items()
            if value is not None and name != "attributes"
        }
        attributes |= {
            name: value for name, value in _attributes(layer).items() if value is not None
        }
    ordered: Correlation = {name: made[name] for name in KEYS if name in made}
    if attributes:
        ordered["attributes"] = attributes
    return ordered


def principal_of(identity: Mapping[str, str], user: str = "") -> dict[str, Any] | None:
    """The principal of a session; None if its launcher names none."""
    subject = identity.get("principal_subject", "") or user.strip()
    if not subject:
        return None
    made: dict[str, Any] = {"subject": subject}
    made |= {
        name: identity[name]
        for name in ("user_id", "organization_id", "workspace_id")
        if identity.get(name)
    }
    for name in ("roles", "scopes"):
        listed = [one.strip() for one in identity.get(f"principal_{name}", "").split(",")]
        if given := [one for one in listed if one]:
            made[name] = given
    claims = {
        name.removeprefix("claim."): value
        for name, value in identity.items()
        if name.startswith("claim.")
    }
    if claims:
        made["claims"] = claims
    return made


def chronicle_metadata(correlation: Mapping[str, Any]) -> dict[str, str]:
    """A flat map for Chronicle. An attribute can never supply or override a canonical key."""
    canonical = {
        "maestro_session_id" if name == "session_id" else name: correlation.get(name)
        for name in KEYS
    }
    made = {name: text for name, value in canonical.items() if (text := _trimmed(value))}
    for name, value in _attributes(correlation).items():
        if name not in canonical and name != "session_id" and (text := _trimmed(value)):
            made[name] = text
    return made


def span_attributes(correlation: Mapping[str, Any], surface: str = "") -> dict[str, str]:
    """The same ids as attributes of OpenTelemetry spans; blank and unknown ones are dropped."""
    names = {
        "user_id": ("enduser.id", "user.id", "agent.user.id"),
        "organization_id": ("organization.id", "evalops.organization_id"),
        "workspace_id": ("workspace.id", "evalops.workspace_id"),
        "session_id": ("agent.session.id", "maestro.session_id"),
        "agent_id": ("agent.id",),
        "agent_run_id": ("maestro.agent_run_id",),
        "agent_run_step_id": ("maestro.agent_run_step_id",),
        "trace_id": ("trace.id",),
        "request_id": ("request.id",),
    }
    made: dict[str, str] = {}
    for name, spelled in names.items():
        value = _trimmed(correlation.get(name))
        if value and value != "unknown":
            made |= dict.fromkeys(spelled, value)
    if surface:
        made["maestro.surface"] = surface
    return made


def _trimmed(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


def _attributes(correlation: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = correlation.get("attributes")
    return found or {}
