"""A long queue, worked off by several workers that are killed: each run once, the urgent first."""

import asyncio
import random
import time
from collections import Counter
from itertools import count
from pathlib import Path

import msgspec
import pytest
from msgspec import Struct

from batten.contract.facts import TERMINAL
from batten.journal.contract import Stored
from batten.journal.sqlite import SqliteJournal
from tests.agent.stage import bash, end, say
from tests.conftest import Tell
from tests.service.crowd import Client, marked
from tests.service.killing import Killer
from tests.service.serving import PATIENCE_S, Json, Service, serving

_PRIORITIES = ("urgent", "high", "normal", "low")
_WORKERS = 3
_SLOTS = 4
_FLAGS = ("--workers", str(_WORKERS), "--runs", str(_SLOTS), "--auto-allow")
_CLIENTS = 4


class Placed(Struct, frozen=True):
    """A run that was acknowledged."""

    number: str
    urgency: int
    """The lower, the sooner."""
    path: str


class Queue:
    """Runs that wait, and what became of them."""

    def __init__(self, service: Service, seed: int) -> None:
        self._service = service
        self._random = random.Random(seed)
        self._client = Client(service)
        self._seed = seed
        self._killer = Killer(service, seed, flags=_FLAGS)
        self._numbers = count()
        self._placed: dict[str, Placed] = {}
        self._facts: list[Stored] = []
        """The whole feed."""
        self._most_ahead = 0

    async def fill(self, runs: int) -> None:
        """Start so many runs, of tasks of their own."""
        left = iter(range(runs))

        async def start() -> None:
            for _ in left:
                await self._start(next(self._numbers))

        async with asyncio.TaskGroup() as group:
            for _ in range(_CLIENTS):
                group.create_task(start())

    async def _start(self, number: int) -> None:
        """A run whose command leaves its number."""
        model = self._service.stage.scenario(
            [bash(f"echo {number} >> proof; sleep 0.1", "c1")],
            [say("Done."), end()],
            name=f"model-{number}",
        )
        urgency = self._random.randrange(len(_PRIORITIES))
        seen = await self._client.start(model, "go", priority=_PRIORITIES[urgency])
        self._placed[seen.run_id] = Placed(str(number), urgency, seen.path)

    async def work_off(self, kills: int, longest_s: float, late: int) -> None:
        """Let workers at it, which are killed so often; so many runs come while they work."""
        await self._service.stop()
        await self._service.start(*_FLAGS)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.fill(late))
            for _ in range(kills):
                await self._another_start()
                await self._killer.kill_one(longest_s, server=0.3)
        async with asyncio.timeout(10 * PATIENCE_S):
            for run in self._placed.values():
                await self._ended(run)

    async def _another_start(self) -> None:
        """Wait until a run is started, unless all are."""
        journal = SqliteJournal.open(self._service.stage.home, read_only=True)
        after = await journal.position()
        journal.close()
        path = f"/events?event_type=run.started&wait=2&after_sequence={after}"
        await self._client.ask("GET", path)

    async def _ended(self, run: Placed) -> None:
        after = -1
        while True:
            path = f"{run.path}/events?limit=500&wait=10&after_sequence={after}"
            page = (await self._client.ask("GET", path)).json["data"]
            if any(event["type"] in TERMINAL for event in page):
                return
            after = page[-1]["sequence"] if page else after

    async def check(self) -> None:
        """Nothing is lost, nothing ran twice, and the urgent came first."""
        journal = SqliteJournal.open(self._service.stage.home, read_only=True)
        try:
            assert await journal.verify() == []
            while page := await journal.feed(after=self._position, limit=1000):
                self._facts += page
            runs = {row.run_id for row in await journal.runs(limit=100_000)}
        finally:
            journal.close()
        assert runs == set(self._placed)
        self._facts = [fact for fact in self._facts if fact.run_id in runs]
        self._check_each()
        self._check_order()

    @property
    def _position(self) -> int:
        return self._facts[-1].position if self._facts else 0

    def _check_each(self) -> None:
        """Each run ended once, and its command ran once, or the run says that it cannot know."""
        proof = Counter((self._service.stage.workspace / "proof").read_text().split())
        types = {run_id: Counter[str]() for run_id in self._placed}
        unknown: set[str] = set()
        for fact in self._facts:
            types[fact.run_id][fact.type] += 1
            if fact.type == "tool.failed":
                assert _data(fact)["error_kind"] == "outcome_unknown"
                unknown.add(fact.run_id)
        for run_id, counted in types.items():
            assert sum(counted[type_] for type_ in TERMINAL) == 1, counted
            assert counted["run.finished"] == counted["tool.invoked"] == 1, counted
            ran = proof.pop(self._placed[run_id].number, 0)
            assert ran == 1 or (run_id in unknown and not ran)
        assert not proof

    def _check_order(self) -> None:
        """A run starts when those before it have, but for as many as workers claim at once."""
        spans = _spans(self._facts)
        rank: dict[str, tuple[int, int]] = {}
        for fact in self._facts:
            if fact.type == "run.queued":
                rank.setdefault(fact.run_id, (self._placed[fact.run_id].urgency, fact.position))
        for _, start, run_id in spans:
            ahead = [
                other
                for since, until, other in spans
                if since < start < until and rank[other] < rank[run_id]
            ]
            assert len(ahead) < _WORKERS * _SLOTS, (run_id, ahead)
            self._most_ahead = max(self._most_ahead, len(ahead))

    @property
    def figures(self) -> dict[str, int]:
        lost = {one.run_id for one in self._facts if one.type == "gap.run_disconnected"}
        return {
            "seed": self._seed,
            **{f"kills of a {kind}": number for kind, number in self._killer.kills.items()},
            "runs": len(self._placed),
            "events": len(self._facts),
            "runs that lost a worker": len(lost),
            "most that a start passed over": self._most_ahead,
        }


def _spans(facts: list[Stored]) -> list[tuple[int, int, str]]:
    """When each run waited for a worker, from and until which position of the feed."""
    found: list[tuple[int, int, str]] = []
    since: dict[str, int] = {}
    for fact in facts:
        if fact.type == "run.queued":
            since[fact.run_id] = fact.position
        elif fact.type == "run.started":
            found.append((since.pop(fact.run_id), fact.position, fact.run_id))
        elif fact.type == "gap.run_disconnected":
            # A worker that had claimed it died before it said so: nobody knows since when.
            since.pop(fact.run_id, None)
    assert not since
    return found


def _data(fact: Stored) -> Json:
    data: Json = msgspec.json.decode(fact.body)["data"]
    return data


async def _queue(
    directory: Path, seed: int, *, runs: int, kills: int, longest_s: float, tell: Tell
) -> None:
    async with serving(directory, "--workers", "0") as service:
        queue = Queue(service, seed)
        try:
            await queue.fill(runs - runs // 10)
            await queue.work_off(kills, longest_s, late=runs // 10)
            assert await service.stop() == 0
            await queue.check()
        finally:
            tell(**queue.figures)
    assert queue.figures["runs that lost a worker"], "no kill was noticed"
    assert not marked(str(directory))


async def test_a_queue_is_worked_off_by_priority_whoever_is_killed(tmp_path: Path) -> None:
    await _queue(tmp_path, seed=4, runs=60, kills=3, longest_s=0.08, tell=lambda **_: None)


@pytest.mark.soak
async def test_a_queue_of_a_thousand_runs_is_worked_off_whoever_is_killed(
    tmp_path: Path, tell: Tell
) -> None:
    await _queue(tmp_path, time.time_ns(), runs=1000, kills=40, longest_s=0.8, tell=tell)
