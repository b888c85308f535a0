"""The timeline of a run: what a console shows, one item for each thing that happened."""

from typing import Any, Literal

from msgspec import UNSET, Struct

from batten.protocols.hecate.approvals import Approval
from batten.protocols.hecate.artifacts import Artifact
from batten.protocols.hecate.steps import Step

ActivityType = Literal[
    "thinking",
    "tool_call",
    "patch",
    "changed_files",
    "final_answer",
    "approval",
    "artifact",
    "step",
    "run_result",
]


class Activity(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item of a run's timeline. Its id stays the same while its status changes."""

    id: str
    type: ActivityType
    status: str
    title: str = ""
    step_id: str = ""
    artifact_id: str = ""
    approval_id: str = ""
    tool_name: str = ""
    kind: str = ""
    path: str = ""
    summary: dict[str, Any] = {}
    """Details of the type. Of a command: the beginning of `stdout` and `stderr`, each at most 2,000
    bytes, and `exit_code`."""
    occurred_at: str
    terminal: bool = False
    """Nothing of the run's own work follows."""
    needs_action: bool = False
    """A person has to decide: an approval, or a proposed patch."""


def of_step(step: Step, output: dict[str, str] | None) -> Activity:
    """A model call or a tool call; `output` is what a command wrote."""
    summary: dict[str, Any] = {}
    if step.output_summary:
        summary["text"] = step.output_summary
    if step.error:
        summary["error"] = step.error
    if step.result:
        summary["result"] = step.result
    if output is not None:
        summary |= output
    if step.exit_code is not UNSET:
        summary["exit_code"] = step.exit_code
    is_call = bool(step.tool_name)
    return Activity(
        id=f"step:{step.id}",
        type="tool_call" if is_call else ("thinking" if step.kind == "model" else "step"),
        status=step.status,
        title=step.title,
        step_id=step.id,
        artifact_id=step.artifact_id,
        tool_name=step.tool_name,
        kind=step.kind,
        summary=summary,
        occurred_at=step.started_at,
    )


def of_approval(approval: Approval) -> Activity:
    summary: dict[str, Any] = {"reason": approval.reason} if approval.reason else {}
    if approval.resolved_by:
        summary["resolved_by"] = approval.resolved_by
    if approval.resolution_note:
        summary["note"] = approval.resolution_note
    return Activity(
        id=f"approval:{approval.id}",
        type="approval",
        status=approval.status,
        title=approval.summary,
        step_id=approval.step_id,
        approval_id=approval.id,
        tool_name=approval.kind,
        kind=approval.kind,
        summary=summary,
        occurred_at=approval.created_at,
        needs_action=approval.status == "pending",
    )


def of_artifact(artifact: Artifact, step_id: str = "") -> Activity:
    is_patch = artifact.kind == "patch"
    summary: dict[str, Any] = {"size_bytes": artifact.size_bytes}
    if artifact.stats is not UNSET:
        stats = artifact.stats
        summary |= {"additions": stats.additions, "deletions": stats.deletions}
    if artifact.reverted_at:
        summary["reverted_at"] = artifact.reverted_at
    return Activity(
        id=f"artifact:{artifact.id}",
        type="patch" if is_patch else "artifact",
        status=artifact.status,
        title=artifact.summary or artifact.target_path,
        step_id=step_id,
        artifact_id=artifact.id,
        kind=artifact.kind,
        path=artifact.target_path,
        summary=summary,
        occurred_at=artifact.created_at,
        needs_action=is_patch and artifact.status == "proposed",
    )
