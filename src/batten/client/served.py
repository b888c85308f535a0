"""The result of a run in a service, folded from its events."""

from datetime import datetime

from msgspec import UNSET

from batten.client.result import Result, Usage
from batten.contract import facts
from batten.contract.envelope import Envelope
from batten.contract.outcomes import RunEnd, ending_of


class ServedResult:
    """Observes each event of one run; has its result once the run has ended."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._texts: dict[int, str] = {}
        """The blocks of text of the last message."""
        self._usage = Usage(
            input_tokens=0,
            output_tokens=0,
            cache_read_tokens=0,
            cache_write_tokens=0,
            model="",
            provider="",
        )
        self._cost_micros: int | None = 0
        self._tools: dict[str, None] = {}
        self._succeeded = self._failed = 0
        self._structured: object = UNSET
        self._began: Envelope | None = None
        self.result: Result | None = None

    def observe(self, envelope: Envelope) -> None:
        self._began = self._began or envelope
        match envelope.data:
            case facts.TurnStarted() | facts.AssistantRetracted():
                self._texts.clear()
            case facts.AssistantTextDelta() as delta:
                self._texts[delta.block_index] = (
                    self._texts.get(delta.block_index, "") + delta.delta
                )
            case facts.AssistantTextComplete() as block if block.artifact_id is UNSET:
                self._texts[block.block_index] = block.text
            case facts.AssistantMessageComplete() as message:
                self._count(message)
            case facts.ToolStarted() as call:
                self._tools[call.tool_name] = None
            case facts.ToolCompleted():
                self._succeeded += 1
            case facts.ToolFailed() | facts.ToolTimedOut():
                self._failed += 1
            case facts.AssistantFinalAnswer() as answer:
                self._structured = answer.structured_output
            case facts.RunFinished() | facts.RunFailed() | facts.RunCancelled() as ending:
                self._end(ending_of(ending), envelope)
            case _:
                pass

    def _count(self, message: facts.AssistantMessageComplete) -> None:
        before, used = self._usage, message.usage
        fresh = used.input_tokens - used.cache_read_tokens - used.cache_write_tokens
        self._usage = Usage(
            input_tokens=before.input_tokens + fresh,
            output_tokens=before.output_tokens + used.output_tokens,
            cache_read_tokens=before.cache_read_tokens + used.cache_read_tokens,
            cache_write_tokens=before.cache_write_tokens + used.cache_write_tokens,
            model=message.model,
            provider=message.provider,
        )
        known = message.cost_micros_usd
        if known is None or self._cost_micros is None:
            self._cost_micros = None
        else:
            self._cost_micros += known

    def _end(self, end: RunEnd, last: Envelope) -> None:
        first = self._began or last
        self.result = Result(
            run_id=self._run_id,
            outcome=end.outcome,
            text="".join(self._texts[index] for index in sorted(self._texts)),
            message=end.message,
            usage=self._usage,
            cost_usd=None if self._cost_micros is None else self._cost_micros / 1e6,
            duration_s=_seconds(first.occurred_at, last.occurred_at),
            tools_used=tuple(self._tools),
            calls_succeeded=self._succeeded,
            calls_failed=self._failed,
            structured_output=self._structured,
        )


def _seconds(first: str, last: str) -> float:
    return (datetime.fromisoformat(last) - datetime.fromisoformat(first)).total_seconds()
