"""Commitments: the checks that hold in every mode, and the canonical hash."""

import re
from hashlib import sha256

import msgspec

from batten.coordination.payloads import COMMITMENT, Commitment, has_unknown_fields, read
from batten.coordination.rejection import invalid

LABEL = b"macp-commitment-hash/1:"
_HASH = re.compile(r"sha256:[0-9a-f]{64}")
_NEGATIVE = ("rejected", "failed", "declined")
_POSITIVE = ("selected", "accepted", "completed", "approved")


def check_commitment(
    commitment: Commitment,
    *,
    mode_version: str,
    configuration_version: str,
    policy_version: str,
) -> None:
    """Raise `INVALID_ENVELOPE` unless the commitment names the versions bound to its session."""
    for field in ("commitment_id", "action", "authority_scope", "reason"):
        if not getattr(commitment, field).strip():
            raise invalid(f"the commitment's {field} must not be blank")
    if commitment.mode_version != mode_version:
        raise invalid(f"the session is bound to mode_version {mode_version!r}")
    if commitment.configuration_version != configuration_version:
        raise invalid(f"the session is bound to configuration_version {configuration_version!r}")
    if commitment.policy_version not in ("", policy_version):
        raise invalid(f"the session is bound to policy_version {policy_version!r}")
    _check_reference(commitment)
    action = commitment.action.strip().lower()
    if action.endswith(_NEGATIVE) and commitment.outcome_positive:
        raise invalid(f"{commitment.action} is a negative outcome: outcome_positive must be false")
    if action.endswith(_POSITIVE) and not commitment.outcome_positive:
        raise invalid(f"{commitment.action} is a positive outcome: outcome_positive must be true")


def _check_reference(commitment: Commitment) -> None:
    reference = commitment.supersedes
    if reference is None:
        return
    if not reference.session_id.strip():
        raise invalid("supersedes needs a session_id")
    if _HASH.fullmatch(reference.commitment_hash) is None:
        raise invalid("supersedes.commitment_hash must be sha256: and 64 lower-case hex digits")


def commitment_hash(payload: bytes) -> str:
    """The canonical hash of a commitment's bytes (RFC-MACP-0013).

    Raises `INVALID_ENVELOPE` for bytes with unknown fields: a hash would not cover them.
    """
    commitment = read(COMMITMENT, payload)
    assert isinstance(commitment, Commitment)
    if has_unknown_fields(COMMITMENT, payload):
        raise invalid("the commitment has unknown fields: it has no canonical hash")
    fields = msgspec.structs.asdict(commitment)
    reference = commitment.supersedes
    if reference is None:
        del fields["supersedes"]
    else:
        fields["supersedes"] = msgspec.structs.asdict(reference)
    # RFC 8785: keys sorted, no spaces, only what must be escaped is. All values are strings,
    # booleans or the reference, so JSON with sorted keys is canonical.
    canonical = msgspec.json.encode(fields, order="sorted")
    return "sha256:" + sha256(LABEL + canonical).hexdigest()
