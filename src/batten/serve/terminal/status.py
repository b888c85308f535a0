"""What a run waits for right now, as one line. Pure: the clock is passed in."""

from msgspec import Struct

from batten.contract import facts
from batten.contract.facts.tool import ToolEnded
from batten.serve.terminal.calls import call_title
from batten.serve.terminal.lines import clean
from batten.serve.terminal.measures import elapsed
from batten.serve.terminal.totals import Totals

_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_FRAME_S = 0.1


class _Wait(Struct, frozen=True):
    label: str
    since: float
    until: float | None = None
    """When it ends by itself: the pause before a retry."""


class Status:
    """Folds facts into what is awaited: the model, calls, an answer, a retry."""

    def __init__(self, now: float, label: str = "Starting") -> None:
        self.totals = Totals()
        self._now = now
        self._model = _Wait(label, now)
        self._titles: dict[str, str] = {}
        self._running: dict[str, _Wait] = {}
        self._questions: dict[str, _Wait] = {}
        self._is_cancelling = False

    def feed(self, fact: facts.Fact, now: float) -> None:
        self.totals.feed(fact)
        match fact:
            case facts.AssistantTextDelta():
                self.totals.receive(fact.delta)
            case facts.TurnStarted():
                self._model = _Wait("Thinking", now)
                self._titles.clear()
            case facts.TurnCompleted():
                self._model = _Wait("Working", now)
            case facts.ErrorUpstream():
                delay_ms = fact.retry_delay_ms if isinstance(fact.retry_delay_ms, int) else 0
                self._model = _Wait("Retrying", now, now + delay_ms / 1000)
            case facts.AssistantToolCallProposed():
                self._titles[fact.tool_call_id] = call_title(fact.tool_name, fact.input)
            case facts.ToolInvoked():
                title = self._titles.get(fact.tool_call_id, fact.tool_name)
                self._running[fact.tool_call_id] = _Wait(title, now)
            case ToolEnded():
                self._running.pop(fact.tool_call_id, None)
                self._model = _Wait("Working", now)
            case facts.ApprovalRequested():
                self._questions[fact.approval_id] = _Wait("Waiting for approval", now)
            case facts.RequestOpened():
                self._questions[fact.request_id] = _Wait("Waiting for an answer", now)
            case facts.ApprovalResolved() | facts.ApprovalTimedOut():
                self._questions.pop(fact.approval_id, None)
            case facts.RequestClosed():
                self._questions.pop(fact.request_id, None)
            case facts.RunCancelRequested():
                self._is_cancelling = True
            case _:
                pass

    def text(self, now: float, width: int) -> str:
        """The line, at most `width` columns; what matters least is left out first."""
        from rich.cells import cell_len, set_cell_size

        label, waited = self._label(now)
        frame = _FRAMES[int(now / _FRAME_S) % len(_FRAMES)]
        details = [waited, self.totals.tokens, self.totals.cost]
        while len(details) > 1 and width < 24 + sum(len(one) + 3 for one in details):
            details.pop()
        tail = " · " + " · ".join(details)
        room = max(8, width - cell_len(tail) - 2)
        label = clean(label)
        if cell_len(label) > room:
            label = f"{set_cell_size(label, room - 1).rstrip()}…"
        return set_cell_size(f"{frame} {label}{tail}", width).rstrip()

    def _label(self, now: float) -> tuple[str, str]:
        if self._is_cancelling:
            return "Cancelling", elapsed(now - self._now)
        if self._questions:
            wait = next(iter(self._questions.values()))
            return wait.label, elapsed(now - wait.since)
        if self._running:
            first, *others = self._running.values()
            more = f" (+{len(others)} more)" if others else ""
            return f"{first.label}{more}", elapsed(now - first.since)
        if self._model.until is not None and now < self._model.until:
            return "Retrying", f"in {elapsed(self._model.until - now + 1)}"
        label = "Thinking" if self._model.until is not None else self._model.label
        return label, elapsed(now - self._model.since)
