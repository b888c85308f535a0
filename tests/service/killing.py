"""Kills the service at random moments, and sees to it that nothing of it stays."""

import asyncio
import os
import random
import signal
from collections import Counter

from tests.service.crowd import gone, marked, started_at, tree, workers_of
from tests.service.serving import Service


class Killer:
    """Kills the server, which it starts again, or one of the workers, which the server replaces."""

    def __init__(
        self, service: Service, seed: int, *, marker: str = "", flags: tuple[str, ...] = ()
    ) -> None:
        """`marker` is in the command lines of what runs start; `flags` are those of a restart."""
        self._service = service
        self._random = random.Random(seed)
        self._marker = marker
        self._flags = flags
        self.kills: Counter[str] = Counter()

    async def kill_one(self, longest_s: float, server: float = 0.4) -> None:
        """Kill after a random time of at most so many seconds; `server` is that one's share."""
        await asyncio.sleep(self._random.uniform(0.05, longest_s))
        workers = workers_of(self._service.pid)
        if not workers or self._random.random() < server:
            await self._kill_server()
        else:
            await self._kill_worker(self._random.choice(workers))

    async def _kill_server(self) -> None:
        self.kills["server"] += 1
        service = self._service
        below = {pid: started_at(pid) for pid in tree(service.pid)}
        await service.kill()
        await gone(below)
        assert not (self._marker and marked(self._marker))
        await service.start(*self._flags)

    async def _kill_worker(self, victim: int) -> None:
        self.kills["worker"] += 1
        below = {pid: started_at(pid) for pid in tree(victim)}
        os.kill(victim, signal.SIGKILL)
        await gone(below)
