"""Killed at random moments under load: nothing acknowledged is lost, no command runs twice."""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from batten.journal.sqlite import SqliteJournal
from tests.agent.stage import bash, end, say
from tests.service.crowd import (
    TERMINAL,
    Client,
    Seen,
    gone,
    marked,
    started_at,
    tree,
    workers_of,
)
from tests.service.serving import PATIENCE_S, Service, serving

_CLIENTS = 4


def _model(service: Service, marker: str, number: int) -> str:
    """Words, a command with children that would like to stay, a question, and an answer.

    Every command leaves one line of proof, with the number of the run.
    """
    daemon = f"(setsid bash -c 'exec -a {marker} sleep 600' </dev/null >/dev/null 2>&1 &)"
    proof = f"echo {number} >> proof"
    return service.stage.scenario(
        [
            say("I begin with some words. " * 4, streamMs=60),
            bash(f"{proof}.1; {daemon}", "c1"),
        ],
        [bash(f"{proof}.2; seq 200; sleep 0.05", "c2")],
        [bash(f": please; {proof}.3", "c3")],
        [say("Done. " * 5), end()],
        name=f"model-{number}",
    )


class Campaign:
    """Clients at work, and a killer."""

    def __init__(self, service: Service, seed: int) -> None:
        self._service = service
        self._random = random.Random(seed)
        self._marker = uuid4().hex
        self._count = 0
        self._stopping = False
        self.clients = [Client(service) for _ in range(_CLIENTS)]
        self.seen: list[Seen] = []

    async def run(self, kills: int) -> None:
        async with asyncio.TaskGroup() as group:
            for client in self.clients:
                group.create_task(self._work(client))
            for _ in range(kills):
                await asyncio.sleep(self._random.uniform(0.05, 1.2))
                await self._kill_one()
            self._stopping = True
        await self._check()

    async def _work(self, client: Client) -> None:
        while not self._stopping:
            self._count += 1
            model = _model(self._service, self._marker, self._count)
            seen = await client.start(model, "go")
            self.seen.append(seen)
            async with asyncio.timeout(3 * PATIENCE_S):
                await client.follow(seen)

    async def _kill_one(self) -> None:
        """Kill the server, which is started again, or one of its workers, which it replaces."""
        service = self._service
        workers = workers_of(service.pid)
        if not workers or self._random.random() < 0.4:
            below = {pid: started_at(pid) for pid in tree(service.pid)}
            await service.kill()
            await gone(below)
            assert not marked(self._marker)
            await service.start()
            return
        victim = self._random.choice(workers)
        below = {pid: started_at(pid) for pid in tree(victim)}
        os.kill(victim, signal.SIGKILL)
        await gone(below)

    async def _check(self) -> None:
        home = self._service.stage.home
        await self._service.stop()
        assert not marked(self._marker)
        journal = SqliteJournal.open(home, read_only=True)
        try:
            assert await journal.verify() == []
            for seen in self.seen:
                stored = await journal.read(seen.run_id, limit=10_000)
                assert [one.sequence for one in stored] == list(range(len(stored)))
                assert seen.bodies == [one.body for one in stored]
                types = Counter(one.type for one in stored)
                assert sum(types[type_] for type_ in TERMINAL) == 1
                assert types["run.finished"] == 1, stored[-1].body
                assert types["approval.requested"] == types["approval.resolved"] == 1
                assert types["tool.invoked"] == 3
        finally:
            journal.close()
        for number in (1, 2, 3):
            proof = (self._service.stage.workspace / f"proof.{number}").read_text()
            twice = [one for one, count in Counter(proof.splitlines()).items() if count > 1]
            assert not twice


@asynccontextmanager
async def _campaign(directory: Path, seed: int) -> AsyncGenerator[Campaign]:
    flags = ("--workers", "2", "--auto-allow", "--ask", "Bash(: please*)")
    async with serving(directory, *flags) as service:
        yield Campaign(service, seed)


async def test_kills_at_random_moments_lose_nothing_and_run_nothing_twice(tmp_path: Path) -> None:
    async with _campaign(tmp_path, seed=1) as campaign:
        await campaign.run(kills=6)
    assert sum(client.lost for client in campaign.clients), "no kill was noticed"


@pytest.mark.soak
async def test_two_hundred_kills_lose_nothing_and_run_nothing_twice(tmp_path: Path) -> None:
    async with _campaign(tmp_path, seed=time.time_ns()) as campaign:
        await campaign.run(kills=200)
    assert sum(client.lost for client in campaign.clients), "no kill was noticed"
