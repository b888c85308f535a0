"""Waits of requests for something to happen, which end early when the server stops."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class Waits:
    """The waits of one service."""

    def __init__(self) -> None:
        self._open: set[asyncio.Timeout] = set()
        self._is_over = False

    @asynccontextmanager
    async def at_most(self, seconds: float) -> AsyncGenerator[None]:
        """Leave the block after so many seconds, or once the server stops."""
        try:
            async with asyncio.timeout(0 if self._is_over else seconds) as scope:
                self._open.add(scope)
                try:
                    yield
                finally:
                    self._open.discard(scope)
        except TimeoutError:
            pass

    def end(self) -> None:
        """End all of them, and those that begin from now on."""
        self._is_over = True
        now = asyncio.get_running_loop().time()
        for scope in self._open:
            scope.reschedule(now)
