"""The client's own commands, searches, reads and watches, each beside everything else."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from batten.contract.errors import BattenError, CallerError
from batten.contract.facts import Fact, SessionUtilityEnded, SessionUtilityStarted
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
"""Operations that are being carried out; who asks for more waits."""


class Utilities:
    """Carries out utility messages; what is started belongs to the connection that asked."""

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
        """What waits until the client reads on."""
        self._ending = 0
        root = Root(session.deps.workspace_path)
        self._commands = UtilityCommands(keeper, root, self._record, self._tell, group)
        self._watches = UtilityWatches(root, self._record, self._tell, group)
        self._lookups = Lookups(root, most_bytes)

    async def take(self, message: incoming.Incoming, owner: str) -> None:
        """Begin one operation. What is wrong with it at once is raised here, the rest is said."""
        match message:
            case incoming.CommandStart() | incoming.WatchStart() | incoming.WatchStop():
                self._start_or_stop(message, owner)
            case incoming.CommandStdin():
                # It has bounds of its own, and takes no place: who waits for a command that does
                # not read must be able to end it.
                write = await self._accept(message, owner)
                self._group.create_task(self._carry_out(write, message))
            case _:
                await self._places.acquire()
                operating = self._group.create_task(
                    self._carry_out(partial(self._operate, message, owner), message)
                )
                operating.add_done_callback(lambda _: self._places.release())

    async def finish(self, message: incoming.Incoming, owner: str) -> None:
        """Carry out one operation, up to where what it leads to was said; what is wrong with it
        is raised. Of what runs on, that is its start.
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
        """End every command and watch, or those of one connection; the word says why.

        Who reads slowly is waited for until the commands are gone, and no longer: what is left to
        say is then no more than their pipes hold, and nobody may keep this from ending.
        """
        watches = f"{word} while file watch was still running"
        commands = f"{word} while utility command was still running"
        killed = await self._commands.kill_all(commands, owner)
        self._ending += 1
        while self._held:  # once each: one that ends already cannot be asked again
            self._held.pop().reschedule(0)
        try:
            await self._watches.end_all(watches, owner)
            for command in killed:
                await command.over.wait()
        finally:
            self._ending -= 1

    async def close(self, word: str) -> None:
        """End everything for good: what is still being looked up waits for no reader either."""
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
        limit = codec.most_asked(message)
        files = await self._lookups.search(message.query, message.cwd, limit)
        detail = {"query": files.query, "cwd": files.cwd, "results": len(files.files)}
        await self._looked(message.search_id, "search", detail)
        await self._send(codec.found(message.search_id, files))

    async def _read(self, message: incoming.FileRead) -> None:
        offset, limit = codec.page_asked(message)
        lines = await self._lookups.read(message.path, message.cwd, offset, limit)
        detail = {"path": lines.path, "start": lines.start_line, "end": lines.end_line}
        await self._looked(message.read_id, "read", detail)
        await self._send(codec.page(message.read_id, lines))

    async def _looked(self, utility_id: str, kind: str, detail: dict[str, Any]) -> None:
        """What was looked at is a fact before it is shown."""
        await self._session.record(
            SessionUtilityStarted(utility_id=utility_id, kind=kind, detail=detail),
            SessionUtilityEnded(utility_id=utility_id, kind=kind, detail={}),
        )

    def _record(self, fact: Fact) -> Awaitable[object]:
        return self._session.record(fact)

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
