"""Pages of lists: all have their total."""

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.records import RunRecord


class EventPage(Struct, frozen=True, kw_only=True, rename="camel"):
    """Events that fit a filter."""

    data: list[CanonicalEvent]
    total: int
    """All that fit, on whatever page."""
    limit: int
    next_cursor: int | UnsetType = UNSET
    """`afterSeq` of the next page, if this one is full: of one run the last event's number, of all
    runs its place among all events.
    """


class RunPage(Struct, frozen=True, kw_only=True):
    """Runs that fit a filter."""

    data: list[RunRecord]
    total: int
    """All that fit, on whatever page."""
    limit: int
    offset: int


def event_page(events: Sequence[CanonicalEvent], *, total: int, limit: int) -> EventPage:
    is_full = len(events) == limit and limit > 0
    return EventPage(
        data=list(events),
        total=total,
        limit=limit,
        next_cursor=events[-1].seq if is_full else UNSET,
    )
