"""Pages of lists: all have their total."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from batten.protocols.macp.events import CanonicalEvent


class EventPage(Struct, frozen=True, kw_only=True, rename="camel"):
    """Events that fit a filter."""

    data: list[CanonicalEvent]
    total: int
    """All that fit, on whatever page."""
    limit: int
    next_cursor: int | UnsetType = UNSET
    """The last event's number, if the page is full: `afterSeq` of the next one."""


class Page(Struct, frozen=True, kw_only=True):
    """Runs, or entries of the audit log."""

    data: list[Any]
    total: int
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
