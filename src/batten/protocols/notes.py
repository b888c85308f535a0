"""Notes put in their place among the facts: one is shown once all that it followed was shown."""

from collections import deque

from batten.contract.facts import (
    AssistantMessageComplete,
    AssistantTextComplete,
    AssistantTextDelta,
    AssistantToolCallProposed,
    Fact,
    RunCancelled,
    RunFailed,
    RunFinished,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from batten.contract.notes import Note

MOST_HELD = 1 << 20
"""Characters that wait for facts to be shown before them; a block that has more is cut short."""

_COUNTED = (AssistantTextDelta, AssistantTextComplete, AssistantToolCallProposed)
_LAST = (AssistantMessageComplete, TurnCompleted, TurnFailed)
_END = (RunFinished, RunFailed, RunCancelled)


class NoteOrder:
    """Holds notes back. What one run's notes wait for is gone when its turn is over."""

    def __init__(self) -> None:
        self._held: deque[Note] = deque()
        self._size = 0
        self._turn = 0
        self._seen = 0
        self._cut: tuple[int, int] | None = None
        """The block, with its turn, of which a note was left out."""

    def hold(self, note: Note, *, room: bool = True) -> list[Note]:
        """A note has come; those that may be shown now. Where there is no room it is left out.

        So are the later ones of its block: what is shown of one is always its beginning.
        """
        place = (note.turn_index, note.block_index)
        if place == self._cut:
            return []
        if not room or self._size + len(note.text) > MOST_HELD:
            self._cut = place
            return []
        self._held.append(note)
        self._size += len(note.text)
        return self._ready()

    def before(self, fact: Fact) -> list[Note]:
        """A fact is about to be shown; the notes that come before it."""
        if isinstance(fact, _LAST):
            return self._release(fact.turn_index)
        if isinstance(fact, _END):
            ready = [self._pop() for _ in range(len(self._held))]
            self._turn, self._seen, self._cut = 0, 0, None
            return ready
        return []

    def after(self, fact: Fact) -> list[Note]:
        """A fact was shown; the notes that may follow it."""
        if isinstance(fact, TurnStarted):
            self._turn, self._seen = fact.turn_index, 0
        elif isinstance(fact, _COUNTED):
            self._seen += 1
        return self._ready() if self._held else []

    def _release(self, turn_index: int) -> list[Note]:
        """The notes of a turn that is over; those of a later one wait for it to begin."""
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
