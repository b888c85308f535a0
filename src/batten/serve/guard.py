"""Sees to it that this process ends in time, and says how: signals, a closed output, a loop that
no longer answers. What it does last it does in a thread of its own, without the loop.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from functools import partial

from batten.agent.ending import terminal_fact, unknown_outcome
from batten.agent.execution import Ended, Execution
from batten.contract.errors import BattenError, CallerError, Conflict
from batten.contract.facts import Fact
from batten.contract.outcomes import Outcome, exit_code
from batten.journal.contract import Journal
from batten.serve.output import say
from batten.serve.pace import Outlet
from batten.serve.renderer import Renderer
from batten.session.watchdog import Watchdog

LAST_WORDS_S = 1.0
PEOPLE_S = 0.5
_BLOCKED_S = 10.0
_LEAVE_S = 2.0
_CANCEL_S = 8.0
_CLAIM_S = 2.0


class Guard:
    """Watches over one invocation, whichever run it is working on."""

    def __init__(
        self,
        output: Outlet,
        people: Outlet,
        renderer: Renderer,
        leave: Callable[[int], object] | None = None,
        *,
        blocked_s: float = _BLOCKED_S,
    ) -> None:
        """`leave` ends our part of an embedder's process, from a thread; how long the loop is held
        does not matter there. In a process of our own it may be held for `blocked_s`.
        """
        self._output = output
        self._people = people
        self._renderer = renderer
        if leave is None:
            self._watchdog = Watchdog(blocked_s, self._blocked)
        else:
            self._watchdog = Watchdog(None, self._blocked, leave)
        self._signals = 0
        self._hurried = False
        self._main: asyncio.Task[int] | None = None
        self._execution: Execution | None = None
        self._journal: Journal | None = None
        self._ended: Outcome | None = None
        """How the last run ended, as long as only its reader is waited for."""
        self.asked = asyncio.Event()
        """Somebody wants everything to end; set once."""
        self.reason = ""
        self.begun = False
        """There may be a run, which then needs its ending."""

    def start(self, main: "asyncio.Task[int] | None", signals: list[signal.Signals]) -> None:
        """Begin to watch the running loop; before there is a run, `main` is what is cancelled."""
        loop = asyncio.get_running_loop()
        self._main = main
        self._output.on_closed(
            lambda: loop.call_soon_threadsafe(partial(self.cancel, "output closed"))
        )
        if not signals:
            self._watchdog.start(loop)
            return
        # A signal waits meanwhile: one that finds no way to the loop is lost.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        for number in signals:
            loop.add_signal_handler(number, self._on_signal, number)
        # To warn of signals that find no room, Python takes a lock in its handler, which may be
        # held by what it interrupted: a flood of them would stop us for ever.
        signal.set_wakeup_fd(signal.set_wakeup_fd(-1), warn_on_full_buffer=False)
        self._watchdog.start(loop)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def shows(self, renderer: Renderer) -> None:
        """Another session's renderer says the last words from now on."""
        self._renderer = renderer

    def stop(self) -> None:
        """Nothing is left that could hang."""
        self._watchdog.stop()

    def attend(self, execution: Execution, journal: Journal) -> None:
        """This run is worked on from now on."""
        self._execution, self._journal, self._ended = execution, journal, None
        limit_s = execution.settings.max_seconds
        if limit_s is not None:
            self._watchdog.within(limit_s + _CANCEL_S, self._too_long)

    def interrupted(self, reason: str) -> None:
        """The run was asked to end, and must do so soon."""
        self.reason = reason
        self._watchdog.within(_CANCEL_S, self._late)

    def dismiss(self, outcome: Outcome) -> None:
        """The run has ended, and is only to be shown."""
        self._watchdog.unlimited()
        self._execution, self._ended = None, outcome
        if self.asked.is_set():
            self._hurry(outcome)

    def shown(self) -> None:
        """All of the run was shown; another one may begin."""
        self._ended = None

    def cancel(self, reason: str) -> None:
        """Everything is to end."""
        if not self.asked.is_set():
            self.asked.set()
            self.interrupted(reason)

    def finishing(self, outcome: Outcome) -> None:
        """The work is over; only the reader is still waited for, at its pace."""
        self._ended = outcome
        self._watchdog.relax()
        if self._hurried:
            self._hurry(outcome)

    def closing(self, outcome: Outcome) -> None:
        """There will be no more runs; what hears of the end is still waited for."""
        self._ended = outcome

    def leave(self, code: int) -> None:
        """All is said: whatever is left to close, it does not take long."""
        self._watchdog.within(_LEAVE_S, lambda: code)

    def _on_signal(self, number: int) -> None:
        if self._ended is not None:  # the reader is waited for, and not much longer
            if not self._hurried:  # later signals do not put it off
                self.reason = self.reason or signal.Signals(number).name
                self.asked.set()
                self._hurry(self._ended)
            return
        self._signals += 1
        if self._signals > 1 and number == signal.SIGINT:
            self._claim("interrupted", "interrupted a second time", LAST_WORDS_S)
            os._exit(exit_code("interrupted"))
        if self.begun:
            self.cancel(signal.Signals(number).name)
        elif self._main is not None:
            self._main.cancel()

    def _hurry(self, outcome: Outcome) -> None:
        """Leave soon, with what there is to say, whoever is still waited for."""
        self._hurried = True
        self._watchdog.within(LAST_WORDS_S, partial(self._say_and_leave, outcome))

    def _say_and_leave(self, outcome: Outcome) -> int:
        """From the watchdog's thread."""
        self._renderer.finish()
        self._output.drain(PEOPLE_S)
        return exit_code(outcome)

    def _late(self) -> int:
        """From the watchdog's thread: the run was cancelled and does not end."""
        return self._last_words("cancelled", f"{self.reason}; it did not end in time")

    def _too_long(self) -> int:
        """From the watchdog's thread: its time is over, and something in it does not end."""
        return self._last_words("timeout", "the run did not end with its time limit")

    def _blocked(self, seconds: float) -> int:
        """From the watchdog's thread: the loop no longer answers."""
        return self._last_words("timeout", f"the event loop did not answer for {seconds:.0f} s")

    def _last_words(self, outcome: Outcome, message: str) -> int:
        durable = self._claim(outcome, message, _CLAIM_S)
        execution = self._execution
        if execution is not None and durable and self._journal is not None:
            self._renderer.catch_up(self._journal, execution.run_id)
            outcome = self._stored_outcome(self._journal, execution.run_id) or outcome
        self._renderer.last_words(outcome, message, durable)
        self._people.drain(PEOPLE_S)
        say(f"batten: {outcome}: {message}")
        self._output.drain(LAST_WORDS_S)
        return exit_code(outcome)

    def _stored_outcome(self, journal: Journal, run_id: str) -> Outcome | None:
        """How the run ended, which may be another way than the one claimed for it."""
        try:
            row = journal.run(run_id)
        except BattenError:
            return None
        return None if row is None else row.outcome

    def _claim(self, outcome: Outcome, message: str, timeout_s: float) -> bool:
        """Write the ending from outside the loop; the journal takes only one.

        A call that is running has begun its effect: that its outcome is unknown is said too.
        """
        execution, journal = self._execution, self._journal
        if execution is None or journal is None:
            return False
        progress = execution.progress
        facts: list[Fact] = [] if progress.running is None else [unknown_outcome(progress.running)]
        facts.append(terminal_fact(outcome, message, progress, 0))
        fence = execution.recorder.lease.fence
        try:
            journal.append_now(execution.run_id, facts, fence=fence, timeout_s=timeout_s)
        except Conflict:
            return True  # it has just got its ending
        except BattenError:
            return False
        return True


def told(ended: Ended) -> None:
    """Say on standard error how a run ended that did not end well."""
    if ended.outcome != "completed":
        say(f"batten: {ended.outcome}: {ended.message}")
    if not ended.durable:
        say("batten: this ending could not be stored")


def blocked_s(environ: Mapping[str, str]) -> float:
    """`BATTEN_WATCHDOG_S`: how long the event loop may be held before the process ends."""
    text = environ.get("BATTEN_WATCHDOG_S", str(_BLOCKED_S))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise CallerError(f"BATTEN_WATCHDOG_S is {text!r}; it is seconds", code="config")
    return seconds
