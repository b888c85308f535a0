"""The runs of a journal: listed and read, never written.

Each call starts `batten` with this interpreter, or with `command`, and reads its output.
"""

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from tempfile import TemporaryFile

import msgspec
from msgspec import Struct

from batten.client.process import killed, start_batten
from batten.contract.envelope import Envelope, decode
from batten.contract.errors import BattenError, CallerError, JournalError, NotFound, PeerError
from batten.contract.outcomes import Outcome, exit_code

_LONGEST_LINE = 16 * 1024 * 1024
_MOST_RUNS = 1_000_000_000


class RunInfo(Struct, frozen=True, kw_only=True):
    """A run without its events."""

    run_id: str
    session_id: str | None
    kind: str
    state: str
    """The outcome of a run that has ended; else `queued`, `running`, `parked`, `abandoned`, …"""
    outcome: Outcome | None
    """None if it has not ended."""
    prompt: str
    """The beginning of its first message."""
    model: str | None
    provider: str | None
    workspace_path: str
    turns: int
    cost_micros_usd: int
    cost_unknown: bool
    parent_run_id: str | None
    """The run whose call started this one."""
    created_at: datetime
    ended_at: datetime | None

    @property
    def cost_usd(self) -> float | None:
        """None if a price is unknown."""
        return None if self.cost_unknown else self.cost_micros_usd / 1e6


class History:
    """The journal of one home, which `BATTEN_HOME` names.

    Raises `NotFound` for an unknown run or session, `JournalError` for a store that cannot be read.
    """

    def __init__(
        self, *, env: Mapping[str, str] | None = None, command: Sequence[str] = ()
    ) -> None:
        """`env` adds to the variables of this process; `command` replaces our own Batten."""
        self._environ = {**os.environ, **(env or {})}
        self._command = tuple(command)

    async def runs(
        self,
        *,
        status: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        workspace: str | os.PathLike[str] | None = None,
        model: str | None = None,
        session: str | None = None,
        grep: str | None = None,
        after: str | None = None,
        limit: int | None = 50,
    ) -> list[RunInfo]:
        """The newest runs first, those that fit all filters. `limit` None lists all of them.

        `status` is a state or an outcome, or several separated by commas. `since` and `until` are
        about the begin of a run. `grep` is a text in its prompt. `after` is the last run of the
        page before.
        """
        given = {
            "status": status,
            "since": None if since is None else since.isoformat(),
            "until": None if until is None else until.isoformat(),
            "workspace": None if workspace is None else os.fspath(workspace),
            "model": model,
            "session": session,
            "grep": grep,
            "after": after,
            "limit": _MOST_RUNS if limit is None else limit,
        }
        flags = [f"--{name}={value}" for name, value in given.items() if value is not None]
        return await self._listed(*flags)

    async def run(self, run_id: str) -> RunInfo:
        """One run."""
        found = await self._listed(f"--run={run_id}")
        if not found:
            raise NotFound(f"no run is named {run_id}; there are none yet")
        return found[0]

    async def _listed(self, *flags: str) -> list[RunInfo]:
        async with aclosing(self._lines("runs", "--json", *flags)) as lines:
            return [_run_info(line) async for line in lines]

    async def events(
        self, run_id: str, *, after: int = -1, follow: bool = False
    ) -> AsyncGenerator[Envelope, None]:
        """The stored events of a run, with `data` as a typed fact.

        Yields sequences above `after`. With `follow` it goes on to the end of a run in progress,
        and raises `JournalError` if the run is abandoned. Close it (`aclosing`) if you stop before
        its end.
        """
        flags = [f"--after={after}", *(["--follow"] if follow else [])]
        async with aclosing(self._lines("events", *flags, "--", run_id)) as lines:
            async for line in lines:
                yield decode(line)

    async def _lines(self, *words: str) -> AsyncGenerator[bytes, None]:
        """The output of a command, line by line. Raises its error once the output has ended."""
        with TemporaryFile() as complaints:
            async with self._started(words, complaints.fileno()) as process:
                assert process.stdout is not None
                async for line in _whole_lines(process.stdout):
                    yield line
                code = await process.wait()
            if code:
                complaints.seek(0)
                raise _error(code, complaints.read(_LONGEST_LINE).decode(errors="replace"))

    @asynccontextmanager
    async def _started(
        self, words: Sequence[str], complaints: int
    ) -> AsyncGenerator[Process, None]:
        process = await start_batten(
            self._command,
            words,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=complaints,
            env=self._environ,
            limit=_LONGEST_LINE,
        )
        try:
            yield process
        finally:
            await killed(process)


async def _whole_lines(output: asyncio.StreamReader) -> AsyncIterator[bytes]:
    try:
        async for line in output:
            yield line
    except ValueError as error:
        raise PeerError(f"batten writes a line of more than {_LONGEST_LINE} bytes") from error


def _error(code: int, complaints: str) -> BattenError:
    message = complaints.strip().removeprefix("batten: ") or f"batten left with exit code {code}"
    if code == exit_code("no_input"):
        return NotFound(message)
    if code == exit_code("usage"):
        return CallerError(message)
    return JournalError(message)


def _run_info(line: bytes) -> RunInfo:
    try:
        return msgspec.json.decode(line, type=RunInfo)
    except (msgspec.MsgspecError, ValueError) as error:
        raise PeerError(f"batten lists what is no run: {error}") from error
