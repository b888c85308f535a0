"""Reads and writes files through the client, so that tools see unsaved changes and the user sees
edits in the editor.
"""

import asyncio
import os
from collections.abc import Callable, Sequence

from batten.contract.errors import BattenError, ProviderError
from batten.protocols.acp.asking import (
    READ_FILE,
    WRITE_FILE,
    Nothing,
    ReadFileParams,
    ReadFileResult,
    WriteFileParams,
)
from batten.protocols.acp.methods import ClientCapabilities
from batten.protocols.acp.rpc import RpcError
from batten.serve.acp.patience import PatientPeer
from batten.workspace import files, patches
from batten.workspace.patches import BaseChanged, PatchBody
from batten.workspace.root import ResolvedPath, Root

_SEEN_THROUGH_S = 3.0
"""How long a cancel waits for a write that was sent to the client."""
_LARGEST = 8 << 20
"""Bytes; larger files are read and written on disk, without the client."""


class ClientDocuments:
    """Uses the client as far as its capabilities go, and the disk otherwise."""

    def __init__(
        self,
        peer: PatientPeer,
        session_id: Callable[[], str],
        lent: ClientCapabilities,
        group: asyncio.TaskGroup,
    ) -> None:
        self._peer = peer
        self._session_id = session_id
        self._lent = lent
        self._group = group

    async def text(self, place: ResolvedPath) -> bytes | None:
        """The client's text of a file; None if it has none, so that the disk is read."""
        if not self._lent.reads or _is_large(place):
            return None
        params = ReadFileParams(session_id=self._session_id(), path=place.path)
        try:
            read = await self._peer.ask(READ_FILE, params, ReadFileResult)
        except RpcError:
            return None
        text = read.content.encode("utf-8", "replace")
        if len(text) > _LARGEST:
            said = f"what the client has of {place.shown} is longer than {_LARGEST} bytes"
            raise ProviderError(said, code="client_file_too_large")
        return text

    async def apply(self, root: Root, bodies: Sequence[PatchBody]) -> None:
        if not self._lent.writes or not all(_is_text(body.after) for body in bodies):
            patches.apply(root, bodies)
            return
        places = [root.resolve(body.path, "write") for body in bodies]
        await self._check(places, bodies)
        writing = self._group.create_task(self._write_all(places, bodies))
        try:
            await asyncio.shield(asyncio.wait([writing]))
        except asyncio.CancelledError:
            await asyncio.wait([writing], timeout=_SEEN_THROUGH_S)
            if not writing.done():
                writing.cancel()
                raise
            _cancel_later()
        failure = writing.result()
        if failure is not None:
            raise failure

    async def _check(self, places: Sequence[ResolvedPath], bodies: Sequence[PatchBody]) -> None:
        differing = [
            body.path
            for place, body in zip(places, bodies, strict=True)
            if await self._present(place) != body.before
        ]
        if differing:
            raise BaseChanged(differing)

    async def _present(self, place: ResolvedPath) -> bytes | None:
        text = await self.text(place)
        if text is not None:
            return text
        content = files.read_if_present(place)
        return None if content is None else content.data

    async def _write_all(
        self, places: Sequence[ResolvedPath], bodies: Sequence[PatchBody]
    ) -> ProviderError | None:
        """Write all files; if one fails, restore those written before it."""
        for number, (place, body) in enumerate(zip(places, bodies, strict=True)):
            failure = await self._write(place, body.after)
            if failure is not None:
                for done, before in zip(places[:number], bodies[:number], strict=True):
                    await self._write(done, before.before or b"")
                return failure
        return None

    async def _write(self, place: ResolvedPath, data: bytes | None) -> ProviderError | None:
        content = (data or b"").decode("utf-8", "replace")
        params = WriteFileParams(session_id=self._session_id(), path=place.path, content=content)
        try:
            await self._peer.ask(WRITE_FILE, params, Nothing)
        except ProviderError as error:
            return error
        except (RpcError, BattenError) as error:  # also an unreadable answer, or a client that left
            said = f"the client did not write {place.shown}: {error}"
            return ProviderError(said, code="client_write_failed")
        return None


def _is_large(place: ResolvedPath) -> bool:
    try:
        return os.lstat(place.path).st_size > _LARGEST
    except OSError:
        return False


def _is_text(data: bytes | None) -> bool:
    """Whether the client can write it: UTF-8 of at most `_LARGEST` bytes."""
    if data is None or len(data) > _LARGEST:
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _cancel_later() -> None:
    """Postpone the cancellation just caught to the next await."""
    task = asyncio.current_task()
    assert task is not None
    task.uncancel()
    task.cancel()
