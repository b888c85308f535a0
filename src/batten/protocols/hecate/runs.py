"""Runs: requests, objects, and a run's object from its row."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from batten.contract.facts import Fact, RunCancelled, RunFailed
from batten.protocols.hecate.rows import RunLike
from batten.protocols.hecate.vocabulary import Amount, Line, Long, Note, TaskStatus

ACTIVE = frozenset({"queued", "running", "awaiting_approval"})
"""The statuses of a run that has not ended. A task has at most one such run."""


class CancelRun(Struct, frozen=True, kw_only=True):
    """Why the run is cancelled; the body may be left out."""

    reason: Note = ""


class ResumeRun(Struct, frozen=True, kw_only=True):
    """Continue a failed or cancelled run in a new one, with its conversation and workspace."""

    reason: Note = ""
    budget_micros_usd: Amount | UnsetType = UNSET
    """A higher limit for the task, set before the run is queued."""


class ContinueRun(Struct, frozen=True, kw_only=True):
    """Continue an ended run of an agent with another message."""

    prompt: Annotated[Long, Meta(min_length=1, pattern=r"\S", extra={"expected": "a text"})]
    """Not blank."""


class RetryFromTurn(Struct, frozen=True, kw_only=True):
    """Repeat an ended run of an agent from one of its turns."""

    turn: Annotated[int, Meta(ge=1, le=2**31)]
    """The first turn to repeat: the conversation before it is kept."""
    reason: Note = ""


class Run(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One execution of a task. Empty values are left out."""

    id: str
    task_id: str = ""
    session_id: str = ""
    number: int = 0
    """Its place among the runs of the task, from 1."""
    kind: str
    """`agent_loop`, `shell`, `git`, `file` or `coordination`."""
    status: TaskStatus
    outcome: str = ""
    """How an ended run ended, more exactly than its status: `completed`, `budget`, `max_turns`…"""
    orchestrator: str
    """Always `builtin`."""
    model: str = ""
    provider: str = ""
    workspace_path: str = ""
    workspace_mode: str = ""
    prompt: str = ""
    """The beginning of its first message."""
    prior_run_id: str = ""
    """The run that this one continues."""
    parent_run_id: str = ""
    """The run whose agent started this one."""
    turns: int
    step_count: int | UnsetType = UNSET
    approval_count: int | UnsetType = UNSET
    artifact_count: int | UnsetType = UNSET
    total_cost_micros_usd: int
    """The cost of this run, in millionths of a US dollar."""
    prior_cost_micros_usd: int = 0
    """The cost of the runs that this one continues."""
    cost_unknown: bool = False
    """A model has no known price: the cost is a lower bound."""
    cancel_requested: bool = False
    last_error: str = ""
    last_sequence: int
    """The sequence of its newest event; a stream that starts after it shows only what follows."""
    created_at: str
    started_at: str = ""
    finished_at: str = ""
    trace_id: str = ""
    """The trace of the request that queued it, else one of its own."""
    root_span_id: str = ""


class RunReply(Struct, frozen=True, tag_field="object", tag="task_run"):
    data: Run


class RunList(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="object", tag="task_runs"
):
    """Runs of a task, the newest first."""

    data: list[Run]
    has_more: bool = False
    next_cursor: str = ""
    """Pass it as `cursor` to get the next page; missing on the last one."""


class PageQuery(Struct, frozen=True, kw_only=True):
    """Which page of a list to return."""

    limit: Amount | UnsetType = UNSET
    """Items on a page: 50 if left out, at most 200; 0 for the most."""
    cursor: Line | UnsetType = UNSET
    """`next_cursor` of the page before."""


class RunDetails(Struct, frozen=True, kw_only=True):
    """What a run's object shows beyond its row. Counts that nobody made are left out."""

    number: int = 0
    prior_cost_micros_usd: int = 0
    step_count: int | UnsetType = UNSET
    approval_count: int | UnsetType = UNSET
    artifact_count: int | UnsetType = UNSET
    started_at: str = ""
    last_error: str = ""
    trace_id: str = ""


_NO_DETAILS = RunDetails()


def run_object(row: RunLike, details: RunDetails = _NO_DETAILS) -> Run:
    return Run(
        id=row.run_id,
        task_id=row.task_id or "",
        session_id=row.session_id or "",
        number=details.number,
        kind=row.kind,
        status=row.status,
        outcome=row.outcome or "",
        orchestrator="builtin",
        model=row.model or "",
        provider=row.provider or "",
        workspace_path=row.workspace_path,
        workspace_mode=row.workspace_mode,
        prompt=row.prompt,
        prior_run_id=row.prior_run_id or "",
        parent_run_id=row.parent_run_id or "",
        turns=row.turns,
        step_count=details.step_count,
        approval_count=details.approval_count,
        artifact_count=details.artifact_count,
        total_cost_micros_usd=row.cost_micros_usd,
        prior_cost_micros_usd=details.prior_cost_micros_usd,
        cost_unknown=row.cost_unknown,
        cancel_requested=row.cancel_requested,
        last_error=details.last_error,
        last_sequence=row.next_sequence - 1,
        created_at=row.created_at,
        started_at=details.started_at,
        finished_at=row.ended_at or "",
        trace_id=details.trace_id,
    )


def error_of(ending: Fact) -> str:
    """The `last_error` that an ending leaves; empty for a success, or a cancel without a reason."""
    if isinstance(ending, RunFailed):
        return ending.message or ending.code
    return ending.reason if isinstance(ending, RunCancelled) else ""


def counted(runs: Sequence[RunLike], *, oldest_first: bool = True) -> dict[str, int]:
    """The number of each of a task's runs, from 1 for the first; child runs have none."""
    own = [run for run in runs if run.parent_run_id is None]
    ordered = own if oldest_first else own[::-1]
    return {run.run_id: number for number, run in enumerate(ordered, 1)}
