"""A run as lines for people: facts in, lines out, each call with its own result under it.

Calls may overlap. One block is open at a time, and its lines are written as they come; the lines
of other calls are kept until it has ended.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from batten.contract import facts
from batten.contract.calls import Call, CallChanged, CallFold
from batten.contract.envelope import Envelope
from batten.contract.facts.tool import ToolEnded
from batten.serve.terminal.calls import OUTPUT, CallBlock
from batten.serve.terminal.excerpt import left_out_mark
from batten.serve.terminal.lines import Line, line
from batten.serve.terminal.run_lines import run_lines
from batten.serve.terminal.totals import Totals

_MOST_TEXT_LINES = 40
_MOST_ENDED = 16
"""Ended calls that are known when one is tried again."""


class _Entry(Struct):
    """A call that has begun, and its lines that are not written yet."""

    block: CallBlock
    lines: list[Line] = msgspec.field(default_factory=list[Line])
    has_ended: bool = False


class Transcript:
    """Turns the facts of one run into lines."""

    def __init__(self, *, verbose: bool = False, holds_answer: bool = False) -> None:
        """`verbose`: nothing is cut. `holds_answer`: the final text is shown elsewhere."""
        self.patches: dict[str, str] = {}
        """Diffs by artifact, put here before the fact that applies them."""
        self._verbose = verbose
        self._holds_answer = holds_answer
        self._held: list[Line] = []
        """The last text, until it turns out not to be the answer."""
        self._calls = CallFold(_MOST_ENDED)
        self._entries: dict[str, _Entry] = {}
        """Calls that have begun and are not written to their end, the open one first."""
        self._totals = Totals()
        self._is_queued = False

    def lines(self, envelope: Envelope) -> list[Line]:
        fact, at = envelope.data, envelope.occurred_at
        self._totals.feed(fact)
        before: list[Line] = []
        if isinstance(fact, facts.RunFinished):
            self._held = []
        if (
            isinstance(fact, facts.TurnStarted | facts.AssistantToolCallProposed)
            or envelope.type in facts.TERMINAL
        ):
            before, self._held = self._held, before
        if envelope.type in facts.TERMINAL:
            before += self._leftovers()
        if isinstance(fact, facts.AssistantRetracted):
            self._held = []
        change = self._calls.take(fact)
        asked = change.call.id if isinstance(change, CallChanged) else ""
        lines = [*before, *self._lines(fact, at, asked)]
        self.patches.clear()
        return lines

    def nested(self, call_id: str, lines: list[Line]) -> list[Line]:
        """Lines of the child run that a call started, for its block."""
        return self._add(call_id, lines) if call_id in self._entries else []

    def _lines(self, fact: facts.Fact, at: str, asked: str) -> Iterable[Line]:
        """`asked`: the call of the approval that the fact answers."""
        match fact:
            case facts.AssistantTextComplete():
                return self._text(fact.text, at)
            case facts.ToolInvoked():
                return self._begin(fact.tool_call_id, fact.tool_name, at)
            case facts.PolicyToolBlocked():
                lines = self._begin(fact.tool_call_id, fact.tool_name, at)
                block = self._entries[fact.tool_call_id].block
                return [*lines, *self._add(fact.tool_call_id, block.blocked(fact), ends=True)]
            case facts.ApprovalRequested():
                return self._ask_approval(fact, at)
            case facts.ApprovalResolved() | facts.ApprovalTimedOut():
                return self._close_approval(fact, asked)
            case facts.RunQueued() if self._is_queued:
                prefix = OUTPUT if self._entries else ""
                return [line("queued again", "dim", prefix=prefix, at=at)]
            case _:
                self._is_queued = self._is_queued or isinstance(fact, facts.RunQueued)
                entry = self._entries.get(getattr(fact, "tool_call_id", ""))
                if entry is None:
                    return run_lines(fact, at, self._totals, verbose=self._verbose)
                return self._report(entry, fact)

    def _report(self, entry: _Entry, fact: Any) -> list[Line]:
        if isinstance(fact, ToolEnded):
            return self._add(fact.tool_call_id, entry.block.end(fact), ends=True)
        return self._add(fact.tool_call_id, entry.block.report(fact, self.patches))

    def _text(self, text: str, at: str) -> list[Line]:
        texts = text.strip("\n").splitlines()
        most = len(texts) if self._verbose else _MOST_TEXT_LINES
        lines = [line(one) for one in texts[:most]]
        lines[:1] = [msgspec.structs.replace(one, at=at, kind="text") for one in lines[:1]]
        if most < len(texts):
            lines.append(line(left_out_mark(len(texts) - most), "dim"))
        if not self._holds_answer:
            return lines
        self._held += lines
        return []

    def _begin(self, call_id: str, name: str, at: str) -> list[Line]:
        """The header of a call, unless it was shown with the question about it."""
        if call_id in self._entries:
            return []
        call = self._calls.get(call_id) or Call(id=call_id, name=name, tool=name)
        block = CallBlock(call.name, call.begun_input, whole=self._verbose)
        self._entries[call_id] = _Entry(block)
        return self._add(call_id, [block.header(at)])

    def _add(self, call_id: str, lines: Iterable[Line], *, ends: bool = False) -> list[Line]:
        """Add lines to a call; returns those that can be written now."""
        entry = self._entries[call_id]
        entry.lines += lines
        entry.has_ended = entry.has_ended or ends
        written: list[Line] = []
        while self._entries:
            open_id, opened = next(iter(self._entries.items()))
            written += opened.lines
            opened.lines.clear()
            if not opened.has_ended:
                break
            del self._entries[open_id]
            # Calls that have ended meanwhile are next, since they can be written whole.
            ordered = sorted(self._entries.items(), key=lambda item: not item[1].has_ended)
            self._entries = dict(ordered)
        return written

    def _leftovers(self) -> list[Line]:
        """The kept lines of calls that the end of the run cut short."""
        lines = [one for entry in self._entries.values() for one in entry.lines]
        self._entries.clear()
        return lines

    def _ask_approval(self, fact: facts.ApprovalRequested, at: str) -> list[Line]:
        """The question, at once: below its call, or by itself while another block is open."""
        shown = self._begin(fact.tool_call_id, fact.kind, at)
        block = self._entries[fact.tool_call_id].block
        is_open = next(iter(self._entries)) == fact.tool_call_id
        question = block.question(fact, by_itself=not is_open)
        return [*shown, *question] if is_open else question

    def _close_approval(
        self, fact: facts.ApprovalResolved | facts.ApprovalTimedOut, call_id: str
    ) -> list[Line]:
        if isinstance(fact, facts.ApprovalTimedOut):
            text = f"nobody answered in {fact.after_seconds} s"
        else:
            comment = f": {fact.comment}" if fact.comment else ""
            text = f"{fact.decision} by {fact.by}{comment}"
        closed = [line(text, "yellow", prefix=OUTPUT)]
        return self._add(call_id, closed) if call_id in self._entries else closed
