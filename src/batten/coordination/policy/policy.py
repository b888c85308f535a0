"""A policy as registered, and as bound to a session."""

import re
from typing import Any

import msgspec
from msgspec import Struct

from batten.contract.expectations import expectation
from batten.coordination.policy.rules import (
    RULES,
    CommitmentRules,
    DecisionRules,
    HandoffRules,
    ModeRules,
    ProposalRules,
    QuorumRules,
    TaskRules,
)
from batten.coordination.rejection import Denial, Rejection, denied

SCHEMA_VERSIONS = (1, 2, 3)
ANNOTATIONS = ("_", "$")
"""Members of the rules that begin so are comments."""


class PolicyDescriptor(Struct, frozen=True, kw_only=True):
    """A policy as the registry and the journal hold it."""

    policy_id: str
    mode: str = "*"
    description: str = ""
    rules: str = "{}"
    """JSON text, kept as it was registered."""
    schema_version: int = 1
    registered_at_unix_ms: int = 0


DEFAULT = PolicyDescriptor(
    policy_id="policy.default",
    description="No vote is demanded and nothing vetoes; the initiator commits.",
)


class Policy(Struct, frozen=True, kw_only=True):
    """A policy bound to a session, with the rules of the session's mode."""

    descriptor: PolicyDescriptor
    rules: ModeRules
    fault: str = ""
    """Why the rules cannot be read: every commitment is denied then."""

    @property
    def decision(self) -> DecisionRules:
        return self.rules if isinstance(self.rules, DecisionRules) else DecisionRules()

    @property
    def proposal(self) -> ProposalRules:
        return self.rules if isinstance(self.rules, ProposalRules) else ProposalRules()

    @property
    def task(self) -> TaskRules:
        return self.rules if isinstance(self.rules, TaskRules) else TaskRules()

    @property
    def handoff(self) -> HandoffRules:
        return self.rules if isinstance(self.rules, HandoffRules) else HandoffRules()

    @property
    def quorum(self) -> QuorumRules:
        return self.rules if isinstance(self.rules, QuorumRules) else QuorumRules()

    @property
    def authority_text(self) -> str:
        commitment = self.rules.commitment
        match commitment.authority:
            case "initiator_only":
                return "only the initiator may"
            case "any_participant":
                return "only the initiator and participants may"
            case "designated_role":
                return f"only {', '.join(commitment.designated_roles)} may"


def _number(text: str) -> float | int:
    """A number with a fraction of zero is an integer, as in JSON Schema: `2.0` is 2."""
    value = float(text)
    return int(value) if value.is_integer() else value


_CHOICE = re.compile(r"Invalid enum value .* - at `\$\.([^`]*)`", re.DOTALL)
_MEMBERS = msgspec.json.Decoder(dict[str, Any], float_hook=_number)


def read_rules(text: str) -> dict[str, Any]:
    """The members of a rules text, without annotations. Raises `ValueError`."""
    try:
        members = _MEMBERS.decode(text.encode() or b"{}")
    except msgspec.ValidationError as error:
        raise ValueError("the rules are not a JSON object") from error
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ValueError(f"the rules are not JSON: {error}") from error
    return {name: value for name, value in members.items() if not name.startswith(ANNOTATIONS)}


def typed_rules(members: dict[str, Any], mode: str) -> ModeRules:
    """The rules of a mode. Raises `ValueError` for members and values that it does not have."""
    kind = RULES.get(mode)
    try:
        if kind is not None:
            return msgspec.convert(members, kind)
        return ModeRules(commitment=msgspec.convert(members.get("commitment", {}), CommitmentRules))
    except msgspec.ValidationError as error:
        raise ValueError(_with_choices(str(error), kind or CommitmentRules)) from error


def _with_choices(refusal: str, kind: type[Struct]) -> str:
    """What the decoder says, and what would be right where it does not."""
    found = _CHOICE.fullmatch(refusal)
    words = expectation(kind, found[1]) if found else ""
    return f"{refusal}; use {words}" if words else refusal


def bind(descriptor: PolicyDescriptor, mode: str) -> Policy:
    """The policy of a session in this mode.

    The rules of a policy for all modes (`*`) are those of decisions; other modes take their
    authority from it and nothing else.
    """
    try:
        rules = typed_rules(read_rules(descriptor.rules), descriptor.mode)
    except ValueError as error:
        return Policy(descriptor=descriptor, rules=ModeRules(), fault=str(error))
    return Policy(descriptor=descriptor, rules=rules)


def may_commit(policy: Policy, initiator: str, participants: tuple[str, ...], sender: str) -> bool:
    """Whether the policy lets this sender commit, cancel, suspend and resume."""
    commitment = policy.rules.commitment
    match commitment.authority:
        case "initiator_only":
            return sender == initiator
        case "any_participant":
            return sender == initiator or sender in participants
        case "designated_role":
            return sender in commitment.designated_roles


def unsupported(policy: Policy) -> Rejection | None:
    """The denial of a policy that this version cannot apply."""
    if policy.fault:
        return denied(Denial("invalid_rules", f"its rules cannot be read: {policy.fault}"))
    version = policy.descriptor.schema_version
    if version not in SCHEMA_VERSIONS:
        return denied(
            Denial("unsupported_schema_version", f"schema_version {version} is not known here")
        )
    return None
