"""Ends this process in time, with a final message, on a signal, a closed output or a blocked loop.

The last steps run on the watchdog's thread, without the loop. One `Guard` watches the process, and
one `SessionGuard` each of its sessions.
"""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial

from batten.agent.ending import terminal_fact, unknown_outcome
from batten.agent.execution import Ended, Execution
from batten.contract.errors import BattenError, Conflict
from batten.contract.facts import Fact
from batten.contract.numbers import seconds_of
from batten.contract.outcomes import Outcome, exit_code
from batten.serve.following import RunFollower
from batten.serve.output import say
from batten.serve.pace import Outlet
from batten.serve.renderer import Renderer
from batten.session.watchdog import Watchdog

LAST_WORDS_S = 1.0
PEOPLE_S = 0.5
_BLOCKED_S = 10.0
_LEAVE_S = 2.0
_CANCEL_S = 6.0
"""How much longer than the grace of its commands the end of a cancelled run may take."""
_CLAIM_S = 2.0


class Guard:
    """Deadlines and signals of one process, for all its sessions."""

    def __init__(
        self,
        output: Outlet,
        people: Outlet,
        leave: Callable[[int], object] | None = None,
        *,
        blocked_s: float = _BLOCKED_S,
    ) -> None:
        """`leave` is set in an embedder's process: it ends Batten's part, from a thread, and the
        embedder may block its loop for any time. Otherwise the process ends when its loop is
        blocked for `blocked_s`.
        """
        self._output = output
        self._people = people
        if leave is None:
            self._watchdog = Watchdog(blocked_s, self._blocked)
        else:
            self._watchdog = Watchdog(None, self._blocked, leave)
        self._sessions: list[SessionGuard] = []
        self._deadlines: dict[object, tuple[float, Callable[[], int]]] = {}
        """Keyed by the session guard whose run must end by then, or by this guard."""
        self._signals = 0
        self._hurried = False
        self._main: asyncio.Task[int] | None = None
        self._ended: Outcome | None = None
        """The outcome of the process, once only the reader still has to catch up."""
        self.asked = asyncio.Event()
        """Set once, when the process should end."""
        self.reason = ""
        self.begun = False
        """Whether a run may exist, which needs a terminal fact before the process ends."""

    def start(self, main: "asyncio.Task[int] | None", signals: list[signal.Signals]) -> None:
        """Start watching the running loop; a signal before the first run cancels `main`."""
        loop = asyncio.get_running_loop()
        self._main = main
        self._output.on_closed(
            lambda: loop.call_soon_threadsafe(partial(self.cancel, "output closed"))
        )
        if not signals:
            self._watchdog.start(loop)
            return
        # Signals stay pending meanwhile: one that arrives without a wakeup descriptor is lost.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        for number in signals:
            loop.add_signal_handler(number, self._on_signal, number)
        # Python's warning about a full wakeup buffer takes a lock inside the signal handler, which
        # the interrupted code may hold: a flood of signals would deadlock the process.
        signal.set_wakeup_fd(signal.set_wakeup_fd(-1), warn_on_full_buffer=False)
        self._watchdog.start(loop)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def stop(self) -> None:
        self._watchdog.stop()

    def session(self, renderer: Renderer, *, is_only: bool = True) -> "SessionGuard":
        """A guard for one session, until it leaves.

        `is_only`: the process serves one session at a time and exits with its last run's outcome.
        """
        guard = SessionGuard(self, renderer, is_only)
        self._sessions.append(guard)
        return guard

    def leave_session(self, guard: "SessionGuard") -> None:
        if guard in self._sessions:
            self._sessions.remove(guard)
        self.unlimit(guard)

    def limit(self, owner: object, seconds: float, otherwise: Callable[[], int]) -> None:
        """End the process after `seconds`, by calling `otherwise` on the watchdog's thread, unless
        `unlimit(owner)` is called before.
        """
        self._deadlines[owner] = (time.monotonic() + seconds, otherwise)
        self._set_deadline()

    def unlimit(self, owner: object) -> None:
        if self._deadlines.pop(owner, None) is not None:
            self._set_deadline()

    def _set_deadline(self) -> None:
        if not self._deadlines:
            self._watchdog.unlimited()
            return
        at, otherwise = min(self._deadlines.values(), key=lambda deadline: deadline[0])
        self._watchdog.within(at - time.monotonic(), otherwise)

    def _leave_within(self, seconds: float, otherwise: Callable[[], int]) -> None:
        """End the process after `seconds`, replacing all other deadlines."""
        self._deadlines.clear()
        self.limit(self, seconds, otherwise)

    def cancel(self, reason: str) -> None:
        """Ask all sessions to end; the process ends if they are too slow."""
        if not self.asked.is_set():
            self.asked.set()
            self.reason = reason
            cancel_s = max((session.cancel_s for session in self._sessions), default=_CANCEL_S)
            self.limit(self, cancel_s, partial(self.late, reason))

    def reader_left(self) -> None:
        """The client of a stream is gone: end a run that works for it."""
        if self._ended is not None:
            return
        if self.begun:
            self.cancel("output closed")
        elif self._main is not None:
            self._main.cancel()

    def run_ended(self, outcome: Outcome) -> None:
        """The only session's run has ended; its last facts may still have to be shown."""
        self._ended = outcome
        self._deadlines.clear()
        self._watchdog.unlimited()
        if self.asked.is_set():
            self._hurry(outcome)

    def run_shown(self) -> None:
        """The only session's run was shown completely; another one may start."""
        self._ended = None

    def finishing(self, outcome: Outcome) -> None:
        """All work is done; wait for the reader at its own pace."""
        self._ended = outcome
        self._deadlines.clear()
        self._watchdog.relax()
        if self._hurried:
            self._hurry(outcome)

    def closing(self, outcome: Outcome) -> None:
        """There will be no more runs; the hooks for the session's end may still be running."""
        self._ended = outcome

    def leave(self, code: int) -> None:
        """All output is written: the rest must close within `_LEAVE_S`."""
        self._leave_within(_LEAVE_S, lambda: code)

    def _on_signal(self, number: int) -> None:
        if self._ended is not None:  # only the reader is left: shorten its time
            if not self._hurried:  # later signals do not extend the deadline
                self.reason = self.reason or signal.Signals(number).name
                self.asked.set()
                self._hurry(self._ended)
            return
        self._signals += 1
        if self._signals > 1 and number == signal.SIGINT:
            for session in self._sessions:
                session.claim("interrupted", "interrupted a second time", LAST_WORDS_S)
                session.renderer.close()
            self._people.drain(PEOPLE_S)
            say("batten: interrupted: a second time, so the process ends at once")
            os._exit(exit_code("interrupted"))
        if self.begun:
            self.cancel(signal.Signals(number).name)
        elif self._main is not None:
            self._main.cancel()

    def _hurry(self, outcome: Outcome) -> None:
        """Exit within `LAST_WORDS_S`, even if the reader does not take the remaining frames."""
        self._hurried = True
        self._leave_within(LAST_WORDS_S, partial(self._finish_and_leave, outcome))

    def _finish_and_leave(self, outcome: Outcome) -> int:
        """On the watchdog's thread."""
        for session in tuple(self._sessions):
            session.renderer.finish()
        self._output.drain(PEOPLE_S)
        return exit_code(outcome)

    def late(self, reason: str) -> int:
        """On the watchdog's thread: a cancelled run did not end in time."""
        return self.last_words("cancelled", f"{reason}; it did not end in time")

    def _blocked(self, seconds: float) -> int:
        """On the watchdog's thread: the loop is blocked."""
        return self.last_words("timeout", f"the event loop did not answer for {seconds:.0f} s")

    def last_words(self, outcome: Outcome, message: str) -> int:
        """On the watchdog's thread: write and show the ending of every run; the exit code."""
        for session in tuple(self._sessions):
            stored = session.last_words(outcome, message)
            outcome = stored if session.is_only else outcome
        self._people.drain(PEOPLE_S)
        say(f"batten: {outcome}: {message}")
        self._output.drain(LAST_WORDS_S)
        return exit_code(outcome)


class SessionGuard:
    """Watches the run of one session for the guard of the process."""

    def __init__(self, process: Guard, renderer: Renderer, is_only: bool) -> None:
        self.process = process
        self.renderer = renderer
        self.is_only = is_only
        self.asked = process.asked
        """Set when the whole process should end, not only this session."""
        self._reason = ""
        self._execution: Execution | None = None
        self._follower: RunFollower | None = None

    @property
    def reason(self) -> str:
        """Why the run should end: the process's reason, or the session's own."""
        return self.process.reason if self.asked.is_set() else self._reason

    @property
    def cancel_s(self) -> float:
        """How long the end of the run may take once it is cancelled."""
        execution = self._execution
        return _CANCEL_S if execution is None else execution.deps.grace_s + _CANCEL_S

    def attend(self, execution: Execution, follower: RunFollower) -> None:
        self._execution, self._follower = execution, follower
        self.process.begun = True
        if self.is_only:
            self.process.run_shown()
        limit_s = execution.settings.max_seconds
        if limit_s is not None:
            self.process.limit(self, limit_s + self.cancel_s, self._too_long)

    def interrupted(self, reason: str) -> None:
        """The run was interrupted; the process ends if the run does not end in time."""
        self._reason = reason
        self.process.limit(self, self.cancel_s, partial(self.process.late, reason))

    def dismiss(self, outcome: Outcome) -> None:
        """The run has ended; its last facts may still have to be shown."""
        self._execution = None
        self.process.unlimit(self)
        if self.is_only:
            self.process.run_ended(outcome)

    def shown(self) -> None:
        """The run was shown completely; another one may start."""
        if self.is_only:
            self.process.run_shown()

    def leave(self) -> None:
        self.process.leave_session(self)

    def last_words(self, outcome: Outcome, message: str) -> Outcome:
        """On the watchdog's thread: write the run's ending and show it; returns the stored one."""
        execution = self._execution
        durable = self.claim(outcome, message, _CLAIM_S)
        if execution is not None and durable:
            if self._follower is not None and (self.renderer.follows or self.renderer.completes):
                self._follower.catch_up()
            outcome = _stored_outcome(execution) or outcome
        self.renderer.last_words(outcome, message, durable)
        return outcome

    def claim(self, outcome: Outcome, message: str, timeout_s: float) -> bool:
        """Write the terminal fact from outside the loop; the journal accepts only one.

        A running tool call may have had its effect already, so its unknown outcome is written too.
        """
        execution = self._execution
        if execution is None:
            return False
        journal = execution.recorder.journal
        progress = execution.progress
        facts: list[Fact] = [unknown_outcome(call) for call in list(progress.running.values())]
        facts.append(terminal_fact(outcome, message, progress, 0))
        fence = execution.recorder.lease.fence
        try:
            journal.append_now(execution.run_id, facts, fence=fence, timeout_s=timeout_s)
        except Conflict:
            return True  # the run has ended in the meantime
        except BattenError:
            return False
        return True

    def _too_long(self) -> int:
        """On the watchdog's thread: the run exceeded its time limit and does not end."""
        return self.process.last_words("timeout", "the run did not end with its time limit")


def _stored_outcome(execution: Execution) -> Outcome | None:
    """The outcome in the journal, which may differ from the one passed to `claim`."""
    try:
        row = execution.recorder.journal.run_now(execution.run_id)
    except BattenError:
        return None
    return None if row is None else row.outcome


def report_ending(ended: Ended, *, is_shown: bool = False) -> None:
    """Report a run that did not complete on standard error, unless its renderer has done so."""
    if ended.outcome != "completed" and not is_shown:
        say(f"batten: {ended.outcome}: {ended.message}")
    if not ended.durable:
        say("batten: this ending could not be stored")


def blocked_s(environ: Mapping[str, str]) -> float:
    """`BATTEN_WATCHDOG_S`: how long the event loop may be blocked before the process ends."""
    return seconds_of(environ, "BATTEN_WATCHDOG_S", _BLOCKED_S)
