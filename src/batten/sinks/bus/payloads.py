"""The data of each message in the catalogue, built from plain values."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from batten.contract.facts.session import IDLE_TIMEOUT, TTL_EXPIRED
from batten.contract.outcomes import Outcome

SessionState = Literal["started", "suspended", "resumed", "closed"]
CloseReason = Literal[
    "COMPLETED", "USER_STOPPED", "IDLE_TIMEOUT", "TTL_EXPIRED", "ERROR", "POLICY_DENIED"
]
DecisionMode = Literal["ALLOW", "REQUIRE_APPROVAL", "DENY", "AUTO_APPROVED"]
ToolStatus = Literal["SUCCEEDED", "FAILED", "DENIED", "CANCELLED"]
TurnStatus = Literal["success", "error", "aborted", "evaluation_failed", "rate_limited"]

Data = dict[str, Any]
Metadata = Mapping[str, Any]

_OUTCOMES: dict[TurnStatus, str] = {
    "success": "SUCCEEDED",
    "error": "FAILED",
    "aborted": "CANCELLED",
    "evaluation_failed": "EVALUATION_FAILED",
    "rate_limited": "RATE_LIMITED",
}

_CLOSES: dict[Outcome, CloseReason] = {
    "completed": "COMPLETED",
    "interrupted": "USER_STOPPED",
    "cancelled": "USER_STOPPED",
    "denied": "POLICY_DENIED",
    "hook_denied": "POLICY_DENIED",
}
"""Why a session was closed, by how its last run ended; all other outcomes are errors."""
_REASONS: dict[str, CloseReason] = {IDLE_TIMEOUT: "IDLE_TIMEOUT", TTL_EXPIRED: "TTL_EXPIRED"}
"""The same by the reason of its end, where that says more."""


def close_reason(reason: str, outcome: Outcome) -> CloseReason:
    return _REASONS.get(reason) or _CLOSES.get(outcome, "ERROR")


def session(
    state: SessionState,
    at: str,
    *,
    surface: str,
    runtime_mode: str,
    close_reason: CloseReason | None = None,
    **more: Any,
) -> Data:
    """`more`: principal, workspace_root, repository, git_ref, runtime_version, runner_profile,
    close_message, metadata.
    """
    return {
        "state": f"MAESTRO_SESSION_STATE_{state.upper()}",
        "surface": surface,
        "runtime_mode": runtime_mode,
        **more,
        f"{state}_at": at,
        "close_reason": close_reason and f"MAESTRO_CLOSE_REASON_{close_reason}",
    }


def approval_hit(action: str, mode: DecisionMode, at: str, **more: Any) -> Data:
    return {
        "action": action,
        "decision_mode": f"MAESTRO_DECISION_MODE_{mode}",
        **more,
        "occurred_at": at,
    }


def sandbox_violation(operation: str, resource: str, at: str, **more: Any) -> Data:
    return {"operation": operation, "resource": resource, **more, "occurred_at": at}


def firewall_block(operation: str, target: str, at: str, **more: Any) -> Data:
    return {"operation": operation, "target": target, **more, "occurred_at": at}


def tool_attempt(tool_call_id: str, tool_name: str, at: str, **more: Any) -> Data:
    return {"tool_call_id": tool_call_id, "tool_name": tool_name, **more, "attempted_at": at}


def tool_result(
    tool_call_id: str, status: ToolStatus, at: str, *, duration_ms: float | None = None, **more: Any
) -> Data:
    return {
        "tool_call_id": tool_call_id,
        "status": f"MAESTRO_TOOL_CALL_STATUS_{status}",
        "duration": None if duration_ms is None else duration(duration_ms),
        **more,
        "completed_at": at,
    }


def prompt_variant(prompt_metadata: Metadata, at: str) -> Data:
    name = prompt_metadata["name"]
    return {
        "prompt_id": name,
        "prompt_name": name,
        "version_id": prompt_metadata.get("versionId"),
        "prompt_metadata": prompt_metadata,
        "selected_at": at,
    }


def learned_context(
    learning_id: str,
    statement: str,
    dimension: str,
    *,
    confidence_score: float,
    confidence_reason: str,
    evidence: Sequence[Mapping[str, str]],
    at: str,
    **more: Any,
) -> Data:
    """A statement that later agents may recall. It needs evidence and a score from 0 to 1."""
    if not evidence or not 0 <= confidence_score <= 1:
        raise ValueError("learned context needs evidence, and a confidence from 0 to 1")
    return {
        "learning_id": learning_id,
        "statement": statement,
        "dimension": dimension,
        "confidence_score": confidence_score,
        "confidence_reason": confidence_reason,
        "evidence": [dict(one) for one in evidence],
        **more,
        "learned_at": at,
    }


def skill_invocation(skill_metadata: Metadata, tool_call_id: str, at: str, **more: Any) -> Data:
    return {
        "skill_metadata": skill_metadata,
        "skill_id": skill_metadata.get("artifactId"),
        "tool_call_id": tool_call_id,
        **more,
        "invoked_at": at,
    }


def skill_outcome(
    skill_metadata: Metadata, turn_status: TurnStatus, at: str, **more: Any
) -> tuple[str, Data]:
    """The type of the event and its data: anything but success is a failure."""
    kind = "succeeded" if turn_status == "success" else "failed"
    status = f"MAESTRO_SKILL_OUTCOME_STATUS_{_OUTCOMES[turn_status]}"
    data = {
        "skill_metadata": skill_metadata,
        "skill_id": skill_metadata.get("artifactId"),
        "turn_status": turn_status,
        "status": status,
        **more,
        "outcome_at": at,
    }
    return f"maestro.events.skill.{kind}", data


def eval_score(tool_call_id: str, at: str, **more: Any) -> Data:
    skill: Metadata = more.get("skill_metadata") or {}
    names = (skill.get("artifactId"), skill.get("name"), more.get("tool_name"), tool_call_id)
    return {
        "eval_run_id": more.get("tool_execution_id") or tool_call_id,
        "scenario_id": next(name for name in names if name),
        "tool_call_id": tool_call_id,
        **more,
        "scored_at": at,
    }


def ambient_plan(name: str, plan: Metadata, at: str) -> Data:
    """`name`: that of the event without `maestro.`."""
    return {**plan, f"{name.rpartition('.')[2].removeprefix('cost_')}_at": at}


def duration(milliseconds: float) -> str:
    """A duration as protobuf spells it in JSON: `1.234s`."""
    return f"{round(milliseconds) / 1000:.3f}s"


def lasted(opened_at: str, closed_at: str) -> dict[str, str]:
    """How long a session was open, in the strings that metadata are made of."""
    try:
        took = datetime.fromisoformat(closed_at) - datetime.fromisoformat(opened_at)
    except ValueError:  # its beginning was pruned
        return {}
    return {"duration_ms": str(round(took.total_seconds() * 1000))}
