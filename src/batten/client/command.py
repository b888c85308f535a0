"""A command that the embedder runs in a worker's workspace."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress

from msgspec import UNSET, Struct

from batten.client.connection import AnyMessage, Connection
from batten.client.errors import UtilityRefused
from batten.client.mailbox import Flow, Mailbox, Slot
from batten.contract.errors import BattenError, Conflict
from batten.protocols.maestro import incoming, outgoing
from batten.protocols.maestro.vocabulary import Stream
from batten.protocols.tail import Tail

_LEAVE_S = 5.0


class Output(Struct, frozen=True):
    stream: Stream
    text: str


class Exit(Struct, frozen=True, kw_only=True):
    exit_code: int | None
    signal: str | None
    reason: str = ""
    """Why the command was ended, if it did not end by itself."""

    @property
    def success(self) -> bool:
        return self.exit_code == 0


class Completed(Exit, frozen=True, kw_only=True):
    stdout: str
    stderr: str
    truncated: bool
    """The beginning of the output was dropped."""


class Streaming:
    """Collects the messages about one command."""

    def __init__(self, flow: Flow) -> None:
        self.started: Slot[None] = Slot(flow)
        self.output: Mailbox[Output] = Mailbox(flow)
        self.over = asyncio.Event()
        self.exit: Exit | None = None

    def take(self, message: AnyMessage, size: int) -> None:
        match message:
            case outgoing.CommandStarted():
                self.started.put(None)
            case outgoing.CommandOutput():
                self.output.put(Output(message.stream, message.content), size)
            case outgoing.CommandExited():
                reason = message.reason or ""
                self.exit = Exit(
                    exit_code=None if message.exit_code is UNSET else message.exit_code,
                    signal=None if message.signal is UNSET else message.signal,
                    reason=reason,
                )
                self.started.fail(UtilityRefused(reason or "the command could not be started"))
                self._end(None)
            case outgoing.Error():
                self.fail(UtilityRefused(message.message))
            case _:
                pass

    def fail(self, error: BattenError) -> None:
        self.started.fail(error)
        self._end(error)

    def _end(self, error: BattenError | None) -> None:
        self.output.close(error)
        self.over.set()


class Command:
    """A running command. Iterate it for its output; one reader at a time."""

    def __init__(self, link: Connection, command_id: str, streaming: Streaming) -> None:
        self._connection = link
        self._id = command_id
        self._streaming = streaming

    @property
    def exit(self) -> Exit:
        """How it ended. Raises `Conflict` while it is running."""
        if self._streaming.exit is None:
            raise Conflict("the command has not ended; read its output to the end")
        return self._streaming.exit

    async def __aiter__(self) -> AsyncGenerator[Output, None]:
        while (output := await self._streaming.output.get()) is not None:
            yield output

    async def complete(self, most_output: int) -> Completed:
        kept: dict[Stream, Tail] = {"stdout": Tail(most_output), "stderr": Tail(most_output)}
        async for output in self:
            kept[output.stream].add(output.text)
        return Completed(
            exit_code=self.exit.exit_code,
            signal=self.exit.signal,
            reason=self.exit.reason,
            stdout=kept["stdout"].text(),
            stderr=kept["stderr"].text(),
            truncated=any(one.cut for one in kept.values()),
        )

    async def write(self, text: str, *, eof: bool = False) -> None:
        """Write to standard input, which must have been requested at the start."""
        await self._connection.send(
            incoming.CommandStdin(command_id=self._id, content=text, eof=eof)
        )

    async def resize(self, columns: int, rows: int) -> None:
        await self._connection.send(
            incoming.CommandResize(command_id=self._id, columns=columns, rows=rows)
        )

    async def terminate(self, *, force: bool = False) -> None:
        """End the command and everything it started. Its output continues until it has ended."""
        if not self._streaming.over.is_set():
            await self._connection.send(incoming.CommandTerminate(command_id=self._id, force=force))

    async def leave(self) -> None:
        """Stop reading and end the command."""
        self._streaming.output.discard()
        with suppress(TimeoutError, BattenError):
            async with asyncio.timeout(_LEAVE_S):
                await self.terminate(force=True)
                with self._connection.flow.awaited():
                    await self._streaming.over.wait()
