"""The `result` frame of one prompt, counted from the facts of its run."""

from collections import deque
from typing import Any

from msgspec import UNSET

from batten.contract import facts
from batten.contract.facts.assistant import Usage, added
from batten.contract.outcomes import Outcome, ending_of
from batten.protocols.claude.line import Frame
from batten.protocols.claude.names import claude_name
from batten.protocols.claude.usage import Totals, stop_reason_of, usage_of

_SUBTYPES: dict[Outcome, str] = {
    "completed": "success",
    "max_turns": "error_max_turns",
    "budget": "error_max_budget_usd",
    "schema_invalid": "error_max_structured_output_retries",
}
_REASONS: dict[Outcome, str] = {
    "completed": "completed",
    "max_turns": "max_turns",
    "model_error": "api_error",
}
_MOST_DENIALS = 1000
"""A result lists only the latest ones."""


class Ending:
    """The end of one prompt and its usage."""

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self.outcome: Outcome | None = None
        self._message = ""
        self._texts: dict[int, list[str]] = {}
        self._structured: Any = UNSET
        self._stop_reason: str | None = None
        self._calls: dict[str, Frame] = {}
        self._denials: deque[Frame] = deque(maxlen=_MOST_DENIALS)
        self._usage = Usage()
        self._turns = 0
        self._api_ms = 0
        self._duration_ms = 0
        self._api_status: int | None = None
        self._in_tools = False

    def feed(self, fact: facts.Fact) -> None:
        match fact:
            case facts.TurnStarted():
                self._texts.clear()
                self._calls.clear()
                self._api_status, self._in_tools = None, False
            case facts.AssistantTextDelta():
                self._texts.setdefault(fact.block_index, []).append(fact.delta)
            case facts.AssistantTextComplete() if fact.sealed_artifact_id is not UNSET:
                self._texts[fact.block_index] = [fact.text]  # as the model wrote it
            case facts.AssistantRetracted():
                self._texts.clear()
                self._calls.clear()
            case facts.ErrorUpstream():
                self._api_status = fact.status
            case facts.TurnFailed():
                self._api_status = None if fact.status is UNSET else fact.status
                self._api_ms += fact.duration_ms or 0
            case facts.AssistantToolCallProposed():
                name = claude_name(fact.tool_name)
                self._calls[fact.tool_call_id] = {"tool_name": name, "tool_input": fact.input}
            case facts.AssistantMessageComplete():
                self._complete(fact)
            case facts.ContextCompacted() if isinstance(fact.usage, Usage):
                model = f"{fact.provider or ''}/{fact.model or ''}"
                self._count(model, fact.usage, fact.cost_micros_usd)
            case facts.CostCallUnfinished():
                self._count(f"{fact.provider}/{fact.model}", fact.usage, fact.cost_micros_usd)
            case facts.PolicyToolBlocked():
                nothing: Frame = {"tool_name": claude_name(fact.tool_name), "tool_input": {}}
                call = self._calls.get(fact.tool_call_id, nothing)
                self._denials.append({**call, "tool_use_id": fact.tool_call_id})
            case facts.AssistantFinalAnswer():
                self._structured = fact.structured_output
            case facts.RunFinished() | facts.RunFailed() | facts.RunCancelled():
                self._end(fact)
            case _:
                pass

    def fail(self, outcome: Outcome, message: str) -> None:
        self.outcome, self._message = outcome, message

    def result(self) -> Frame:
        outcome = self.outcome or "internal"
        frame: Frame = {
            "type": "result",
            "subtype": _SUBTYPES.get(outcome, "error_during_execution"),
            "is_error": outcome != "completed",
            "duration_ms": self._duration_ms,
            "duration_api_ms": self._api_ms,
            "num_turns": self._turns,
            "stop_reason": self._stop_reason,
            "usage": usage_of(self._usage),
            "modelUsage": self._totals.by_model(),
            "permission_denials": list(self._denials),
        }
        if self._totals.cost_usd is not None:
            frame["total_cost_usd"] = self._totals.cost_usd
        if outcome == "completed":
            frame["result"] = "".join(piece for pieces in self._texts.values() for piece in pieces)
            if self._structured is not UNSET:
                frame["structured_output"] = self._structured
        else:
            frame["errors"] = [self._message or outcome]
        if self._api_status is not None and outcome == "model_error":
            frame["api_error_status"] = self._api_status
        reason = self._reason(outcome)
        return frame if reason is None else {**frame, "terminal_reason": reason}

    def _reason(self, outcome: Outcome) -> str | None:
        if outcome in ("cancelled", "interrupted"):
            return "aborted_tools" if self._in_tools else "aborted_streaming"
        return _REASONS.get(outcome)

    def _complete(self, fact: facts.AssistantMessageComplete) -> None:
        self._turns += 1
        self._in_tools = bool(self._calls)
        self._api_ms += fact.duration_ms
        self._stop_reason = stop_reason_of(fact.stop_reason)
        self._count(f"{fact.provider}/{fact.model}", fact.usage, fact.cost_micros_usd)

    def _count(self, model: str, usage: Usage, cost_micros_usd: int | None) -> None:
        self._usage = added(self._usage, usage)
        self._totals.add(model, usage, cost_micros_usd)

    def _end(self, fact: facts.RunFinished | facts.RunFailed | facts.RunCancelled) -> None:
        if fact.duration_ms is not UNSET:
            self._duration_ms = fact.duration_ms
        end = ending_of(fact)
        self.fail(end.outcome, end.message)
