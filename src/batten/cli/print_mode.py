"""`batten -p`: runs each prompt, and exits with the outcome of the last run."""

import asyncio
import logging
import os
import signal
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from batten.cli import collect_garbage, ending_signals
from batten.cli.arguments import parse
from batten.cli.options import spec_of
from batten.cli.parsing import UsageError
from batten.cli.prompt import commands_of
from batten.contract.commands import Command
from batten.contract.errors import BattenError, CallerError, NotFound
from batten.contract.facts import Fact
from batten.contract.outcomes import Outcome, exit_code, outcome_of_error
from batten.journal.contract import Journal
from batten.journal.recorder import load_artifact
from batten.protocols.stream_json import FrameOptions
from batten.serve.guard import LAST_WORDS_S, PEOPLE_S, Guard, SessionGuard, blocked_s
from batten.serve.output import Output, redact_for_people, say, warn
from batten.serve.pace import STALLED_S
from batten.serve.renderer import Describe, Renderer, renderer_for
from batten.serve.showing import Showing
from batten.serve.words import redacting
from batten.session.live import LiveSession
from batten.session.prompt_queue import Bounds
from batten.tools.contract import Tool
from batten.wiring.opener import SessionOpener
from batten.wiring.opening import OpenedSession
from batten.wiring.spec import SessionSpec

_log = logging.getLogger("batten.cli")

_RETRIES = 2
"""Of a failed model call, by default: a script that waits hears of an outage within seconds."""


def run_print(
    argv: list[str],
    tools: Sequence[Tool] = (),
    leave: Callable[[int], object] | None = None,
    ready: Callable[[], object] = lambda: None,
) -> int:
    """Parse the flags, run, and report the outcome. `tools` are offered beside our own.

    `ready` is called once a cancellation can be reported.
    """
    output = Output(1)
    environ = dict(os.environ)
    redact_for_people.set(redacting(environ))
    try:
        options = parse(argv, environ)
    except UsageError as error:
        return complain("usage", error)
    except SystemExit as left:  # argparse exits only after --help
        return int(left.code or 0)
    if options.version:
        from batten import __version__

        output.write(f"{__version__} (Batten)\n".encode())
        output.drain(STALLED_S)
        return report_unwritten(output, 0)
    log = None
    if options.debug or options.debug_file is not None:
        from batten.cli.debugging import open_log

        try:
            log = open_log(options, argv, environ)
        except CallerError as error:
            return complain("config", error)
    people = Output(2, styled=True)
    wanted = FrameOptions(
        partial_messages=options.include_partial_messages,
        hook_events=options.include_hook_events,
        user_messages=options.replay_user_messages,
    )
    if options.output_format in (None, "text") and _shows_progress(options):
        from batten.serve.terminal.live import live_renderer

        output, renderer = live_renderer(
            output, people, environ, color=options.color, verbose=options.verbose
        )
    else:
        renderer = renderer_for(options.output_format, output, wanted)
    renderer.redact = redacting(environ)
    if options.server is not None or environ.get("BATTEN_SERVER", "local") != "local":
        remote = _run_remote(options, environ, output, people, renderer, ready)
        if remote is not None:
            return remote if log is None else log.ended(remote)

    def make(guard: SessionGuard) -> Invocation:
        commands, goes_on = commands_of(options, environ)
        spec = replace(
            spec_of(options, environ),
            surface="print",
            own_tools=tuple(tools),
            goes_on=goes_on,
            usual_retries=_RETRIES,
            alert=None if renderer.shows_alerts else _alert,
        )
        invocation = Invocation(spec, commands, output, people, renderer, guard)
        invocation.shows_way_on = spec.save and not options.quiet and os.isatty(2)
        return invocation

    if log is None:
        return see_through(make, renderer, output, people, leave, ready)
    return log.ended(see_through(make, renderer, output, people, log.leaving(leave), ready))


def _run_remote(
    options: Namespace,
    environ: Mapping[str, str],
    output: Output,
    people: Output,
    renderer: Renderer,
    ready: Callable[[], object],
) -> int | None:
    """Run the prompt in a service, if one is named; None without one."""
    from batten.cli.remote.address import server_of

    try:
        server = server_of(options, environ)
    except UsageError as error:
        return complain("usage", error)
    if not server:
        return None
    from batten.cli.remote.printing import run_remote

    return run_remote(options, environ, server, output, people, renderer, ready)


def _shows_progress(options: Namespace) -> bool:
    """Whether people see the run on standard error while it works."""
    if options.quiet or options.progress == "never":
        return False
    return options.verbose or options.progress == "always" or os.isatty(2)


def _alert(fact: Fact) -> None:
    from batten.serve.alerts import alert_line

    warn(alert_line(fact))


def report_unwritten(output: Output, code: int) -> int:
    """The exit code; if not all output was written, say why, and never with code 0."""
    if output.problem:
        warn(f"standard output is not complete: {output.problem}")
        return code or 1
    return code


def see_through(
    make: "Callable[[SessionGuard], Invocation]",
    renderer: Renderer,
    output: Output,
    people: Output,
    leave: Callable[[int], object] | None,
    ready: Callable[[], object],
) -> int:
    """Build an invocation and run it; the renderer shows its ending in every case."""
    guard: Guard | None = None
    try:
        try:
            ready()
            guard = Guard(output, people, blocked_s=blocked_s(os.environ))
            return asyncio.run(_to_the_end(make(guard.session(renderer)), leave))
        except (asyncio.CancelledError, KeyboardInterrupt):
            return _give_up_early(renderer, output)
        except BattenError as error:
            return refuse(renderer, output, error)
        except Exception as error:  # a bug, or an error of the system
            _log.debug("it failed", exc_info=error)
            return refuse(renderer, output, BattenError(f"{type(error).__name__}: {error}"))
    except KeyboardInterrupt:  # a second signal, together with the first
        return _give_up_early(renderer, output)
    finally:
        if guard is not None:
            guard.stop()
        output.close()
        people.close()


def _give_up_early(renderer: Renderer, output: Output) -> int:
    signal.pthread_sigmask(signal.SIG_BLOCK, ending_signals())  # first: another one may follow
    warn("cancelled: before the run began")
    code = give_up(renderer, output, "cancelled", "cancelled at the start")
    return report_unwritten(output, code)


async def _to_the_end(invocation: "Invocation", leave: Callable[[int], object] | None) -> int:
    code = await invocation.run()
    if leave is not None:
        # While the guard still handles signals: after the loop is closed they would kill us.
        leave(code)
    return code


def refuse(renderer: Renderer, output: Output, error: BattenError) -> int:
    outcome = outcome_of_error(error)
    give_up(renderer, output, outcome, str(error))
    return complain(outcome, error)


def give_up(renderer: Renderer, output: Output, outcome: Outcome, message: str) -> int:
    # Signals have no handler any more, and must not interrupt the last frame.
    signal.pthread_sigmask(signal.SIG_BLOCK, ending_signals())
    renderer.fail(outcome, message)
    renderer.finish()
    output.drain(LAST_WORDS_S)
    return exit_code(outcome)


def complain(outcome: Outcome, error: BattenError) -> int:
    _log.debug("it failed", exc_info=error)
    warn(str(error))
    return exit_code(outcome)


class Invocation:
    """One use of `batten -p`, from its specification to the exit code."""

    needs_prompt = True
    """Whether it is an error to receive no prompt."""
    shows_way_on = False
    """Whether to say at the end where to look next."""
    bounds: Bounds | None = None
    """Limits of the prompt queue; None for the default."""

    def __init__(
        self,
        spec: SessionSpec,
        commands: AsyncIterator[Command],
        output: Output,
        people: Output,
        renderer: Renderer,
        guard: SessionGuard,
    ) -> None:
        self._spec = spec
        self._commands = commands
        self._output = output
        self._people = people
        self._renderer = renderer
        self._guard = guard

    async def run(self) -> int:
        self._guard.process.start(asyncio.current_task(), ending_signals())
        if self._renderer.streams:
            self._output.watch_reader(self._guard.process.reader_left)
        opener = SessionOpener(self._spec, own_process=True)
        try:
            opened = await opener.open(await self.spec(opener.journal))
            collect_garbage()
            try:
                outcome = await self._speak(opened)
                # Before the last frame: the process ends soon after it.
                await opened.settle()
                return await self._leave(outcome, opener)
            finally:
                await opened.close()
        finally:
            opener.close()

    async def _speak(self, opened: OpenedSession) -> Outcome:
        """Work through all prompts; the outcome of the invocation."""
        live = LiveSession(opened.session, self.bounds)
        showing = Showing(
            live,
            self._renderer,
            self._output,
            self._guard,
            idle_is_done=not self.needs_prompt,
            started=opened.started,
        )
        self._renderer.redact = opened.redact
        self._renderer.load = partial(load_artifact, opened.session.deps.journal)
        opened.show_notes(showing.note)
        try:
            self._renderer.begin(opened.session.session_id, self.describe(opened))
            self._guard.process.begun = True
            outcome = await self._converse(opened, live, showing)
            self.shows_way_on = self.shows_way_on and live.outcome is not None
            self._guard.process.closing(outcome)
        finally:
            await showing.close()
        return outcome

    async def spec(self, journal: Journal) -> SessionSpec:
        """The session to open; subclasses may read the journal for it."""
        if self._spec.resume is None and self._spec.branch is None:
            return self._spec
        from batten.cli.names import with_exact_names

        return await with_exact_names(self._spec, journal)

    def describe(self, opened: OpenedSession) -> Describe:
        """The fields of the first frame."""
        return opened.describe

    async def serve(self, opened: OpenedSession, live: LiveSession, showing: Showing) -> None:
        await showing.run(self._commands)

    async def _converse(
        self, opened: OpenedSession, live: LiveSession, showing: Showing
    ) -> Outcome:
        """Serve the session; the outcome, also of errors outside a run."""
        try:
            await self.serve(opened, live, showing)
            if showing.outcome is not None:
                return showing.outcome
            if not self.needs_prompt:
                return "completed"
            raise NotFound("standard input held no message")
        except BattenError as error:
            outcome = outcome_of_error(error)
            self._renderer.fail(outcome, str(error))
            complain(outcome, error)
            return outcome

    async def _leave(self, outcome: Outcome, opener: SessionOpener) -> int:
        """Write the last frame, and wait until the client has read all output or stalls."""
        code = exit_code(outcome)
        self._guard.process.finishing(outcome)
        await self._people.drained(PEOPLE_S)
        self._renderer.finish()
        await self._output.drained(STALLED_S)
        code = report_unwritten(self._output, code)
        if self.shows_way_on:
            from batten.cli.program import program_name

            program = program_name()
            say(f"Next: {program} show last, {program} diff last")
        from batten.sinks.wanted import has_sinks

        if opener.may_have_told and has_sinks(opener.home, self._spec.environ, opener.sinks):
            from batten.sinks.after_run import tell_sinks

            if problem := await tell_sinks(opener):
                warn(problem)
        self._guard.process.leave(code)
        return code
