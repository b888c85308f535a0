"""The types of answers, for the documentation: a server need not load them to answer."""

from typing import Any

from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.pages import EventPage
from batten.protocols.macp.records import RunRecord
from batten.protocols.macp.state import ProjectedState

REPLIES: dict[str, Any] = {
    "/runs/{id}": RunRecord,
    "/runs/{id}/state": ProjectedState,
    "/runs/{id}/events": list[CanonicalEvent] | EventPage,
}
"""By path."""
