"""Objects about the service itself: health, statistics, retention."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from batten.protocols.hecate.vocabulary import Limit

Subsystem = Literal["runs", "artifacts"]

RETENTION_PAGE, MAX_RETENTION_PAGE = 20, 200


class OsIsolation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How commands are confined on this machine."""

    kind: str
    """`bwrap`, `landlock`, `sandbox-exec` or `none`."""
    path: str = ""
    """The program that confines them."""
    reason: str = ""
    """Why there is no stronger layer."""


class Sandbox(Struct, frozen=True, kw_only=True):
    """The sandbox of commands."""

    os_isolation: OsIsolation


class Health(Struct, frozen=True, kw_only=True):
    """The service answers."""

    status: str
    """`ok`."""
    time: str
    version: str
    sandbox: Sandbox


class Stats(Struct, frozen=True, kw_only=True):
    """The queue, the workers and the runs at one moment."""

    checked_at: str
    queue_depth: int
    """Runs that wait for a worker."""
    queue_capacity: int
    """0: unbounded."""
    queue_backend: str
    worker_count: int
    in_flight_jobs: int
    """Runs that workers execute now."""
    queued_runs: int
    running_runs: int
    awaiting_approval_runs: int
    oldest_queued_age_seconds: int
    oldest_running_age_seconds: int
    store_backend: str


class StatsReply(Struct, frozen=True, tag_field="object", tag="runtime_stats"):
    data: Stats


class RunRetention(Struct, frozen=True, kw_only=True):
    """Remove what is older or more than the settings keep; the body may be left out."""

    subsystems: Annotated[list[Subsystem], Meta(max_length=10)] = []
    """What to look at; left out or empty: everything."""


class RetentionResult(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was removed of one subsystem."""

    name: Subsystem
    deleted: int
    max_age: str = ""
    """The age kept, such as `7d`."""
    max_count: int
    """The number kept; 0: any."""
    max_bytes: int = 0
    """The size kept; missing if there is no limit."""
    error: str = ""
    skipped: bool = False
    """Nothing limits this subsystem."""


class RetentionRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One removal of what the settings no longer keep."""

    started_at: str
    finished_at: str
    trigger: Literal["manual", "scheduled"]
    actor: str = ""
    """Who asked for it."""
    request_id: str = ""
    results: list[RetentionResult]


class RetentionReply(Struct, frozen=True, tag_field="object", tag="retention_run"):
    data: RetentionRun


class RetentionList(Struct, frozen=True, tag_field="object", tag="retention_runs"):
    """The latest removals, the newest first."""

    data: list[RetentionRun]


class RetentionQuery(Struct, frozen=True, kw_only=True):
    """How many removals to list."""

    limit: Limit | UnsetType = UNSET
    """20 if left out, at most 200."""
