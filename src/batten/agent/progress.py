"""How far a run has come, counted from its facts: live and after a crash by the same code."""

from msgspec import UNSET, Struct

from batten.contract.facts import (
    ArtifactCreated,
    AssistantMessageComplete,
    ContextCompacted,
    Fact,
)
from batten.contract.facts.assistant import Usage


class Progress(Struct):
    """A fold of a run's facts. It outlives the loop: the ending is written from it."""

    turns: int = 0
    cost_micros_usd: int = 0
    cost_unknown: bool = False
    input_tokens: int = 0
    output_tokens: int = 0
    structured_output: object = UNSET
    patch_artifact_ids: list[str] = []
    left_running: list[str] = []
    """What commands left running; it was ended with them."""

    def observe(self, fact: Fact) -> None:
        match fact:
            case AssistantMessageComplete():
                self.turns = fact.turn_index
                self._count(fact.usage, fact.cost_micros_usd)
            case ContextCompacted() if isinstance(fact.usage, Usage):
                self._count(fact.usage, fact.cost_micros_usd)
            case ArtifactCreated(kind="patch"):
                self.patch_artifact_ids.append(fact.artifact_id)
            case _:
                pass

    def _count(self, usage: Usage, cost: int | None) -> None:
        self.input_tokens += usage.input_tokens
        self.output_tokens += usage.output_tokens
        self.cost_micros_usd += cost or 0
        self.cost_unknown = self.cost_unknown or cost is None
