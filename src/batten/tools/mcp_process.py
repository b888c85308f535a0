"""An MCP server as a child process: messages as lines on its pipes.

A keeper starts it, so it and its children end with us, even if we are killed.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import mcp_types
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from batten.contract.errors import BattenError, ProviderError
from batten.contract.surrogates import decode_lone
from batten.workspace.commands import Command
from batten.workspace.keeper import Keeper

LONGEST_LINE = 32 * 1024 * 1024
_MOST_LOG = 4000
_GRACE_S = 0.5

_ID = re.compile(rb'"id"\s*:\s*([0-9]{1,18})\s*[,}]')
"""The id of a request of ours."""
_UNREADABLE = "the server's answer is not a response of JSON-RPC"

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


class ServerProcess:
    """A started server, and the end of its output that is not messages."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.log_text = ""

    def log(self, text: bytes) -> None:
        self.log_text = (self.log_text + text.decode("utf-8", "replace"))[-_MOST_LOG:]


@asynccontextmanager
async def server_process(
    keeper: Keeper,
    argv: list[str],
    env: dict[str, str],
    cwd: str | None,
    started: list[ServerProcess],
) -> AsyncGenerator[tuple[Incoming, Outgoing], None]:
    """A running server and its message streams; leaving ends the server and its children.

    `started` receives the process, so that a failed connection can be explained by its output.
    """
    try:
        command = await keeper.spawn(argv, cwd=cwd, env=env, stdin="open")
    except BattenError as error:
        raise ProviderError(
            f"{argv[0]} cannot be started: {error}", code="mcp_unavailable"
        ) from error
    server = ServerProcess(command)
    started.append(server)
    to_client, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_client = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as pumps:
            pumps.start_soon(_pump_output, server, to_client)
            pumps.start_soon(_pump_requests, server, from_client, to_client)
            try:
                yield incoming, outgoing
            finally:
                incoming.close()
                outgoing.close()
                with anyio.CancelScope(shield=True):
                    await _leave(command)
                pumps.cancel_scope.cancel()
    finally:
        for stream in (to_client, incoming, outgoing, from_client):
            stream.close()
        with anyio.CancelScope(shield=True):
            await command.close()


async def _pump_output(
    server: ServerProcess, to_client: MemoryObjectSendStream[SessionMessage | Exception]
) -> None:
    """Send lines that are messages to the session; keep other output for error reports."""
    waiting = bytearray()
    # Closing ends the session's connection, so no call waits for an answer.
    async with to_client:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, BattenError):
            async for stream, chunk in server.command.output():
                if stream == "stderr":
                    server.log(chunk)
                    continue
                waiting += chunk
                if b"\n" in chunk:
                    *lines, rest = waiting.split(b"\n")
                    waiting = bytearray(rest)
                    for line in lines:
                        await _pass_on(server, bytes(line), to_client)
                if len(waiting) > LONGEST_LINE:
                    server.log(b"a line longer than %d bytes" % LONGEST_LINE)
                    return


async def _pass_on(
    server: ServerProcess,
    line: bytes,
    to_client: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    if not line.strip():
        return
    message = _message(line)
    if message is None:
        server.log(line)
        return
    await to_client.send(SessionMessage(message))


def _message(line: bytes) -> mcp_types.JSONRPCMessage | None:
    """The message of a line, None if it is none.

    Half a character is replaced. An answer that cannot be read is an error: its call waits for it.
    """
    adapter = mcp_types.jsonrpc_message_adapter
    with suppress(ValueError):
        return adapter.validate_json(line, by_name=False)
    value = decode_lone(line)
    if value is None:
        with suppress(ValueError, RecursionError):
            value = msgspec.json.decode(line.decode("utf-8", "replace"))
    with suppress(ValueError):
        return adapter.validate_python(value, by_name=False)
    found = _ID.search(line) if b'"jsonrpc"' in line and b'"method"' not in line else None
    if not line.lstrip().startswith(b"{") or found is None:
        return None
    error = mcp_types.ErrorData(code=mcp_types.INVALID_REQUEST, message=_UNREADABLE)
    return mcp_types.JSONRPCError(jsonrpc="2.0", id=int(found[1]), error=error)


async def _pump_requests(
    server: ServerProcess,
    from_client: MemoryObjectReceiveStream[SessionMessage],
    to_client: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    try:
        async for message in from_client:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await server.command.write_stdin(text.encode() + b"\n")
    except (BattenError, anyio.ClosedResourceError):
        to_client.close()


async def _leave(command: Command) -> None:
    """Close its stdin, then send TERM, each with a grace period, then kill the rest."""
    with suppress(BattenError):
        await command.close_stdin()
    with suppress(BattenError, TimeoutError):
        async with asyncio.timeout(_GRACE_S):
            await command.wait()
    await command.terminate(_GRACE_S)
