"""The keeper as seen from here: the process that starts every command, inside the sandbox.

Nothing it starts outlives it, and it does not outlive us.
"""

import asyncio
import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal

from batten.contract.errors import CallerError, NotFound, ProviderError
from batten.contract.tracing import trace_context
from batten.workspace import keeper_messages as wire
from batten.workspace import process_tree
from batten.workspace.argv import shell_argv
from batten.workspace.commands import Command, Launch, Stream
from batten.workspace.control import Control, keeper_lost
from batten.workspace.environment import command_environment
from batten.workspace.keeper_channel import CLOSING_S, KeeperChannel
from batten.workspace.sandbox import Policy, Sandbox
from batten.workspace.shared_keeper import SharedKeeper


class Keeper:
    """Starts commands in one workspace under one policy, with one environment.

    The process behind it is shared with other keepers of the same workspace and policy in this
    event loop; closing this one ends the commands that it started. If the process dies, its
    commands end with `keeper_lost`, and the next command starts a new one. A command that stops
    its own shim ends with the process.
    """

    def __init__(
        self, root: str, policy: Policy | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        """`environ` is the environment that commands inherit from, and by which the process finds
        `bwrap` and its temporary directory.
        """
        self.root = os.path.realpath(root)
        self.policy = policy or Policy()
        self._environ = environ or {}
        self._shared: SharedKeeper | None = None
        self._commands: set[Command] = set()

    def start(self) -> None:
        """Begin starting the process, so that the first command need not wait. Returns at once.

        Starts it again after it could not start or was lost.
        """
        self._process().start()

    def twin(self) -> "Keeper":
        """Another keeper on the same process, which then outlives this one."""
        other = Keeper(self.root, self.policy, self._environ)
        other.start()
        return other

    async def ready(self) -> Sandbox:
        """The sandbox in force, once the keeper runs."""
        return (await self._process().channel()).sandbox

    async def spawn(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: Literal["closed", "open"] = "closed",
        pty: tuple[int, int] | None = None,
        numbered: bool = False,
    ) -> Command:
        """Start a shell command line, or a list of words without a shell.

        `env` is added to the inherited variables; `pty` is columns and rows, and keeps stdin
        open; a `numbered` command has a pid. Raises if the command was not started, or if its start
        is uncertain.
        """
        argv = shell_argv(command) if isinstance(command, str) else list(command)
        line = command if isinstance(command, str) else " ".join(argv)
        for _ in range(2):
            link = await self._process().channel()
            environment = command_environment(
                {**self.policy.added, **_trace(), **(env or {})},
                inherit=self.policy.inherit,
                private_directory=link.private_directory,
                source=self._environ,
            )
            launch = Launch(
                line=line,
                argv=argv,
                cwd=cwd or self.root,
                env_keys=sorted(environment),
                sandbox_layer=link.sandbox.layer,
                pty=pty,
            )
            flags = wire.FLAG_STDIN if stdin == "open" else 0
            flags |= wire.FLAG_NUMBERED if numbered else 0
            body = _request_body(launch, environment, flags)
            started = await _start(link, launch, body, flags)
            if started is not None:
                self._commands = {known for known in self._commands if not known.over}
                self._commands.add(started)
                return started
            # No shim accepted the command, so a new keeper cannot run it twice.
            await link.until_lost()
        raise keeper_lost(f"Command {argv[0]} was not started")

    async def close(self) -> tuple[str, ...]:
        """End every command started here; the command lines of those that were still running."""
        live = [command for command in self._commands if not command.over]
        interrupted = [command for command in live if command.exit is None]
        try:
            # Shims that were stopped by their commands do not answer; they end with the keeper.
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSING_S):
                    await asyncio.gather(*(command.close() for command in self._commands))
        finally:  # also if this is cancelled, and before a command began to close
            for command in self._commands:
                command.drop()
            self._commands.clear()
            shared, self._shared = self._shared, None
            if shared is not None:
                await shared.leave()
        ended: list[str] = []
        for command in live:
            ended += [command.launch.line] if command in interrupted else command.killed
        return tuple(ended)

    def _process(self) -> SharedKeeper:
        if self._shared is None:
            self._shared = SharedKeeper.join(self.root, self.policy, self._environ)
        return self._shared


def _request_body(launch: Launch, environment: dict[str, str], flags: int) -> bytes:
    if not launch.argv or not launch.argv[0]:
        raise CallerError("Command must contain an executable to run")
    flags |= wire.FLAG_PTY if launch.pty else 0
    columns, rows = launch.pty or (0, 0)
    if launch.pty and not (0 < columns < 65536 and 0 < rows < 65536):
        raise CallerError(f"Terminal size {columns}x{rows} is not between 1 and 65535 each way")
    words = [os.fsencode(word) for word in launch.argv]
    pairs = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
    cwd = os.fsencode(launch.cwd)
    if any(b"\0" in text for text in (cwd, *words, *pairs)):
        raise CallerError("Command, directory and environment cannot hold a NUL character")
    if any("=" in name or not name for name in environment):
        raise CallerError("An environment name is empty or holds an equals sign")
    return wire.pack_request(flags, (columns, rows), cwd, words, pairs)


async def _start(link: KeeperChannel, launch: Launch, body: bytes, flags: int) -> Command | None:
    """Send a shim the command and the far ends of its pipes, and wait for the answer.

    None if no shim accepted it.
    """
    control = link.shim()
    lent: list[int] = []
    kept: list[int] = []
    try:
        if launch.pty is None:
            for reading, writing in (os.pipe(), os.pipe()):
                kept.append(reading)
                lent.append(writing)
            if flags & wire.FLAG_STDIN:
                reading, writing = os.pipe()
                kept.append(writing)
                lent.append(reading)
        await control.request(body, lent)
        if not control.accepted:
            control.close()
            _close(kept)
            return None
        # Not now: forking the next shim would slow this command down.
        control.when_closed(link.keep_one_waiting)
        _raise_failure(control, launch)
        if control.terminal is not None:
            kept = [control.terminal, os.dup(control.terminal)]
        pid = _number(link, control) if flags & wire.FLAG_NUMBERED else None
    except BaseException:
        control.close()
        _close(kept)
        raise
    finally:
        _close(lent)
    for descriptor in kept:
        os.set_blocking(descriptor, False)
    return _command(control, launch, kept, pid)


def _number(link: KeeperChannel, control: Control) -> int | None:
    """The pid of a command that its shim does not reap before it is told of this."""
    inside = link.sandbox.layer == "bwrap"
    pid = process_tree.seen_from_here(control.pid, link.pid) if inside else control.pid
    control.numbered()
    return pid


def _command(control: Control, launch: Launch, kept: list[int], pid: int | None) -> Command:
    if launch.pty is not None:
        return Command(control, launch, {"stdout": kept[0]}, kept[1], pid)
    streams: dict[Stream, int] = {"stdout": kept[0], "stderr": kept[1]}
    return Command(control, launch, streams, kept[2] if len(kept) > 2 else None, pid)


def _raise_failure(control: Control, launch: Launch) -> None:
    if control.failure is None:
        if control.lost:
            raise keeper_lost(f"Command {launch.argv[0]} was lost while it started")
        return
    number, stage = control.failure
    reason = os.strerror(number)
    if stage == wire.STAGE_CWD:
        raise NotFound(f"Working directory not found: {launch.cwd} ({reason})", code="no_directory")
    if stage == wire.STAGE_TERMINAL:
        raise ProviderError(f"No terminal could be opened: {reason}", code="no_terminal")
    if number == errno.ENOENT:
        raise NotFound(f"Executable not found: {launch.argv[0]}", code="no_executable")
    raise CallerError(f"Could not run {launch.argv[0]}: {reason}", code="spawn_failed")


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _trace() -> dict[str, str]:
    """The span that a command belongs to, while tracing is on."""
    return {name.upper(): value for name, value in trace_context().items()}
