"""The client's own commands, searches, reads and watches, each beside everything else."""

import asyncio
from collections.abc import Awaitable
from typing import Any

from batten.contract.errors import BattenError, CallerError
from batten.contract.facts import Fact, SessionUtilityEnded, SessionUtilityStarted
from batten.contract.utilities import Said
from batten.protocols.maestro import faults, incoming
from batten.protocols.maestro import utilities as codec
from batten.protocols.maestro.outgoing import Message
from batten.serve.maestro.link import Link
from batten.session.session import Session
from batten.session.utilities.commands import UtilityCommands
from batten.session.utilities.lookups import Lookups
from batten.session.utilities.watches import UtilityWatches
from batten.workspace.keeper import Keeper
from batten.workspace.root import Root

MOST_AT_ONCE = 256
"""Operations of one client that are being carried out; who asks for more waits."""


class Utilities:
    """Carries out the utility messages of one connection."""

    def __init__(
        self,
        session: Session,
        keeper: Keeper,
        link: Link,
        group: asyncio.TaskGroup,
        most_bytes: int,
    ) -> None:
        self._session = session
        self._link = link
        self._group = group
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        root = Root(session.rig.workspace_path)
        self._commands = UtilityCommands(keeper, root, self._record, self._tell, group)
        self._watches = UtilityWatches(root, self._record, self._tell, group)
        self._lookups = Lookups(root, most_bytes)

    @property
    def _owner(self) -> str:
        return self._link.connection.connection_id

    async def take(self, message: incoming.Incoming) -> None:
        """Begin one operation. What is wrong with it at once is raised here, the rest is said."""
        match message:
            case incoming.CommandStart():
                self._commands.start(codec.command_asked(message), self._owner)
            case incoming.WatchStart():
                self._watches.start(codec.watch_asked(message), self._owner)
            case incoming.WatchStop():
                self._watches.stop(message.watch_id, owner=self._owner)
            case _:
                await self._places.acquire()
                self._group.create_task(self._carry_out(message))

    async def end_all(self, word: str) -> None:
        """End every command and watch; the word says why."""
        commands = f"{word} while utility command was still running"
        watches = f"{word} while file watch was still running"
        async with asyncio.TaskGroup() as group:
            group.create_task(self._commands.end_all(commands))
            group.create_task(self._watches.end_all(watches))

    async def _carry_out(self, message: incoming.Incoming) -> None:
        try:
            await self._operate(message)
        except BattenError as error:
            self._link.send(faults.said(str(error), incoming.utility_id_of(message)))
        finally:
            self._places.release()

    async def _operate(self, message: incoming.Incoming) -> None:
        commands, owner = self._commands, self._owner
        match message:
            case incoming.CommandStdin():
                await commands.write(
                    message.command_id, message.content, eof=message.eof, owner=owner
                )
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
        self._link.send(message)
        await self._link.room()
