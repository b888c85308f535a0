"""The environment of a session in an embedder's process, with any number of readers.

It waits for no reader: each has its own mailbox.
"""

import asyncio
from collections.abc import Callable

from batten.serve.guard import Guard, SessionGuard
from batten.serve.renderer import Renderer

_FACTS_A_TURN = 32
"""Fewer than a mailbox holds, so that a prompt reader misses nothing."""


class Turns:
    """A pace independent of readers: it yields to the loop every `_FACTS_A_TURN` facts."""

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
    """An outlet without a reader: the last messages are published like all others."""

    def on_closed(self, call: Callable[[], object]) -> None:
        return

    def drain(self, stalled_s: float) -> None:
        return


class InProcess:
    """The `ServeContext` of a runtime."""

    def __init__(self, group: asyncio.TaskGroup, give_up: Callable[[int], object]) -> None:
        """`give_up` ends the session, from the guard's thread."""
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
        if self._guard is not None:
            self._guard.stop()
