"""Ids as this protocol spells them."""

from uuid import NAMESPACE_URL, uuid5

from batten.contract.ids import is_ulid, to_uuid


def run_uuid(run_id: str) -> str:
    """A run's id as this protocol spells it."""
    return to_uuid(run_id) if is_ulid(run_id) else str(uuid5(NAMESPACE_URL, run_id))
