"""A client's own commands: each belongs to a connection and ends with it at the latest."""

import asyncio
import codecs
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial

from batten.contract.errors import BattenError, CallerError, Conflict, JournalError, NotFound
from batten.contract.facts import SessionUtilityEnded, SessionUtilityStarted
from batten.contract.utilities import (
    CommandExited,
    CommandOutput,
    CommandResized,
    CommandStarted,
    StartCommand,
)
from batten.session.utilities.feeding import Feed
from batten.session.utilities.ownership import Owned, Record, Tell
from batten.session.utilities.paths import working_directory
from batten.workspace.argv import check_command, split_command
from batten.workspace.commands import Command, Exit, Stream
from batten.workspace.keeper import Keeper
from batten.workspace.root import Root

MOST_COMMANDS = 64
_GRACE_S = 1.0
_WIDEST = 65_535
_LONGEST_NAME = 256
_LONGEST_VALUE = 32_768


class _Running(Owned):
    def __init__(self, asked: StartCommand, words: str | list[str], cwd: str, owner: str) -> None:
        """`words` are a line for the shell, or a program with its arguments."""
        super().__init__("command", asked.command_id, owner)
        self.asked = asked
        self.words = words
        self.cwd = cwd
        self.command: Command | None = None
        self.feed = Feed(asked.command_id)


class UtilityCommands:
    """Starts commands in one workspace and reports their output and end."""

    def __init__(
        self, keeper: Keeper, root: Root, record: Record, tell: Tell, group: asyncio.TaskGroup
    ) -> None:
        self._keeper = keeper
        self._root = root
        self._record = record
        self._tell = tell
        self._group = group
        self._running: dict[str, _Running] = {}

    def start(self, asked: StartCommand, owner: str) -> Owned:
        """Start a command in the background. Raises for one that cannot be started at all."""
        if asked.command_id in self._running:
            raise Conflict(f"Utility command already exists: {asked.command_id}")
        if len(self._running) >= MOST_COMMANDS:
            raise CallerError(f"{MOST_COMMANDS} utility commands run already; end one first")
        words = _words(asked)
        _check_environment(asked.env)
        if asked.size is not None:
            _check_size(*asked.size)
        cwd = working_directory(self._root, asked.cwd)
        running = _Running(asked, words, cwd.path, owner)
        task = self._group.create_task(self._run(running))
        self._running[asked.command_id] = running
        task.add_done_callback(lambda _: self._end_of(running))  # it may never have begun
        return running

    async def write(self, command_id: str, text: str, *, eof: bool, owner: str) -> None:
        write = await self.accept(command_id, text, eof=eof, owner=owner)
        await write()

    async def accept(
        self, command_id: str, text: str, *, eof: bool, owner: str
    ) -> Callable[[], Awaitable[None]]:
        """Accept input for a command. The returned callable writes it, in the background.

        Waits while much input is queued, as long as the command reads any of it.
        """
        running = self._known(command_id, owner)
        if not running.asked.stdin:
            raise Conflict(f"Utility command stdin is not enabled: {command_id}")
        data = text.encode("utf-8", "replace")
        await running.settled.wait()  # a command must start before it can read
        await running.feed.room_for(data)
        return partial(self._feed, running, data, eof)

    async def resize(self, command_id: str, columns: int, rows: int, *, owner: str) -> None:
        running = self._known(command_id, owner)
        if running.asked.size is None:
            raise Conflict(
                f"Utility command resize is only supported for PTY commands: {command_id}"
            )
        _check_size(columns, rows)
        command = await self._started(running)
        command.resize(columns, rows)
        await self._tell(CommandResized(command_id=command_id, columns=columns, rows=rows))

    async def terminate(self, command_id: str, *, force: bool, owner: str) -> None:
        """End the command and its children; does nothing if it has ended."""
        running = self._running.get(command_id)
        if running is None:
            return
        running.check(owner)
        running.end_for("Force terminated by controller" if force else "Terminated by controller")
        await self._end(running, 0 if force else _GRACE_S)

    async def end_all(self, reason: str, owner: str | None = None) -> None:
        """Kill the commands of a connection, or all, and wait until their ends are reported."""
        for running in await self.kill_all(reason, owner):
            await running.over.wait()

    async def kill_all(self, reason: str, owner: str | None = None) -> Sequence[Owned]:
        """Kill the commands without waiting for clients; their ends may be unreported yet."""
        ending = [one for one in self._running.values() if owner in (None, one.owner)]
        for running in ending:
            running.end_for(reason)
        await asyncio.gather(*(self._end(running, 0) for running in ending))
        return ending

    async def _feed(self, running: _Running, data: bytes, eof: bool) -> None:
        command = await self._started(running)
        await running.feed.write(command, data, eof=eof)

    async def _end(self, running: _Running, grace_s: float) -> None:
        await running.settled.wait()
        if running.command is not None:
            await running.command.terminate(grace_s)

    def _known(self, command_id: str, owner: str) -> _Running:
        running = self._running.get(command_id)
        if running is None:
            raise NotFound(f"Utility command not found: {command_id}")
        running.check(owner)
        return running

    async def _started(self, running: _Running) -> Command:
        await running.settled.wait()
        if running.command is None:
            raise NotFound(f"Utility command not found: {running.name}")
        return running.command

    async def _run(self, running: _Running) -> None:
        """Run a command from its start to the one report of its end."""
        exit_: Exit | None = None
        problem = ""
        try:
            await self._record(_started_fact(running))
            exit_ = await self._until_exit(running)
        except BattenError as error:
            problem = str(error)
        finally:
            self._settle(running)
        await self._say_end(running, exit_, problem)

    def _settle(self, running: _Running) -> None:
        running.settled.set()
        if self._running.get(running.name) is running:
            del self._running[running.name]

    def _end_of(self, running: _Running) -> None:
        self._settle(running)
        running.over.set()

    async def _say_end(self, running: _Running, exit_: Exit | None, problem: str) -> None:
        exited = CommandExited(
            command_id=running.name,
            exit_code=None if exit_ is None else exit_.exit_code,
            signal=None if exit_ is None else exit_.signal,
            reason=running.reason or problem,
        )
        with suppress(JournalError):  # clients receive the end even if unrecorded
            await self._record(_ended_fact(exited))
        await self._tell(exited)

    async def _until_exit(self, running: _Running) -> Exit:
        asked = running.asked
        command = await self._keeper.spawn(
            running.words,
            cwd=running.cwd,
            env=asked.env,
            stdin="open" if asked.stdin else "closed",
            pty=asked.size,
            numbered=True,
        )
        async with command:
            if asked.size is not None and not asked.stdin:
                await command.close_stdin()
            started = CommandStarted(
                asked=asked, cwd=running.cwd, pid=command.pid, owner=running.owner
            )
            running.command = command
            running.settled.set()  # it can be ended even while slow clients receive the start
            await self._tell(started)
            await self._show(running, command)
            return await command.wait()

    async def _show(self, running: _Running, command: Command) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")
        streams: dict[Stream, codecs.IncrementalDecoder] = {}
        async for stream, chunk in command.output():
            decoding = streams.setdefault(stream, decoder("replace"))
            await self._say(running.name, stream, decoding.decode(chunk))
        for stream, decoding in streams.items():
            await self._say(running.name, stream, decoding.decode(b"", final=True))

    async def _say(self, command_id: str, stream: Stream, text: str) -> None:
        if text:
            await self._tell(CommandOutput(command_id=command_id, stream=stream, text=text))


def _words(asked: StartCommand) -> str | list[str]:
    """What to run; raises for a line that cannot be run."""
    if not asked.shell:
        return split_command(asked.command)
    check_command(asked.command)
    return asked.command


def _check_size(columns: int, rows: int) -> None:
    if not (0 < columns <= _WIDEST and 0 < rows <= _WIDEST):
        raise CallerError(
            f"Utility command columns and rows are positive whole numbers up to {_WIDEST}"
        )


def _check_environment(env: dict[str, str]) -> None:
    if any(len(name) > _LONGEST_NAME for name in env):
        raise CallerError(f"A name in env has more than {_LONGEST_NAME} characters")
    if any(len(value) > _LONGEST_VALUE for value in env.values()):
        raise CallerError(f"A value in env has more than {_LONGEST_VALUE} characters")


def _started_fact(running: _Running) -> SessionUtilityStarted:
    asked = running.asked
    return SessionUtilityStarted(
        utility_id=asked.command_id,
        kind="command",
        detail={
            "command": asked.command,
            "cwd": running.cwd,
            "env_keys": sorted(asked.env),
            "shell": asked.shell,
            "terminal": asked.size is not None,
            "owner": running.owner,
        },
    )


def _ended_fact(exited: CommandExited) -> SessionUtilityEnded:
    return SessionUtilityEnded(
        utility_id=exited.command_id,
        kind="command",
        detail={
            "exit_code": exited.exit_code,
            "signal": exited.signal,
            "reason": exited.reason,
        },
    )
