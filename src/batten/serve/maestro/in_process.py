"""A place for a session in a process that is somebody else's, with any number of readers.

None of them is waited for: each has a mailbox of its own.
"""

import asyncio
from collections.abc import Callable

from batten.serve.guard import Guard, SessionGuard
from batten.serve.renderer import Renderer

_FACTS_A_TURN = 32
"""Less than fills a mailbox, so that who reads at once misses nothing."""


class Turns:
    """A pace that readers do not set: they only get their turn, now and then."""

    closed = False
    has_room = False
    stalled_s = 0.0

    def __init__(self) -> None:
        self._shown = 0

    async def room(self) -> None:
        self._shown += 1
        if self._shown % _FACTS_A_TURN == 0:
            await asyncio.sleep(0)


class Nowhere:
    """What is said last is published like everything else; nobody takes it from here."""

    def on_closed(self, call: Callable[[], object]) -> None:
        return

    def drain(self, stalled_s: float) -> None:
        return


class InProcess:
    """Where a session works."""

    def __init__(self, group: asyncio.TaskGroup, give_up: Callable[[int], object]) -> None:
        """`give_up` ends our part of the process, from a thread."""
        self.group = group
        self.output = Turns()
        self._give_up = give_up
        self._guard: Guard | None = None

    def guard(self, renderer: Renderer) -> SessionGuard:
        if self._guard is None:
            self._guard = Guard(Nowhere(), Nowhere(), self._give_up)
            self._guard.start(None, [])
            self._guard.begun = True
        return self._guard.session(renderer)

    def close(self) -> None:
        """Nothing is left that could hang."""
        if self._guard is not None:
            self._guard.stop()
