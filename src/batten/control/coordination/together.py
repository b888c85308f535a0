"""Lets messages that arrive together share one commit.

A commit costs the processor almost as much as taking a message, however many it holds. On a fast
disk each message would have one of its own, since it ends before the next message is there.
"""

import asyncio
from collections import OrderedDict

LONGEST_S = 0.003
"""How long a message waits for others."""
_RECENT_S = 0.05
"""Who was heard within this time will probably be heard again at once."""


class Together:
    """Waits for those who were heard a moment ago. One sender alone never waits."""

    def __init__(self, longest_s: float = LONGEST_S) -> None:
        self._longest_s = longest_s
        self._heard: OrderedDict[str, float] = OrderedDict()
        """When each sender was last heard, the oldest first."""
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None

    async def gather(self, sender: str) -> None:
        """Wait until all of them are heard again, for a moment at most."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._heard[sender] = now
        self._heard.move_to_end(sender)
        while next(iter(self._heard.values())) < now - _RECENT_S:
            self._heard.popitem(last=False)
        if len(self._waiting) + 1 >= len(self._heard):
            self._release()
            return
        if self._timer is None:
            self._timer = loop.call_later(self._longest_s, self._release)
        mine = loop.create_future()
        self._waiting.append(mine)
        await mine

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)
