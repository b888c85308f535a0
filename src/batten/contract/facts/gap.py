"""`gap.*`: missing history, and the reason."""

from msgspec import UNSET, UnsetType

from batten.contract.facts.base import Fact


class GapEventsPruned(Fact, frozen=True):
    """This range, both ends included, was removed from the beginning of the run."""

    TYPE = "gap.events_pruned"
    first_pruned_sequence: int
    last_pruned_sequence: int
    pruned_at: str
    reason: str


class GapRunDisconnected(Fact, frozen=True):
    """The worker that executed the run is gone; another took it over."""

    TYPE = "gap.run_disconnected"
    since_sequence: int
    since_at: str
    reason: str
    """`worker_lease_expired`; earlier versions wrote `worker_lost` if its process had ended."""
    prior_worker_id: str | UnsetType = UNSET
    worker_exited: bool | UnsetType = UNSET
    """Its process is known to have ended. Otherwise it did not renew its lease in time."""


class GapArtifactCapped(Fact, frozen=True):
    """A quota cut the rest of a body."""

    TYPE = "gap.artifact_capped"
    artifact_id: str
    kept_bytes: int
    original_size_bytes: int
    quota: str
