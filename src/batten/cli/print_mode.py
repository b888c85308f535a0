"""`batten -p`: one prompt in, one run, one ending out."""

import asyncio
import os
import signal
import sys
from argparse import Namespace
from contextlib import aclosing
from functools import partial
from typing import Any

from batten.agent.execution import Ended, Execution, terminal_fact
from batten.agent.settings import RunSettings
from batten.cli.arguments import UsageError, parser
from batten.cli.home import batten_home
from batten.cli.options import run_settings, workspace_of
from batten.cli.output import Output
from batten.cli.prompt import given_prompt, read_stdin
from batten.cli.view import view_of
from batten.cli.wiring import Wiring
from batten.contract.errors import BattenError, CallerError, JournalError, NotFound
from batten.contract.facts import TERMINAL
from batten.contract.outcomes import Outcome, exit_code
from batten.journal.contract import Journal, RunRow, SessionRow
from batten.session.session import Session, find_session, settings_of
from batten.session.watchdog import Watchdog

_STALLED_S = 10.0
_BLOCKED_S = 10.0
_LAST_WORDS_S = 1.0
_LEAVE_S = 2.0


def run_print(argv: list[str]) -> int:
    """Parse, run, and say how it ended."""
    output = Output(1)
    try:
        options = parser().parse_args(argv)
    except UsageError as error:
        return _complain("usage", error)
    except SystemExit as left:  # argparse leaves by itself only after --help
        return int(left.code or 0)
    if options.version:
        from batten import __version__

        print(f"{__version__} (Batten)")
        return 0
    try:
        return asyncio.run(_Invocation(options, output).run())
    except BattenError as error:
        outcome = _outcome_of(error)
        view_of(options.output_format, "").give_up(output, outcome, str(error))
        output.drain(_LAST_WORDS_S)
        return _complain(outcome, error)


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
    print(f"batten: {error}", file=sys.stderr)
    return exit_code(outcome)


class _Invocation:
    """One use of `batten -p`, from flags to exit code."""

    def __init__(self, options: Namespace, output: Output) -> None:
        self._options = options
        self._output = output
        self._execution: Execution | None = None
        self._signals = 0
        self._journal: Journal | None = None
        self._view = view_of(options.output_format, "")

    async def run(self) -> int:
        environ = dict(os.environ)
        options = self._options
        prompt = given_prompt(options)
        home = batten_home(environ)
        async with Wiring(home, environ, options) as wiring:
            self._journal = wiring.journal
            earlier, branch = self._earlier(wiring.journal)
            settings = run_settings(options, environ, settings_of(earlier) if earlier else None)
            workspace = workspace_of(options, earlier.workspace_path if earlier else None)
            if prompt is None:
                prompt = read_stdin()
            if not prompt.strip() and not (earlier and branch is None):
                raise UsageError('no prompt: give one as batten -p "…" or on standard input')
            await wiring.rig_for(workspace, settings)
            session = await self._session(wiring, settings, earlier, branch)
            execution = await self._start(session, prompt)
            try:
                return await self._see_through(wiring, session, execution, settings)
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
            until = int(sequence) if sequence.isdigit() else run.next_sequence - 1
            return find_session(journal, name), (run, until)
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

    async def _see_through(
        self, wiring: Wiring, session: Session, execution: Execution, settings: RunSettings
    ) -> int:
        """Run to the end while the view follows, and leave nothing unsaid."""
        self._execution = execution
        self._view = view_of(self._options.output_format, session.session_id)
        loop = asyncio.get_running_loop()
        watchdog = Watchdog(_patience(), self._blocked)
        watchdog.start(loop)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._on_signal, number)
        self._output.on_closed(partial(loop.call_soon_threadsafe, self._cancel, "output closed"))
        try:
            self._view.begin(self._output, partial(wiring.describe, settings, session.session_id))
            async with asyncio.TaskGroup() as group:
                following = group.create_task(self._follow(wiring.journal, execution.run_id))
                ended = await execution.finish()
                if not ended.durable:
                    following.cancel()
            return self._leave(ended, watchdog)
        finally:
            watchdog.stop()

    async def _follow(self, journal: Journal, run_id: str) -> None:
        """Show each fact once it is durable, until the last one."""
        if not self._view.follows(self._options.progress):
            return
        ended = False
        async with aclosing(_pages(journal, run_id)) as pages:
            async for page in pages:
                for stored in page:
                    self._view.show(self._output, stored)
                    ended = ended or stored.type in TERMINAL
                await self._output.room()
                if ended or self._output.closed:
                    return

    def _leave(self, ended: Ended, watchdog: Watchdog) -> int:
        code = exit_code(ended.outcome)
        self._view.end(self._output, ended, self._journal)
        if ended.outcome != "completed":
            print(f"batten: {ended.outcome}: {ended.message}", file=sys.stderr)
        if not ended.durable:
            print("batten: this ending could not be stored", file=sys.stderr)
        self._output.drain(_STALLED_S)
        watchdog.leave_within(_LEAVE_S, code)
        return code

    def _cancel(self, reason: str) -> None:
        execution = self._execution
        if execution is not None:
            self._cancelling = asyncio.ensure_future(execution.cancel("operator", reason))

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        if self._signals == 1:
            self._cancel(signal.Signals(number).name)
        elif number == signal.SIGINT:
            self._claim("interrupted", "interrupted a second time")
            os._exit(exit_code("interrupted"))

    def _blocked(self, seconds: float) -> int:
        """From the watchdog's thread: the loop no longer answers."""
        message = f"the event loop did not answer for {seconds:.0f} s"
        durable = self._claim("timeout", message)
        self._view.last_words(self._output, "timeout", message, durable)
        print(f"batten: timeout: {message}", file=sys.stderr)
        self._output.drain(_LAST_WORDS_S)
        return exit_code("timeout")

    def _claim(self, outcome: Outcome, message: str) -> bool:
        """Write the ending from outside the loop; the journal takes only one."""
        execution, journal = self._execution, self._journal
        if execution is None or journal is None:
            return False
        fact = terminal_fact(outcome, message, execution.progress, 0)
        try:
            journal.append_now(execution.run_id, [fact], fence=execution.recorder.lease.fence)
        except BattenError:
            return False
        return True


async def _pages(journal: Journal, run_id: str) -> Any:
    async for page in journal.follow(run_id):
        yield page


def _patience() -> float:
    return float(os.environ.get("BATTEN_WATCHDOG_S", _BLOCKED_S))
