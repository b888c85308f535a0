"""The types of answers, for the documentation: a server need not load them to answer."""

from typing import Any

from batten.protocols.macp.descriptor import Created
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.pages import EventPage
from batten.protocols.macp.records import RunRecord
from batten.protocols.macp.state import ProjectedState

REPLIES: dict[str, Any] = {
    "POST /runs": Created,
    "GET /runs/{id}": RunRecord,
    "GET /runs/{id}/state": ProjectedState,
    "GET /runs/{id}/events": list[CanonicalEvent] | EventPage,
    "GET /runs/{id}/stream": None,
}
"""By method and path."""
