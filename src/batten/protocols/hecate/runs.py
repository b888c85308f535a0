"""Requests and objects of runs."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from batten.protocols.hecate.vocabulary import Amount, Line, Long, Note, TaskStatus


class CancelRun(Struct, frozen=True, kw_only=True):
    """Why the run is cancelled; the body may be left out."""

    reason: Note = ""


class RetryRun(Struct, frozen=True, kw_only=True):
    """The body may be left out; nothing in it is read."""


class ResumeRun(Struct, frozen=True, kw_only=True):
    """Continue a failed or cancelled run in a new one, with its conversation and workspace."""

    reason: Note = ""
    budget_micros_usd: Amount | UnsetType = UNSET
    """A higher limit for the task, set before the run is queued."""


class ContinueRun(Struct, frozen=True, kw_only=True):
    """Continue an ended run of an agent with another message."""

    prompt: Annotated[Long, Meta(min_length=1)]


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
