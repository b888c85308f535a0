"""Bodies and parameters of requests; a server loads them to start."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

ArtifactKind = Literal["trace", "json", "report", "log", "bundle"]
ReplayMode = Literal["instant", "timed", "step"]
Speed = Annotated[float, Meta(ge=0.1, le=1_000_000.0)]
Seq = Annotated[int, Meta(ge=1, le=2**53 - 1)]


class BatchRequest(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    run_ids: Annotated[list[str], Meta(max_length=1000)]


class CompareRequest(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    left_run_id: str
    right_run_id: str


class CreateArtifact(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /runs/:id/artifacts`."""

    kind: ArtifactKind
    label: Annotated[str, Meta(min_length=1, max_length=255)]
    uri: Annotated[str, Meta(min_length=1, max_length=2048)] | UnsetType = UNSET
    inline: dict[str, Any] | UnsetType = UNSET


class ReplayParameters(Struct, frozen=True, kw_only=True, rename="camel"):
    """What to replay, and how fast."""

    mode: ReplayMode = "timed"
    """`timed` keeps the distances of the events; `instant` and `step` send them at once."""
    speed: Speed = 1.0
    """Of a timed one: 2 is twice as fast."""
    from_seq: Seq | UnsetType = UNSET
    """The first event."""
    to_seq: Seq | UnsetType = UNSET
    """The last event."""


class ReplayRequest(ReplayParameters, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of `POST /runs/:id/replay`."""
