"""Utilities: commands, reads, searches and watches of the embedder in a worker's workspace.

They run beside any run; an interrupt ends them too.
"""

import shlex
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from msgspec import Struct

from batten.client.command import Command, Completed, Streaming
from batten.client.connection import AnyMessage, Connection, within
from batten.client.encoding import encoded
from batten.client.errors import UtilityRefused
from batten.client.mailbox import Slot
from batten.client.watch import Watch
from batten.contract.errors import BattenError, CallerError, PeerError
from batten.protocols.maestro import incoming, outgoing

_USUAL_S = 60.0
_MOST_OUTPUT = 1 << 20

Answer = TypeVar("Answer", bound=outgoing.Message)


class FilePage(Struct, frozen=True, kw_only=True):
    """Some lines of a file, counted from 1."""

    path: str
    text: str
    start_line: int
    end_line: int
    total_lines: int
    truncated: bool


class FoundFiles(Struct, frozen=True, kw_only=True):
    paths: tuple[str, ...]
    truncated: bool


class _Answering(Slot[outgoing.Message]):
    def take(self, message: AnyMessage, size: int) -> None:
        if isinstance(message, outgoing.Error):
            self.fail(UtilityRefused(message.message))
        elif isinstance(message, outgoing.Message):
            self.put(message)


class Utilities:
    def __init__(self, link: Connection) -> None:
        self._connection = link

    async def run_command(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | None = None,
        within_s: float = 600.0,
        most_output: int = _MOST_OUTPUT,
    ) -> Completed:
        """Run a shell command line, or a list of words without a shell, to its end.

        Keeps the last `most_output` characters of each stream. After `within_s` ends the command
        with everything it started and raises `NoAnswer`.
        """
        async with within(within_s, "the command did not end"):
            running = self.command(command, cwd=cwd, env=env, stdin=stdin is not None)
            async with running as started:
                if stdin is not None:
                    await started.write(stdin, eof=True)
                return await started.complete(most_output)

    @asynccontextmanager
    async def command(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bool = False,
        terminal: tuple[int, int] | None = None,
    ) -> AsyncGenerator[Command, None]:
        """Start a command and iterate its output. Leaving the context ends it.

        `terminal` is columns and rows, for a command that needs a terminal.
        """
        words = command if isinstance(command, str) else _joined(command)
        start = incoming.CommandStart(
            command_id=self._connection.utility_id(),
            command=words,
            cwd=cwd,
            env=dict(env or {}),
            shell_mode="shell" if isinstance(command, str) else "direct",
            terminal_mode="pipe" if terminal is None else "pty",
            allow_stdin=stdin,
            columns=None if terminal is None else terminal[0],
            rows=None if terminal is None else terminal[1],
        )
        line = encoded(start)
        streaming = Streaming(self._connection.flow)
        forget = self._connection.register(start.command_id, streaming)
        running = Command(self._connection, start.command_id, streaming)
        try:
            try:
                await self._connection.write(line)
                await streaming.started.get()
                yield running
            finally:
                await running.leave()
        finally:
            forget()

    async def read_file(
        self,
        path: str,
        *,
        start_line: int | None = None,
        limit: int | None = None,
        within_s: float = _USUAL_S,
    ) -> FilePage:
        """Up to `limit` lines of a text file in the workspace, from `start_line` on."""
        read_id = self._connection.utility_id()
        request = incoming.FileRead(read_id=read_id, path=path, offset=start_line, limit=limit)
        page = await self._answer(read_id, request, outgoing.FileReadResult, within_s)
        return FilePage(
            path=page.relative_path,
            text=page.content,
            start_line=page.start_line,
            end_line=page.end_line,
            total_lines=page.total_lines,
            truncated=page.truncated,
        )

    async def search_files(
        self, query: str, *, limit: int | None = None, within_s: float = _USUAL_S
    ) -> FoundFiles:
        """Files of the workspace whose paths resemble the query."""
        search_id = self._connection.utility_id()
        request = incoming.FileSearch(search_id=search_id, query=query, limit=limit)
        found = await self._answer(search_id, request, outgoing.FileSearchResults, within_s)
        return FoundFiles(paths=tuple(one.path for one in found.results), truncated=found.truncated)

    @asynccontextmanager
    async def watch(
        self,
        root: str | None = None,
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        within_s: float = _USUAL_S,
    ) -> AsyncGenerator[Watch, None]:
        """Watch files of the workspace and iterate the changes. Leaving the context ends it."""
        start = incoming.WatchStart(
            watch_id=self._connection.utility_id(),
            root_dir=root,
            include_patterns=tuple(include),
            exclude_patterns=tuple(exclude),
        )
        line = encoded(start)
        watch = Watch(self._connection.flow)
        forget = self._connection.register(start.watch_id, watch)
        try:
            await self._connection.write(line)
            async with within(within_s, "the watch did not begin"):
                await watch.started.get()
            yield watch
        finally:
            watch.leave()
            forget()
            with suppress(BattenError):  # the worker died, and the watch with it
                await self._connection.send(incoming.WatchStop(watch_id=start.watch_id))

    async def _answer(
        self, utility_id: str, request: incoming.Incoming, kind: type[Answer], within_s: float
    ) -> Answer:
        slot = _Answering(self._connection.flow)
        forget = self._connection.register(utility_id, slot)
        try:
            async with within(within_s, "the worker did not answer"):
                await self._connection.send(request)
                answer = await slot.get()
        finally:
            forget()
        if not isinstance(answer, kind):
            raise PeerError(f"the worker answers {utility_id} with a {type(answer).__name__}")
        return answer


def _joined(words: Sequence[str]) -> str:
    try:
        return shlex.join(words)
    except TypeError as error:
        right = "a line for the shell, or a list of words"
        raise CallerError(f"command is {words!r}; it must be {right}") from error
