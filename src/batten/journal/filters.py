"""Filters of the lists of rows. A filter that is None counts as absent."""

from typing import TypedDict

from batten.contract.facts.artifact import ArtifactKind, ArtifactStatus
from batten.contract.facts.run import RunKind
from batten.contract.outcomes import RunStatus


class RunFilters(TypedDict, total=False):
    """Which runs to list."""

    status: RunStatus | None
    kind: RunKind | None
    workspace_path: str | None
    task_id: str | None
    session_id: str | None
    parent_run_id: str | None
    model: str | None
    since: str | None
    """The earliest `created_at`."""
    until: str | None
    """The first `created_at` that is excluded."""


class SessionFilters(TypedDict, total=False):
    """Which sessions to list."""

    workspace_path: str | None
    task_id: str | None
    surface: str | None
    status: RunStatus | None
    """Of the last run; a session without one counts as queued."""
    since: str | None
    """The earliest `updated_at`."""
    until: str | None
    """The first `updated_at` that is excluded."""


class ArtifactFilters(TypedDict, total=False):
    """Which artifacts to list."""

    kind: ArtifactKind | None
    status: ArtifactStatus | None
    task_id: str | None
    run_id: str | None
    session_id: str | None
    pinned: bool | None
    since: str | None
    """The earliest `created_at`."""
    until: str | None
    """The first `created_at` that is excluded."""


class FeedFilters(TypedDict, total=False):
    """Which facts of the feed to read."""

    types: frozenset[str] | None
    task_id: str | None
    until: int | None
    """The last position to look at."""
