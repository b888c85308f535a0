"""`run.*`: the life of a run, from accepted to ended."""

from typing import Literal

from msgspec import UNSET, UnsetType

from batten.contract.facts.base import Fact
from batten.contract.outcomes import Outcome

RunKind = Literal["agent_loop", "shell", "git", "file", "coordination", "session"]
"""`session` is the stream of a session's own facts; it is never listed as a run."""

WorkspaceMode = Literal["in_place", "clone", "worktree"]
ExecutorType = Literal["live", "replay"]


class RunQueued(Fact, frozen=True):
    """Accepted, waiting for a worker."""

    TYPE = "run.queued"
    ALWAYS = ("executor_type",)
    kind: RunKind
    model: str | None
    provider: str | None
    workspace_path: str
    workspace_mode: WorkspaceMode
    prior_run_id: str | None
    parent_run_id: str | UnsetType = UNSET
    """The run whose `agent` tool started this one."""
    parent_tool_call_id: str | UnsetType = UNSET
    executor_type: ExecutorType | UnsetType = UNSET
    prior_cost_micros_usd: int | UnsetType = UNSET
    """The cost of the runs that this one continues; present if there are any."""
    additional_directories: list[str] | UnsetType = UNSET
    """Directories that the run may read and write beside its workspace."""
    priority: int | UnsetType = UNSET
    """Workers claim runs of a higher priority first; 0 if absent."""
    by: str | UnsetType = UNSET
    """Who queued it, where a client of the service did."""
    traceparent: str | UnsetType = UNSET
    """The span that queued it, of a request or of a parent's call, as W3C Trace Context spells
    it."""
    identity: dict[str, str] | UnsetType = UNSET
    """Ids of those it works for, as its launcher named them: organisation, user, trace."""


class RunStarted(Fact, frozen=True):
    """A worker holds the lease. Written again each time a worker claims the run."""

    TYPE = "run.started"
    worker_id: str
    lease_until: str


class RunFinished(Fact, frozen=True):
    """Terminal success."""

    TYPE = "run.finished"
    final_status: Literal["completed"]
    turns: int
    cost_micros_usd: int
    duration_ms: int
    cost_unknown: bool | UnsetType = UNSET
    """A model call had no known price: the cost is a lower bound."""
    background: list[str] | UnsetType = UNSET
    """Commands that were still running and ended with the run."""


class RunFailed(Fact, frozen=True):
    """Terminal failure. `code` is stable; `message` is for people."""

    TYPE = "run.failed"
    ALWAYS = (
        "outcome",
        "cost_micros_usd",
        "duration_ms",
    )
    code: str
    message: str
    retriable: bool
    turns: int
    outcome: Outcome | UnsetType = UNSET
    cost_micros_usd: int | UnsetType = UNSET
    cost_unknown: bool | UnsetType = UNSET
    duration_ms: int | UnsetType = UNSET
    traceback: str | UnsetType = UNSET
    """The traceback of a bug; only for `internal_error`."""


class RunCancelled(Fact, frozen=True):
    """Ended on request. No effect starts after this."""

    TYPE = "run.cancelled"
    ALWAYS = (
        "outcome",
        "turns",
        "cost_micros_usd",
        "duration_ms",
    )
    by: str
    reason: str
    outcome: Outcome | UnsetType = UNSET
    turns: int | UnsetType = UNSET
    cost_micros_usd: int | UnsetType = UNSET
    cost_unknown: bool | UnsetType = UNSET
    duration_ms: int | UnsetType = UNSET


class RunCancelRequested(Fact, frozen=True):
    """A client asked the run to end. No effect begins after this commits."""

    TYPE = "run.cancel_requested"
    by: str
    reason: str


class RunResumedFromEvent(Fact, frozen=True):
    """The first fact of a run that continues another one from a checkpoint."""

    TYPE = "run.resumed_from_event"
    from_run_id: str
    from_sequence: int
    prior_cost_micros_usd: int
    reason: str | UnsetType = UNSET
    """Why a client asked for it."""


class RunCheckpointSaved(Fact, frozen=True):
    """A point from which a run can be resumed or branched."""

    TYPE = "run.checkpoint_saved"
    ALWAYS = ("turn_index",)
    checkpoint_id: str
    turn_index: int | UnsetType = UNSET
    patch_artifact_ids: list[str] | UnsetType = UNSET
    """The patches applied in this run so far."""
