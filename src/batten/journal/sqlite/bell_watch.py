"""Notices commits of other processes for followers: by the doorbell, once per event loop."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

from batten.journal.followers import Followers
from batten.journal.sqlite.doorbell import BellListener, Doorbell


class BellWatches:
    """Listens while a loop has followers, and makes them read the store when the bell rings."""

    def __init__(self, bell: Doorbell, followers: Followers) -> None:
        self._bell = bell
        self._followers = followers
        self._watches: dict[asyncio.AbstractEventLoop, tuple[BellListener, int]] = {}
        self.own_position = 0
        """The last position this process committed: its followers were woken already."""

    @contextmanager
    def watching(self, *, ours: bool) -> Generator[None]:
        """Watch while following. `ours`: elsewhere only guests write, so slow polling will do."""
        loop = asyncio.get_running_loop()
        watch, count = self._watches.get(loop) or (None, 0)
        if watch is None:
            watch = BellListener(self._bell, loop, lambda: self._rung(loop))
        self._watches[loop] = (watch, count + 1)
        if not ours:
            watch.listen()
        try:
            yield
        finally:
            self._unwatch(loop)

    def _unwatch(self, loop: asyncio.AbstractEventLoop) -> None:
        watch, count = self._watches[loop]
        if count > 1:
            self._watches[loop] = (watch, count - 1)
        else:
            del self._watches[loop]
            watch.close()

    def _rung(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether another process rang."""
        # Our writer noticed everything committed before our own last commit.
        if 0 < self._bell.position() <= self.own_position:
            return False
        for _, wake in self._followers.ask(loop):
            wake()
        return True
