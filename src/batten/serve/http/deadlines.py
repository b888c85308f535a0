"""Time limits for many short tasks, without a timer for each.

A timer costs a tenth of a small request; one sweep over all tasks costs nothing while none is late.
Limits are kept to about a quarter of a second.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")

_SWEEP_S = 0.25
_LATE = 0.0


class Late(Exception):
    """Work was cancelled because it took too long."""


class Deadlines:
    """Cancels what takes too long, while `sweep` runs."""

    def __init__(self) -> None:
        self._at: dict[asyncio.Task[Any], float] = {}
        """When the work of each task must be done; `_LATE` once it was cancelled for that."""

    async def within(self, work: Awaitable[T], timeout_s: float) -> T:
        """Await `work`; raises `Late` after so long. Not to be nested in one task."""
        task = asyncio.current_task()
        assert task is not None
        self._at[task] = asyncio.get_running_loop().time() + timeout_s
        try:
            return await work
        except asyncio.CancelledError:
            if self._at[task] != _LATE:
                raise
            task.uncancel()
            raise Late from None
        finally:
            del self._at[task]

    def cancel_all(self) -> int:
        """Cancel all work; returns how much there was."""
        for task in self._at:
            task.cancel()
        return len(self._at)

    async def sweep(self) -> None:
        """Look for late work until cancelled."""
        time = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = time()
            for task, at in self._at.items():
                if _LATE < at < now:
                    self._at[task] = _LATE
                    task.cancel()
