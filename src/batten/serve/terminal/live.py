"""The live part: shows a session's runs on a terminal as they happen, or as plain lines."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from batten.agent.execution import Ended
from batten.contract import facts
from batten.contract.calls import CallEnded, CallFold
from batten.contract.envelope import Envelope
from batten.contract.errors import BattenError
from batten.contract.marks import plain
from batten.contract.outcomes import Outcome
from batten.journal.contract import Stored
from batten.serve.output import Output, show_lines_on
from batten.serve.renderer import Describe, Renderer, answer_of
from batten.serve.terminal.ability import (
    Color,
    columns,
    has_color,
    is_same_terminal,
    is_smart,
)
from batten.serve.terminal.calls import OUTPUT, call_title
from batten.serve.terminal.flow import TextFlow
from batten.serve.terminal.lines import Line, Spacing
from batten.serve.terminal.printers import printer_for
from batten.serve.terminal.screen import Screen
from batten.serve.terminal.status import Status
from batten.serve.terminal.transcript import Transcript

_TICK_S = 0.1

Load = Callable[[str], Awaitable[bytes]]
"""The body of an artifact."""


async def patches_of(fact: facts.Fact, load: Load) -> dict[str, str]:
    """The diffs that a fact applied, by artifact; what cannot be read is left out."""
    match fact:
        case facts.ToolEditApplied() | facts.ToolFileWriteApplied():
            names = [fact.patch_artifact_id]
        case facts.ToolMultiEditApplied():
            names = fact.patch_artifact_ids
        case _:
            return {}
    found: dict[str, str] = {}
    for name in names:
        try:
            found[name] = (await load(name)).decode(errors="replace")
        except BattenError:  # pruned, or the store fails: the rest of the run can be shown
            continue
    return found


def live_renderer(
    output: Output, people: Output, environ: Mapping[str, str], *, color: Color, verbose: bool
) -> tuple[Output, Renderer]:
    """The renderer for people who watch, and where the answer goes.

    If standard output is the same terminal, everything goes through one queue, in order.
    """
    shared = people if is_same_terminal(1, 2) else output
    return shared, LiveRenderer(shared, people, environ, color, verbose)


class LiveRenderer(Renderer):
    """Streams text, shows each call with its result, and a status line while something is awaited.

    On a terminal that standard output shares, it shows the answer too. Otherwise the answer is
    written to `output` alone, at the end.
    """

    follows = True
    shows_alerts = shows_endings = True

    def __init__(
        self,
        output: Output,
        people: Output,
        environ: Mapping[str, str],
        color: Color,
        verbose: bool,
    ) -> None:
        self._output = output
        self._people = people
        self._verbose = verbose
        self._shares = output is people
        self._is_terminal = os.isatty(2)
        self._is_smart = smart = is_smart(2, environ)
        self._width = partial(columns, 2)
        # Beside the answer it is optional: a reader that stalls must not fill the memory.
        write = people.write if self._shares else people.offer
        self._screen = Screen(
            write, self._width, is_smart=smart, color=has_color(color, 2, environ)
        )
        self._printer = printer_for(2, environ, color, times=verbose or not self._is_terminal)
        self._spacing = Spacing(is_terminal=self._is_terminal)
        self._flow = TextFlow(self._width if smart else None)
        self._status = Status(time.monotonic())
        self._transcript = self._new_transcript()
        self._ticking: asyncio.TimerHandle | None = None
        self._streamed = ""
        """The text of the current block, if it was shown as it came."""
        self._turn_text = ""
        """All text of the current turn that this display has shown."""
        self._answer: str | None = None
        self._prompts = 0

    def _new_transcript(self) -> Transcript:
        # A log is complete; a terminal shows the answer once, wherever it goes.
        holds_answer = self._is_terminal and not self._shares
        return Transcript(verbose=self._verbose, holds_answer=holds_answer)

    def begin(self, session_id: str, describe: Describe) -> None:
        self._begin_waiting()

    def prompted(self, text: str) -> None:
        self._prompts += 1
        self._transcript = self._new_transcript()
        self._begin_waiting()

    async def complete(self, envelope: Envelope) -> Envelope:
        self._transcript.patches |= await patches_of(envelope.data, self.load)
        return envelope

    def show(self, stored: Stored, envelope: Envelope) -> None:
        fact = envelope.data
        self._status.feed(fact, time.monotonic())
        match fact:
            case facts.AssistantTextDelta() if self._shares:
                self._stream(fact.delta)
                return
            case facts.AssistantTextComplete() if self._shares and self._streamed:
                self._streamed = ""
                self._screen.add(self._flow.finish())
                self._end_line()
            case facts.UserMessage() if (
                self._is_terminal and self._prompts == 1 and not self._verbose
            ):
                pass  # typed just now
            case _:
                if isinstance(fact, facts.TurnStarted | facts.AssistantRetracted):
                    self._screen.add(self._flow.finish())
                    self._streamed = self._turn_text = ""
                self._print(self._transcript.lines(envelope))
        self._draw()

    def _stream(self, delta: str) -> None:
        if not self._streamed:
            self._screen.add(self._spacing.before("text"))
        self._streamed += delta
        self._turn_text += delta
        self._screen.add(self._flow.feed(delta))

    def _end_line(self) -> None:
        """Begin a new row, also within a text that goes on afterwards."""
        if not self._screen.is_line_start:
            self._screen.add("\n")
            self._flow.begin_row()

    def _print(self, lines: list[Line]) -> None:
        if lines:
            self._end_line()
            self._screen.add("".join(map(self._rows, lines)))

    def _rows(self, line: Line) -> str:
        return f"{self._spacing.before(line.kind)}{self._printer.rows(line)}"

    def child(self, tool_call_id: str) -> Renderer:
        return _ChildRenderer(self, tool_call_id)

    def show_child(self, call_id: str, fact: facts.Fact, lines: list[Line]) -> None:
        """A fact of a child run, and its lines below the call that started it."""
        self._status.totals.feed(fact)
        self._print(self._transcript.nested(call_id, lines))
        self._draw()

    def ended(self, ended: Ended) -> None:
        self._stop_waiting()
        is_shown = self._shares and ended.answer == self._turn_text
        self._answer = None if is_shown else answer_of(ended)

    def fail(self, outcome: Outcome, message: str) -> None:
        self._stop_waiting()
        self._answer = None

    def finish(self) -> None:
        self._stop_waiting()
        if self._answer is not None:
            answer = plain(self._answer) if os.isatty(1) else self._answer
            self._output.write(f"{answer}\n".encode())
        self._answer = None
        show_lines_on(None)

    def close(self) -> None:
        super().close()
        show_lines_on(None)
        self._screen.set_status("")

    def last_words(self, outcome: Outcome, message: str, durable: bool) -> None:
        self.close()

    def say(self, text: str) -> bool:
        """Show a line of ours above the status line; False once the display has ended."""
        if self.closed:
            return False
        self._end_line()
        self._screen.add(text)
        return True

    def _begin_waiting(self) -> None:
        totals = self._status.totals
        self._status = Status(time.monotonic())
        self._status.totals = totals
        show_lines_on(self.say)
        if self._is_smart and self._ticking is None:
            self._tick()

    def _stop_waiting(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
        self._screen.add(self._flow.finish())
        self._end_line()
        self._screen.set_status("")

    def _tick(self) -> None:
        if not self.closed:
            self._draw()
            self._ticking = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def _draw(self) -> None:
        is_waiting = self._ticking is not None and not self.closed
        if self._is_smart and is_waiting and self._people.is_empty:
            self._screen.set_status(self._status.text(time.monotonic(), self._width() - 1))


class _ChildRenderer(Renderer):
    """Shows the calls of a child run, one line each, below the call that started it."""

    def __init__(self, top: LiveRenderer, call_id: str) -> None:
        self._top = top
        self._call_id = call_id
        self._calls = CallFold()

    def show(self, stored: Stored, envelope: Envelope) -> None:
        lines: list[Line] = []
        match self._calls.take(envelope.data):
            case CallEnded(call, end):
                arguments = call.proposed
                title = call.tool if arguments is None else call_title(call.name, arguments)
                style = "dim" if end.status == "completed" else "red"
                pieces = ((title, "dim"), (f" · {end.summary}", style))
                lines = [Line(pieces, OUTPUT, most_rows=2)]
            case _:
                pass
        self._top.show_child(self._call_id, envelope.data, lines)

    def child(self, tool_call_id: str) -> Renderer:
        return self
