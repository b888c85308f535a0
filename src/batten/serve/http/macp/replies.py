"""The types of answers, for the documentation: a server need not load them to answer."""

from typing import Any

from batten.control.views.agents import AgentMetrics
from batten.control.views.dashboard import Overview
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.pages import EventPage, RunPage
from batten.protocols.macp.records import RunRecord
from batten.protocols.macp.state import ProjectedState

REPLIES: dict[str, Any] = {
    "GET /runs": RunPage,
    "GET /events": EventPage,
    "GET /dashboard/overview": Overview,
    "GET /dashboard/agents/metrics": list[AgentMetrics],
    "GET /runs/{id}": RunRecord,
    "GET /runs/{id}/state": ProjectedState,
    "GET /runs/{id}/events": list[CanonicalEvent] | EventPage,
}
"""By method and path."""
