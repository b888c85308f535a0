"""The checks of a policy before it is registered."""

import math

from batten.coordination.policy.policy import (
    DEFAULT,
    SCHEMA_VERSIONS,
    PolicyDescriptor,
    read_rules,
    typed_rules,
)
from batten.coordination.policy.rules import DecisionRules, ModeRules, QuorumRules
from batten.coordination.rejection import Rejection


def check_policy(policy: PolicyDescriptor) -> None:
    """Raise `INVALID_POLICY_DEFINITION`, with the fault in the message."""
    fault = _fault(policy)
    if fault is not None:
        raise Rejection("INVALID_POLICY_DEFINITION", f"INVALID_POLICY_DEFINITION: {fault}")


def _fault(policy: PolicyDescriptor) -> str | None:
    if not policy.policy_id.strip():
        return "policy_id must not be blank"
    if policy.policy_id == DEFAULT.policy_id:
        return f"{DEFAULT.policy_id} is built in"
    if not policy.mode.strip():
        return "mode must name a mode, or * for all"
    if policy.schema_version < 1:
        known = ", ".join(map(str, SCHEMA_VERSIONS))
        return f"schema_version is {policy.schema_version}: write one of {known}"
    try:
        members = read_rules(policy.rules)
        for name in members:
            if name.startswith("x-"):
                return f"no extension {name} of the rules is known here"
        rules = typed_rules(members, policy.mode)
    except ValueError as error:
        return str(error)
    return _contradiction(rules, policy.schema_version)


def _contradiction(rules: ModeRules, schema_version: int) -> str | None:
    commitment = rules.commitment
    if commitment.authority == "designated_role" and not commitment.designated_roles:
        return "authority designated_role needs designated_roles"
    if isinstance(rules, QuorumRules):
        threshold = rules.threshold
        if threshold.type == "percentage" and threshold.value > 100:
            return f"a threshold of {threshold.value} percent can never be met"
    if isinstance(rules, DecisionRules):
        return _decision(rules, schema_version)
    return None


def _decision(rules: DecisionRules, schema_version: int) -> str | None:
    voting = rules.voting
    if voting.algorithm == "weighted" and not voting.weights:
        return "algorithm weighted needs weights"
    if voting.algorithm == "supermajority" and voting.threshold <= 0.5:
        return "algorithm supermajority needs a threshold above 0.5"
    quorum = voting.quorum
    if not math.isfinite(quorum.value):
        return "voting.quorum.value must be a finite number"
    if quorum.type == "percentage" and 0 < quorum.value < 1:
        percent = quorum.value * 100
        return f"percentages go from 0 to 100: write {percent:g}, not {quorum.value:g}"
    if quorum.type == "percentage" and quorum.value > 100:
        return f"a quorum of {quorum.value:g} percent can never be met"
    if schema_version == 1:
        if rules.objection_handling.critical_objection_action != "deny":
            return "critical_objection_action needs schema_version 2"
        if rules.commitment.allow_decline_over_approval:
            return "allow_decline_over_approval needs schema_version 2"
    return None
