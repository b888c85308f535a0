"""The usage of a response: tokens, cost, tools and time, from the facts of its run."""

from datetime import datetime

from msgspec import UNSET

from batten.contract import facts
from batten.contract.envelope import Envelope
from batten.contract.facts.assistant import Usage
from batten.protocols.maestro.outgoing import ResponseEnd, ToolsSummary, UsageTotals

_COUNTED = (facts.AssistantMessageComplete, facts.ContextCompacted, facts.CostCallUnfinished)


def milliseconds(envelope: Envelope) -> int:
    """The time of a fact in milliseconds since 1970."""
    return round(datetime.fromisoformat(envelope.occurred_at).timestamp() * 1000)


class Totals:
    """The usage of one run and its child runs.

    An unknown cost counts as zero: the message cannot express it.
    """

    def __init__(self) -> None:
        self._tokens = [0, 0, 0, 0]
        self._micros = 0
        self._model = ""
        self._provider = ""
        self._tools: set[str] = set()
        self._succeeded = 0
        self._failed = 0
        self._labels: dict[str, None] = {}
        self._began_ms = 0
        self._turn_ms = 0
        self._ttft_ms: int | None = None
        self._thought = False
        """Reasoning was shown before any text: only the complete message has the time of the first
        token."""

    def see(self, envelope: Envelope) -> None:
        fact: facts.Fact = envelope.data
        match fact:
            case facts.RunQueued():
                self._began_ms = milliseconds(envelope)
                self._model, self._provider = fact.model or "", fact.provider or ""
            case facts.TurnStarted():
                self._turn_ms = milliseconds(envelope)
            case facts.AssistantTextDelta() if self._ttft_ms is None and not self._thought:
                self._ttft_ms = max(0, milliseconds(envelope) - self._began_ms)
            case facts.AssistantMessageComplete():
                self._call(fact)
            case facts.ContextCompacted() | facts.CostCallUnfinished():
                self.see_child(envelope)
            case _:
                pass

    def see_child(self, envelope: Envelope) -> None:
        """Add the cost of a child run."""
        fact: facts.Fact = envelope.data
        if isinstance(fact, _COUNTED) and fact.usage is not UNSET:
            self._use(fact.usage, fact.cost_micros_usd)

    def thought(self) -> None:
        """Reasoning was shown."""
        self._thought = self._thought or self._ttft_ms is None

    def label(self, label: str) -> None:
        if label:
            self._labels.setdefault(label)

    def tool_ended(self, tool: str, *, success: bool) -> None:
        self._tools.add(tool)
        self._succeeded += success
        self._failed += not success

    def end(self, response_id: str, envelope: Envelope) -> ResponseEnd:
        return self.cut_short(response_id, max(0, milliseconds(envelope) - self._began_ms))

    def cut_short(self, response_id: str, duration_ms: int = 0) -> ResponseEnd:
        """The end of a response without a terminal fact."""
        return ResponseEnd(
            response_id=response_id,
            usage=self._usage(),
            tools_summary=ToolsSummary(
                tools_used=tuple(sorted(self._tools)),
                calls_succeeded=self._succeeded,
                calls_failed=self._failed,
                summary_labels=tuple(self._labels) or UNSET,
            ),
            duration_ms=duration_ms,
            ttft_ms=UNSET if self._ttft_ms is None else self._ttft_ms,
        )

    def _call(self, fact: facts.AssistantMessageComplete) -> None:
        self._model, self._provider = fact.model, fact.provider
        self._use(fact.usage, fact.cost_micros_usd)
        if self._thought and self._ttft_ms is None and fact.time_to_first_token_ms is not None:
            self._ttft_ms = max(0, self._turn_ms - self._began_ms) + fact.time_to_first_token_ms

    def _use(self, usage: Usage, cost_micros_usd: int | None) -> None:
        """In this protocol `input_tokens` excludes tokens read from or written to a cache."""
        cached = usage.cache_read_tokens + usage.cache_write_tokens
        used = (
            max(0, usage.input_tokens - cached),
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
        )
        self._tokens = [held + new for held, new in zip(self._tokens, used, strict=True)]
        self._micros += cost_micros_usd or 0

    def _usage(self) -> UsageTotals:
        read, written, cache_read, cache_written = self._tokens
        return UsageTotals(
            input_tokens=read,
            output_tokens=written,
            cache_read_tokens=cache_read,
            cache_write_tokens=cache_written,
            total_tokens=sum(self._tokens),
            total_cost_usd=self._micros / 1e6,
            model_id=self._model,
            provider=self._provider,
        )
