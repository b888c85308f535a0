"""Many sessions under one guard: each keeps its own run in renderer, the process has one end."""

import asyncio

from batten.agent.execution import Execution
from batten.contract.outcomes import Outcome
from batten.serve.following import RunFollower
from batten.serve.guard import Guard
from batten.serve.renderer import Renderer
from batten.serve.stdio import Stdio


class SessionGuards(Renderer):
    """The guards of all open sessions; to the guard of the process, the renderer of all of them."""

    def __init__(self, stdio: Stdio) -> None:
        self._stdio = stdio
        self._sessions: list[SessionGuard] = []
        self._cancelling: set[SessionGuard] = set()
        self.process = stdio.guard(self)

    def guard(self, renderer: Renderer) -> "SessionGuard":
        """A guard for one session's dialogue."""
        guard = SessionGuard(self._stdio, renderer, self)
        self._sessions.append(guard)
        return guard

    def leave(self, guard: "SessionGuard") -> None:
        self._sessions.remove(guard)
        self.settled(guard)

    def cancelling(self, guard: "SessionGuard", reason: str) -> None:
        """A run must end soon, or the process does."""
        self._cancelling.add(guard)
        self.process.interrupted(reason)

    def settled(self, guard: "SessionGuard") -> None:
        self._cancelling.discard(guard)
        if not self._cancelling and not self.process.asked.is_set():
            self.process.dismiss("completed")
            self.process.shown()

    def last_words(self, outcome: Outcome, message: str, durable: bool) -> None:
        for guard in tuple(self._sessions):
            guard.end_now(outcome, message)


class SessionGuard(Guard):
    """Keeps one session's run in renderer; everything that concerns the process is the watch's."""

    def __init__(self, stdio: Stdio, renderer: Renderer, watch: SessionGuards) -> None:
        super().__init__(stdio.output, stdio.people, renderer)
        self._watch = watch
        self.asked: asyncio.Event = watch.process.asked
        self.begun = True

    @property
    def reason(self) -> str:
        """Why the run is to end: for the process's reason, or for one of its own."""
        return self._watch.process.reason if self.asked.is_set() else self._own_reason

    @reason.setter
    def reason(self, reason: str) -> None:
        self._own_reason = reason

    def attend(self, execution: Execution, follower: RunFollower) -> None:
        self._execution, self._follower, self._ended = execution, follower, None

    def interrupted(self, reason: str) -> None:
        self.reason = reason
        self._watch.cancelling(self, reason)

    def dismiss(self, outcome: Outcome) -> None:
        self._execution, self._ended = None, outcome
        self._watch.settled(self)

    def cancel(self, reason: str) -> None:
        self._watch.process.cancel(reason)

    def end_now(self, outcome: Outcome, message: str) -> None:
        """From the watchdog's thread: claim the run's ending, show it, and answer its prompt."""
        durable = self._claim(outcome, message, 2.0)
        if self._execution is not None and durable:
            self._catch_up()
        self._renderer.last_words(outcome, message, durable)
