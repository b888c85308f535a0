"""`batten -p`: one prompt in, one run, one ending out."""

import asyncio
import os
import signal
from argparse import Namespace
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial

from batten.agent.ending import terminal_fact, unknown_outcome
from batten.agent.execution import Ended, Execution
from batten.agent.settings import RunSettings
from batten.cli import ending_signals
from batten.cli.arguments import UsageError, parser
from batten.cli.home import batten_home
from batten.cli.options import run_settings, workspace_of
from batten.cli.output import Output, say
from batten.cli.prompt import prompt_of
from batten.cli.view import View, view_of
from batten.cli.wiring import Wiring
from batten.contract.errors import BattenError, CallerError, Conflict, JournalError, NotFound
from batten.contract.facts import TERMINAL, Fact
from batten.contract.outcomes import Outcome, exit_code
from batten.journal.contract import Journal, RunRow, SessionRow
from batten.session.session import Session, find_session, settings_of
from batten.session.watchdog import Watchdog
from batten.tools.contract import Tool

_STALLED_S = 10.0
_PEOPLE_S = 0.5
_LOOK_S = 0.5
_BLOCKED_S = 10.0
_LAST_WORDS_S = 1.0
_LEAVE_S = 2.0
_CANCEL_S = 8.0
_CLAIM_S = 2.0


def run_print(argv: list[str], tools: Sequence[Tool] = ()) -> int:
    """Parse, run, and say how it ended. `tools` are offered beside our own."""
    output = Output(1)
    try:
        options = parser().parse_args(argv)
    except UsageError as error:
        return _complain("usage", error)
    except SystemExit as left:  # argparse leaves by itself only after --help
        return int(left.code or 0)
    if options.version:
        from batten import __version__

        output.write(f"{__version__} (Batten)\n".encode())
        output.drain(_STALLED_S)
        return 1 if output.closed else 0
    people = Output(2)
    view = view_of(options.output_format, people)
    invocation: _Invocation | None = None
    try:
        prompt = prompt_of(options)
        invocation = _Invocation(options, prompt, output, people, view, tools)
        return asyncio.run(invocation.run())
    except (asyncio.CancelledError, KeyboardInterrupt):
        view.give_up(output, "cancelled", "cancelled at the start")
        output.drain(_LAST_WORDS_S)
        return exit_code("cancelled")
    except BattenError as error:
        outcome = _outcome_of(error)
        view.give_up(output, outcome, str(error))
        output.drain(_LAST_WORDS_S)
        return _complain(outcome, error)
    finally:
        if invocation is not None:
            invocation.stop()


def _outcome_of(error: BattenError) -> Outcome:
    """The ending of an invocation that never began a run."""
    match error:
        case UsageError():
            return "usage"
        case NotFound():
            return "no_input"
        case CallerError(code="config"):
            return "config"
        case JournalError():
            return "store"
        case _:
            return "internal"


def _complain(outcome: Outcome, error: BattenError) -> int:
    say(f"batten: {error}")
    return exit_code(outcome)


class _Invocation:
    """One use of `batten -p`, from flags to exit code."""

    def __init__(
        self,
        options: Namespace,
        prompt: str,
        output: Output,
        people: Output,
        view: View,
        tools: Sequence[Tool],
    ) -> None:
        self._options = options
        self._prompt = prompt
        self._output = output
        self._people = people
        self._tools = tools
        self._watchdog = Watchdog(_patience(), self._blocked)
        self._cancel_asked = asyncio.Event()
        self._cancel_reason = ""
        self._signals = 0
        self._begun = False
        """There may be a run, which then needs its ending."""
        self._execution: Execution | None = None
        self._ended: Ended | None = None
        self._journal: Journal | None = None
        self._view = view

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        self._watchdog.start(loop)
        self._output.on_closed(
            lambda: loop.call_soon_threadsafe(partial(self._cancel, "output closed"))
        )
        main = asyncio.current_task()
        for number in ending_signals():
            loop.add_signal_handler(number, self._on_signal, number, main)
        return await self._work()

    def stop(self) -> None:
        """Nothing is left that could hang."""
        self._watchdog.stop()

    async def _work(self) -> int:
        environ = dict(os.environ)
        options = self._options
        async with Wiring(batten_home(environ), environ, options, self._tools) as wiring:
            self._journal = wiring.journal
            earlier, branch = self._earlier(wiring.journal)
            given = settings_of(earlier, wiring.journal, wiring.seal_key) if earlier else None
            settings = run_settings(options, environ, given)
            workspace = workspace_of(options, earlier.workspace_path if earlier else None)
            if not self._prompt.strip() and (earlier is None or branch is not None):
                raise UsageError('no prompt: give one as batten -p "…" or on standard input')
            await wiring.rig_for(workspace, settings)
            session = await self._session(wiring, settings, earlier, branch)
            try:
                describe = partial(wiring.describe, settings)
                self._view.begin(self._output, session.session_id, describe)
                self._begun = True
                self._execution = await self._start(session, self._prompt)
                if settings.max_seconds is not None:
                    self._watchdog.within(settings.max_seconds + _CANCEL_S, self._too_long)
                return await self._see_through(wiring.journal, self._execution)
            finally:
                await session.close()

    def _earlier(self, journal: Journal) -> tuple[SessionRow | None, tuple[RunRow, int] | None]:
        """The session to go on with, and the place to branch from."""
        options = self._options
        if options.branch:
            name, _, sequence = options.branch.partition(":")
            run = journal.run(name)
            if run is None or run.session_id is None:
                raise NotFound(f"no run is named {name}; `batten runs` lists them")
            return find_session(journal, name), (run, _place(run, sequence))
        if options.resume:
            return find_session(journal, options.resume), None
        if options.continue_:
            here = workspace_of(options, None)
            newest = journal.sessions(workspace_path=here, limit=1)
            if not newest:
                raise NotFound(f"there is no session in {here} to continue")
            return newest[0], None
        return None, None

    async def _session(
        self,
        wiring: Wiring,
        settings: RunSettings,
        earlier: SessionRow | None,
        branch: tuple[RunRow, int] | None,
    ) -> Session:
        rig = wiring.rig
        if earlier is None:
            return await Session.open(rig, settings, surface="print")
        if branch is None:
            return await Session.resume(rig, earlier, settings)
        run, until = branch
        return await Session.branch(rig, earlier, settings, run=run, until=until)

    async def _start(self, session: Session, prompt: str) -> Execution:
        if prompt.strip():
            return await session.prompt(prompt)
        left = session.unfinished()
        if left is None:
            raise UsageError("no prompt, and the session has no unfinished run to go on with")
        return await session.go_on(left)

    async def _see_through(self, journal: Journal, execution: Execution) -> int:
        """Run to the end while the view follows, and leave nothing unsaid."""
        try:
            async with asyncio.TaskGroup() as group:
                following = group.create_task(self._follow(journal, execution.run_id))
                cancelling = group.create_task(self._cancel_when_asked(execution))
                ended = self._ended = await execution.finish()
                self._watchdog.relax()
                cancelling.cancel()
                if not ended.durable:
                    following.cancel()
                await self._until_shown(following)
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from group
        return await self._leave(ended)

    async def _until_shown(self, following: "asyncio.Task[None]") -> None:
        """Wait for the view as long as its reader takes anything."""
        while not following.done():
            await asyncio.wait([following], timeout=_LOOK_S)
            if self._output.stalled_s > _STALLED_S:
                following.cancel()

    async def _follow(self, journal: Journal, run_id: str) -> None:
        """Show each fact once it is durable, until the last one."""
        if not self._view.follows(self._options.progress):
            return
        try:
            await self._show_all(journal, run_id)
        except JournalError as error:  # the run is not to blame, and goes on
            say(f"batten: the run cannot be shown any further: {error}")

    async def _show_all(self, journal: Journal, run_id: str) -> None:
        ended = False
        async with aclosing(journal.follow(run_id)) as pages:
            async for page in pages:
                for stored in page:
                    self._view.show(self._output, stored, journal)
                    ended = ended or stored.type in TERMINAL
                await self._output.room()
                if ended or self._output.closed:
                    return

    async def _leave(self, ended: Ended) -> int:
        """Say the last words, wait for the reader as long as it reads, and go."""
        code = exit_code(ended.outcome)
        await self._people.drained(_PEOPLE_S)
        self._view.end(self._output, ended, self._journal)
        if ended.outcome != "completed":
            say(f"batten: {ended.outcome}: {ended.message}")
        if not ended.durable:
            say("batten: this ending could not be stored")
        await self._output.drained(_STALLED_S)
        if self._output.closed:
            code = code or 1  # it ended well, and nobody was told
        self._watchdog.within(_LEAVE_S, lambda: code)
        return code

    async def _cancel_when_asked(self, execution: Execution) -> None:
        await self._cancel_asked.wait()
        await execution.cancel("operator", self._cancel_reason)

    def _cancel(self, reason: str) -> None:
        if not self._cancel_asked.is_set():
            self._cancel_reason = reason
            self._cancel_asked.set()
            self._watchdog.within(_CANCEL_S, self._late)

    def _on_signal(self, number: int, main: "asyncio.Task[int] | None") -> None:
        if self._ended is not None:  # only the reader is still waited for, and not much longer
            code = exit_code(self._ended.outcome)
            self._watchdog.within(_LAST_WORDS_S, lambda: code)
            return
        self._signals += 1
        if self._signals > 1 and number == signal.SIGINT:
            self._claim("interrupted", "interrupted a second time", _LAST_WORDS_S)
            os._exit(exit_code("interrupted"))
        if self._begun:
            self._cancel(signal.Signals(number).name)
        elif main is not None:
            main.cancel()

    def _late(self) -> int:
        """From the watchdog's thread: the run was cancelled and does not end."""
        return self._last_words("cancelled", f"{self._cancel_reason}; it did not end in time")

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
            self._view.catch_up(self._output, self._journal, execution.run_id)
        self._view.last_words(self._output, outcome, message, durable)
        self._people.drain(_PEOPLE_S)
        say(f"batten: {outcome}: {message}")
        self._output.drain(_LAST_WORDS_S)
        return exit_code(outcome)

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


def _place(run: RunRow, sequence: str) -> int:
    """The last fact a branch shares with the run; the run's last one if none is named."""
    if run.parent_run_id is not None:
        raise UsageError(f"{run.run_id} is a child run; branch from {run.parent_run_id}")
    first, last = run.base_sequence, run.next_sequence - 1
    if not sequence:
        return last
    if not (sequence.isascii() and sequence.isdigit() and first <= int(sequence) <= last):
        raise UsageError(f"{run.run_id} has facts {first} to {last}; {sequence!r} is none of them")
    return int(sequence)


def _patience() -> float:
    given = os.environ.get("BATTEN_WATCHDOG_S", str(_BLOCKED_S))
    try:
        patience = float(given)
    except ValueError:
        patience = 0.0
    if not 0 < patience < float("inf"):
        raise CallerError(f"BATTEN_WATCHDOG_S is {given!r}; it is seconds", code="config")
    return patience
