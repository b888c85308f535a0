"""Policies: which are registered, and how they judge a commitment."""

import json
from pathlib import Path
from typing import Any

import pytest

from batten.contract.errors import CallerError
from batten.control.coordination.registries import read_policy_file
from batten.coordination.policy.policy import DEFAULT, PolicyDescriptor, bind, typed_rules
from batten.coordination.policy.rules import DEFAULT_RULES, DecisionRules
from batten.coordination.registry import PolicyRegistry
from batten.coordination.rejection import Rejection
from tests.coordination.given import DECISION, NOW_MS, commitment, open_session, say
from tests.coordination.published import sdk_policy

QUORUM = "macp.mode.quorum.v1"


def policy(rules: Any, mode: str = DECISION, version: int = 2) -> PolicyDescriptor:
    text = rules if isinstance(rules, str) else json.dumps(rules)
    return PolicyDescriptor(policy_id="policy.t", mode=mode, rules=text, schema_version=version)


@pytest.mark.parametrize(
    "given",
    [
        policy("not json"),
        policy("[]"),
        policy({"votng": {}}),
        policy({"voting": {"algorithm": "dice"}}),
        policy({"voting": {"algorithm": "weighted"}}),
        policy({"voting": {"algorithm": "supermajority"}}),
        policy({"voting": {"quorum": {"type": "percentage", "value": 0.5}}}),
        policy({"voting": {"quorum": {"type": "percentage", "value": 101}}}),
        policy({"voting": {"threshold": 2}}),
        policy({"objection_handling": {"veto_threshold": 0}}),
        policy({"commitment": {"authority": "designated_role"}}),
        policy({"commitment": {"allow_decline_over_approval": True}}, version=1),
        policy({"objection_handling": {"critical_objection_action": "hold"}}, version=1),
        policy({"x-acme.rule": {}}),
        policy({}, version=0),
        policy({"threshold": {"value": 2.5}}, QUORUM),
        policy({"threshold": {"type": "weighted"}}, QUORUM),
        policy({"threshold": {"type": "percentage", "value": 101}}, QUORUM),
        policy({"acceptance": {"criterion": "nobody"}}, "macp.mode.proposal.v1"),
        policy({"commitment": {"authority": "king"}}, "ext.own.v1"),
        PolicyDescriptor(policy_id=" "),
        PolicyDescriptor(policy_id="policy.default"),
    ],
)
def test_policy_that_cannot_apply_is_refused_with_its_code(given: PolicyDescriptor) -> None:
    with pytest.raises(Rejection, match=r"^INVALID_POLICY_DEFINITION: ") as refused:
        PolicyRegistry().register(given)
    assert refused.value.macp_code == "INVALID_POLICY_DEFINITION"


@pytest.mark.parametrize(
    "built",
    [
        sdk_policy.build_decision_policy("policy.t", ""),
        sdk_policy.build_quorum_policy("policy.t", ""),
        sdk_policy.build_proposal_policy("policy.t", ""),
        sdk_policy.build_task_policy("policy.t", ""),
        sdk_policy.build_handoff_policy("policy.t", "", annotations={"_why": "a test"}),
    ],
    ids=lambda built: built.mode,
)
def test_policies_of_the_published_builders_are_registered(built: Any) -> None:
    descriptor = PolicyDescriptor(
        policy_id=built.policy_id,
        mode=built.mode,
        rules=built.rules,
        schema_version=built.schema_version,
    )
    registry = PolicyRegistry().register(descriptor)
    assert registry.find("policy.t") == descriptor


@pytest.mark.parametrize(
    ("mode", "rules", "choices"),
    [
        (DECISION, {"voting": {"quorum": {"type": "half"}}}, "count, percentage"),
        (
            "macp.mode.task.v1",
            {"commitment": {"authority": "boss"}},
            "any_participant, designated_role, initiator_only",
        ),
        (
            "ext.other.v1",
            {"commitment": {"authority": "boss"}},
            "any_participant, designated_role, initiator_only",
        ),
    ],
)
def test_refusal_of_a_choice_lists_what_may_be_chosen(
    mode: str, rules: dict[str, Any], choices: str
) -> None:
    given = PolicyDescriptor(policy_id="policy.one", mode=mode, rules=json.dumps(rules))
    with pytest.raises(Rejection, match=rf"; use one of {choices}$"):
        PolicyRegistry().register(given)


def test_registry_lists_by_mode_refuses_repeats_and_keeps_the_default() -> None:
    own = policy({}, QUORUM)
    registry = PolicyRegistry().register(own)
    assert registry.of_mode(DECISION) == [DEFAULT]
    assert registry.of_mode(QUORUM) == [DEFAULT, own]
    with pytest.raises(Rejection, match="is already registered"):
        registry.register(own)
    with pytest.raises(Rejection, match="built in"):
        registry.unregister("policy.default")
    with pytest.raises(Rejection, match="no policy"):
        registry.unregister("policy.none")
    assert registry.unregister("policy.t").of_mode() == [DEFAULT]
    with pytest.raises(Rejection) as refused:
        PolicyRegistry(read_only=True).register(own)
    assert refused.value.macp_code == "REGISTRY_READ_ONLY"


Votes = dict[str, str]


def judged(
    rules: dict[str, Any],
    votes: Votes | None = None,
    *,
    positive: bool = True,
    evaluations: tuple[tuple[str, str, float], ...] = (),
    objections: tuple[tuple[str, str], ...] = (),
    version: int = 2,
) -> list[str]:
    """The codes with which a policy denies; empty if it allows."""
    engine = open_session(policy=policy(rules, version=version))
    engine.receive(say("ann", "Proposal", proposal_id="p1", option="a"), NOW_MS)
    for sender, recommendation, confidence in evaluations:
        fields: dict[str, Any] = {"recommendation": recommendation, "confidence": confidence}
        engine.receive(say(sender, "Evaluation", proposal_id="p1", **fields), NOW_MS)
    for sender, severity in objections:
        engine.receive(say(sender, "Objection", proposal_id="p1", severity=severity), NOW_MS)
    for sender, vote in (votes or {}).items():
        engine.receive(say(sender, "Vote", proposal_id="p1", vote=vote), NOW_MS)
    action = "decision.selected" if positive else "decision.rejected"
    try:
        engine.receive(commitment(action=action, outcome_positive=positive), NOW_MS)
    except Rejection as rejection:
        refused = rejection
    else:
        return []
    assert refused.macp_code == "POLICY_DENIED"
    told = json.loads(refused.details)
    assert told["reasons"] == [denial["message"] for denial in told["denials"]]
    return [denial["code"] for denial in told["denials"]]


A, R, X = "APPROVE", "REJECT", "ABSTAIN"


@pytest.mark.parametrize(
    ("voting", "votes", "positive", "expected"),
    [
        ("majority", {"ann": A, "ben": R}, True, []),
        ("majority", {"ann": A, "ben": R, "lead": R}, True, ["threshold_not_met"]),
        ("majority", {"ann": A, "ben": X, "lead": X}, True, []),
        ("majority", {"ben": X}, True, []),
        ("majority", {"ben": X}, False, ["decline_not_backed"]),
        ("majority", {"ann": A}, False, ["decline_over_approval"]),
        ("majority", {"ann": R}, False, []),
        ("supermajority", {"ann": A, "ben": A, "lead": R}, True, ["threshold_not_met"]),
        ("supermajority", {"ann": A, "ben": A, "lead": X}, True, []),
        ("unanimous", {"ann": A, "ben": A}, True, ["threshold_not_met"]),
        ("unanimous", {"ann": A, "ben": A, "lead": A}, True, []),
        ("weighted", {"ann": A, "ben": R, "lead": R}, True, []),
        ("weighted", {"ann": R, "ben": A, "lead": A}, True, ["threshold_not_met"]),
        ("plurality", {"ann": A, "ben": R}, True, ["threshold_not_met"]),
        ("plurality", {"ann": A, "ben": A, "lead": R}, True, []),
        ("none", {"ann": R, "ben": R}, True, []),
        ("none", {}, False, []),
    ],
)
def test_votes_decide_as_the_algorithm_says(
    voting: str, votes: Votes, positive: bool, expected: list[str]
) -> None:
    rules: dict[str, Any] = {"algorithm": voting}
    if voting == "supermajority":
        rules["threshold"] = 0.7
    if voting == "weighted":
        rules["weights"] = {"ann": 5}
    assert judged({"voting": rules}, votes, positive=positive) == expected


def test_decline_over_approval_needs_the_policys_leave() -> None:
    rules = {
        "voting": {"algorithm": "majority"},
        "commitment": {"allow_decline_over_approval": True},
    }
    assert judged(rules, {"ann": A}, positive=False) == []


def test_empty_tally_fails_closed_from_schema_3_on() -> None:
    rules = {"voting": {"algorithm": "majority"}}
    assert judged(rules, version=2) == []
    assert judged(rules, version=3) == ["no_votes"]


@pytest.mark.parametrize(
    ("quorum", "voters", "expected"),
    [
        ({"type": "count", "value": 2}, 1, ["quorum_not_met"]),
        ({"type": "count", "value": 2}, 2, []),
        ({"type": "percentage", "value": 67}, 2, ["quorum_not_met"]),
        ({"type": "percentage", "value": 66}, 2, []),
    ],
)
def test_quorum_counts_every_voter(quorum: Any, voters: int, expected: list[str]) -> None:
    rules = {"voting": {"quorum": quorum}, "commitment": {"require_vote_quorum": True}}
    panel: list[str] = ["ann", "ben", "lead"]
    votes = dict.fromkeys(panel[:voters], X)
    assert judged(rules, votes) == expected


@pytest.mark.parametrize(
    ("action", "positive", "expected"),
    [
        ("deny", True, ["veto"]),
        ("deny", False, ["veto"]),
        ("hold", True, ["veto_hold"]),
        ("finalize_decline", True, ["veto"]),
        ("finalize_decline", False, []),
    ],
)
def test_critical_objections_veto_as_the_policy_says(
    action: str, positive: bool, expected: list[str]
) -> None:
    handling = {"critical_severity_vetoes": True, "critical_objection_action": action}
    rules = {"objection_handling": handling}
    assert judged(rules, objections=(("ann", "critical"),), positive=positive) == expected
    assert judged(rules, objections=(("ann", "high"),), positive=positive) == []


def test_seeds_name_of_the_veto_rule_works_too_and_needs_its_threshold() -> None:
    rules = {"objection_handling": {"block_severity_vetoes": True, "veto_threshold": 2}}
    assert judged(rules, objections=(("ann", "critical"),)) == []
    assert judged(rules, objections=(("ann", "critical"), ("ben", "critical"))) == ["veto"]


@pytest.mark.parametrize(
    ("evaluations", "expected"),
    [
        ((), ["evaluation_required"]),
        ((("ann", "REVIEW", 1.0),), ["evaluation_required"]),
        ((("ann", "APPROVE", 0.5),), ["confidence_below_minimum"]),
        ((("ann", "APPROVE", 0.5), ("ben", "BLOCK", 0.9)), []),
    ],
)
def test_evaluations_are_demanded_with_their_confidence(
    evaluations: tuple[tuple[str, str, float], ...], expected: list[str]
) -> None:
    rules = {"evaluation": {"required_before_voting": True, "minimum_confidence": 0.8}}
    assert judged(rules, evaluations=evaluations) == expected


def test_all_reasons_are_told_together() -> None:
    rules = {
        "voting": {"algorithm": "majority", "quorum": {"value": 3}},
        "evaluation": {"required_before_voting": True},
        "objection_handling": {"critical_severity_vetoes": True},
        "commitment": {"require_vote_quorum": True},
    }
    denials = judged(rules, {"ann": R}, objections=(("ben", "critical"),))
    assert denials == ["evaluation_required", "veto", "quorum_not_met", "threshold_not_met"]


def test_policy_of_an_unknown_schema_is_registered_and_denies_every_commitment() -> None:
    PolicyRegistry().register(policy({}, version=9))
    assert judged({}, version=9) == ["unsupported_schema_version"]
    assert judged({}, version=9, positive=False) == ["unsupported_schema_version"]


def test_policy_file_of_an_unknown_schema_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "policy.json"
    file.write_text('{"policy_id": "policy.t", "rules": {}, "schema_version": 4}')
    with pytest.raises(CallerError, match="schema_version 4: write one of 1, 2, 3"):
        read_policy_file(str(file))


def test_whole_number_may_be_written_with_a_fraction_of_zero() -> None:
    given = policy({"threshold": {"type": "n_of_m", "value": 2.0}}, QUORUM, version=1)
    PolicyRegistry().register(given)
    assert bind(given, QUORUM).quorum.threshold.value == 2


def test_rules_of_the_default_policy_written_out_are_those_it_has() -> None:
    assert typed_rules(DEFAULT_RULES, DECISION) == bind(DEFAULT, DECISION).rules == DecisionRules()


def test_stored_rules_that_cannot_be_read_deny_every_commitment() -> None:
    assert judged({"voting": 3}) == ["invalid_rules"]
