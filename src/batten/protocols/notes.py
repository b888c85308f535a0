"""Notes put in their place among the facts: one is shown once all that it followed was shown."""

from collections import deque

from batten.contract.facts import (
    AssistantMessageComplete,
    AssistantTextComplete,
    AssistantTextDelta,
    AssistantToolCallProposed,
    Fact,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
)
from batten.contract.notes import Note

_COUNTED = (AssistantTextDelta, AssistantTextComplete, AssistantToolCallProposed)
_LAST = (AssistantMessageComplete, TurnCompleted, TurnFailed)


class NoteOrder:
    """Holds notes back. What one run's notes wait for is gone when its turn is over."""

    def __init__(self) -> None:
        self._held: deque[Note] = deque()
        self._turn = 0
        self._seen = 0

    def hold(self, note: Note) -> list[Note]:
        """A note has come; those that may be shown now."""
        self._held.append(note)
        return self._ready()

    def before(self, fact: Fact) -> list[Note]:
        """A fact is about to be shown; the notes that come before it."""
        if isinstance(fact, _LAST):
            ready = list(self._held)
            self._held.clear()
            return ready
        return []

    def after(self, fact: Fact) -> list[Note]:
        """A fact was shown; the notes that may follow it."""
        if isinstance(fact, TurnStarted):
            self._turn, self._seen = fact.turn_index, 0
        elif isinstance(fact, _COUNTED):
            self._seen += 1
        return self._ready() if self._held else []

    def _ready(self) -> list[Note]:
        ready: list[Note] = []
        while self._held and self._may_show(self._held[0]):
            ready.append(self._held.popleft())
        return ready

    def _may_show(self, note: Note) -> bool:
        return note.turn_index == self._turn and note.after <= self._seen
