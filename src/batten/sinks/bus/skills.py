"""Skills that a run used and the prompt it works with, as events name them."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from batten.contract import facts
from batten.contract.outcomes import ending_of
from batten.contract.reports import EvalScore, PromptVariant
from batten.sinks.bus.payloads import TurnStatus

_PROMPT = {
    "name": "prompt_name",
    "label": "prompt_label",
    "hash": "prompt_hash",
    "source": "prompt_source",
    "surface": "prompt_surface",
    "version": "prompt_version",
    "versionId": "prompt_version_id",
}
_RATE_LIMITED = "model_rate_limited"


class UsedSkill(Struct):
    """A skill whose instructions the model has read."""

    metadata: dict[str, Any]
    tool_call_id: str
    execution_id: str | None
    step: int
    evaluation: dict[str, Any] = {}
    """The evaluation that found its work bad, if one did."""

    def evaluate(self, score: EvalScore, tool_name: str | None, execution: str | None) -> None:
        given: dict[str, Any] = msgspec.to_builtins(score)
        rationale = given.get("rationale")
        self.evaluation = {
            "error_category": "evaluation",
            "error_message": rationale,
            "evaluation_tool_name": tool_name,
            "evaluation_tool_call_id": score.tool_call_id,
            "evaluation_tool_execution_id": execution,
            "evaluation_score": given.get("score"),
            "evaluation_threshold": given.get("threshold"),
            "evaluation_assertion_count": given.get("assertion_count"),
            "evaluation_rationale": rationale,
        }


def skill_metadata(name: str, told: str) -> dict[str, Any]:
    """A skill with the digest of the instructions that the model got: what it was told."""
    # The first paragraph says where its files are, which is not part of it.
    instructions = told.partition("\n\n")[2] or told
    digest = sha256(instructions.encode()).hexdigest()
    return {"name": name, "hash": f"sha256:{digest}", "source": "local"}


def skill_status(fact: facts.RunFinished | facts.RunFailed | facts.RunCancelled) -> TurnStatus:
    """How a run ended, in the words of skills."""
    outcome = ending_of(fact).outcome
    if outcome == "completed":
        return "success"
    if outcome in ("cancelled", "interrupted"):
        return "aborted"
    is_limited = isinstance(fact, facts.RunFailed) and fact.code == _RATE_LIMITED
    return "rate_limited" if is_limited else "error"


def prompt_of(identity: Mapping[str, str]) -> PromptVariant | None:
    """The prompt that a launcher chose for a run; None unless it names all that identifies it."""
    given = {name: identity[key] for name, key in _PROMPT.items() if identity.get(key)}
    try:
        return msgspec.convert(given, PromptVariant, strict=False)
    except msgspec.ValidationError:
        return None
