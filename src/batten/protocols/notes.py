"""Puts notes in their place among the facts: a note is shown after all facts that it followed."""

from collections import deque

from batten.contract import facts
from batten.contract.notes import Note

MOST_HELD = 1 << 20
"""Characters of notes that wait for facts; a block that exceeds this is cut."""

_COUNTED = (
    facts.AssistantTextDelta,
    facts.AssistantTextComplete,
    facts.AssistantThinkingDelta,
    facts.AssistantThinkingComplete,
    facts.AssistantToolCallProposed,
    facts.AssistantRetracted,
)
_LAST = (facts.AssistantMessageComplete, facts.TurnCompleted, facts.TurnFailed)
_END = (facts.RunFinished, facts.RunFailed, facts.RunCancelled)


class NoteOrder:
    """Holds notes back until their facts have been shown, or their turn has ended."""

    def __init__(self) -> None:
        self._held: deque[Note] = deque()
        self._size = 0
        self._turn = 0
        self._seen = 0
        self._cut: tuple[int, int, int] | None = None
        """The turn, attempt and block in which a note was dropped."""

    def hold(self, note: Note, *, room: bool = True) -> list[Note]:
        """Add a note; returns the notes that may be shown now. Without room the note is dropped.

        The later notes of its block are dropped too: the part shown is always the beginning.
        """
        place = (note.turn_index, note.attempt, note.block_index)
        if place == self._cut:
            return []
        if not room or self._size + len(note.text) > MOST_HELD:
            self._cut = place
            return []
        self._held.append(note)
        self._size += len(note.text)
        return self._ready()

    def before(self, fact: facts.Fact) -> list[Note]:
        """The notes to show before this fact."""
        if isinstance(fact, _LAST):
            return self._release(fact.turn_index)
        if isinstance(fact, _END):
            ready = [self._pop() for _ in range(len(self._held))]
            self._turn, self._seen, self._cut = 0, 0, None
            return ready
        return []

    def after(self, fact: facts.Fact) -> list[Note]:
        """The notes to show after this fact."""
        if isinstance(fact, facts.TurnStarted):
            self._turn, self._seen = fact.turn_index, 0
        elif isinstance(fact, _COUNTED):
            self._seen += 1
        return self._ready() if self._held else []

    def _release(self, turn_index: int) -> list[Note]:
        """The notes of an ended turn; those of a later turn wait for its start."""
        ready: list[Note] = []
        while self._held and self._held[0].turn_index <= turn_index:
            ready.append(self._pop())
        return ready

    def _ready(self) -> list[Note]:
        ready: list[Note] = []
        while self._held and self._may_show(self._held[0]):
            ready.append(self._pop())
        return ready

    def _pop(self) -> Note:
        note = self._held.popleft()
        self._size -= len(note.text)
        return note

    def _may_show(self, note: Note) -> bool:
        return note.turn_index == self._turn and note.after <= self._seen
