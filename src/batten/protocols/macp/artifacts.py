"""Artifacts of a run: those that clients attach, and those that its tools made."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from batten.protocols.macp.json_values import object_of

ATTACHED = "control_plane"
"""In the metadata of an attached artifact: its `kind`, its `uri`, and whether it `has_inline`."""
ROOT_TRACE = "Root run trace"
"""The label of the artifact that every bound run has; it has no body, its events tell all of it."""


class Artifact(Struct, frozen=True, kw_only=True, rename="camel"):
    """An artifact of a run. One that an agent's tools made has the journal's kind."""

    id: str
    run_id: str
    kind: str
    label: str
    uri: str | None = None
    inline: Any = None
    created_at: str


def attached(metadata: Mapping[str, Any] | UnsetType) -> Mapping[str, Any]:
    """What the control plane knows of an artifact that a client attached; empty for others."""
    return {} if metadata is UNSET else object_of(metadata.get(ATTACHED)) or {}
