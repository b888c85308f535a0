"""Commands that read the journal: a run, its events and artifacts, verification."""

import asyncio
import os
import sys
from argparse import Namespace
from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, closing
from functools import partial, wraps

import msgspec
from msgspec import Struct

from batten.cli import current_directory
from batten.contract.cutting import shortened
from batten.contract.envelope import decode
from batten.contract.errors import NotFound
from batten.contract.facts import TERMINAL
from batten.contract.marks import one_line
from batten.journal.contract import Journal, Stored
from batten.journal.opening import open_store
from batten.journal.recorder import load_artifact
from batten.journal.workers import is_abandoned
from batten.serve.output import put, put_bytes, say
from batten.serve.terminal.lines import Spacing
from batten.serve.terminal.live import patches_of
from batten.serve.terminal.printers import Printer, printer_for
from batten.serve.terminal.transcript import Transcript
from batten.session.naming import named_artifact, named_run, named_runs
from batten.sinks.audit.log import verify_audit
from batten.wiring.home import batten_home

_SILENT_S = 1.0
"""Seconds between checks whether a followed run was abandoned."""


def open_journal(*, read_only: bool) -> Journal:
    return open_store(batten_home(os.environ, current_directory()), read_only=read_only)


Reading = Callable[[Journal, Namespace], Awaitable[int]]
Command = Callable[[Namespace], Awaitable[int]]


def reads(command: Reading) -> Command:
    """A command on the journal of this home, or on that of the service it is told to ask."""

    @wraps(command)
    async def run(options: Namespace) -> int:
        async with journal_of(options) as journal:
            return await command(journal, options)

    return run


def _asks_service(options: Namespace) -> bool:
    """Whether a service is asked in place of the journal of this home."""
    if options.server is None and not os.environ.get("BATTEN_SERVER"):
        return False
    from batten.cli.remote.address import server_of

    return bool(server_of(options, os.environ))


@asynccontextmanager
async def journal_of(options: Namespace) -> AsyncGenerator[Journal, None]:
    """The journal to read, as long as it is used."""
    if _asks_service(options):
        from batten.cli.remote.address import server_of
        from batten.cli.remote.journal import remote_journal

        async with remote_journal(options, server_of(options, os.environ)) as remote:
            yield remote
        return
    with closing(open_journal(read_only=True)) as local:
        yield local


@reads
async def show_run(journal: Journal, options: Namespace) -> int:
    if options.follow:
        rows = [await named_run(journal, options.run_id)]
    else:
        rows = await named_runs(journal, options.run_id)
    if len(rows) > 1:
        rows = [row for row in rows if row.parent_run_id is None]
    printer = printer_for(1, os.environ, options.color, times=True)
    code = 0
    for row in rows:
        timeline = _Timeline(journal, printer, verbose=options.verbose)
        if options.follow and row.outcome is None:
            abandoned = await _follow(
                journal, row.run_id, -1, timeline.show, is_remote=_asks_service(options)
            )
            code = 1 if abandoned else 0
        else:
            async for page in _pages(journal, row.run_id, -1):
                await timeline.show(page)
            abandoned = is_abandoned(row)
        if abandoned:
            put(_abandoned(row.run_id))
    if rows[-1].session_id:
        put(f"session {rows[-1].session_id}")
    return code


class _Timeline:
    """Prints events of one run as lines for people."""

    def __init__(self, journal: Journal, printer: Printer, *, verbose: bool) -> None:
        self._transcript = Transcript(verbose=verbose)
        self._spacing = Spacing(is_terminal=sys.stdout.isatty())
        self._load = partial(load_artifact, journal)
        self._printer = printer

    async def show(self, page: list[Stored]) -> None:
        for stored in page:
            envelope = decode(stored.body)
            self._transcript.patches |= await patches_of(envelope.data, self._load)
            for line in self._transcript.lines(envelope):
                sys.stdout.write(self._spacing.before(line.kind) + self._printer.rows(line))
        sys.stdout.flush()


@reads
async def print_events(journal: Journal, options: Namespace) -> int:
    row = await named_run(journal, options.run_id)
    if options.follow and row.outcome is None:
        if await _follow(
            journal, row.run_id, options.after, _write, is_remote=_asks_service(options)
        ):
            say(f"batten: {_abandoned(row.run_id)}")
            return 1
        return 0
    async for page in _pages(journal, row.run_id, options.after):
        await _write(page)
    return 0


def _abandoned(run_id: str) -> str:
    return f"abandoned: its process is gone; `batten -p --resume {run_id}` goes on with it"


Show = Callable[[list[Stored]], Awaitable[None]]


async def _follow(
    journal: Journal, run_id: str, after: int, show: Show, *, is_remote: bool
) -> bool:
    """Show events until the run ends, or is abandoned: then True.

    A service goes on itself with a run that lost its worker.
    """
    shown = _Shown(after)
    if is_remote:
        await _show_to_the_end(journal, run_id, shown, show)
        return False
    try:
        async with asyncio.TaskGroup() as group:
            showing = group.create_task(_show_to_the_end(journal, run_id, shown, show))
            while not (await asyncio.wait([showing], timeout=_SILENT_S))[0]:
                row = await journal.run(run_id)
                if row is not None and is_abandoned(row) and shown.up_to >= row.next_sequence - 1:
                    showing.cancel()
    except BaseExceptionGroup as several:
        raise several.exceptions[0] from several
    return showing.cancelled()


class _Shown(Struct):
    up_to: int


async def _show_to_the_end(journal: Journal, run_id: str, shown: _Shown, show: Show) -> None:
    async with aclosing(journal.follow(run_id, after=shown.up_to)) as pages:
        async for page in pages:
            await show(page)
            shown.up_to = page[-1].sequence
            if any(stored.type in TERMINAL for stored in page):
                return


async def _pages(journal: Journal, run_id: str, after: int) -> AsyncGenerator[list[Stored], None]:
    while page := await journal.read(run_id, after=after):
        yield page
        await asyncio.sleep(0)  # a local read never suspends, and Ctrl-C needs an await to arrive
        after = page[-1].sequence


async def _write(page: list[Stored]) -> None:
    put_bytes(b"".join(stored.body + b"\n" for stored in page))
    sys.stdout.buffer.flush()


@reads
async def print_artifacts(journal: Journal, options: Namespace) -> int:
    if options.name.startswith("art_"):
        return await _print_body(journal, options.name)
    rows = await named_runs(journal, options.name)
    for artifact in [one for row in rows for one in await journal.artifacts(row.run_id)]:
        if artifact.deleted_at is not None:
            continue
        if options.json:
            put(msgspec.json.encode(artifact).decode())
        else:
            put(
                f"{artifact.artifact_id}  {artifact.kind:<16} {artifact.status:<9} "
                f"{artifact.size_bytes:>10}  {one_line(shortened(artifact.summary, 60))}"
            )
    return 0


async def _print_body(journal: Journal, name: str) -> int:
    artifact = await named_artifact(journal, name)
    if artifact is None or artifact.deleted_at is not None:
        raise NotFound(f"no artifact is named {name}; `batten artifacts RUN` lists those of a run")
    if artifact.kind == "sealed":
        raise NotFound(f"{artifact.artifact_id} is sealed: it is never shown")
    step, text = 1 << 20, getincrementaldecoder("utf-8")("replace")
    for offset in range(0, artifact.size_bytes, step):
        put_bytes(await journal.body(artifact.sha256, offset=offset, limit=step), text=text)
        await asyncio.sleep(0)
    sys.stdout.buffer.flush()
    return 0


async def verify_journal(options: Namespace) -> int:
    journal = open_journal(read_only=True)
    if options.run_id:
        rows = await named_runs(journal, options.run_id)
        damages = [one for row in rows for one in await journal.verify(row.run_id)]
    else:
        damages = await journal.verify()
        damages += verify_audit(batten_home(os.environ, current_directory()))
    for damage in damages:
        if options.json:
            put(msgspec.json.encode(damage).decode())
        else:
            place = "" if damage.sequence is None else f" at {damage.sequence}"
            put(f"{damage.run_id}{place}: {damage.message}")
    if not damages and not options.json:
        put("everything stored is what was written")
    return 1 if damages else 0
