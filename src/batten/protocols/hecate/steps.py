"""Steps: the model calls, tool calls and approvals of a run."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

StepKind = Literal["model", "tool", "shell", "git", "file", "approval"]
StepStatus = Literal["running", "completed", "failed", "cancelled", "awaiting_approval"]
Phase = Literal["planning", "thinking", "execution", "approval", "policy"]
Result = Literal["success", "error", "denied"]


class Step(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One part of a run: a model call, a tool call or an approval. Empty values are left out."""

    id: str
    """`step_` and the ULID of the event that began it."""
    task_id: str = ""
    run_id: str
    parent_step_id: str = ""
    """Of a tool call: the model call that proposed it."""
    index: int
    """Its place in the run, from 1."""
    kind: StepKind
    title: str
    status: StepStatus
    phase: Phase
    result: Result | Literal[""] = ""
    turn_index: int = 0
    tool_name: str = ""
    tool_call_id: str = ""
    input: Any = UNSET
    """The arguments of the call."""
    input_excerpt: str = ""
    """The beginning of arguments that are too long, with the length and the SHA-256 of the whole;
    then `input` is missing."""
    output_summary: str = ""
    exit_code: int | UnsetType = UNSET
    error: str = ""
    error_kind: str = ""
    approval_id: str = ""
    artifact_id: str = ""
    """The whole result of the call."""
    started_at: str
    finished_at: str = ""


class StepReply(Struct, frozen=True, tag_field="object", tag="task_step"):
    data: Step


class StepList(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="object", tag="task_steps"
):
    """Steps of a run, in order."""

    data: list[Step]
    has_more: bool = False
    next_cursor: str = ""
    """Pass it as `cursor` to get the next page; missing on the last one."""
