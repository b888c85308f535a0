"""Drained at any moment, and whatever the session does then: another runner goes on from it."""

import asyncio
import random
import shutil
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import pytest

from tests.agent.stage import Stage, bash, say
from tests.conftest import Tell
from tests.maestro.schemas import Json
from tests.runner.remote import PATIENCE_S, WELL_KNOWN, RunnerProcess
from tests.runner.test_http import HERE, NAMED, connected, heard, prompted
from tests.runner.test_http_restore import AGAIN, DONE, facts_of, start
from tests.service.crowd import marked

ASKED = {"type": "prompt", "content": "go"}
LONG = [
    [say("I begin. " * 20, streamMs=40), bash("echo 0 >> proof; sleep 0.05", "c0")],
    *([bash(f"echo {number} >> proof", f"c{number}")] for number in (1, 2, 3)),
]
ENVELOPES = 24
"""About as many as a prompt of `LONG` has."""
OVER = {
    *("last_status", "is_ready", "is_responding", "connections", "connection_count"),
    *("connection_role", "controller_connection_id", "subscriber_count", "client_info"),
    *("client_protocol_version", "capabilities", "controller_subscription_id"),
}
"""What of a state ended with the drained runner, or tells that it is a restored one."""


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def working(stage: Stage, model: str, mode: str = "auto") -> RunnerProcess:
    """A runner whose session has a prompt to work on."""
    runner = start(stage, model, "--maestro-session-id", NAMED)
    connection = connected(runner, approvalMode=mode)["connection_id"]
    assert runner.post(f"{HERE}/messages", ASKED, connection_id=connection).status == 200
    return runner


def drained(runner: RunnerProcess) -> Json:
    """The answer to a drain that must succeed, after which the runner is ended."""
    try:
        answer = runner.post(f"{WELL_KNOWN}/drain")
        assert answer.status == 200, answer.body
        told: Json = answer.json
        assert told["manifest"]["runtime"]["cursor"] == runner.ask("GET", HERE).json["cursor"]
    finally:
        assert runner.end() == 0
    assert told["manifest"]["runtime"]["flush_status"] == "completed"
    return told


def restored(stage: Stage, told: Json, model: str = "") -> int:
    """Go on from a manifest on an empty home; how many facts were restored."""
    manifest = told["manifest"]
    before = asyncio.run(facts_of(stage.home))
    shutil.rmtree(stage.home)
    runner = start(stage, model, "--restore-manifest", told["manifest_path"])
    try:
        assert asyncio.run(facts_of(stage.home))[: len(before)] == before
        now = runner.ask("GET", HERE).json
        assert now["cursor"] == manifest["runtime"]["cursor"]
        assert now.get("last_init") == manifest["snapshot"].get("last_init")
        over = OVER | {"model", "provider", "executor_type"} if model else OVER
        assert _without(over, now["state"]) == _without(over, manifest["snapshot"]["state"])
        connection = connected(runner, sessionId=NAMED)["connection_id"]
        said = prompted(runner, connection, "go on")
        cursors = [one["cursor"] for one in said if "cursor" in one]
        assert min(cursors) > manifest["runtime"]["cursor"]
        after = asyncio.run(facts_of(stage.home))
        assert after[: len(before)] == before
    finally:
        assert runner.end() == 0
    return len(before)


def _without(names: set[str], state: Json) -> Json:
    return {name: value for name, value in state.items() if name not in names}


def drained_at(stage: Stage, count: int, pause_s: float = 0) -> int:
    """Drain so long after so many envelopes; how many facts another runner went on from."""
    runner = working(stage, stage.scenario(*LONG, DONE, AGAIN, AGAIN))
    asyncio.run(_read(runner, count))
    time.sleep(pause_s)  # a random moment, nothing is awaited
    facts = restored(stage, drained(runner))
    proof = stage.workspace / "proof"
    ran = proof.read_text().split() if proof.exists() else []
    assert len(ran) == len(set(ran)), "a command ran twice"
    return facts


async def _read(runner: RunnerProcess, count: int) -> None:
    frames = runner.stream(f"{HERE}/events?cursor=0")
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(count):
            await frames.next()
    frames.close()


@pytest.mark.parametrize("count", [4, 9, 17])
def test_a_drain_at_some_moment_loses_nothing(stage: Stage, count: int) -> None:
    drained_at(stage, count)


@pytest.mark.soak
def test_drains_at_many_moments_lose_nothing(tmp_path: Path, tell: Tell) -> None:
    seed = time.time_ns()
    moments = random.Random(seed)
    facts: list[int] = []
    try:
        for number in range(60):
            stage = Stage(tmp_path / str(number))
            facts.append(
                drained_at(stage, moments.randrange(1, ENVELOPES), moments.uniform(0, 0.08))
            )
    finally:
        tell(seed=seed, drains=len(facts), facts=sum(facts), least=min(facts), most=max(facts))


@contextmanager
def silent_model() -> Generator[str]:
    """The address of a model that takes every question and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as silent:
        yield f"http://127.0.0.1:{silent.getsockname()[1]}"


def test_a_drain_does_not_wait_for_a_model_that_never_answers(stage: Stage) -> None:
    with silent_model() as url:
        stage.environ |= {"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": url}
        runner = working(stage, "openai/gpt-5")
        heard(runner, f"{HERE}/events?cursor=0", "response_start")
        told = drained(runner)
    assert not told["manifest"]["work_continuity"]["active_tool_count"]
    assert restored(stage, told, stage.scenario(AGAIN))


@pytest.mark.parametrize("count", [1, 2], ids=["alone", "with a daemon"])
def test_a_drain_ends_tools_that_ignore_signals(stage: Stage, count: int) -> None:
    marker = uuid4().hex
    deaf = f"trap '' TERM INT HUP QUIT; exec -a {marker} sleep 600"
    daemon = f'(setsid bash -c "{deaf}" &); ' * (count - 1)
    runner = working(stage, stage.scenario([bash(daemon + deaf, "c1")], DONE, AGAIN))
    patience = time.monotonic() + PATIENCE_S
    while sum(_is_asleep(pid) for pid in marked(marker)) < count:
        assert time.monotonic() < patience
        time.sleep(0.01)
    told = drained(runner)
    assert told["manifest"]["work_continuity"]["active_tool_count"] == 1
    assert not marked(marker)
    assert restored(stage, told)
    assert not marked(marker)


def _is_asleep(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "sleep"
    except OSError:
        return False
