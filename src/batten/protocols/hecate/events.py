"""Requests and lists of events."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from batten.protocols.hecate.vocabulary import END, Cursor, Limit, Line, Note, Short


class Event(Struct, frozen=True, kw_only=True):
    """One event: a fact with its place and time. `docs/events.md` lists the types."""

    schema_version: str
    event_id: str
    run_id: str
    task_id: str | UnsetType = UNSET
    session_id: str | UnsetType = UNSET
    sequence: Annotated[int, Meta(ge=0)]
    """Its number in the run: 0, 1, 2, … without a gap."""
    occurred_at: str
    type: str
    data: dict[str, Any]


class EventList(Struct, frozen=True, tag_field="object", tag="list"):
    """Events of one run, in the order of `sequence`."""

    data: list[Event]


class FeedList(Struct, frozen=True, kw_only=True, tag_field="object", tag="events"):
    """Events of all runs, in the order in which they were stored."""

    data: list[Event]
    next_after_sequence: int | UnsetType = UNSET
    """The position up to which these are all: pass it as `after_sequence` for the next page.
    Missing if the page is empty and nothing follows, unless it was waited for."""


class EventsQuery(Struct, frozen=True, kw_only=True):
    """Where to start in a run's events, and how."""

    after_sequence: Cursor | UnsetType = UNSET
    """Only events after this one; left out or -1: from the first stored one."""
    limit: Limit | UnsetType = UNSET
    """Events in a list, at most 500. A request with a limit that does not ask for a stream gets a
    list."""
    wait: Annotated[float, Meta(ge=0, le=60)] | UnsetType = UNSET
    """Seconds to wait for the first event of a list that would be empty."""


class FeedQuery(Struct, frozen=True, kw_only=True):
    """Which events of all runs to return."""

    event_type: Line | UnsetType = UNSET
    """Types to return, separated by commas. Events of sessions and tasks, which belong to no run,
    are returned only if their type is named here."""
    task_id: Line | UnsetType = UNSET
    run_id: Line | UnsetType = UNSET
    """Only events of this run; their `sequence` is not the cursor of this list."""
    after_sequence: Cursor | UnsetType = UNSET
    """A position: only events stored after it; left out or -1: from the first."""
    limit: Limit | UnsetType = UNSET
    """Events in a list: 200 if left out, at most 500."""
    wait: Annotated[float, Meta(ge=0, le=60)] | UnsetType = UNSET
    """Seconds to wait for the first event of a list that would be empty."""


class StateQuery(Struct, frozen=True, kw_only=True):
    """Where a stream of states starts."""

    after_sequence: Cursor | UnsetType = UNSET
    """Only states after this event; left out or -1: the present one first."""


class AppendEvent(Struct, frozen=True, kw_only=True):
    """An event of your own for a run's history."""

    type: Annotated[
        str,
        Meta(
            pattern=rf"^external(\.[a-z][a-z0-9_]*)+{END}",
            max_length=100,
            extra={"expected": "a type that begins with external., as external.note"},
        ),
    ] = "external.event"
    """It begins with `external.`: other types are the service's own."""
    step_id: Short = ""
    status: Short = ""
    note: Note = ""
    data: dict[str, Any] = {}
    """The payload; `step_id`, `status` and `note` are added to it if they are given."""


class EventReply(Struct, frozen=True, tag_field="object", tag="task_run_event"):
    data: Event


def payload_of(event: AppendEvent) -> dict[str, Any]:
    """The payload of an appended event."""
    named = {"step_id": event.step_id, "status": event.status, "note": event.note}
    return {**event.data, **{name: text for name, text in named.items() if text}}


def types_of(query: FeedQuery) -> frozenset[str]:
    """The types that a query selects; empty for every type of a run."""
    if query.event_type is UNSET:
        return frozenset()
    return frozenset(name for part in query.event_type.split(",") if (name := part.strip()))
