"""Workers of the service: what they leave behind goes on elsewhere, and is told as it was."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.agent.stage import bash, end, say
from tests.service.crowd import gone, started_at, tree, workers_of
from tests.service.serving import PATIENCE_S, Json, Run, Service, serving

_FLAGS = ("--workers", "1", "--auto-allow")


def _slow(service: Service, command: str = "echo once >> ran; sleep 30; echo twice >> ran") -> str:
    """A model with a command that takes long, then an answer."""
    return service.stage.scenario([bash(command, "c1")], [say("Done."), end()])


def _ran(service: Service) -> str:
    return (service.stage.workspace / "ran").read_text()


def _types(events: list[Json]) -> list[str]:
    return [event["type"] for event in events]


async def _begun(service: Service, model: str) -> Run:
    """A run whose command has begun and written its first line."""
    run = await service.started(model)
    await run.until("tool.invoked")
    await asyncio.to_thread(_wait_for, service.stage.workspace / "ran")
    return run


def _wait_for(path: Path) -> None:
    import time

    patience = time.monotonic() + PATIENCE_S
    while not path.exists():
        assert time.monotonic() < patience
        time.sleep(0.01)


async def test_a_stop_hands_long_runs_over_and_the_next_start_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path, *_FLAGS) as service:
        run = await _begun(service, _slow(service))
        below = {pid: started_at(pid) for pid in tree(service.pid)}
        assert await service.stop() == 0
        await gone(below)
        await service.start()
        assert (await run.ended())["status"] == "completed"
        events = await run.events()
    types = _types(events)
    assert "gap.run_disconnected" not in types
    cut = types.index("tool.cancelled")
    assert types[cut + 1 : cut + 3] == ["run.queued", "run.started"]
    assert "the worker that ran it was stopped" in events[cut]["data"]["output"]
    assert _ran(service) == "once\n"


async def test_a_stop_lets_short_runs_end_and_code_of_the_directory_is_not_loaded(
    tmp_path: Path,
) -> None:
    # Where the service was started lies code under the name of a module that workers load.
    (tmp_path / "msgspec.py").write_text("open('imported', 'w').close()\nraise SystemExit(9)\n")
    async with serving(tmp_path, *_FLAGS) as service:
        run = await _begun(service, _slow(service, "echo once > ran; sleep 0.5"))
        assert await service.stop() == 0
        assert not (tmp_path / "imported").exists()
        await service.start("--workers", "0")
        assert (await run.now())["status"] == "completed"


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_deltas_of_an_answer_that_another_worker_begins_again_are_taken_back(
    tmp_path: Path, how: str
) -> None:
    async with serving(tmp_path, *_FLAGS) as service:
        run = await service.started(service.stage.scenario([say("slow " * 20, streamMs=60_000)]))
        await run.until("assistant.text_delta")
        if how == "stop":
            assert await service.stop() == 0
        else:
            await service.kill()
        service.stage.scenario([say("quick words"), end()])
        await service.start()
        assert (await run.ended())["status"] == "completed"
        events = await run.events()
    shown = ""
    for event in events:
        if event["type"] == "assistant.text_delta":
            shown += event["data"]["delta"]
        elif event["type"] == "assistant.retracted":
            shown = ""
    assert shown == "quick words"
    types = _types(events)
    failed = types.index("turn.failed")
    assert types[failed - 1] == "assistant.retracted"
    assert events[failed]["data"]["will_retry"] is True


async def test_a_worker_that_hangs_is_killed_and_its_run_goes_on(tmp_path: Path) -> None:
    async with serving(tmp_path, *_FLAGS, environ={"BATTEN_LEASE_S": "2"}) as service:
        run = await _begun(service, _slow(service))
        (worker,) = workers_of(service.pid)
        below = {pid: started_at(pid) for pid in tree(worker)}
        os.kill(worker, signal.SIGSTOP)
        assert (await run.ended())["status"] == "completed"
        await gone(below)
        events = await run.events()
    types = _types(events)
    gap = events[types.index("gap.run_disconnected")]
    assert gap["data"]["reason"] == "worker_lease_expired"
    failed = events[types.index("tool.failed")]
    assert failed["data"]["error_kind"] == "outcome_unknown"
    assert _ran(service) == "once\n"


@asynccontextmanager
async def _worker(service: Service, runs: int = 16) -> AsyncGenerator[asyncio.subprocess.Process]:
    """`batten worker`, started by somebody else."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "batten", "worker", "--runs", str(runs)),
        *("--sandbox", "none", "--auto-allow"),
        env=service.stage.environ,
        cwd=service.stage.directory,
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            await process.wait()


async def test_workers_apart_execute_and_replace_each_other(tmp_path: Path) -> None:
    async with serving(tmp_path, "--workers", "0") as service:
        async with _worker(service) as first:
            run = await _begun(service, _slow(service))
            below = {pid: started_at(pid) for pid in tree(first.pid)}
            first.kill()
            await gone(below)
        async with _worker(service) as second:
            assert (await run.ended())["status"] == "completed"
            second.terminate()
            assert await second.wait() == 0
        events = await run.events()
    gap = events[_types(events).index("gap.run_disconnected")]
    assert (gap["data"]["reason"], gap["data"]["worker_exited"]) == ("worker_lease_expired", True)
    assert _ran(service) == "once\n"


async def test_two_servers_share_a_home(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, "--workers", "0") as first,
        serving(tmp_path, *_FLAGS) as second,
    ):
        run = await first.started(_slow(first, "echo once > ran"))
        assert (await run.ended())["status"] == "completed"
        other = Run(second, run.task_id, run.run_id)
        assert await other.events() == await run.events()
        lost = await _begun(first, _slow(first))
        await second.kill()
        await first.stop()
        await first.start(*_FLAGS)
        assert (await lost.ended())["status"] == "completed"
