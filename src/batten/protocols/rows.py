"""Questions about the rows of a journal over HTTP, as command lines and our own client ask them."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from batten.contract.facts.artifact import ArtifactKind
from batten.contract.facts.run import RunKind
from batten.contract.outcomes import RunStatus

PREFIX = "/batten/v1"
"""Under which the rows are served."""
MOST = 500
"""Rows of a page."""

_Id = Annotated[str, Meta(min_length=1, max_length=200)]
_Path = Annotated[str, Meta(max_length=4096)]
_Time = Annotated[str, Meta(max_length=64)]
_Limit = Annotated[int, Meta(ge=1, le=MOST)]


class RunsQuery(Struct, frozen=True, kw_only=True):
    """Which runs to list; a filter that is left out fits every run."""

    after: _Id | UnsetType = UNSET
    """The id of the last run of the page before."""
    limit: _Limit = 50
    status: RunStatus | UnsetType = UNSET
    kind: RunKind | UnsetType = UNSET
    workspace_path: _Path | UnsetType = UNSET
    task_id: _Id | UnsetType = UNSET
    session_id: _Id | UnsetType = UNSET
    parent_run_id: _Id | UnsetType = UNSET
    model: _Path | UnsetType = UNSET
    since: _Time | UnsetType = UNSET
    """The earliest `created_at`."""
    until: _Time | UnsetType = UNSET
    """The first `created_at` that is excluded."""


class RequestsQuery(Struct, frozen=True, kw_only=True):
    """Of which run; left out: the unanswered ones of all runs."""

    run_id: _Id | UnsetType = UNSET
    limit: _Limit = MOST
    """Of a run with more, the newest."""


class ArtifactsQuery(Struct, frozen=True, kw_only=True):
    """Of which run, and of which kind."""

    run_id: _Id
    kind: ArtifactKind | UnsetType = UNSET


class IdsQuery(Struct, frozen=True, kw_only=True):
    """A range of ids, both ends included: all that begin alike."""

    kind: Literal["run", "session", "request", "artifact"]
    first: _Id
    last: _Id
    limit: Annotated[int, Meta(ge=1, le=100)] = 10


class Ids(Struct, frozen=True, tag_field="object", tag="ids"):
    data: list[str]
