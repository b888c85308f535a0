"""`batten -p --server URL`: a service executes the run, and this process shows it."""

import asyncio
import os
from argparse import Namespace
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec import UNSET, Struct

from batten.agent.execution import Ended
from batten.agent.progress import Progress
from batten.cli import current_directory, ending_signals
from batten.cli.arguments import headless_parser, parser
from batten.cli.options import appended_system
from batten.cli.parsing import UsageError
from batten.cli.print_mode import give_up, refuse, report_unwritten
from batten.cli.prompt import commands_of
from batten.cli.remote.address import link_of
from batten.cli.remote.journal import RemoteJournal
from batten.client.link import Link
from batten.contract import facts
from batten.contract.commands import Prompt
from batten.contract.envelope import decode_fact
from batten.contract.errors import BattenError, JournalError
from batten.contract.outcomes import RunEnd, ending_of, exit_code
from batten.journal.contract import Journal, RunRow, Stored
from batten.journal.recorder import load_artifact
from batten.models.registry import says_provider
from batten.serve.following import RunFollower
from batten.serve.guard import report_ending
from batten.serve.output import Output, say, warn
from batten.serve.pace import STALLED_S
from batten.serve.renderer import Renderer
from batten.session.naming import LAST, last_conversation, named_run
from batten.wiring.home import absolute

_HONOURED = frozenset(
    {
        *("prompt_words", "print", "prompt", "given", "reads_stdin", "attach", "no_auto_print"),
        *("output_format", "input_format", "include_hook_events", "replay_user_messages"),
        *("progress", "verbose", "quiet", "color", "compat", "server", "server_key_file"),
        *("model", "provider", "max_budget_usd", "append_system_prompt", "debug", "debug_file"),
        *("append_system_prompt_file", "workspace", "sandbox_network", "resume", "continue_"),
    }
)
"""Flags that reach the service, or that concern only what is shown here."""
_OF_NEW_TASKS = frozenset(
    {
        *("model", "provider", "max_budget_usd", "append_system_prompt", "workspace"),
        *("append_system_prompt_file", "sandbox_network"),
    }
)
"""Flags that a task keeps from its beginning."""


class Asked(Struct, frozen=True, kw_only=True):
    """The run that the service was asked for."""

    task_id: str
    run_id: str
    session_id: str
    model: str
    workspace_path: str


class _Run(Struct, frozen=True):
    id: str
    task_id: str = ""
    session_id: str = ""
    model: str = ""
    provider: str = ""
    workspace_path: str = ""


class _RunReply(Struct, frozen=True):
    data: _Run


class _Task(Struct, frozen=True):
    id: str


class _TaskReply(Struct, frozen=True):
    data: _Task


def _instead(name: str) -> str:
    """What to do about a flag that does not reach the service."""
    if name != "no_save" and name in vars(headless_parser("maestro").parse_args([])):
        return "the service decides it; set it where `batten serve` is started"
    return "a service's runs have nothing like it; leave out one of them"


def check_flags(options: Namespace) -> None:
    """Raises `UsageError` for a flag that a service would not honour."""
    made = parser()
    usual = vars(made.parse_args([]))
    goes_on = bool(options.resume or options.continue_)
    for action in made._actions:  # pyright: ignore[reportPrivateUsage]  # argparse has no public name for it
        name = action.dest
        if name not in usual or getattr(options, name) == usual[name]:
            continue
        flag = action.option_strings[0] if action.option_strings else name
        if goes_on and name in _OF_NEW_TASKS:
            raise UsageError(f"{flag} is for a new task: leave it out, or --resume and --continue")
        if name in _HONOURED:
            continue
        raise UsageError(f"{flag} cannot be used with --server: {_instead(name)}")
    if options.input_format != "text":
        raise UsageError("--input-format stream-json cannot be used with --server; give a prompt")


def run_remote(
    options: Namespace,
    environ: Mapping[str, str],
    server: str,
    output: Output,
    people: Output,
    renderer: Renderer,
    ready: Callable[[], object],
) -> int:
    """Run a prompt in the service; the renderer shows the ending in every case."""
    try:
        ready()
        code = asyncio.run(_print(options, environ, server, output, people, renderer))
        return report_unwritten(output, code)
    except (asyncio.CancelledError, KeyboardInterrupt):
        warn("cancelled: before the run began")
        return give_up(renderer, output, "cancelled", "cancelled at the start")
    except BattenError as error:
        return refuse(renderer, output, error)
    finally:
        output.close()
        people.close()


async def _print(
    options: Namespace,
    environ: Mapping[str, str],
    server: str,
    output: Output,
    people: Output,
    renderer: Renderer,
) -> int:
    """Ask the service, show the run to its end, and return the exit code of its outcome."""
    check_flags(options)
    commands, _ = commands_of(options, environ)
    command = await anext(commands)
    if not isinstance(command, Prompt):
        raise UsageError('no prompt: give one as batten -p "…" or on standard input')
    if command.images:
        raise UsageError("--attach: a picture cannot be sent to a service; attach texts")
    link = link_of(options, environ, server)
    try:
        journal = WatchedJournal(link)
        asked = await _ask(journal, options, command.text)
        ended = await _shown(journal, asked, renderer, output, command.text)
    finally:
        await link.close()
    report_ending(ended, is_shown=renderer.shows_endings)
    await people.drained(STALLED_S)
    renderer.finish()
    await output.drained(STALLED_S)
    return exit_code(ended.outcome)


async def _ask(journal: "WatchedJournal", options: Namespace, prompt: str) -> Asked:
    """Queue the run: of a new task, or after the last run of the session to resume."""
    link = journal.link
    if options.resume or options.continue_:
        before = await _earlier(cast("Journal", journal), options, link.server)
        path = f"{await journal.run_path(before.run_id)}/continue"
        reply = await link.post(path, _RunReply, {"prompt": prompt})
    else:
        fields = _task(options, prompt, link.server)
        task = await link.post("/hecate/v1/tasks", _TaskReply, fields)
        reply = await link.post(f"/hecate/v1/tasks/{task.data.id}/start", _RunReply)
    run = reply.data
    return Asked(
        task_id=run.task_id,
        run_id=run.id,
        session_id=run.session_id,
        model=f"{run.provider}/{run.model}",
        workspace_path=run.workspace_path,
    )


async def _earlier(journal: Journal, options: Namespace, server: str) -> RunRow:
    """The run to go on after. A service elsewhere knows nothing of our present directory."""
    here = _workspace(None, server)
    if options.resume or not here:
        return await named_run(journal, options.resume or LAST)
    return await last_conversation(journal, here["working_directory"])


def _task(options: Namespace, prompt: str, server: str) -> dict[str, Any]:
    """The fields of a new task."""
    models: list[str] = options.model or []
    if len(models) > 1:
        raise UsageError("--model can be given once with --server")
    dollars: float | None = options.max_budget_usd
    fields = {
        "prompt": prompt,
        "requested_model": models[0] if models else None,
        # As without a service, a provider completes a name that begins with none.
        "requested_provider": None if says_provider("".join(models)) else options.provider,
        "budget_micros_usd": None if dollars is None else round(dollars * 1_000_000),
        "system_prompt": appended_system(options),
        "sandbox_network": True if options.sandbox_network == "allow" else None,
        **_workspace(options.workspace, server),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _workspace(given: str | None, server: str) -> dict[str, str]:
    """Where the run works: in this directory if the service is on this machine, else in an empty
    one; `--workspace` names a directory of the service's machine.
    """
    host = urlsplit(server).hostname or ""
    is_here = server.startswith("unix:") or host in ("localhost", "127.0.0.1", "::1")
    if given is not None and not is_here and not os.path.isabs(given):
        raise UsageError("--workspace names a directory of the service's machine: write it whole")
    if given is None and not is_here:
        return {}
    path = os.path.realpath(absolute(given or ".", current_directory())) if is_here else given
    return {"working_directory": path or "", "workspace_mode": "in_place"}


async def _shown(
    journal: "WatchedJournal", asked: Asked, renderer: Renderer, output: Output, prompt: str
) -> Ended:
    """Show the run until it has ended; a signal cancels it, and its ending is still shown."""
    local = cast("Journal", journal)
    renderer.load = partial(load_artifact, local)
    renderer.begin(asked.session_id, lambda _: _first_frame(asked, journal.link.server))
    renderer.introduce()
    renderer.prompted(prompt)
    watched = journal.watch(asked.run_id)
    follower = RunFollower(local, renderer, asked.run_id, output)
    try:
        async with asyncio.TaskGroup() as group:
            cancelling = group.create_task(_cancel_when_asked(journal, asked))
            await follower.follow(group)
            if renderer.completes:
                await follower.show_rest()
            cancelling.cancel()
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from several
    if watched.end is None:
        raise JournalError(f"{asked.run_id} cannot be shown to its end; it goes on in the service")
    ended = watched.ended(asked.run_id, watched.end)
    renderer.ended(ended)
    return ended


def _first_frame(asked: Asked, server: str) -> dict[str, Any]:
    """What is known here; tools, servers and sandbox are the service's own."""
    return {
        "session_id": asked.session_id,
        "model": asked.model,
        "cwd": asked.workspace_path,
        "server": server,
    }


async def _cancel_when_asked(journal: "WatchedJournal", asked: Asked) -> None:
    """Wait for a signal, then cancel the run; a second signal ends this process at once."""
    signalled = asyncio.Event()
    loop = asyncio.get_running_loop()
    count = 0

    def hear() -> None:
        nonlocal count
        count += 1
        signalled.set()
        if count > 1:
            say(f"batten: interrupted: a second time; {asked.run_id} may go on in the service")
            os._exit(exit_code("interrupted"))

    for number in ending_signals():
        loop.add_signal_handler(number, hear)
    await signalled.wait()
    say(f"batten: cancelling {asked.run_id}; a second signal leaves at once")
    try:
        path = f"{await journal.run_path(asked.run_id)}/cancel"
        await journal.link.post(path, _RunReply, {"reason": "signal"})
    except BattenError as error:
        say(f"batten: {asked.run_id} is not cancelled: {error}")
        raise


class Watched:
    """Folds the ending of a run from its facts, as its own process would report it."""

    def __init__(self) -> None:
        self._progress = Progress()
        self._texts: dict[int, str] = {}
        """The blocks of text of the last message."""
        self._calls = 0
        self.end: RunEnd | None = None

    def observe(self, fact: facts.Fact) -> None:
        self._progress.observe(fact)
        match fact:
            case facts.TurnStarted() | facts.AssistantRetracted():
                self._texts.clear()
            case facts.AssistantTextDelta():
                known = self._texts.get(fact.block_index, "")
                self._texts[fact.block_index] = known + fact.delta
            case facts.AssistantTextComplete() if fact.artifact_id is UNSET:
                self._texts[fact.block_index] = fact.text
            case facts.ToolCompleted() | facts.ToolFailed() | facts.ToolTimedOut():
                self._calls += 1
            case facts.RunFinished() | facts.RunFailed() | facts.RunCancelled():
                self.end = ending_of(fact)
            case _:
                pass

    def ended(self, run_id: str, end: RunEnd) -> Ended:
        text = "".join(self._texts[index] for index in sorted(self._texts))
        return Ended(
            run_id=run_id,
            outcome=end.outcome,
            message=end.message,
            answer=text,
            last_text=text,
            progress=self._progress,
            tool_calls=self._calls,
            duration_ms=0,
        )


class WatchedJournal(RemoteJournal):
    """Also folds the facts of one run while they are followed."""

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self._watched: tuple[str, Watched] = ("", Watched())

    def watch(self, run_id: str) -> Watched:
        self._watched = (run_id, Watched())
        return self._watched[1]

    async def follow(
        self, run_id: str, *, after: int = -1, types: frozenset[str] | None = None
    ) -> AsyncGenerator[list[Stored], None]:
        watched_id, watched = self._watched
        async for page in super().follow(run_id, after=after, types=types):
            if run_id == watched_id:
                for stored in page:
                    watched.observe(decode_fact(stored.body))
            yield page
