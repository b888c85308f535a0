"""Where the control plane's document and its program disagree: decided as the document says.

Each test names its disagreement, D13 to D24.
"""

from base64 import b64decode, b64encode
from typing import Any, cast

import msgspec
import pytest

from batten.contract import facts as f
from batten.coordination.payloads import COMMITMENT, write
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.pages import event_page

from .making import (
    SESSION_ID,
    bound,
    cancelled,
    canonical,
    failed,
    finished,
    frame,
    json_text,
    observed,
    only,
    projected,
    queued,
    said,
    shown,
    started,
    types,
)


def committed(**fields: Any) -> Any:
    return said("lead", "Commitment", write(COMMITMENT, fields))


def taken(frame: f.MacpFrameObserved) -> f.MacpMessageAccepted:
    """The same message, accepted by the runtime beside the service."""
    return f.MacpMessageAccepted(
        message_id=str(frame.message_id),
        message_type=str(frame.message_type),
        sender=str(frame.sender),
        timestamp_unix_ms=1,
        accepted_at_unix_ms=1,
        ordinal=2,
        state="OPEN",
        body={},
        payload=frame.payload,
    )


def block(facts: Any, *names: str) -> dict[str, Any]:
    found = shown(facts)
    for name in names:
        found = cast(dict[str, Any], found[name])
    return found


def test_d13_an_event_is_nested_everywhere() -> None:
    [event] = [one for one in canonical(observed()) if one.type == "run.started"]
    encoded = msgspec.to_builtins(event)
    assert encoded["subject"] == {"kind": "run", "id": event.run_id}
    assert encoded["source"] == {"kind": "macp-control-plane", "name": "run-manager"}
    assert set(encoded["trace"]) == {"traceId", "spanId"}
    assert not {"subjectKind", "sourceKind", "rawType", "traceId"} & set(encoded)
    assert msgspec.json.decode(msgspec.json.encode(event), type=CanonicalEvent) == event


def test_d14_a_commitment_names_the_message_it_was_read_as() -> None:
    event = only(canonical(observed(committed(commitment_id="c1"))), "decision.finalized")
    assert event.data["payloadTypeName"] == "macp.v1.CommitmentPayload"


def test_d15_progress_and_policy_messages_have_one_event_each() -> None:
    events = canonical(
        observed(
            said("ann", "Progress", progress=0.4, message="reading"),
            said("runtime", "PolicyResolved", json_text(policyId="p", policyVersion="p")),
            said(
                "runtime",
                "PolicyCommitmentEvaluated",
                json_text(commitmentId="c1", decision="allow", reasons=["quorum met"]),
            ),
            said("runtime", "PolicyDenied", json_text(commitmentId="c2", reasons=["no"])),
        )
    )
    progress = only(events, "progress.reported")
    assert progress.data["decodedPayload"] == {"percentage": 40.0, "message": "reading"}
    assert progress.subject == msgspec.convert(
        {"kind": "participant", "id": "ann"}, type(progress.subject)
    )
    for type_, id_ in (
        ("policy.resolved", "p"),
        ("policy.commitment.evaluated", "c1"),
        ("policy.denied", "c2"),
    ):
        subject = only(events, type_).subject
        assert (subject.kind, subject.id) == ("policy", id_)  # type: ignore[union-attr]


def test_d16_cost_and_artifact_of_a_model_call_are_kept() -> None:
    call = {
        "prompt_tokens": 120,
        "completionTokens": 45,
        "estimatedCostUsd": 0.5,
        "artifactId": "a-1",
    }
    facts = observed(said("ann", "ContextUpdate", json_text(llmCall=call)))
    payload = only(canonical(facts), "llm.call.completed").data["decodedPayload"]
    assert (payload["estimatedCostUsd"], payload["artifactId"]) == (0.5, "a-1")
    assert payload["totalTokens"] == 165
    [shown_call] = block(facts, "llm")["calls"]
    assert (shown_call["estimatedCostUsd"], shown_call["artifactId"]) == (0.5, "a-1")


def test_d17_a_silent_participant_is_skipped_although_it_was_spoken_to() -> None:
    proposal = said("lead", "Proposal", proposal_id="p1", option="a")
    facts = observed(proposal, committed(action="decision.selected"), finished())
    statuses = {one["participantId"]: one["status"] for one in shown(facts)["participants"]}
    assert statuses == {"lead": "completed", "ann": "skipped"}


def test_d17_the_last_active_participant_of_a_failed_run_failed() -> None:
    facts = observed(
        said("lead", "Proposal", proposal_id="p1", option="a"),
        said("ann", "Vote", proposal_id="p1", vote="REJECT"),
        failed(),
    )
    statuses = {one["participantId"]: one["status"] for one in shown(facts)["participants"]}
    assert statuses == {"lead": "completed", "ann": "failed"}


def test_d18_a_commitment_leaves_the_proposal_s_id() -> None:
    proposal = said("lead", "Proposal", proposal_id="p1", option="a")
    facts = observed(proposal, committed(commitment_id="c1", action="decision.selected"))
    assert block(facts, "decision", "current")["proposalId"] == "p1"


@pytest.mark.parametrize(
    ("payload", "positive"),
    [
        ({"action": "decision.rejected"}, False),
        ({"action": "proposal.accepted"}, True),
        ({"action": "approve"}, True),
        ({"action": "task.failed"}, False),
        ({"action": "step_up"}, None),
        ({"action": "decision.selected", "outcome_positive": False}, False),
        ({"action": "decision.rejected", "outcomePositive": True}, True),
    ],
)
def test_d19_the_outcome_is_said_or_told_by_the_last_part_of_the_action(
    payload: dict[str, Any], positive: bool | None
) -> None:
    state = shown(observed(said("lead", "Commitment", json_text(**payload))))
    assert state["decision"]["current"]["outcomePositive"] is positive
    assert state["policy"]["outcomePositive"] is positive


def test_d19_a_negative_commitment_of_the_protocol_is_negative() -> None:
    facts = observed(committed(commitment_id="c1", action="escalated", outcome_positive=False))
    assert block(facts, "decision", "current")["outcomePositive"] is False


def test_d19_an_open_decision_has_no_outcome() -> None:
    facts = observed(said("lead", "Proposal", proposal_id="p1", option="a"))
    assert "outcomePositive" not in block(facts, "decision", "current")


def test_d20_the_prompt_comes_from_the_initiator_s_proposal() -> None:
    facts = observed(
        said("ann", "Proposal", proposal_id="p0", option="b", rationale="not mine to ask"),
        said("lead", "Proposal", proposal_id="p1", option="a", rationale="Shall we merge?"),
    )
    assert block(facts, "decision", "current")["prompt"] == "Shall we merge?"
    asked = said("lead", "Proposal", json_text(proposalId="p1", prompt="Merge?", rationale="x"))
    assert block(observed(asked), "decision", "current")["prompt"] == "Merge?"


def test_d21_expected_commitments_come_with_the_resolved_policy() -> None:
    expected = [{"commitmentId": "c1", "authority": "initiator_only"}]
    told = said("runtime", "PolicyResolved", json_text(policyId="p", expectedCommitments=expected))
    assert block(observed(told), "policy")["expectedCommitments"] == expected


def test_d21_the_embedded_runtime_tells_what_its_policy_expects() -> None:
    rules = '{"commitment":{"authority":"initiator_only","require_vote_quorum":true}}'
    policy = block([queued(), started(), bound(rules=rules)], "policy")
    assert policy["expectedCommitments"] == [
        {"authority": "initiator_only", "require_vote_quorum": True}
    ]
    assert policy["policyVersion"] == "policy.default"


def test_d22_the_quorum_waits_for_an_allowed_commitment() -> None:
    vote = said("ann", "Vote", proposal_id="p1", vote="APPROVE")
    final = committed(commitment_id="c1", action="decision.selected", outcome_positive=True)
    assert block(observed(vote), "policy")["quorumStatus"] == "pending"
    assert block(observed(vote, final, finished()), "policy")["quorumStatus"] == "pending"
    judged = said("r", "PolicyCommitmentEvaluated", json_text(commitmentId="c1", decision="allow"))
    assert block(observed(vote, judged, final), "policy")["quorumStatus"] == "reached"
    denied = said("r", "PolicyCommitmentEvaluated", json_text(commitmentId="c1", decision="deny"))
    assert block(observed(vote, denied), "policy")["quorumStatus"] == "pending"


def test_a_negative_commitment_that_the_policy_allows_reaches_the_quorum_too() -> None:
    judged = said("r", "PolicyCommitmentEvaluated", json_text(commitmentId="c1", decision="allow"))
    final = committed(commitment_id="c1", action="decision.rejected", outcome_positive=False)
    policy = block(observed(judged, final, finished()), "policy")
    assert (policy["quorumStatus"], policy["outcomePositive"]) == ("reached", False)


@pytest.mark.parametrize("ending", [failed(), cancelled()])
def test_d22_a_run_that_ends_without_one_has_no_quorum(ending: Any) -> None:
    assert block(observed(ending), "policy")["quorumStatus"] == "failed"
    judged = said("r", "PolicyCommitmentEvaluated", json_text(commitmentId="c1", decision="allow"))
    assert block(observed(judged, ending), "policy")["quorumStatus"] == "reached"


def test_d23_model_calls_are_in_the_state_with_their_totals() -> None:
    usage = {"promptTokens": 120, "completionTokens": 45, "model": "gpt-4o-mini"}
    calls = [said("ann", "ContextUpdate", json_text(tokenUsage=usage)) for _ in range(130)]
    llm = block(observed(*calls), "llm")
    assert len(llm["calls"]) == 100
    assert llm["totals"] == {
        "callCount": 130,
        "promptTokens": 15_600,
        "completionTokens": 5_850,
        "totalTokens": 21_450,
        "estimatedCostUsd": 0.00585,
    }
    assert llm["calls"][0]["estimatedCostUsd"] == 0.000045


def test_d24_a_cursor_comes_only_with_a_full_page() -> None:
    events = canonical(observed())
    full = event_page(events[:3], total=len(events), limit=3)
    assert msgspec.to_builtins(full)["nextCursor"] == 3
    assert "nextCursor" not in msgspec.to_builtins(event_page(events[:2], total=2, limit=3))


def test_a_refused_send_becomes_a_denial() -> None:
    error = {"code": "POLICY_DENIED", "message": "too early", "reasons": ["no votes", "no quorum"]}
    events = canonical(observed(frame("send_ack", "m7", "lead", ok=False, error=error)))
    assert types(events)[-2:] == ["message.sent", "policy.denied"]
    assert events[-1].data["decodedPayload"]["reasons"] == ["no votes", "no quorum"]
    assert events[-1].data["errorCode"] == "POLICY_DENIED"


@pytest.mark.parametrize(
    ("error", "reasons"),
    [
        ({"details": '{"reasons":["a"]}', "message": "m"}, ["a"]),
        ({"macp-error-details-bin": "eyJyZWFzb25zIjpbImIiXX0=", "message": "m"}, ["b"]),
        ({"reasons": ["c"], "details": '{"reasons":["a"]}'}, ["c"]),
        ({"message": "m"}, ["m"]),
    ],
)
def test_reasons_of_a_denial_come_from_the_first_place_that_has_them(
    error: dict[str, Any], reasons: list[str]
) -> None:
    events = canonical(observed(frame("stream_error", "m7", code="POLICY_DENIED", **error)))
    assert types(events)[-2:] == ["message.send_failed", "policy.denied"]
    assert events[-1].data["decodedPayload"]["reasons"] == reasons


def test_each_voter_counts_once() -> None:
    facts = observed(
        said("lead", "Proposal", proposal_id="p1", option="a"),
        said("ann", "Evaluation", proposal_id="p1", recommendation="APPROVE", confidence=0.9),
        said("lead", "Vote", proposal_id="p1", vote="APPROVE"),
        said("ann", "Vote", proposal_id="p1", vote="REJECT"),
        said("ann", "Evaluation", proposal_id="p1", recommendation="APPROVE"),
    )
    assert block(facts, "policy")["voteTally"] == [
        {
            "commitmentId": "p1",
            "allow": 1,
            "deny": 1,
            "threshold": 1,
            "quorum": {"required": 2, "cast": 2},
        }
    ]


def test_a_decision_is_as_sure_as_the_votes_on_its_own_proposal() -> None:
    facts = observed(
        said("lead", "Proposal", proposal_id="p1", option="a"),
        said("ann", "Proposal", proposal_id="p2", option="b"),
        said("ann", "Vote", proposal_id="p1", vote="APPROVE"),
        said("lead", "Vote", proposal_id="p1", vote="APPROVE"),
        said("ann", "Vote", proposal_id="p2", vote="REJECT"),
    )
    open_ = block(facts, "decision", "current")
    assert (open_["proposalId"], open_["confidence"]) == ("p2", 0.0)
    decided = block(
        [*facts, committed(commitment_id="c1", action="decision.selected", outcome_positive=True)],
        *("decision", "current"),
    )
    assert (decided["proposalId"], decided["confidence"]) == ("p1", 1.0)


def test_who_abstains_takes_no_side_whatever_an_evaluation_said_before() -> None:
    facts = observed(
        said("lead", "Proposal", proposal_id="p1", option="a"),
        said("ann", "Evaluation", proposal_id="p1", recommendation="APPROVE", confidence=0.9),
        said("ann", "Vote", proposal_id="p1", vote="ABSTAIN"),
        said("lead", "Vote", proposal_id="p1", vote="REJECT"),
    )
    assert block(facts, "decision", "current")["confidence"] == 0.0


def test_a_withdrawn_proposal_is_not_the_one_that_was_decided() -> None:
    negotiation = "macp.mode.proposal.v1"
    facts = observed(
        said("lead", "Proposal", mode=negotiation, proposal_id="p1", title="a"),
        said("ann", "CounterProposal", mode=negotiation, proposal_id="p2", title="b"),
        said("ann", "Accept", mode=negotiation, proposal_id="p1"),
        said("lead", "Accept", mode=negotiation, proposal_id="p1"),
        said("lead", "Withdraw", mode=negotiation, proposal_id="p1"),
        said("lead", "Accept", mode=negotiation, proposal_id="p2"),
        committed(commitment_id="c1", action="proposal.accepted", outcome_positive=True),
    )
    assert block(facts, "decision", "current")["proposalId"] == "p2"


@pytest.mark.parametrize("sender", ["lead", "ann"])
def test_an_agent_cannot_speak_for_the_policy(sender: str) -> None:
    said_so = [
        said(sender, "PolicyResolved", json_text(policyId="policy.lax", policyVersion="lax")),
        said(sender, "PolicyCommitmentEvaluated", json_text(commitmentId="c", decision="allow")),
        said(sender, "PolicyDenied", json_text(commitmentId="c", reasons=["no"])),
    ]
    hosted = [queued(), started(), bound(mode="ext.notes.v1")]
    for facts in (observed(*said_so), [*hosted, *map(taken, said_so)]):
        events = canonical(facts)
        told = [event for event in events if event.type.startswith("policy.")]
        assert [event.data["sender"] for event in told] in ([], ["batten-runtime"])
        assert types(events).count("message.received") == 3
        policy = block(facts, "policy")
        assert policy["commitmentEvaluations"] == []
        assert policy["policyVersion"] == "policy.default"


def test_the_runtime_is_no_participant_of_the_sessions_that_it_judges() -> None:
    judged = said("rt", "PolicyCommitmentEvaluated", json_text(commitmentId="c", decision="allow"))
    facts = observed(judged, said("ann", "Vote", proposal_id="p1", vote="APPROVE"))
    judging, *vote = types(canonical(facts))[-3:]
    assert (judging, vote) == (
        "policy.commitment.evaluated",
        ["message.received", "proposal.updated"],
    )
    assert [one["participantId"] for one in shown(facts)["participants"]] == ["lead", "ann"]
    assert block(facts, "outboundMessages")["total"] == 1


@pytest.mark.parametrize("decision", [{}, {"decision": "perhaps"}, {"decision": 1}])
def test_only_a_judgement_that_says_allow_allows(decision: dict[str, Any]) -> None:
    judged = said("rt", "PolicyCommitmentEvaluated", json_text(commitmentId="c", **decision))
    policy = block(observed(judged), "policy")
    assert [one["decision"] for one in policy["commitmentEvaluations"]] == ["deny"]
    assert policy.get("quorumStatus") != "reached"


def test_redaction_leaves_no_copy_in_any_event() -> None:
    secret = "sk-abc123"
    usage = {"promptTokens": 1, "completionTokens": 1, "prompt": f"key {secret}", "response": "ok"}
    signal = json_text(llmCall=usage).encode()
    facts = observed(
        said("ann", "ContextUpdate", json_text(llmCall=usage)),
        said("ann", "Signal", signal_type="llm.call.completed", data=json_text(**usage).encode()),
        said("ann", "Note", b"\xff" + signal),
        redact=["sk-[a-z0-9]+"],
    )
    events = canonical(facts)
    encoded = msgspec.json.encode(events)
    assert secret.encode() not in encoded
    calls = [event for event in events if event.type == "llm.call.completed"]
    assert [call.data["decodedPayload"]["prompt"] for call in calls] == ["key [REDACTED]"] * 2
    note = events[-1].data["payload"]
    assert secret.encode() not in b64decode(note["payloadBase64"])
    assert note["payloadBase64"] != b64encode(b"\xff" + signal).decode()
    emitted = only(events, "signal.emitted").data["decodedPayload"]
    assert secret.encode() not in b64decode(emitted["data"])


def test_state_says_running_once_the_session_is_open() -> None:
    run = block(observed(), "run")
    assert (run["status"], run["runtimeSessionId"]) == ("running", SESSION_ID)
    assert projected([]).run.status == "queued"
