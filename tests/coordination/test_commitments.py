"""The canonical hash of a commitment, compared with the protocol's own library."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.coordination.commitment import commitment_hash
from batten.coordination.payloads import COMMITMENT, write
from batten.coordination.rejection import Rejection
from tests.coordination.published import core, published_hash

texts = st.text(st.characters(codec="utf-8"), max_size=20)
references = st.none() | st.fixed_dictionaries({"session_id": texts, "commitment_hash": texts})
commitments = st.fixed_dictionaries(
    {
        "commitment_id": texts,
        "action": texts,
        "authority_scope": texts,
        "reason": texts,
        "mode_version": texts,
        "policy_version": texts,
        "configuration_version": texts,
        "outcome_positive": st.booleans(),
        "supersedes": references,
    }
)


def test_published_vector_hashes_to_its_published_value() -> None:
    payload = write(
        COMMITMENT,
        {
            "commitment_id": "c-7",
            "action": "decision.selected",
            "authority_scope": "demo",
            "reason": "ok",
            "mode_version": "1.0.0",
            "policy_version": "policy.default",
            "configuration_version": "config.default",
            "outcome_positive": True,
        },
    )
    assert commitment_hash(payload) == (
        "sha256:bea7a2c4f393306f7f91ead7dad86591a2734bb4a6271903c7b2b4790f6f5009"
    )


@given(commitments)
def test_hash_of_any_commitment_is_that_of_the_published_library(fields: dict[str, Any]) -> None:
    message: Any = core.CommitmentPayload(**fields)
    assert commitment_hash(message.SerializeToString()) == published_hash(message)


def test_commitment_with_an_unknown_field_has_no_hash() -> None:
    payload = write(COMMITMENT, {"commitment_id": "c1"}) + b"\xf2\x01\x01x"
    with pytest.raises(Rejection, match="unknown fields"):
        commitment_hash(payload)
