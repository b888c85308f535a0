"""A worker in a process of its own, started with the current interpreter.

It has its own session, so that the embedder decides what Ctrl-C does. It ends when its streams
close, also when the embedder is killed.
"""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from batten.client.errors import NotStarted
from batten.client.transport import PIECE, Start, Streams, Transport

LEAVE_S = 10.0
"""How long it may take to end its run and exit after its streams are closed."""
_TERMINATE_S = 2.0
_REAPED_S = 2.0
"""For a killed process to be gone, so that no trace of it is left in the event loop. One that left
its session may hold the pipes for longer."""
_COMPLAINTS_S = 1.0


class _Pipes(Streams):
    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        super().__init__(process.stdout, process.stdin)
        self._process = process
        self._heard = asyncio.Event()
        """Set at the end of standard error."""

    def hang_up(self) -> None:
        self._writer.close()

    async def ended(self) -> int:
        code = await self._process.wait()
        with suppress(TimeoutError):  # unless another process holds its standard error open
            async with asyncio.timeout(_COMPLAINTS_S):
                await self._heard.wait()
        return code

    async def listen(self) -> None:
        """Keep the end of standard error; unread output would block the worker."""
        assert self._process.stderr is not None
        while piece := await self._process.stderr.read(PIECE):
            self.said.add(piece.decode(errors="replace"))
        self._heard.set()


@asynccontextmanager
async def own_process(start: Start) -> AsyncGenerator[Transport, None]:
    """Start a worker in a process of its own."""
    words = ("headless", "--protocol", "maestro", *start.argv)
    process = await start_batten(
        start.command, words, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=start.environ
    )
    pipes = _Pipes(process)
    group = asyncio.TaskGroup()
    try:
        # Entered by hand, so that errors of the `async with` body are not wrapped in a group.
        await group.__aenter__()
        listening = group.create_task(pipes.listen())
        try:
            yield pipes
        finally:
            try:
                await _end(pipes, process)
            finally:
                listening.cancel()
                await group.__aexit__(None, None, None)
    finally:
        if process.returncode is None:  # the embedder itself is being cancelled
            await killed(process)


async def start_batten(command: Sequence[str], words: Sequence[str], **how: Any) -> Process:
    """Start `command`, or this interpreter's Batten, with these arguments in its own session."""
    if not command and not sys.executable:
        raise NotStarted("this program has no interpreter to start a worker with; give a `command`")
    # -P: imports nothing from the current directory.
    argv = [*(command or (sys.executable, "-P", "-m", "batten")), *words]
    try:
        return await asyncio.create_subprocess_exec(*argv, **how, start_new_session=True)
    except (OSError, ValueError) as error:
        raise NotStarted(f"{argv[0]} cannot be started: {error}") from error


async def killed(process: Process) -> None:
    """Kill a process of `start_batten`, with what it started in its session, and wait for its end.

    `Process.wait` alone would wait until its pipes are closed: they are not while output is unread,
    or another process holds them.
    """
    assert process.stdout is not None
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    with suppress(OSError):  # one is TimeoutError
        async with asyncio.timeout(_REAPED_S):
            while await process.stdout.read(PIECE):
                pass
            await process.wait()


async def _end(pipes: _Pipes, process: Process) -> None:
    """Wait for the process to exit; terminate, then kill it if it does not."""
    pipes.hang_up()
    if await _left(pipes, process, LEAVE_S):
        return
    with suppress(ProcessLookupError):
        process.terminate()
    if not await _left(pipes, process, _TERMINATE_S):
        await killed(process)


async def _left(pipes: _Pipes, process: Process, patience_s: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            await pipes.skip_rest()
            await process.wait()
            return True
    return False
