"""Translates the facts of a session's runs to messages: one response for each prompt."""

from batten.contract import facts
from batten.contract.envelope import Envelope
from batten.contract.notes import Note, ThinkingPiece
from batten.contract.outcomes import ending_of
from batten.protocols.maestro import faults
from batten.protocols.maestro import outgoing as out
from batten.protocols.maestro.asking import Pending
from batten.protocols.maestro.calls import Calls, Shared
from batten.protocols.maestro.totals import Totals
from batten.protocols.notes import NoteOrder


class MaestroFrames:
    """Shows one run after the other. The output depends only on the facts and on `shared.asks`."""

    def __init__(self) -> None:
        self.response_id: str | None = None
        """The open response."""
        self.shared = Shared()
        self.calls = Calls(self.shared)
        self._is_cancelled = False
        """The run is to end: its calls may not have run."""
        self._order = NoteOrder()
        self._text: list[str] = []
        """The text of the current message."""
        self._kept: list[str] = []
        """The text of complete messages after the last tool call."""

    @property
    def pending(self) -> dict[str, Pending]:
        """Open requests by id, in the order of their creation."""
        return self.shared.pending

    def feed(self, envelope: Envelope) -> list[out.Message]:
        """The messages of one fact, with notes in their place around it."""
        fact: facts.Fact = envelope.data
        messages = [message for note in self._order.before(fact) for message in self._piece(note)]
        self.shared.totals.see(envelope)
        messages += self._show(fact, envelope)
        messages += [message for note in self._order.after(fact) for message in self._piece(note)]
        return messages

    def feed_child(self, calls: Calls, envelope: Envelope) -> list[out.Message]:
        """The messages of a fact of a child run: its calls and requests."""
        self.shared.totals.see_child(envelope)
        return calls.feed(envelope)

    def note(self, note: Note, *, room: bool = True) -> list[out.Message]:
        """A piece of reasoning; without `room` it may be dropped."""
        if not isinstance(note, ThinkingPiece):
            return []
        ready = self._order.hold(note, room=room)
        return [message for one in ready for message in self._piece(one)]

    def fail(self, message: str) -> list[out.Message]:
        """End the run with an ending that the journal could not store."""
        ending = out.Error(message=message, fatal=False, error_type=faults.classify(message))
        if self.response_id is None:
            return [ending]
        response_id, self.response_id = self.response_id, None
        return [ending, *self.calls.cut_off(), self.shared.totals.cut_short(response_id)]

    def _show(self, fact: facts.Fact, envelope: Envelope) -> list[out.Message]:
        match fact:
            case facts.RunStarted() if self.response_id is None:
                return self._begin(envelope)
            case facts.AssistantTextDelta():
                self._text.append(fact.delta)
                return self._chunk(fact.delta, is_thinking=False)
            case facts.AssistantMessageComplete() | facts.TurnFailed():
                self._kept += self._text
                self._text = []
            case facts.AssistantRetracted():
                return self._restart(fact)
            case facts.ContextCompacted():
                return [_compaction(fact, envelope)]
            case facts.ErrorUpstream() if fact.retriable and fact.attempt < fact.max_attempts:
                tried = f"attempt {fact.attempt} of {fact.max_attempts} failed: {fact.message}"
                return [out.Status(message=f"Retrying the model call: {tried}")]
            case facts.TurnCompleted() if fact.tool_calls and not self._is_cancelled:
                calls = f"{fact.tool_calls} tool call{'s' if fact.tool_calls > 1 else ''}"
                return [out.Status(message=f"Completed {calls}")]
            case facts.GapRunDisconnected():
                return [out.Status(message="Going on after the process that ran this was gone")]
            case facts.RunCancelRequested():
                self._is_cancelled = True
                self.shared.why = fact.reason.partition(" ")[0] if fact.by == "client" else ""
            case facts.RunFinished() | facts.RunFailed() | facts.RunCancelled():
                return self._end(fact, envelope)
            case _:
                messages = self.calls.feed(envelope)
                if any(isinstance(message, out.ToolCalled) for message in messages):
                    self._kept = []
                return messages
        return []

    def _restart(self, fact: facts.AssistantRetracted) -> list[out.Message]:
        """Start the response again: clients then drop its text. What came after the last tool call
        and still holds is sent once more, since clients take that for the answer."""
        self._text = []
        if self.response_id is None:
            return []
        said = out.Status(message=f"The answer starts again: {fact.reason}")
        start = out.ResponseStart(response_id=self.response_id)
        return [said, start, *self._chunk("".join(self._kept), is_thinking=False)]

    def _begin(self, envelope: Envelope) -> list[out.Message]:
        self.calls, self.shared.why = Calls(self.shared), ""
        self._is_cancelled = False
        self.pending.clear()
        self._text, self._kept = [], []
        self.response_id = "resp_" + envelope.run_id.removeprefix("run_")
        return [out.ResponseStart(response_id=self.response_id)]

    def _piece(self, note: Note) -> list[out.Message]:
        self.shared.totals.thought()
        return self._chunk(note.text, is_thinking=True)

    def _chunk(self, text: str, *, is_thinking: bool) -> list[out.Message]:
        if self.response_id is None or not text:
            return []
        chunk = out.ResponseChunk(
            response_id=self.response_id, content=text, is_thinking=is_thinking
        )
        return [chunk]

    def _end(
        self, fact: facts.RunFinished | facts.RunFailed | facts.RunCancelled, envelope: Envelope
    ) -> list[out.Message]:
        """The error that ended the run, unless the client cancelled it; then the end of the
        response."""
        messages = self.calls.cut_off()
        match fact:
            case facts.RunFailed():
                kind = faults.class_of(ending_of(fact).outcome, retriable=fact.retriable)
                messages.append(out.Error(message=fact.message, fatal=False, error_type=kind))
            case facts.RunCancelled() if fact.by != "client":
                text = f"Cancelled by {fact.by}: {fact.reason}"
                messages.append(out.Error(message=text, fatal=False, error_type="cancelled"))
            case _:
                pass
        response_id = self.response_id or ""
        messages.append(self.shared.totals.end(response_id, envelope))
        self.response_id, self.shared.totals = None, Totals()
        return messages


def _compaction(fact: facts.ContextCompacted, envelope: Envelope) -> out.Compaction:
    return out.Compaction(
        summary=fact.summary,
        first_kept_entry_index=fact.messages_removed,
        tokens_before=fact.tokens_before,
        auto=True,
        timestamp=envelope.occurred_at,
    )
