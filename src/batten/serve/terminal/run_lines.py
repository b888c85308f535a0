"""Lines for facts that belong to no tool call: prompts, retries, limits, gaps, endings."""

from collections.abc import Iterator

import msgspec

from batten.contract import facts
from batten.contract.cutting import shortened
from batten.serve.alerts import alert_line
from batten.serve.terminal.calls import changed_files, run_later
from batten.serve.terminal.lines import Kind, Line, line
from batten.serve.terminal.measures import count, counted, dollars, duration
from batten.serve.terminal.panel_lines import panel_rows
from batten.serve.terminal.totals import Totals

_MOST_PROMPT_LINES = 5

_Row = tuple[str, str, str]
"""Prefix, text and style."""


def run_lines(fact: facts.Fact, at: str, totals: Totals, *, verbose: bool) -> Iterator[Line]:
    """`totals` are those of the run up to this fact."""
    for index, (prefix, text, style) in enumerate(_rows(fact, totals, verbose)):
        if index == 0:
            yield line(text, style, prefix=prefix, at=at, kind=_kind(fact))
        else:
            yield line(text, style, prefix=prefix)


def _kind(fact: facts.Fact) -> Kind:
    match fact:
        case facts.RunQueued():
            return "run"
        case facts.UserMessage():
            return "prompt"
        case facts.WorkspaceChangedByCommand():
            return ""  # it goes on with the call
        case _:
            return "end" if fact.type in facts.TERMINAL else "note"


def _rows(fact: facts.Fact, totals: Totals, verbose: bool) -> Iterator[_Row]:
    match fact:
        case facts.RunQueued(kind="coordination"):
            yield "", "run: agents decide together", "dim"
        case facts.RunQueued():
            yield "", f"run: {fact.provider}/{fact.model} in {fact.workspace_path}", "dim"
        case facts.UserMessage():
            texts = fact.text.strip("\n").splitlines()
            most = len(texts) if verbose else _MOST_PROMPT_LINES
            yield from (("  " if n else "> ", text, "bold") for n, text in enumerate(texts[:most]))
            if most < len(texts):
                yield "  ", "…", "dim"
        case facts.AssistantRetracted():
            yield "↻ ", "the answer so far is void", "yellow"  # the retry says why
        case facts.ErrorUpstream() if fact.attempt >= fact.max_attempts and not verbose:
            return  # the ending of the run, or the change of the model, says why
        case facts.ErrorUpstream():
            is_named = fact.status is None or str(fact.status) in fact.message
            message = fact.message if is_named else f"{fact.status} {fact.message}"
            delay_ms = fact.retry_delay_ms if isinstance(fact.retry_delay_ms, int) else 0
            pause = f" in {duration(delay_ms / 1000)}" if delay_ms else ""
            retry = f"retry {fact.attempt} of {max(fact.attempt, fact.max_attempts - 1)}"
            yield "↻ ", f"{retry}{pause}: {message}", "yellow"
        case facts.TurnFailed(will_retry=True):
            yield "↻ ", f"turn failed, asked again: {fact.message}", "yellow"
        case facts.TurnFailed():
            return  # the ending of the run has the same message
        case facts.RunCancelRequested() if not verbose:
            return  # so has the ending of this one
        case facts.PolicyModelRewrote():
            yield "→ ", f"now {fact.to_model}: {fact.reason}", "yellow"
        case facts.ErrorToolUnavailable():
            yield "! ", f"{fact.tool_name} is not available: {fact.reason}", "yellow"
        case facts.ErrorModelCapabilityMissing(missing_capability="image_input"):
            yield "! ", alert_line(fact), "yellow"
        case facts.RequestOpened():
            yield "? ", fact.summary, "yellow"
            yield "  ", f"batten answer {fact.request_id} allow --note TEXT", ""
        case facts.RequestClosed():
            yield "  ", f"{fact.resolution} by {fact.by}", "yellow"
        case (
            facts.MacpSessionBound()
            | facts.MacpMessageAccepted()
            | facts.MacpSessionChanged()
            | facts.MacpCommitmentEvaluated()
        ):
            yield from panel_rows(fact, verbose=verbose)
        case _:
            yield from _limits_and_endings(fact, totals)


def _limits_and_endings(fact: facts.Fact, totals: Totals) -> Iterator[_Row]:
    match fact:
        case facts.ContextPruned():
            tokens = f"{fact.tokens_before} to {fact.tokens_after} tokens"
            yield "", f"context pruned: {tokens}", "dim"
        case facts.ContextCompacted():
            tokens = f"{fact.tokens_before} to {fact.tokens_after} tokens"
            yield "", f"context compacted: {tokens}", "dim"
        case facts.CostBudgetWarning():
            yield "! ", f"{fact.threshold_pct} % of the budget is spent", "yellow"
        case facts.CostBudgetExceeded():
            yield "! ", f"the budget of {dollars(fact.task_budget_micros_usd)} is spent", "red"
        case facts.GapRunDisconnected():
            yield "! ", f"taken over after fact {fact.since_sequence}: {fact.reason}", "yellow"
        case facts.GapEventsPruned():
            gone = f"facts {fact.first_pruned_sequence} to {fact.last_pruned_sequence} pruned"
            yield "! ", gone, "yellow"
        case facts.WorkspaceChangedByCommand() if fact.files:
            yield "    ", changed_files(fact), "dim"
            for text in run_later(fact):
                yield "! ", text, "yellow"
        case facts.ToolEditReverted():
            yield "! ", f"reverted {fact.patch_artifact_id} by {fact.reverted_by}", "yellow"
        case facts.RunResumedFromEvent():
            yield "", f"resumed from {fact.from_run_id} at {fact.from_sequence}", "dim"
        case facts.RunCancelRequested():
            yield "! ", f"cancel requested by {fact.by}: {fact.reason}", "yellow"
        case facts.RunFinished():
            yield "✓ ", f"finished: {_used(fact, totals)}", "green"
            for command in fact.background if isinstance(fact.background, list) else ():
                yield "  ", f"ended with the run: {command}", "yellow"
        case facts.RunFailed():
            yield "✗ ", f"failed ({fact.code}): {fact.message}", "red"
            yield "  ", _used(fact, totals), "dim"
        case facts.RunCancelled():
            yield "✗ ", f"cancelled by {fact.by}: {fact.reason}", "yellow"
            yield "  ", _used(fact, totals), "dim"
        case facts.Unknown():
            data = shortened(msgspec.json.encode(fact.data).decode(), 200)
            yield "", f"{fact.type} {data}", "dim"
        case _:
            return


def _used(fact: facts.RunFinished | facts.RunFailed | facts.RunCancelled, totals: Totals) -> str:
    """Turns, tokens, money and time of a run."""
    parts = [counted(fact.turns, "turn")] if isinstance(fact.turns, int) else []
    if totals.input_tokens or totals.output_tokens:
        sent, received = count(totals.input_tokens), count(totals.output_tokens)
        parts.append(f"{sent} tokens in, {received} out")
    if isinstance(fact.cost_micros_usd, int):
        parts.append(dollars(fact.cost_micros_usd, fact.cost_unknown))
    if isinstance(fact.duration_ms, int):
        parts.append(duration(fact.duration_ms / 1000))
    return ", ".join(parts)
