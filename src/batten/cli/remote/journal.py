"""The journal of a service, as far as commands read it: rows and stored events over HTTP."""

import os
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar, Unpack, cast

import msgspec
from msgspec import Struct

from batten.cli.remote.address import link_of
from batten.client.frames import Frame
from batten.client.link import Link
from batten.contract.errors import NotFound, PeerError
from batten.contract.facts.artifact import ArtifactKind
from batten.journal.contract import (
    ArtifactRow,
    IdKind,
    Journal,
    RequestRow,
    RunRow,
    SessionRow,
    Stored,
)
from batten.journal.filters import RunFilters
from batten.protocols.rows import MOST, PREFIX, Ids

_EVENT_PAGE = 500
_PIECE = 4 << 20

Row = TypeVar("Row")


class _Rows(Struct, frozen=True):
    data: list[msgspec.Raw]


class _Place(Struct, frozen=True):
    """The part of an envelope that a stored event is filed under."""

    run_id: str
    sequence: int
    type: str


class RemoteJournal:
    """Reads what the service has stored. Commands that write call the service themselves."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._tasks: dict[str, str] = {}
        """The task of each run that was read."""
        self._bodies: dict[str, str] = {}
        """An artifact for each body that was named."""

    async def run(self, run_id: str) -> RunRow | None:
        row = await self._one(f"/runs/{run_id}", RunRow)
        if row is not None:
            self._tasks[row.run_id] = row.task_id or ""
        return row

    async def runs(
        self, *, after: str | None = None, limit: int = 50, **filters: Unpack[RunFilters]
    ) -> list[RunRow]:
        found: list[RunRow] = []
        while len(found) < limit:
            size = min(limit - len(found), MOST)
            page = await self._many("/runs", RunRow, {"after": after, "limit": size, **filters})
            found += page
            if len(page) < size:
                break
            after = page[-1].run_id
        self._tasks |= {row.run_id: row.task_id or "" for row in found}
        return found

    async def session(self, session_id: str) -> SessionRow | None:
        return await self._one(f"/sessions/{session_id}", SessionRow)

    async def request(self, request_id: str) -> RequestRow | None:
        return await self._one(f"/requests/{request_id}", RequestRow)

    async def requests(self, run_id: str) -> list[RequestRow]:
        return await self._many("/requests", RequestRow, {"run_id": run_id})

    async def pending_requests(
        self, *, due_by: str | None = None, limit: int = MOST
    ) -> list[RequestRow]:
        found = await self._many("/requests", RequestRow, {"limit": min(limit, MOST)})
        return [row for row in found if due_by is None or (row.deadline_at or "~") <= due_by]

    async def ids(self, kind: IdKind, first: str, last: str, *, limit: int = 10) -> list[str]:
        query = {"kind": kind, "first": first, "last": last, "limit": limit}
        return (await self.link.get(f"{PREFIX}/ids", Ids, query)).data

    async def artifact(self, artifact_id: str) -> ArtifactRow | None:
        row = await self._one(f"/artifacts/{artifact_id}", ArtifactRow)
        if row is not None:
            self._bodies[row.sha256] = row.artifact_id
        return row

    async def artifacts(
        self, run_id: str, *, kind: ArtifactKind | None = None
    ) -> list[ArtifactRow]:
        rows = await self._many("/artifacts", ArtifactRow, {"run_id": run_id, "kind": kind})
        self._bodies |= {row.sha256: row.artifact_id for row in rows}
        return rows

    async def body(self, sha256: str, *, offset: int = 0, limit: int | None = None) -> bytes:
        """The bytes of a body that a row read before has named."""
        path = f"/hecate/v1/artifacts/{self._bodies[sha256]}/raw"
        pieces: list[bytes] = []
        end = None if limit is None else offset + limit
        while end is None or offset < end:
            last = offset + _PIECE if end is None else min(end, offset + _PIECE)
            headers = {"Range": f"bytes={offset}-{last - 1}"}
            piece = await self.link.fetch("GET", path, headers=headers)
            pieces.append(piece)
            offset += len(piece)
            if len(piece) < _PIECE:
                break
        return b"".join(pieces)

    async def read(self, run_id: str, *, after: int = -1, limit: int = 256) -> list[Stored]:
        query = {"after_sequence": after, "limit": min(limit, _EVENT_PAGE)}
        page = await self.link.get(await self.events_path(run_id), _Rows, query)
        return [_stored(bytes(body)) for body in page.data]

    async def follow(
        self, run_id: str, *, after: int = -1, types: frozenset[str] | None = None
    ) -> AsyncGenerator[list[Stored], None]:
        """Pages of stored events past `after`, as they are committed, to the end of the run.

        A connection that breaks is opened again after the last event.
        """
        path = await self.events_path(run_id)
        async with aclosing(self.link.frames(path, after=after)) as pages:
            async for page in pages:
                found = [_of_frame(frame) for frame in page]
                if types is not None:
                    found = [stored for stored in found if stored.type in types]
                if found:
                    yield found

    async def events_path(self, run_id: str) -> str:
        return f"{await self.run_path(run_id)}/events"

    async def run_path(self, run_id: str) -> str:
        """The address of a run below its task."""
        if run_id not in self._tasks and await self.run(run_id) is None:
            raise NotFound(f"no run is named {run_id}")
        return f"/hecate/v1/tasks/{self._tasks[run_id]}/runs/{run_id}"

    async def _one(self, path: str, type_: type[Row]) -> Row | None:
        try:
            return await self.link.get(PREFIX + path, type_)
        except NotFound:
            return None

    async def _many(self, path: str, type_: type[Row], query: dict[str, Any]) -> list[Row]:
        page = await self.link.get(PREFIX + path, _Rows, query)
        try:
            return [msgspec.json.decode(row, type=type_) for row in page.data]
        except msgspec.MsgspecError as error:
            raise PeerError(
                f"{self.link.server} lists what is no {type_.__name__}: {error}"
            ) from error


@asynccontextmanager
async def remote_journal(options: Namespace, server: str) -> AsyncGenerator[Journal, None]:
    """The journal of a service, for a command that only reads."""
    link = link_of(options, os.environ, server)
    try:
        # Commands that read need no more of a journal than this one has.
        yield cast("Journal", RemoteJournal(link))
    finally:
        await link.close()


def _of_frame(frame: Frame) -> Stored:
    stored = _stored(frame.data)
    if stored.sequence != frame.cursor:
        raise PeerError(f"the service sends event {stored.sequence} under the id {frame.cursor}")
    return stored


def _stored(body: bytes) -> Stored:
    try:
        place = msgspec.json.decode(body, type=_Place)
    except (msgspec.MsgspecError, ValueError) as error:
        raise PeerError(f"the service sends what is no event: {error}") from error
    return Stored(0, place.run_id, place.sequence, place.type, body)
