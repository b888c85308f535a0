"""Visibility and redaction of what a runner leaves behind.

The control plane decides how long and where it is kept: no durations here.
"""

from msgspec import Struct

POLICY_VERSION = "evalops.remote-runner.retention.v1"
REDACTED_FIRST = ("runtime_snapshot", "runtime_logs")


class Visibility(Struct, frozen=True, kw_only=True):
    control_plane_metadata: str = "operator"
    workspace_export: str = "tenant"
    runtime_snapshot: str = "internal"
    runtime_logs: str = "operator"


class Redaction(Struct, frozen=True, kw_only=True):
    required_before_external_persistence: tuple[str, ...] = REDACTED_FIRST
    forbidden_plaintext: tuple[str, ...] = (
        "provider_credentials",
        "tool_secrets",
        "attach_tokens",
        "artifact_access_tokens",
        "raw_environment",
    )


class RetentionPolicy(Struct, frozen=True, kw_only=True):
    policy_version: str = POLICY_VERSION
    managed_by: str = "platform"
    visibility: Visibility = Visibility()
    redaction: Redaction = Redaction()


class RetentionSummary(Struct, frozen=True, kw_only=True):
    """The part that evidence carries."""

    policy_version: str = POLICY_VERSION
    control_plane_metadata_visibility: str = Visibility().control_plane_metadata
    runtime_snapshot_visibility: str = Visibility().runtime_snapshot
    redaction_required_before_external_persistence: tuple[str, ...] = REDACTED_FIRST
