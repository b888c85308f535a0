"""Messages of one run to events: a pure fold that ends in a `Result`."""

from io import StringIO
from typing import Any

from msgspec import UNSET

from batten.client import events
from batten.client.events import Event, Reply, Unknown
from batten.client.result import Result, Usage
from batten.contract.outcomes import Outcome
from batten.protocols.maestro import outgoing
from batten.protocols.maestro.vocabulary import ErrorType, RequestType

_OUTCOMES: dict[ErrorType, Outcome] = {
    "transient": "model_error",
    "fatal": "internal",
    "tool": "tool_error",
    "cancelled": "cancelled",
    "protocol": "internal",
}
"""Outcomes by error type, for workers that report no outcome."""
_REQUESTS: dict[RequestType, type[events.Request]] = {
    "approval": events.ApprovalAsked,
    "client_tool": events.ClientToolCalled,
    "mcp_elicitation": events.ElicitationAsked,
    "user_input": events.QuestionAsked,
    "tool_retry": events.RetryAsked,
}


class RunUnfolding:
    """Turns the messages of one response into events. `reply` answers its requests."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply
        self._tools: dict[str, str] = {}
        """Tools by the ids of calls that have not ended."""
        self._text = StringIO()  # a list of a million words takes ten times the memory
        self._error: outgoing.Error | None = None
        """The last error: how the run ended, if its end comes next."""
        self._problems: list[str] = []
        self.run_id = ""
        self.interrupted = False
        self.waiting: set[str] = set()
        """Ids of open requests."""
        self.result: Result | None = None

    def take(self, message: outgoing.Message | Unknown) -> Event | None:
        match message:
            case outgoing.ResponseChunk():
                return self._chunk(message)
            case outgoing.Error():
                self._error = message
                self._problems.append(message.message)
                return events.Problem(message=message.message, kind=message.error_type)
            case outgoing.ResponseEnd():
                self.result = self._result(message)
                return events.Ended(result=self.result)
            case _:
                self._error = None
        match message:
            case outgoing.ResponseStart():
                return self._start("run_" + message.response_id.removeprefix("resp_"))
            case outgoing.ServerRequest():
                self.waiting.add(message.request_id)
                return _request(message, self._reply)
            case outgoing.ServerRequestResolved():
                self.waiting.discard(message.request_id)
                return _resolved(message)
            case outgoing.Compaction():
                return events.Compacted(
                    summary=message.summary, tokens_before=message.tokens_before
                )
            case outgoing.Status():
                return events.Status(message=message.message)
            case outgoing.RawAgentEvent():
                return events.JournalEvent(type=message.event_type, body=message.event)
            case Unknown():
                return message
            case _:
                return self._tool(message)

    def _start(self, run_id: str) -> Event:
        if run_id == self.run_id:
            self._text = StringIO()
            return events.TextRetracted()
        self.run_id = run_id
        return events.RunStarted(run_id=run_id)

    def _chunk(self, message: outgoing.ResponseChunk) -> Event:
        self._error = None
        if message.is_thinking:
            return events.ThinkingDelta(text=message.content)
        self._text.write(message.content)
        return events.TextDelta(text=message.content)

    def _tool(self, message: outgoing.Message) -> Event | None:
        match message:
            case outgoing.ToolCalled():
                self._text = StringIO()
                self._tools[message.call_id] = message.tool
                return events.ToolProposed(
                    call_id=message.call_id, tool=message.tool, arguments=message.args
                )
            case outgoing.ToolStart():
                return events.ToolStarted(
                    call_id=message.call_id, tool=self._tools.get(message.call_id, "")
                )
            case outgoing.ToolOutput():
                return events.ToolOutput(call_id=message.call_id, text=message.content)
            case outgoing.ToolEnd():
                known = self._tools.pop(message.call_id, "")
                return events.ToolEnded(
                    call_id=message.call_id,
                    tool=message.tool or known,
                    success=message.success,
                    summary=_summary(message.details),
                    error_code=message.error_code or "",
                )
            case _:
                return None  # handshake messages, and older duplicates of newer messages

    def _result(self, end: outgoing.ResponseEnd) -> Result:
        outcome: Outcome = "cancelled" if self.interrupted else "completed"
        message = ""
        cost: float | None = end.usage.total_cost_usd
        output: Any = UNSET
        if self._error is not None:
            outcome, message = _OUTCOMES[self._error.error_type], self._error.message
        if end.ending is not UNSET:
            outcome, message, cost = end.ending.outcome, end.ending.message, end.ending.cost_usd
            output = end.ending.structured_output
        return Result(
            run_id=self.run_id,
            outcome=outcome,
            text=self._text.getvalue(),
            message=message,
            usage=_usage(end.usage),
            cost_usd=cost,
            duration_s=end.duration_ms / 1000,
            first_token_s=None if end.ttft_ms is UNSET else end.ttft_ms / 1000,
            tools_used=end.tools_summary.tools_used,
            calls_succeeded=end.tools_summary.calls_succeeded,
            calls_failed=end.tools_summary.calls_failed,
            problems=tuple(self._problems),
            structured_output=output,
        )


def _summary(details: Any) -> str:
    return str(details.get("summary", "")) if hasattr(details, "get") else ""


def _usage(totals: outgoing.UsageTotals) -> Usage:
    return Usage(
        input_tokens=totals.input_tokens,
        output_tokens=totals.output_tokens,
        cache_read_tokens=totals.cache_read_tokens,
        cache_write_tokens=totals.cache_write_tokens,
        model=totals.model_id,
        provider=totals.provider,
    )


def _request(message: outgoing.ServerRequest, reply: Reply) -> events.Request:
    return _REQUESTS[message.request_type](
        request_id=message.request_id,
        call_id=message.call_id,
        tool=message.tool,
        arguments=message.args,
        reason=message.reason,
        summary=message.action_description or message.summary_label or "",
        reply=reply,
    )


def _resolved(message: outgoing.ServerRequestResolved) -> events.RequestResolved:
    return events.RequestResolved(
        request_id=message.request_id,
        request_type=message.request_type,
        resolution=message.resolution,
        resolved_by=message.resolved_by,
        reason=message.reason or "",
    )
