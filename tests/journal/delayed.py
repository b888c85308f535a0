"""A journal across a slow wire: every read, and every wake-up, takes a random few milliseconds."""

import asyncio
import inspect
import random
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

from batten.journal.contract import Journal, Stored

_LONGEST_S = 0.004


class DelayedJournal:
    """Passes every call on. What is read was true at some moment between the call and its end."""

    def __init__(self, journal: Journal, seed: int = 0) -> None:
        self._journal = journal
        self._random = random.Random(seed)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._journal, name)
        if not inspect.iscoroutinefunction(found):
            return found

        async def read(*args: Any, **more: Any) -> Any:
            await self._pause()
            value = await found(*args, **more)
            await self._pause()
            return value

        return read

    def follow(self, run_id: str, **more: Any) -> AsyncGenerator[list[Stored], None]:
        return self._pages(self._journal.follow(run_id, **more))

    def follow_feed(self, **more: Any) -> AsyncGenerator[list[Stored], None]:
        return self._pages(self._journal.follow_feed(**more))

    async def _pages(
        self, pages: AsyncGenerator[list[Stored], None]
    ) -> AsyncGenerator[list[Stored], None]:
        async with aclosing(pages):
            async for page in pages:
                await self._pause()
                yield page

    async def _pause(self) -> None:
        await asyncio.sleep(self._random.random() * _LONGEST_S)


def delayed(journal: Journal, seed: int = 0) -> Journal:
    """The journal with its reads delayed. Appends keep their form: on their way when called."""
    return cast(Journal, DelayedJournal(journal, seed))
