"""An MCP server as a process of ours: messages as lines on its pipes, and a certain end.

The SDK's own transport waits up to four seconds for a server that does not leave; ours
gives it half a second, asks, and kills its group.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import mcp_types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from batten.contract.errors import ProviderError

LONGEST_LINE = 32 * 1024 * 1024
_GRACE_S = 0.5

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


class ServerProcess:
    """A started server, and the last thing it said that was no message."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self._said = ""

    @property
    def said(self) -> str:
        return self._said.strip()[-300:]

    def hear(self, text: bytes) -> None:
        self._said = (self._said + text.decode("utf-8", "replace"))[-2000:]


@asynccontextmanager
async def server_process(
    argv: list[str], env: dict[str, str], cwd: str | None, started: list[ServerProcess]
) -> AsyncGenerator[tuple[Incoming, Outgoing], None]:
    """A running server and its message streams; leaving ends the server and its children.

    `started` receives the process, for whoever must explain why nothing came of it.
    """
    server = ServerProcess(await _spawn(argv, env, cwd))
    started.append(server)
    to_client, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_client = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as pumps:
            pumps.start_soon(_pump_messages, server, to_client)
            pumps.start_soon(_pump_complaints, server)
            pumps.start_soon(_pump_requests, server, from_client, to_client)
            try:
                yield incoming, outgoing
            finally:
                incoming.close()
                outgoing.close()
                with anyio.CancelScope(shield=True):
                    await _leave(server.process)
                pumps.cancel_scope.cancel()
    finally:
        _kill(server.process)
        for stream in (to_client, incoming, outgoing, from_client):
            stream.close()
        with anyio.CancelScope(shield=True):
            await server.process.wait()


async def _spawn(
    argv: list[str], env: dict[str, str], cwd: str | None
) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd=cwd,
            start_new_session=True,
            limit=LONGEST_LINE,
        )
    except OSError as error:
        raise ProviderError(
            f"{argv[0]} cannot be started: {error.strerror}", code="mcp_unavailable"
        ) from error


async def _pump_messages(
    server: ServerProcess, to_client: MemoryObjectSendStream[SessionMessage | Exception]
) -> None:
    assert server.process.stdout is not None
    # Closing tells the session that the connection is over: nobody waits for an answer.
    async with to_client:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ValueError):
            while line := await server.process.stdout.readline():
                try:
                    message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    server.hear(line)
                    continue
                await to_client.send(SessionMessage(message))


async def _pump_complaints(server: ServerProcess) -> None:
    assert server.process.stderr is not None
    while chunk := await server.process.stderr.read(4096):
        server.hear(chunk)


async def _pump_requests(
    server: ServerProcess,
    from_client: MemoryObjectReceiveStream[SessionMessage],
    to_client: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    assert server.process.stdin is not None
    try:
        async for message in from_client:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            server.process.stdin.write(text.encode() + b"\n")
            await server.process.stdin.drain()
    except (ConnectionError, anyio.ClosedResourceError):
        to_client.close()


async def _leave(process: asyncio.subprocess.Process) -> None:
    """Close its input, then ask, each with a moment to react."""
    assert process.stdin is not None
    process.stdin.close()
    if not await _gone(process):
        _signal(process, signal.SIGTERM)
        await _gone(process)


async def _gone(process: asyncio.subprocess.Process) -> bool:
    with anyio.move_on_after(_GRACE_S):
        await process.wait()
    return process.returncode is not None


def _kill(process: asyncio.subprocess.Process) -> None:
    """The whole group: a server may have started others."""
    _signal(process, signal.SIGKILL)
    # A child that left the group may hold the pipes; without this their readers stay open.
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
