"""`batten -p`: prompts in, one run each, one ending out."""

import asyncio
import os
import signal
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial

from batten.agent.deps import RunDeps
from batten.agent.settings import RunSettings
from batten.cli import ending_signals
from batten.cli.arguments import UsageError, parse
from batten.cli.home import batten_home
from batten.cli.options import run_settings, workspace_of
from batten.cli.prompt import commands_of
from batten.cli.surroundings import surroundings
from batten.cli.wiring import Wiring
from batten.contract.commands import Command
from batten.contract.errors import BattenError, CallerError, JournalError, NotFound
from batten.contract.ids import from_uuid, is_ulid
from batten.contract.outcomes import Outcome, exit_code
from batten.journal.contract import Journal, RunRow, SessionRow
from batten.protocols.stream_json import FrameOptions
from batten.serve.guard import LAST_WORDS_S, PEOPLE_S, Guard, SessionGuard
from batten.serve.output import Output, say
from batten.serve.renderer import Describe, Renderer, renderer_for
from batten.serve.showing import STALLED_S, Showing
from batten.session.history import prompts_of
from batten.session.live import LiveSession
from batten.session.prompt_queue import Bounds
from batten.session.session import Session, find_session, settings_of
from batten.settings.contract import Settings
from batten.tools.contract import Tool


def run_print(
    argv: list[str],
    tools: Sequence[Tool] = (),
    leave: Callable[[int], object] | None = None,
    ready: Callable[[], object] = lambda: None,
) -> int:
    """Parse, run, and say how it ended. `tools` are offered beside our own.

    `ready` is called when there is something that can say that it was cancelled.
    """
    output = Output(1)
    try:
        options = parse(argv, os.environ)
    except UsageError as error:
        return complain("usage", error)
    except SystemExit as left:  # argparse leaves by itself only after --help
        return int(left.code or 0)
    if options.version:
        from batten import __version__

        output.write(f"{__version__} (Batten)\n".encode())
        output.drain(STALLED_S)
        return 1 if output.closed else 0
    people = Output(2)
    wanted = FrameOptions(
        partial_messages=options.include_partial_messages,
        hook_events=options.include_hook_events,
        user_messages=options.replay_user_messages,
    )
    progress = "never" if options.quiet else "always" if options.verbose else options.progress
    renderer = renderer_for(options.output_format, output, people, wanted=wanted, progress=progress)

    def made(guard: SessionGuard) -> Invocation:
        commands = commands_of(options)
        return Invocation(options, commands, output, people, renderer, guard, tools)

    return see_through(made, renderer, output, people, leave, ready)


def see_through(
    made: "Callable[[SessionGuard], Invocation]",
    renderer: Renderer,
    output: Output,
    people: Output,
    leave: Callable[[int], object] | None,
    ready: Callable[[], object],
) -> int:
    """Make an invocation and run it; whatever becomes of it, the renderer tells of its ending."""
    guard: Guard | None = None
    try:
        ready()
        guard = Guard(output, people)
        return asyncio.run(_to_the_end(made(guard.session(renderer)), leave))
    except (asyncio.CancelledError, KeyboardInterrupt):
        return give_up(renderer, output, "cancelled", "cancelled at the start")
    except BattenError as error:
        return refuse(renderer, output, error)
    except Exception as error:  # a bug, or what the machine refuses us: it ends here, said
        return refuse(renderer, output, BattenError(f"{type(error).__name__}: {error}"))
    finally:
        if guard is not None:
            guard.stop()
        output.close()
        people.close()


async def _to_the_end(invocation: "Invocation", leave: Callable[[int], object] | None) -> int:
    code = await invocation.run()
    if leave is not None:
        # Here, where signals still come to the guard: to the closed loop they would be our end.
        leave(code)
    return code


def outcome_of(error: BattenError) -> Outcome:
    """The ending of an invocation that no run tells of."""
    match error:
        case CallerError(code="usage"):
            return "usage"
        case NotFound():
            return "no_input"
        case CallerError(code="config"):
            return "config"
        case JournalError():
            return "store"
        case _:
            return "internal"


def refuse(renderer: Renderer, output: Output, error: BattenError) -> int:
    outcome = outcome_of(error)
    give_up(renderer, output, outcome, str(error))
    return complain(outcome, error)


def give_up(renderer: Renderer, output: Output, outcome: Outcome, message: str) -> int:
    # Nothing takes a signal any more, and the last word is to be said.
    signal.pthread_sigmask(signal.SIG_BLOCK, ending_signals())
    renderer.fail(outcome, message)
    renderer.finish()
    output.drain(LAST_WORDS_S)
    return exit_code(outcome)


def complain(outcome: Outcome, error: BattenError) -> int:
    say(f"batten: {error}")
    return exit_code(outcome)


class Invocation:
    """One use of `batten -p`, from flags to exit code."""

    surface = "print"
    needs_prompt = True
    """Whether it is an error that nothing was asked."""
    bounds: Bounds | None = None
    """How many prompts may wait, where that differs from the usual."""

    def __init__(
        self,
        options: Namespace,
        commands: AsyncIterator[Command],
        output: Output,
        people: Output,
        renderer: Renderer,
        guard: SessionGuard,
        tools: Sequence[Tool],
    ) -> None:
        self._options = options
        self._commands = commands
        self._output = output
        self._people = people
        self._renderer = renderer
        self._guard = guard
        self._tools = tools

    async def run(self) -> int:
        self._guard.process.start(asyncio.current_task(), ending_signals())
        environ = dict(os.environ)
        options = self._options
        async with Wiring(batten_home(environ), environ, options, self._tools) as wiring:
            earlier, branch = await self.earlier(wiring.journal)
            given = await settings_of(earlier, wiring.journal, wiring.seal_key) if earlier else None
            workspace = workspace_of(options, earlier.workspace_path if earlier else None)
            found = self.surroundings(environ, workspace)
            settings = self.settings(environ, given, found)
            deps = self.equip(await wiring.deps_for(workspace, settings, found), settings)
            session = await self._session(deps, settings, earlier, branch)
            live = LiveSession(session, self.bounds)
            showing = Showing(
                live, self._renderer, self._output, self._guard, idle_is_done=not self.needs_prompt
            )
            wiring.show_notes(showing.note)
            try:
                self._renderer.begin(session.session_id, self.describe(wiring, session))
                self._guard.process.begun = True
                outcome = await self._converse(wiring, live, showing)
                self._guard.process.closing(outcome)
            finally:
                await showing.close()
            return await self._leave(outcome)

    def surroundings(self, environ: Mapping[str, str], workspace: str) -> Settings:
        """What files say about working there."""
        return surroundings(self._options, environ, workspace, batten_home(environ))

    def settings(
        self, environ: Mapping[str, str], given: RunSettings | None, found: Settings
    ) -> RunSettings:
        """What runs are told before they start; `given` to the session that is resumed."""
        return run_settings(self._options, environ, given, found)

    def equip(self, deps: RunDeps, settings: RunSettings) -> RunDeps:
        """The deps as this surface needs it."""
        return deps

    def describe(self, wiring: Wiring, session: Session) -> Describe:
        """What the first frame says."""
        return partial(wiring.describe, session.settings)

    async def serve(self, wiring: Wiring, live: LiveSession, showing: Showing) -> None:
        """Until there is nothing more to do."""
        await showing.run(self._commands)

    async def _converse(self, wiring: Wiring, live: LiveSession, showing: Showing) -> Outcome:
        """Through all prompts; how it ended, also where no run tells of that."""
        try:
            await self.serve(wiring, live, showing)
            if showing.outcome is not None:
                return showing.outcome
            if not self.needs_prompt:
                return "completed"
            raise NotFound("standard input held no message")
        except BattenError as error:
            outcome = outcome_of(error)
            self._renderer.fail(outcome, str(error))
            complain(outcome, error)
            return outcome

    async def earlier(
        self, journal: Journal
    ) -> tuple[SessionRow | None, tuple[RunRow, int] | None]:
        """The session to go on with, and the place to branch from."""
        options = self._options
        if options.branch:
            name, _, sequence = options.branch.partition(":")
            run = await journal.run(name)
            if run is None or run.session_id is None:
                raise NotFound(f"no run is named {name}; `batten runs` lists them")
            return await find_session(journal, name), (run, _place(run, sequence))
        found = await named_session(options, journal)
        if found is None or not options.fork_session:
            return found, None
        runs = await prompts_of(journal, found.session_id)
        ended = [row for row in runs if row.outcome is not None]
        if not ended:
            raise NotFound(f"session {found.session_id} has no run that ended, to fork from")
        return found, (ended[-1], ended[-1].next_sequence - 1)

    async def _session(
        self,
        deps: RunDeps,
        settings: RunSettings,
        earlier: SessionRow | None,
        branch: tuple[RunRow, int] | None,
    ) -> Session:
        wanted = await _wanted_id(self._options, deps.journal)
        if earlier is None:
            return await Session.open(deps, settings, surface=self.surface, session_id=wanted)
        if branch is None:
            return await Session.resume(deps, earlier, settings)
        run, until = branch
        return await Session.branch(
            deps, earlier, settings, run=run, until=until, session_id=wanted
        )

    async def _leave(self, outcome: Outcome) -> int:
        """Say the last words, wait for the reader as long as it reads, and go."""
        code = exit_code(outcome)
        self._guard.process.finishing(outcome)
        await self._people.drained(PEOPLE_S)
        self._renderer.finish()
        await self._output.drained(STALLED_S)
        if self._output.closed or not self._output.is_empty:
            code = code or 1  # it ended well, and nobody was told, or not all of it
        self._guard.process.leave(code)
        return code


async def named_session(options: Namespace, journal: Journal) -> SessionRow | None:
    """The session to resume; one that is named goes before the newest."""
    if options.resume:
        return await find_session(journal, options.resume)
    if not options.continue_:
        return None
    here = workspace_of(options, None)
    newest = await journal.sessions(workspace_path=here, limit=1)
    if not newest:
        raise NotFound(f"there is no session in {here} to continue")
    return newest[0]


async def _wanted_id(options: Namespace, journal: Journal) -> str | None:
    """The id a new session is to have."""
    given = options.session_id
    if given is None:
        return None
    try:
        wanted = given if given.startswith("chat_") else from_uuid(given, "chat")
    except ValueError:
        wanted = ""
    if not is_ulid(wanted):
        raise UsageError(f"--session-id {given!r} is not a UUID")
    if await journal.session(wanted) is not None:
        raise UsageError(f"session {given} exists; go on with it by --resume {given}")
    return wanted


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
