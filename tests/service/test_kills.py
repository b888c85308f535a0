"""Killed at random moments under load: nothing acknowledged is lost, no command runs twice."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from batten.journal.contract import Stored
from batten.journal.sqlite import SqliteJournal
from tests.agent.stage import bash, end, say
from tests.conftest import Tell
from tests.runner.given import git
from tests.service.crowd import TERMINAL, Client, Seen, marked
from tests.service.killing import Killer
from tests.service.serving import PATIENCE_S, Service, serving

_MODES = ("in_place", "in_place", "clone", "worktree")
"""Where the runs of each client work."""
_LONGEST_S = 1.2
"""Between two kills."""


def _model(service: Service, marker: str, number: int) -> str:
    """Words, a command with children that would like to stay, a question, and an answer.

    Every command leaves one line of proof, with the number of the run.
    """
    daemon = f"(setsid bash -c 'exec -a {marker} sleep 600' </dev/null >/dev/null 2>&1 &)"
    proof = f"echo {number} >> {service.stage.directory}/proof"
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
        self._marker = uuid4().hex
        self._count = 0
        self._stopping = False
        self.seed = seed
        self.killer = Killer(service, seed, marker=self._marker)
        self._repository = _repository(service.stage.directory / "repository")
        self.clients = [Client(service) for _ in _MODES]
        self.seen: list[Seen] = []

    async def run(self, kills: int) -> None:
        async with asyncio.TaskGroup() as group:
            for client, mode in zip(self.clients, _MODES, strict=True):
                group.create_task(self._work(client, mode))
            for _ in range(kills):
                await self.killer.kill_one(_LONGEST_S)
            self._stopping = True
        for seen in self.seen:
            if not _is_given_up(seen):
                await self._answer_again(seen)
        assert await self._service.stop() == 0
        assert not marked(self._marker)
        await self._check()

    async def _work(self, client: Client, mode: str) -> None:
        place = {"workspace_mode": mode, "working_directory": str(self._repository)}
        while not self._stopping:
            self._count += 1
            model = _model(self._service, self._marker, self._count)
            seen = await client.start(model, "go", **place)
            self.seen.append(seen)
            async with asyncio.timeout(3 * PATIENCE_S):
                await client.follow(seen)

    async def _answer_again(self, seen: Seen) -> None:
        """A question had one answer, which a later one is told."""
        # An answer whose acknowledgement was lost is sent again: then it is the later one.
        assert seen.answers in ([200], [409]), (seen.answers, seen.bodies[-6:])
        (asked,) = await self._service.get(f"/tasks/{seen.task_id}/approvals")
        path = f"/tasks/{seen.task_id}/approvals/{asked['id']}/resolve"
        late = await self._service.ask("POST", path, {"decision": "reject"})
        assert (late.status, late.error["status"]) == (409, "approved")

    async def _check(self) -> None:
        """What the clients saw is what is stored, and each run has gone on to its end."""
        journal = SqliteJournal.open(self._service.stage.home, read_only=True)
        try:
            assert await journal.verify() == []
            for seen in self.seen:
                _check_run(seen, await journal.read(seen.run_id, limit=10_000))
        finally:
            journal.close()
        for number in (1, 2, 3):
            proof = (self._service.stage.directory / f"proof.{number}").read_text()
            twice = [one for one, count in Counter(proof.splitlines()).items() if count > 1]
            assert not twice
        workspaces = self._service.stage.home / "workspaces"
        assert workspaces.exists()
        assert not list(workspaces.glob("*/.*")), "half of a clone was left"

    @property
    def figures(self) -> dict[str, int]:
        return {
            "seed": self.seed,
            **{f"kills of a {kind}": count for kind, count in self.killer.kills.items()},
            "runs": len(self.seen),
            "events": sum(len(seen.bodies) for seen in self.seen),
            "lost connections": sum(client.lost for client in self.clients),
        }


def _repository(place: Path) -> Path:
    """A repository whose clone takes a moment."""
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    for number in range(300):
        (place / f"file-{number}.txt").write_text(f"{number}\n" * 200)
    git(place, "add", "-A")
    git(place, "commit", "-qm", "first")
    return place


def _is_given_up(seen: Seen) -> bool:
    """Whether the run lost so many workers in succession that it was ended, as it is documented."""
    return b"in succession and each time lost its worker" in seen.bodies[-1]


def _check_run(seen: Seen, stored: list[Stored]) -> None:
    assert [one.sequence for one in stored] == list(range(len(stored)))
    assert seen.bodies == [one.body for one in stored]
    types = Counter(one.type for one in stored)
    assert sum(types[type_] for type_ in TERMINAL) == 1
    if _is_given_up(seen):
        assert types["run.started"] >= 5
        return
    assert types["run.finished"] == 1, stored[-1].body
    assert types["approval.requested"] == types["approval.resolved"] == 1
    assert types["tool.invoked"] == 3


@asynccontextmanager
async def _campaign(directory: Path, seed: int) -> AsyncGenerator[Campaign]:
    flags = ("--workers", "2", "--auto-allow", "--ask", "Bash(: please*)")
    async with serving(directory, *flags) as service:
        yield Campaign(service, seed)


async def test_kills_at_random_moments_lose_nothing_and_run_nothing_twice(tmp_path: Path) -> None:
    async with _campaign(tmp_path, seed=1) as campaign:
        await campaign.run(kills=6)
    assert campaign.figures["lost connections"], "no kill was noticed"


@pytest.mark.soak
async def test_two_hundred_kills_lose_nothing_and_run_nothing_twice(
    tmp_path: Path, tell: Tell
) -> None:
    async with _campaign(tmp_path, seed=time.time_ns()) as campaign:
        try:
            await campaign.run(kills=200)
        finally:
            tell(**campaign.figures)
    assert campaign.figures["lost connections"], "no kill was noticed"
