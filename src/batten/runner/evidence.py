"""What a control plane records about a drain: ids, counts and references, never content."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from batten.runner.continuity import CountedContinuity
from batten.runner.identity import Identity
from batten.runner.retention import RetentionSummary

DrainStatus = Literal["drained", "interrupted"]
FlushStatus = Literal["completed", "failed", "skipped"]
MANIFEST_VERSION = "evalops.remote-runner.snapshot-manifest.v1"


class PlatformEvidence(Struct, frozen=True, kw_only=True):
    protocol_version: Literal["evalops.remote-runner.platform-evidence.v1"] = (
        "evalops.remote-runner.platform-evidence.v1"
    )
    event_type: Literal["hosted_runner_drain_manifest_recorded"] = (
        "hosted_runner_drain_manifest_recorded"
    )
    runner_session_id: str
    workspace_id: str | UnsetType = UNSET
    agent_run_id: str | UnsetType = UNSET
    maestro_session_id: str
    status: DrainStatus
    runtime_flush_status: FlushStatus
    manifest_path: str
    manifest_protocol_version: str = MANIFEST_VERSION
    created_at: str
    reason: str | UnsetType = UNSET
    requested_by: str | UnsetType = UNSET
    work_continuity: CountedContinuity
    retention: RetentionSummary = RetentionSummary()
    evidence_refs: tuple[str, ...]


def references(runner: Identity, maestro_session_id: str) -> tuple[str, ...]:
    """References to the drain and its run."""
    refs = (
        f"remote-runner://sessions/{runner.runner_session_id}/drain#manifest",
        f"maestro://headless/sessions/{maestro_session_id}#drain",
    )
    return (*refs, f"platform-agent-run:{runner.agent_run_id}") if runner.agent_run_id else refs
