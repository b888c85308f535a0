"""A run as lines for people: one or more per fact, indented under the turn or tool call."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from batten.contract.cutting import cut, shortened
from batten.contract.envelope import Envelope
from batten.contract.facts import (
    ApprovalRequested,
    ApprovalResolved,
    ApprovalTimedOut,
    AssistantFinalAnswer,
    AssistantMessageComplete,
    AssistantRetracted,
    AssistantTextComplete,
    AssistantToolCallProposed,
    ContextCompacted,
    ContextPruned,
    CostBudgetExceeded,
    CostBudgetWarning,
    ErrorModelCapabilityMissing,
    ErrorUpstream,
    Fact,
    GapEventsPruned,
    GapRunDisconnected,
    PolicyModelRewrote,
    PolicyToolBlocked,
    RequestClosed,
    RequestOpened,
    RunCancelled,
    RunCancelRequested,
    RunFailed,
    RunFinished,
    RunQueued,
    RunResumedFromEvent,
    ToolCancelled,
    ToolCompleted,
    ToolEditReverted,
    ToolFailed,
    ToolFileReadCompleted,
    ToolShellOutputChunk,
    ToolStarted,
    ToolTimedOut,
    ToolTodoWriteUpdated,
    TurnFailed,
    Unknown,
    UserMessage,
    WorkspaceChangedByCommand,
)
from batten.serve.alerts import alert_line, denial
from batten.serve.words import one_line

_OUTPUT_LINES = 4
_LONGEST_INPUT = 200
_CHANGED_FILES = 5
_MARKS = {"completed": "x", "in_progress": ">", "pending": " "}


def dollars(micros: int, unknown: object = False) -> str:
    text = f"${micros / 1e6:.4f}"
    return f"{text} or more (a price is unknown)" if unknown is True else text


class Timeline:
    """Turns facts into lines, in order."""

    def __init__(self, *, color: bool) -> None:
        self._color = color
        self._output_lines: dict[str, int] = {}
        self._is_queued = False
        """The run was queued before; a second time means that it was parked for an answer."""

    def lines(self, envelope: Envelope) -> Iterator[str]:
        fact = envelope.data
        at = envelope.occurred_at[11:19]
        for index, (style, text) in enumerate(self._texts(fact)):
            yield f"{at if index == 0 else ' ' * 8}  {self._styled(style, one_line(text))}"

    def _styled(self, style: str, text: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if self._color and style else text

    def _texts(self, fact: Fact) -> Iterator[tuple[str, str]]:
        """Style and text of each line for a fact."""
        match fact:
            case RunQueued() if self._is_queued:
                yield "2", "  queued again"
            case RunQueued():
                self._is_queued = True
                yield "2", f"run: {fact.provider}/{fact.model} in {fact.workspace_path}"
            case UserMessage():
                yield from (("1", f"> {line}") for line in _first_lines(fact.text, 5))
            case AssistantTextComplete():
                yield from (("", line) for line in _first_lines(fact.text, 40))
            case AssistantToolCallProposed():
                yield "36", f"  {fact.tool_name} {_arguments(fact.input)}"
            case ToolShellOutputChunk():
                yield from self._output(fact)
            case ToolStarted() if fact.child_run_id is not UNSET:
                yield "2", f"    child run {fact.child_run_id}"
            case ToolFileReadCompleted():
                yield "2", f"    {fact.lines} lines, {fact.size_bytes} bytes"
            case ToolTodoWriteUpdated():
                for todo in fact.todos:
                    yield "", f"    [{_MARKS[todo.status]}] {todo.content}"
            case ToolCompleted():
                yield "32", f"    done: {fact.summary} ({fact.duration_ms} ms)"
            case ToolFailed() | ToolTimedOut() | ToolCancelled():
                yield "31", f"    {fact.type.partition('.')[2]}: {fact.summary}"
            case PolicyToolBlocked():
                yield "31", f"    {denial(fact)}"
            case _:
                yield from _rarer(fact)

    def _output(self, fact: ToolShellOutputChunk) -> Iterator[tuple[str, str]]:
        """The first lines of a command's output."""
        shown = self._output_lines.get(fact.tool_call_id, 0)
        for line in fact.data.splitlines():
            if shown == _OUTPUT_LINES:
                yield "2", "    …"
            if shown >= _OUTPUT_LINES:
                shown += 1
                break
            yield "2", f"    | {shortened(line, 150)}"
            shown += 1
        self._output_lines[fact.tool_call_id] = shown


def _rarer(fact: Fact) -> Iterator[tuple[str, str]]:
    match fact:
        case AssistantRetracted():
            yield "33", f"  the answer so far is void: {fact.reason}"
        case ErrorUpstream():
            yield "33", f"  {_retry(fact)}: {fact.message}"
        case ErrorModelCapabilityMissing(missing_capability="image_input"):
            yield "33", f"  {alert_line(fact)}"
        case TurnFailed():
            yield "31", f"  turn failed: {fact.message}"
        case PolicyModelRewrote():
            yield "33", f"  now {fact.to_model}: {fact.reason}"
        case ApprovalRequested():
            yield "33", f"  waits for approval {fact.approval_id}: {fact.summary}"
        case RequestOpened():
            yield "33", f"  waits for an answer {fact.request_id}: {fact.summary}"
        case RequestClosed():
            yield "33", f"  {fact.resolution} by {fact.by}"
        case ApprovalResolved():
            yield "33", f"  {fact.decision} by {fact.by} {fact.comment}".rstrip()
        case ApprovalTimedOut():
            yield "33", f"  nobody answered in {fact.after_seconds} s"
        case ContextPruned():
            yield "2", f"  context pruned: {fact.tokens_before} to {fact.tokens_after} tokens"
        case ContextCompacted():
            yield "2", f"  context compacted: {fact.tokens_before} to {fact.tokens_after} tokens"
        case CostBudgetWarning():
            yield "33", f"  {fact.threshold_pct} % of the budget is spent"
        case CostBudgetExceeded():
            yield "31", f"  the budget of {dollars(fact.task_budget_micros_usd)} is spent"
        case GapRunDisconnected():
            yield "33", f"  taken over after fact {fact.since_sequence}: {fact.reason}"
        case GapEventsPruned():
            yield (
                "33",
                f"  facts {fact.first_pruned_sequence} to {fact.last_pruned_sequence} pruned",
            )
        case WorkspaceChangedByCommand() if fact.files:
            names = ", ".join(file.path for file in fact.files[:_CHANGED_FILES])
            more = fact.file_count - len(fact.files[:_CHANGED_FILES])
            rest = f" and {more} more" if more > 0 else ""
            yield "2", f"    changed by the command: {shortened(names, 150)}{rest}"
        case ToolEditReverted():
            yield "33", f"  reverted {fact.patch_artifact_id} by {fact.reverted_by}"
        case _:
            yield from _endings(fact)


def _endings(fact: Fact) -> Iterator[tuple[str, str]]:
    match fact:
        case RunResumedFromEvent():
            yield "2", f"resumed from {fact.from_run_id} at {fact.from_sequence}"
        case RunCancelRequested():
            yield "33", f"cancel requested by {fact.by}: {fact.reason}"
        case RunFinished():
            cost = dollars(fact.cost_micros_usd, fact.cost_unknown)
            yield "32", f"finished: {fact.turns} turns, {cost}, {fact.duration_ms / 1000:.1f} s"
        case RunFailed():
            yield "31", f"failed ({fact.code}): {fact.message}"
        case RunCancelled():
            yield "33", f"cancelled by {fact.by}: {fact.reason}"
        case AssistantFinalAnswer() | AssistantMessageComplete():
            return
        case Unknown():
            yield "2", f"{fact.type} {shortened(msgspec.json.encode(fact.data).decode(), 200)}"
        case _:
            return


def _retry(fact: ErrorUpstream) -> str:
    """The number of the retry, how many there may be, and the pause before it."""
    if fact.attempt >= fact.max_attempts:
        return "upstream error"
    pause = "" if fact.retry_delay_ms is UNSET else f" in {fact.retry_delay_ms / 1000:.1f} s"
    return f"retry {fact.attempt}/{fact.max_attempts - 1}{pause}"


def _first_lines(text: str, most: int) -> list[str]:
    lines = text.strip("\n").splitlines()
    return lines if len(lines) <= most else [*lines[:most], "…"]


def _arguments(arguments: dict[str, Any]) -> str:
    """Arguments on one line; a single string is shown without quotes."""
    if len(arguments) == 1:
        (only,) = arguments.values()
        if isinstance(only, str):
            return cut(only, _LONGEST_INPUT)
    return cut(msgspec.json.encode(arguments).decode(), _LONGEST_INPUT)
