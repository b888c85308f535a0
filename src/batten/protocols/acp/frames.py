"""Translates the facts and notes of a session to updates for its client. Does no I/O.

Feed it every fact of a run once and in order, one run after the other.
"""

from collections.abc import Iterator

from batten.contract import facts
from batten.contract.envelope import Envelope
from batten.contract.notes import Note, ThinkingPiece
from batten.contract.outcomes import RunEnd, ending_of
from batten.protocols.acp.content import TextBlock
from batten.protocols.acp.tool_frames import Patches, ToolFrames
from batten.protocols.acp.updates import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AnyUpdate,
    Plan,
    PlanEntry,
    UserMessageChunk,
)
from batten.protocols.notes import NoteOrder

_LONGEST_CHUNK = 128 * 1024
_UNSETTLED = (
    facts.AssistantTextDelta,
    facts.AssistantTextComplete,
    facts.AssistantThinkingDelta,
    facts.AssistantThinkingComplete,
    facts.AssistantToolCallProposed,
    facts.ArtifactCreated,
    facts.CostCallUnfinished,
)
"""Facts that a retraction may follow."""


class AcpFrames:
    """The updates of one session. `replays`: shows history, with the user's messages."""

    def __init__(self, workspace: str, patches: Patches, *, replays: bool = False) -> None:
        self._replays = replays
        self._order = NoteOrder()
        self.calls = ToolFrames(workspace, patches, replays=replays)
        self._run_id = ""
        self._attempt = 0
        """The attempt at a turn that a message belongs to: the text of a failed attempt stays
        visible."""
        self._texts: dict[int, int] = {}
        """Characters shown of each block of the turn."""
        self._has_text = False
        self._held: list[AnyUpdate] = []
        """Updates of an incomplete message in a replay, which may be taken back."""
        self.cut_short = False
        """The model's last message reached its token limit."""
        self.ending: RunEnd | None = None
        """The end of the last run; None before its terminal fact."""

    def note(self, note: Note, *, room: bool = True) -> list[AnyUpdate]:
        """A piece of reasoning; without room it is dropped, with the rest of its block."""
        if not isinstance(note, ThinkingPiece):
            return []
        return [self._thought(ready) for ready in self._order.hold(note, room=room)]

    def feed(self, envelope: Envelope) -> list[AnyUpdate]:
        fact: facts.Fact = envelope.data
        if envelope.run_id != self._run_id:
            self._begin(envelope.run_id)
        updates: list[AnyUpdate] = [self._thought(note) for note in self._order.before(fact)]
        updates += self._feed(envelope.run_id, fact)
        updates += self.calls.feed(envelope)
        updates += [self._thought(note) for note in self._order.after(fact)]
        return self._settled(fact, updates) if self._replays else updates

    def _feed(self, run_id: str, fact: facts.Fact) -> list[AnyUpdate]:
        match fact:
            case facts.UserMessage() if self._replays:
                return list(_user(run_id, fact))
            case facts.GapEventsPruned() if self._replays:
                return [message_of("What came before is no longer kept.", f"{run_id}.gap")]
            case facts.TurnStarted() | facts.TurnFailed():
                self._texts.clear()
                self._attempt += isinstance(fact, facts.TurnFailed)
            case facts.AssistantRetracted():
                return self._retract(fact)
            case facts.AssistantTextDelta() if not self._replays:
                return self._text(fact.turn_index, fact.block_index, fact.delta)
            case facts.AssistantTextComplete():
                shown = self._texts.get(fact.block_index, 0)
                return self._text(fact.turn_index, fact.block_index, fact.text[shown:])
            case facts.AssistantThinkingComplete() if self._replays:
                place = self._place(fact.turn_index, fact.block_index)
                return [AgentThoughtChunk(content=TextBlock(text=fact.text), message_id=place)]
            case facts.AssistantMessageComplete():
                self.cut_short = fact.stop_reason == "max_tokens"
            case facts.AssistantFinalAnswer() if not self._has_text:
                return self._text(fact.turn_index, 0, fact.summary)
            case facts.ToolTodoWriteUpdated():
                return [_plan(fact)]
            case facts.RunFinished() | facts.RunFailed() | facts.RunCancelled():
                self.ending = ending_of(fact)
                return self.calls.leave_none_open()
            case _:
                pass
        return []

    def _begin(self, run_id: str) -> None:
        self._run_id = run_id
        self._attempt = 0
        self._texts.clear()
        self._has_text = self.cut_short = False
        self.ending = None
        self.calls.begin()

    def leave_none_open(self) -> list[AnyUpdate]:
        """The rest of a run that has no end."""
        held, self._held = self._held, []
        return [*held, *self.calls.leave_none_open()]

    def _settled(self, fact: facts.Fact, updates: list[AnyUpdate]) -> list[AnyUpdate]:
        """The updates that can no longer be taken back, in order."""
        if isinstance(fact, facts.AssistantRetracted):
            self._held.clear()
            return []
        self._held += updates
        if isinstance(fact, _UNSETTLED):
            return []
        held, self._held = self._held, []
        return held

    def _retract(self, fact: facts.AssistantRetracted) -> list[AnyUpdate]:
        """Void a message. A client keeps the text that it was shown, so another message says so."""
        has_shown = bool(self._texts)
        place = f"{self._run_id}.{fact.turn_index}.void.{self._attempt}"
        self._texts.clear()
        self._attempt += 1
        self._has_text = False
        text = f"\n\n[The answer starts again: {fact.reason}]\n\n"
        return [message_of(text, place)] if has_shown else []

    def _text(self, turn: int, block: int, text: str) -> list[AnyUpdate]:
        if not text:
            return []
        self._has_text = True
        self._texts[block] = self._texts.get(block, 0) + len(text)
        place = self._place(turn, block)
        return [message_of(piece, place) for piece in _pieces(text)]

    def _thought(self, note: Note) -> AgentThoughtChunk:
        place = self._place(note.turn_index, note.block_index)
        return AgentThoughtChunk(content=TextBlock(text=note.text), message_id=place)

    def _place(self, turn: int, block: int) -> str:
        """The id of a message: one block of one attempt at a turn."""
        tried = f".{self._attempt}" if self._attempt else ""
        return f"{self._run_id}.{turn}.{block}{tried}"


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), _LONGEST_CHUNK):
        yield text[start : start + _LONGEST_CHUNK]


def message_of(text: str, message_id: str) -> AgentMessageChunk:
    """A text as a message of the agent."""
    return AgentMessageChunk(content=TextBlock(text=text), message_id=message_id)


def _user(run_id: str, fact: facts.UserMessage) -> Iterator[UserMessageChunk]:
    message_id = user_message_id(run_id, fact.turn_index)
    for piece in _pieces(fact.text):
        yield UserMessageChunk(content=TextBlock(text=piece), message_id=message_id)


def user_message_id(run_id: str, turn: int) -> str:
    """The id of a prompt, with its images, or of a later message of a run."""
    return f"{run_id}.{turn}.user"


def _plan(fact: facts.ToolTodoWriteUpdated) -> Plan:
    entries = [
        PlanEntry(content=todo.content, priority="medium", status=todo.status)
        for todo in fact.todos
    ]
    return Plan(entries=entries)
