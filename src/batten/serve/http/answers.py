"""Encoded answers, made again only when what they were made from has changed."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from batten.serve.http.kept import Kept
from batten.serve.http.table import Reply

Mark = Callable[[], Awaitable[Hashable]]


class Versioned(Protocol):
    async def version(self) -> int: ...


class CurrentVersion:
    """The version of a store, asked for once in a turn of the event loop.

    A turn reads what clients sent before it answers any of them: whatever was acknowledged to a
    client before it asked is older than the version that its turn has seen.
    """

    def __init__(self, store: Versioned) -> None:
        self._store = store
        self._seen: int | None = None

    async def version(self) -> int:
        seen = self._seen
        if seen is None:
            seen = self._seen = await self._store.version()
            asyncio.get_running_loop().call_soon(self._forget)
        return seen

    def _forget(self) -> None:
        self._seen = None


class Expiring(Struct, frozen=True):
    """An answer that may change although nothing in the store does."""

    body: Any
    until_ms: int | None
    """By the clock; None if it does not."""


class _Answer(Struct):
    """An answer, and the version of the store that it was made from."""

    version: int
    number: int
    """How many were begun before it, and it."""
    mark: Hashable
    until_ms: int | None
    reply: Reply


class Answers:
    """Answers by key, up to so many bytes."""

    def __init__(self, store: Versioned, most_bytes: int) -> None:
        self._store = store
        self._answers: Kept[Hashable, _Answer] = Kept(most_bytes)
        self._making: dict[Hashable, asyncio.Event] = {}
        """Answers that a request makes now; others that want the same wait for it."""
        self._made = 0

    async def get(
        self, key: Hashable, make: Callable[[], Awaitable[Any]], mark: Mark | None = None
    ) -> Reply:
        """What `make` gives, made again only when anything in the store has changed.

        `mark` tells more exactly: an answer with an equal one still holds. `make` returns bytes, or
        what is encoded as JSON, or one of them as `Expiring`.
        """
        before = self._made
        while True:
            version = await self._store.version()
            known = self._answers.get(key)
            # One that was begun after this request is new enough, whatever happened meanwhile.
            is_new = known is not None and (known.version == version or known.number > before)
            if known is not None and is_new and not _is_over(known):
                return known.reply
            making = self._making.get(key)
            if making is None:
                return await self._answer(key, version, known, make, mark)
            await making.wait()

    async def _answer(
        self,
        key: Hashable,
        version: int,
        known: _Answer | None,
        make: Callable[[], Awaitable[Any]],
        mark: Mark | None,
    ) -> Reply:
        done = self._making[key] = asyncio.Event()
        self._made += 1
        number = self._made
        try:
            marked = None if mark is None else await mark()
            if known is not None and mark and known.mark == marked and not _is_over(known):
                known.version, known.number = version, number
                return known.reply
            made = await make()
            until_ms = made.until_ms if isinstance(made, Expiring) else None
            body = made.body if isinstance(made, Expiring) else made
            encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
            answer = _Answer(version, number, marked, until_ms, Reply(encoded))
            self._answers.keep(key, answer, len(encoded))
            return answer.reply
        finally:
            del self._making[key]
            done.set()


def _is_over(answer: _Answer) -> bool:
    return answer.until_ms is not None and time.time() * 1000 >= answer.until_ms
