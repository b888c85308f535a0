"""`artifact.*`: bodies a run produced or used."""

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from batten.contract.facts.base import Fact

ArtifactKind = Literal[
    "patch",
    "file_snapshot",
    "command_output",
    "fetched_resource",
    "search_results",
    "image",
    "tool_result_blob",
    "sealed",
]
"""`sealed` is ours: an encrypted body that must return unchanged. Bundles can leave it out."""

ArtifactStatus = Literal["created", "proposed", "applied", "rejected"]


class ArtifactCreated(Fact, frozen=True):
    TYPE = "artifact.created"
    ALWAYS = (
        "sha256",
        "mime_type",
        "status",
    )
    artifact_id: str
    kind: ArtifactKind
    size_bytes: int
    summary: str
    created_by_event_id: str | UnsetType = UNSET
    sha256: str | UnsetType = UNSET
    """Digest of the stored bytes, in hex. Equal bodies are stored once."""
    mime_type: str | UnsetType = UNSET
    status: ArtifactStatus | UnsetType = UNSET
    tool_call_id: str | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    """Details by kind: a patch's path and base, a command's exit code."""
    by: str | UnsetType = UNSET
    """The client that created it; absent if the run did."""


class ArtifactReferenced(Fact, frozen=True):
    TYPE = "artifact.referenced"
    artifact_id: str
    by_event_id: str
    relation: str


class ArtifactUpdated(Fact, frozen=True):
    TYPE = "artifact.updated"
    artifact_id: str
    field: Literal["status", "reverted_at", "pinned", "deleted_at"]
    old_value: str | bool | None
    new_value: str | bool
    by: str | UnsetType = UNSET
    """The client that changed it; absent if the run did."""
    reason: str | UnsetType = UNSET
