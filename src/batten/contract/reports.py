"""Reports: client events about a run whose payloads others rely on, so they are checked.

An evaluation, the choice of a prompt, what was learned from a run and the plan of an ambient agent
are known outside it. The process that knows of them adds them to the run as `external.*` events.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType, field

from batten.contract.errors import CallerError

_Name = Annotated[str, Meta(min_length=1, max_length=256)]
_Text = Annotated[str, Meta(max_length=4000)]
_Amount = Annotated[float, Meta(ge=0)]


class PromptVariant(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The version of a prompt that the run works with."""

    name: _Name
    label: _Name
    hash: _Name
    source: Literal["bundled", "service", "override"]
    surface: _Name | UnsetType = UNSET
    version: int | UnsetType = UNSET
    version_id: _Name | UnsetType = field(default=UNSET, name="versionId")


class EvalScore(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How well a call, or the skill that was read last, did its work."""

    tool_call_id: _Name
    score: float | UnsetType = UNSET
    threshold: float | UnsetType = UNSET
    passed: bool | UnsetType = UNSET
    """Left out: whether the score reaches the threshold."""
    scorer: _Name | UnsetType = UNSET
    rationale: _Text | UnsetType = UNSET
    assertion_count: Annotated[int, Meta(ge=0)] | UnsetType = UNSET
    eval_run_id: _Name | UnsetType = UNSET
    scenario_id: _Name | UnsetType = UNSET

    @property
    def is_passed(self) -> bool | None:
        """None if the report does not tell."""
        if self.passed is not UNSET:
            return self.passed
        if self.score is UNSET or self.threshold is UNSET:
            return None
        return self.score >= self.threshold


class AmbientPlan(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an ambient agent plans for an event of a repository, and how it ended."""

    repository: _Name
    upstream_event_id: _Name
    task_type: _Name | UnsetType = UNSET
    complexity: _Name | UnsetType = UNSET
    provider: _Name | UnsetType = UNSET
    model: _Name | UnsetType = UNSET
    tier: _Name | UnsetType = UNSET
    estimated_cost_usd: _Amount | UnsetType = UNSET
    cost_limit_usd: _Amount | UnsetType = UNSET
    success: bool | UnsetType = UNSET
    actual_cost_usd: _Amount | UnsetType = UNSET


class Evidence(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that a statement rests on."""

    source: _Name
    source_id: _Name | UnsetType = UNSET
    uri: _Text | UnsetType = UNSET
    excerpt: _Text | UnsetType = UNSET


class LearnedContext(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A durable fact that later agents should be able to recall, with what it rests on."""

    learning_id: _Name
    """The same for the same fact, however often it is reported."""
    statement: Annotated[str, Meta(min_length=1, max_length=4000)]
    dimension: _Name
    """The family of claims that it belongs to, such as `repository.tests`."""
    confidence_score: Annotated[float, Meta(ge=0, le=1)]
    confidence_reason: Annotated[str, Meta(min_length=1, max_length=4000)]
    evidence: Annotated[list[Evidence], Meta(min_length=1, max_length=100)]
    subject_thing_id: _Name | UnsetType = UNSET
    subject_key: _Name | UnsetType = UNSET
    tool_call_id: _Name | UnsetType = UNSET


Report = PromptVariant | EvalScore | LearnedContext | AmbientPlan

REPORTS: dict[str, type[Report]] = {
    "external.prompt_variant.selected": PromptVariant,
    "external.eval.scored": EvalScore,
    "external.context.learned": LearnedContext,
    "external.ambient_agent.routing.selected": AmbientPlan,
    "external.ambient_agent.plan.cost_limited": AmbientPlan,
    "external.ambient_agent.plan.completed": AmbientPlan,
}
"""Each report by the type of its event."""


def read_report(type_: str, data: Mapping[str, Any]) -> Report | None:
    """The report in a client's event; None for events of other types.

    Fields that it does not know are left out. Raises `CallerError` for a payload that is wrong.
    """
    kind = REPORTS.get(type_)
    if kind is None:
        return None
    try:
        return msgspec.convert(dict(data), kind)
    except msgspec.ValidationError as error:
        raise CallerError(f"the data of {type_}: {error}") from None
