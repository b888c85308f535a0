"""The types of answers, for the documentation: a server need not load them to answer."""

from typing import Any

from batten.protocols.macp.descriptor import Created, Validated
from batten.protocols.macp.errors import ErrorBody
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.pages import EventPage
from batten.protocols.macp.records import RunRecord
from batten.protocols.macp.state import ProjectedState
from batten.serve.http.macp.actions import BatchItem

ACTIONS = ("cancel", "suspend", "resume", "archive")
REMOVED = ("messages", "signal", "context")
REPLIES: dict[str, Any] = {
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
}
"""By method and path."""
