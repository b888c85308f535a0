"""What a runtime says of a session's policy: the payloads, and who may send them."""

from typing import Any

import msgspec

from batten.contract.facts.macp import BoundPolicy, MacpCommitmentEvaluated
from batten.protocols.macp.json_values import object_of

TYPES = frozenset({"PolicyResolved", "PolicyCommitmentEvaluated", "PolicyDenied"})
"""Messages of the runtime itself. They have no place among those of a session."""
AUTHOR = "batten-runtime"
"""The sender of them, where the runtime is beside the service."""
ASKED_BY = "batten-judgements"
"""The metadata by which an observer asks a runtime for them: clients that count what they are sent
would count these too.
"""


def resolved_payload(policy: BoundPolicy, at: str) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "policyVersion": policy.policy_id,
        "policyId": policy.policy_id,
        "description": policy.description,
        "resolvedAt": at,
    }
    if expected := _expected(policy.rules):
        payload["expectedCommitments"] = expected
    return payload


def _expected(rules: str) -> list[dict[str, Any]]:
    """What the policy expects of a commitment, if its rules tell."""
    try:
        decoded = msgspec.json.decode(rules or "{}")
    except msgspec.DecodeError:
        return []
    commitment = object_of((object_of(decoded) or {}).get("commitment"))
    return [commitment] if commitment else []


def evaluated_payload(fact: MacpCommitmentEvaluated) -> dict[str, Any]:
    return {
        "commitmentId": fact.commitment_id,
        "decision": fact.decision,
        "reasons": [one.message or one.code for one in fact.denials],
    }
