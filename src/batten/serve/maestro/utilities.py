"""Runs a client's commands, searches, reads and watches in the background."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from batten.contract.errors import BattenError, CallerError
from batten.contract.facts import SessionUtilityEnded, SessionUtilityStarted
from batten.contract.utilities import Said
from batten.protocols.maestro import faults, incoming
from batten.protocols.maestro import utilities as codec
from batten.protocols.maestro.outgoing import Message
from batten.serve.maestro.client_sink import ClientSink
from batten.session.session import Session
from batten.session.utilities.commands import UtilityCommands
from batten.session.utilities.lookups import Lookups
from batten.session.utilities.ownership import Owned
from batten.session.utilities.watches import UtilityWatches
from batten.workspace.keeper import Keeper
from batten.workspace.root import Root

MOST_AT_ONCE = 256
"""Operations in progress; further ones wait."""


class Utilities:
    """Carries out utility messages. A command or watch belongs to the connection that starts it."""

    def __init__(
        self,
        session: Session,
        keeper: Keeper,
        sink: ClientSink,
        group: asyncio.TaskGroup,
        most_bytes: int,
    ) -> None:
        self._session = session
        self._sink = sink
        self._group = group
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._held: set[asyncio.Timeout] = set()
        """Sends that wait for the client to read."""
        self._ending = 0
        root = Root(session.deps.workspace_path, writable=session.deps.directories)
        self._commands = UtilityCommands(keeper, root, session.record, self._tell, group)
        self._watches = UtilityWatches(root, session.record, self._tell, group)
        self._lookups = Lookups(root, most_bytes)

    async def take(self, message: incoming.Incoming, owner: str) -> None:
        """Start one operation. Raises errors found at once; sends later ones as messages."""
        match message:
            case incoming.CommandStart() | incoming.WatchStart() | incoming.WatchStop():
                self._start_or_stop(message, owner)
            case incoming.CommandStdin():
                # Bounded separately, without a place: a client must be able to terminate a command
                # that does not read its input.
                write = await self._accept(message, owner)
                self._group.create_task(self._carry_out(write, message))
            case _:
                await self._places.acquire()
                operating = self._group.create_task(
                    self._carry_out(partial(self._operate, message, owner), message)
                )
                operating.add_done_callback(lambda _: self._places.release())

    async def finish(self, message: incoming.Incoming, owner: str) -> None:
        """Carry out one operation; returns after its messages were sent, and raises its errors.

        For a command or watch, that is after its start.
        """
        match message:
            case incoming.CommandStart() | incoming.WatchStart():
                started = self._start_or_stop(message, owner)
                assert started is not None
                await started.settled.wait()
            case incoming.WatchStop():
                stopped = self._start_or_stop(message, owner)
                if stopped is not None:
                    await stopped.over.wait()
            case incoming.CommandStdin():
                write = await self._accept(message, owner)
                await write()
            case _:
                async with self._places:
                    await self._operate(message, owner)

    async def end_all(self, word: str, owner: str | None = None) -> None:
        """End every command and watch, or those of one connection; `word` is the reason.

        A slow client delays this only until the commands are dead: the output that is left then is
        bounded by their pipes.
        """
        watches = f"{word} while file watch was still running"
        commands = f"{word} while utility command was still running"
        killed = await self._commands.kill_all(commands, owner)
        self._ending += 1
        while self._held:  # once each: an expired timeout cannot be rescheduled
            self._held.pop().reschedule(0)
        try:
            await self._watches.end_all(watches, owner)
            for command in killed:
                await command.over.wait()
        finally:
            self._ending -= 1

    async def close(self, word: str) -> None:
        """End everything for good: running lookups do not wait for the client either."""
        try:
            await self.end_all(word)
        finally:
            self._ending += 1

    def _start_or_stop(
        self, message: incoming.CommandStart | incoming.WatchStart | incoming.WatchStop, owner: str
    ) -> Owned | None:
        match message:
            case incoming.CommandStart():
                return self._commands.start(codec.command_asked(message), owner)
            case incoming.WatchStart():
                return self._watches.start(codec.watch_asked(message), owner)
            case incoming.WatchStop():
                return self._watches.stop(message.watch_id, owner=owner)

    def _accept(
        self, message: incoming.CommandStdin, owner: str
    ) -> Awaitable[Callable[[], Awaitable[None]]]:
        return self._commands.accept(
            message.command_id, message.content, eof=message.eof, owner=owner
        )

    async def _carry_out(
        self, operate: Callable[[], Awaitable[None]], message: incoming.Incoming
    ) -> None:
        try:
            await operate()
        except BattenError as error:
            self._sink.send(faults.of_tool(str(error), incoming.utility_id_of(message)))

    async def _operate(self, message: incoming.Incoming, owner: str) -> None:
        commands = self._commands
        match message:
            case incoming.CommandResize():
                columns = codec.whole(message.columns, "columns")
                rows = codec.whole(message.rows, "rows")
                await commands.resize(message.command_id, columns, rows, owner=owner)
            case incoming.CommandTerminate():
                await commands.terminate(message.command_id, force=message.force, owner=owner)
            case incoming.FileSearch():
                await self._search(message)
            case incoming.FileRead():
                await self._read(message)
            case _:
                raise CallerError(f"{type(message).__name__} is no utility")

    async def _search(self, message: incoming.FileSearch) -> None:
        limit = codec.limit(message.limit)
        files = await self._lookups.search(message.query, message.cwd, limit)
        detail = {"query": files.query, "cwd": files.cwd, "results": len(files.files)}
        await self._looked(message.search_id, "search", detail)
        await self._send(codec.found(message.search_id, files))

    async def _read(self, message: incoming.FileRead) -> None:
        offset, limit = codec.limit(message.offset), codec.limit(message.limit)
        lines = await self._lookups.read(message.path, message.cwd, offset, limit)
        detail = {"path": lines.path, "start": lines.start_line, "end": lines.end_line}
        await self._looked(message.read_id, "read", detail)
        await self._send(codec.page(message.read_id, lines))

    async def _looked(self, utility_id: str, kind: str, detail: dict[str, Any]) -> None:
        """Record a lookup before its result is sent."""
        await self._session.record(
            SessionUtilityStarted(utility_id=utility_id, kind=kind, detail=detail),
            SessionUtilityEnded(utility_id=utility_id, kind=kind, detail={}),
        )

    async def _tell(self, said: Said) -> None:
        await self._send(codec.told(said))

    async def _send(self, message: Message) -> None:
        self._sink.send(message)
        if self._ending or self._sink.has_room:
            return
        limit = asyncio.timeout(None)
        self._held.add(limit)
        try:
            async with limit:
                await self._sink.room()
        except TimeoutError:
            if not limit.expired():
                raise
        finally:
            self._held.discard(limit)
