"""Lets the writes of requests that arrive together share one commit.

A commit costs as much as the rest of a small request, whether it holds one write or twenty.
"""

import asyncio

LONGEST_S = 0.001
"""How long a write waits for others."""


class Gathering:
    """Counts the requests in work that may write; those that have written wait for the others."""

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        self._longest_s = longest_s
        self._in_work = 0
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """A request that may write is in work."""
        self._in_work += 1

    def end(self) -> None:
        """Such a request is answered."""
        self._in_work -= 1
        if self._waiting and len(self._waiting) >= self._in_work:
            self._release()

    async def wait(self) -> None:
        """Wait until all requests in work do, but only for a moment. One alone does not wait."""
        await asyncio.sleep(0)  # requests that arrived together have begun by then
        if len(self._waiting) + 1 >= self._in_work:
            self._release()
            return
        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._timer = loop.call_later(self._longest_s, self._release)
        mine = loop.create_future()
        self._waiting.append(mine)
        try:
            await mine
        finally:
            if mine in self._waiting:  # the request was cancelled
                self._waiting.remove(mine)

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)
