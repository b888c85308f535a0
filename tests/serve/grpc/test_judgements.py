"""Who hears from a stream what the policy of a session said."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
import pytest

from batten.control.observer.hosted import TOKEN_VARIABLE
from batten.protocols.macp.judgements import ASKED_BY
from tests.coordination.published import core, sdk
from tests.serve.grpc.running import Server, bearer, plain_stub, running

_OBSERVER = "an-observer-of-tests"
_COMMIT = {"authority_scope": "tests", "reason": "agreed"}
_MESSAGES = ["SessionStart", "Proposal", "Vote", "Commitment"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A runtime in development, where a token is the sender's name, except the observer's."""
    with running(tmp_path_factory.mktemp("judging"), **{TOKEN_VARIABLE: _OBSERVER}) as started:
        yield started


@pytest.fixture(scope="module")
def session_id(server: Server) -> str:
    """A decision whose first commitment was denied."""
    lead = server.client("lead")
    policy = sdk.build_decision_policy(
        "policy.strict",
        "a vote is needed",
        voting=sdk.VotingRules(algorithm="majority"),
        commitment=sdk.CommitmentRules(require_vote_quorum=True),
    )
    lead.register_policy(policy)
    session = sdk.DecisionSession(lead, policy_version="policy.strict")
    session.start(intent="decide", participants=["lead", "ann"], ttl_ms=60_000)
    session.propose("p1", "merge")
    with pytest.raises(sdk.MacpAckError):
        session.commit(action="decision.selected", **_COMMIT)
    session.vote("p1", "APPROVE")
    session.commit(action="decision.selected", **_COMMIT)
    lead.close()
    return str(session.session_id)


def read(server: Server, token: str, session_id: str, *, asks: bool, after: int = 0) -> list[Any]:
    """All that a stream has, up to its last message."""
    asked = ((ASKED_BY, "1"),) if asks else ()
    frame = core.StreamSessionRequest(subscribe_session_id=session_id, after_sequence=after)
    with plain_stub(server) as stub:
        call = stub.StreamSession(iter([frame]), metadata=(*bearer(token), *asked), timeout=20)
        return [one.envelope for one in islice(call, 20)]


def types(envelopes: list[Any]) -> list[str]:
    return [one.message_type for one in envelopes]


def test_an_observer_that_asks_hears_what_the_policy_said_where_it_said_it(
    server: Server, session_id: str
) -> None:
    told = read(server, _OBSERVER, session_id, asks=True)
    assert types(told) == [
        *("PolicyResolved", "SessionStart", "Proposal"),
        *("PolicyCommitmentEvaluated", "PolicyDenied"),
        *("Vote", "PolicyCommitmentEvaluated", "Commitment"),
    ]
    own = [one for one in told if one.message_type.startswith("Policy")]
    assert {one.sender for one in own} == {"macp-runtime"}
    assert len({one.message_id for one in own}) == len(own)
    resolved, _, denied, allowed = (msgspec.json.decode(one.payload) for one in own)
    assert resolved["policyId"] == "policy.strict"
    assert (denied["decision"], allowed["decision"]) == ("deny", "allow")
    assert denied["reasons"]


def test_judgements_have_no_place_among_the_messages(server: Server, session_id: str) -> None:
    after = [
        types(read(server, _OBSERVER, session_id, asks=True, after=place)) for place in (1, 2, 3, 4)
    ]
    judged = "PolicyCommitmentEvaluated"
    assert after == [
        ["Proposal", judged, "PolicyDenied", "Vote", judged, "Commitment"],
        [judged, "PolicyDenied", "Vote", judged, "Commitment"],
        [judged, "Commitment"],
        [],
    ]


@pytest.mark.parametrize(("token", "asks"), [(_OBSERVER, False), ("ann", True), ("lead", True)])
def test_nobody_else_hears_more_than_messages(
    server: Server, session_id: str, token: str, asks: bool
) -> None:
    assert types(read(server, token, session_id, asks=asks)) == _MESSAGES
