"""The types of answers, for the documentation: a server need not load them to answer."""

from typing import Any

from batten.control.observer.contract import Manifest, ModeInfo, Policy, Root, Verdict
from batten.control.observer.link import RuntimeHealth
from batten.control.views.agents import AgentMetrics
from batten.control.views.dashboard import Overview
from batten.protocols.macp.artifacts import Artifact
from batten.protocols.macp.comparing import Comparison
from batten.protocols.macp.descriptor import Created, Validated
from batten.protocols.macp.errors import ErrorBody
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.exporting import RunBundle
from batten.protocols.macp.metrics import RunMetrics
from batten.protocols.macp.outbound import OutboundMessage
from batten.protocols.macp.pages import EventPage, RunPage
from batten.protocols.macp.records import RunRecord
from batten.protocols.macp.replaying import ReplayDescriptor
from batten.protocols.macp.state import ProjectedState
from batten.serve.http.macp.actions import BatchItem
from batten.serve.http.macp.admin import BreakerHistory, BreakerReset
from batten.serve.http.macp.observability import TraceSummary

ACTIONS = ("cancel", "suspend", "resume", "archive")
REMOVED = ("messages", "signal", "context")
REPLIES: dict[str, Any] = {
    "GET /runs": RunPage,
    "GET /events": EventPage,
    "GET /dashboard/overview": Overview,
    "GET /dashboard/agents/metrics": list[AgentMetrics],
    "POST /runs": Created,
    "POST /runs/validate": Validated,
    "POST /runs/{id}/clone": Created,
    **{f"POST /runs/{{id}}/{name}": RunRecord for name in ACTIONS},
    "POST /runs/{id}/projection/rebuild": ProjectedState,
    "DELETE /runs/{id}": None,
    **{f"POST /runs/batch/{name}": list[BatchItem] for name in ("cancel", "archive", "delete")},
    **{f"POST /runs/{{id}}/{name}": ErrorBody for name in REMOVED},
    "GET /runs/{id}": RunRecord,
    "GET /runs/{id}/state": ProjectedState,
    "GET /runs/{id}/events": list[CanonicalEvent] | EventPage,
    "GET /runs/{id}/stream": None,
    "GET /runtime/manifest": Manifest,
    "GET /runtime/modes": list[ModeInfo],
    "GET /runtime/roots": list[Root],
    "GET /runtime/health": RuntimeHealth,
    "POST /runtime/policies": Verdict,
    "GET /runtime/policies": list[Policy],
    "GET /runtime/policies/{policyId}": Policy,
    "DELETE /runtime/policies/{policyId}": Verdict,
    "POST /admin/circuit-breaker/reset": BreakerReset,
    "GET /admin/circuit-breaker/history": BreakerHistory,
    "POST /runs/{id}/replay": ReplayDescriptor,
    "GET /runs/{id}/replay/stream": None,
    "GET /runs/{id}/replay/state": ProjectedState,
    "GET /runs/{id}/export": RunBundle,
    "GET /runs/{id}/export/stream": bytes,
    "POST /runs/batch/export": list[RunBundle],
    "POST /runs/compare": Comparison,
    "GET /runs/{id}/metrics": RunMetrics,
    "GET /runs/{id}/traces": TraceSummary,
    "GET /runs/{id}/messages": list[OutboundMessage],
    "GET /runs/{id}/artifacts": list[Artifact],
    "POST /runs/{id}/artifacts": Artifact,
}
"""By method and path."""
