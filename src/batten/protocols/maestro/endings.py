"""Adds the outcome of a run to `response_end`: an addition of ours for clients that request it."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from batten.contract.envelope import Envelope
from batten.contract.facts import AssistantFinalAnswer, RunCancelled, RunFailed, RunFinished
from batten.contract.outcomes import ending_of
from batten.protocols.maestro.outgoing import Message, ResponseEnd, RunEnding


class Endings:
    """Reads the facts of a session's runs in order."""

    def __init__(self) -> None:
        self._structured_output: Any = UNSET

    def add(self, messages: list[Message], envelope: Envelope) -> list[Message]:
        """The messages of a fact; a terminal fact adds its ending."""
        fact = envelope.data
        if isinstance(fact, AssistantFinalAnswer):
            self._structured_output = fact.structured_output
        if not isinstance(fact, RunFinished | RunFailed | RunCancelled):
            return messages
        end = ending_of(fact)
        ending = RunEnding(
            run_id=envelope.run_id,
            outcome=end.outcome,
            message=end.message,
            cost_usd=_cost(fact),
            structured_output=self._structured_output if end.outcome == "completed" else UNSET,
        )
        self._structured_output = UNSET
        return [
            replace(one, ending=ending) if isinstance(one, ResponseEnd) else one for one in messages
        ]


def _cost(fact: RunFinished | RunFailed | RunCancelled) -> float | None:
    if fact.cost_unknown is True or fact.cost_micros_usd is UNSET:
        return None
    return fact.cost_micros_usd / 1e6
