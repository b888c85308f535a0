"""Background hooks: bounded in number, cancelled and awaited when the session ends."""

import asyncio
from collections.abc import Coroutine
from typing import Any

AT_ONCE = 16
MOST = 256
"""Running and waiting together; the pool refuses more."""
GRACE_S = 1.0
"""How long running hooks may take once the session ends."""


class Pool:
    """Belongs to the event loop that uses it."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.places = asyncio.Semaphore(AT_ONCE)
        """Work holds one of these while it runs."""

    @property
    def full(self) -> bool:
        return len(self._tasks) >= MOST

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Start work that acquires a place itself, raises nothing and records its own end."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self, grace_s: float | None = None) -> None:
        """Give running work a moment, then cancel it."""
        if not self._tasks:
            return
        grace_s = GRACE_S if grace_s is None else max(0.0, min(grace_s, GRACE_S))
        _, late = await asyncio.wait(set(self._tasks), timeout=grace_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
