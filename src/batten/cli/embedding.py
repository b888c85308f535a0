"""A worker in the embedder's process: the surface of `batten headless` on a socket pair, as a task.

It does not touch the process's standard streams, signals and timers.
"""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec.structs import replace

from batten.client.errors import NotStarted
from batten.client.transport import PIECE, Start, Streams, Transport
from batten.contract.errors import CallerError
from batten.contract.outcomes import exit_code

if TYPE_CHECKING:
    from batten.wiring.spec import SessionSpec

LEAVE_S = 10.0
"""How long the worker may take to end its run and exit by itself."""
_LOADED = ("batten.wiring.opening", "batten.serve.maestro.session")
"""Modules that take long to import; imported in a thread, not on the embedder's loop."""


class _Sockets(Streams):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self.exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def hang_up(self) -> None:
        with suppress(OSError):
            self._writer.write_eof()

    async def ended(self) -> int:
        return await asyncio.shield(self.exit_code)


@asynccontextmanager
async def in_process(start: Start) -> AsyncGenerator[Transport, None]:
    """Start a worker in this process, on the running loop.

    The worker and its commands use the environment in `start`. Raises `CallerError` if `start`
    has a `command`.
    """
    if start.command:
        raise CallerError(f"{start.command[0]} is no part of this process; leave `command` out")
    for name in _LOADED:
        await asyncio.to_thread(import_module, name)
    reader, writer, theirs = await _pair()
    sockets = _Sockets(reader, writer)
    group = asyncio.TaskGroup()
    # Entered by hand: a caller's error is raised as it is, not in an exception group.
    await group.__aenter__()
    serving = group.create_task(_serve(start, theirs, sockets))
    try:
        yield sockets
    finally:
        try:
            sockets.hang_up()
            with suppress(TimeoutError, OSError):
                async with asyncio.timeout(LEAVE_S):
                    await sockets.skip_rest()
                    await sockets.ended()
        finally:
            writer.close()
            serving.cancel()
            await group.__aexit__(None, None, None)
            theirs.close()  # in case `_serve` was cancelled before it started


async def _pair() -> tuple[asyncio.StreamReader, asyncio.StreamWriter, socket.socket]:
    """A socket pair: streams for our end, and the worker's end."""
    try:
        ours, theirs = socket.socketpair()
    except OSError as error:
        raise NotStarted(f"no worker can be spoken to: {error}") from error
    try:
        return *await asyncio.open_connection(sock=ours), theirs
    except BaseException:
        ours.close()
        theirs.close()
        raise


async def _serve(start: Start, theirs: socket.socket, sockets: _Sockets) -> None:
    from batten.cli.headless import refuse, speak
    from batten.serve.output import instead_of_people, redact_for_people
    from batten.serve.words import redacting

    instead_of_people.set(sockets.said.add)
    redact_for_people.set(redacting(start.environ))
    code = exit_code("cancelled")
    try:
        try:
            spec = spec_of_start(start)
        except CallerError as error:
            code = await refuse("maestro", str(error), _streams(theirs))
        else:
            code = await speak("maestro", spec, _streams(theirs))
    except asyncio.CancelledError:
        if (task := asyncio.current_task()) is not None and task.cancelling():
            task.uncancel()  # cancelled by `in_process` or by the worker's own guard
    except Exception as error:  # a bug of ours must not end the embedder
        sockets.said.add(f"{type(error).__name__}: {error}\n")
        code = exit_code("internal")
    finally:
        with suppress(OSError):
            theirs.shutdown(socket.SHUT_RDWR)  # also ends the thread that still reads
            while theirs.recv(PIECE, socket.MSG_DONTWAIT):
                pass  # closing with unread data would discard our last message
        theirs.close()
        sockets.exit_code.set_result(code)


def spec_of_start(start: Start) -> "SessionSpec":
    """The session specification for an embedder's `start`."""
    from batten.cli.arguments import parse_headless
    from batten.cli.options import headless_spec

    base = headless_spec(parse_headless(start.flags, start.environ, "maestro"), start.environ)
    return replace(
        base,
        models=(start.model, *base.models) if start.model else base.models,
        workspace=base.workspace or start.workspace or None,
        resume=base.resume or start.resume or None,
    )


def _streams(theirs: socket.socket) -> tuple[int, int]:
    """Descriptors to read from and write to, owned by the caller."""
    source = os.dup(theirs.fileno())
    try:
        return source, os.dup(theirs.fileno())
    except OSError:
        os.close(source)
        raise
