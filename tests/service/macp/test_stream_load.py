"""Streams under stress: readers that take nothing, servers that die, large runs."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.service.macp.plane import Plane
from tests.service.macp.writing import WrittenRun, written_run
from tests.service.serving import PATIENCE_S, serving
from tests.service.streaming import frames_at, reading_at


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[Plane]:
    flags = ("--workers", "0", "--no-runtime")
    async with serving(tmp_path, *flags, environ={"THROTTLE_LIMIT": "0"}) as service:
        yield Plane(service)


@pytest.fixture
async def run(plane: Plane) -> AsyncIterator[WrittenRun]:
    async with written_run(plane.service) as started:
        yield started


def _rss_mib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    raise AssertionError("the process has no memory")


async def test_reader_that_takes_nothing_holds_up_nobody_and_lags_without_loss(
    plane: Plane, run: WrittenRun
) -> None:
    path = f"{run.path}/stream?afterSeq=0&includeSnapshot=false"
    async with (
        asyncio.timeout(PATIENCE_S),
        asyncio.TaskGroup() as group,
        reading_at(plane.service, path) as lazy,
    ):
        keen = group.create_task(frames_at(plane.service, path))
        for _ in range(10):
            await run.evaluate(300, "x" * 2000)
        await run.end()
        seen = [frame.data for frame in await keen if frame.id]
        late = [frame.data async for frame in lazy.frames() if frame.id]
    assert len(seen) == len(set(seen)) > 6000
    assert late == seen


@pytest.mark.own_service
async def test_a_reader_s_cursor_outlives_the_server(plane: Plane, run: WrittenRun) -> None:
    seen: list[int] = []
    await run.evaluate(20)
    for _ in range(3):
        async with reading_at(
            plane.service,
            f"{run.path}/stream?afterSeq=0",
            Last_Event_Id=str(seen[-1] if seen else 0),
        ) as stream:
            async for frame in stream.frames():
                if frame.id:
                    seen.append(int(frame.id))
                if len(seen) % 15 == 14:
                    break
        await plane.service.kill()
        await run.evaluate(5)
        await plane.service.start()
    await run.end()
    rest = await frames_at(plane.service, f"{run.path}/stream", Last_Event_Id=str(seen[-1]))
    seen += [int(frame.id) for frame in rest if frame.id]
    events = await plane.get(f"{run.path}/events?limit=10000")
    assert seen == [event["seq"] for event in events] == list(range(1, len(events) + 1))


@pytest.mark.own_service
async def test_memory_does_not_grow_with_what_is_exported_or_replayed(
    plane: Plane, run: WrittenRun
) -> None:
    for _ in range(10):
        await run.evaluate(300, "x" * 2000)
    await run.end()
    await plane.get(f"{run.path}/metrics")
    await plane.frames(f"{run.path}/replay/stream?mode=instant&toSeq=100")
    before = _rss_mib(plane.service.pid)
    sizes: list[int] = []
    for path in ("export?includeRaw=true", "export?format=jsonl", "messages"):
        answer = await plane.service.request("GET", f"{run.path}/{path}")
        sizes.append(len(answer.body) >> 20)
    await plane.frames(f"{run.path}/replay/stream?mode=instant")
    assert min(sizes) >= 6
    assert _rss_mib(plane.service.pid) - before < max(sizes)


async def test_replay_reads_in_batches_of_the_setting(tmp_path: Path) -> None:
    environ = {"REPLAY_MAX_DELAY_MS": "1", "REPLAY_BATCH_SIZE": "3", "THROTTLE_LIMIT": "0"}
    flags = ("--workers", "0", "--no-runtime")
    async with (
        serving(tmp_path, *flags, environ=environ) as service,
        written_run(service) as run,
    ):
        await run.evaluate(10)
        await run.end()
        for mode in ("timed&speed=0.1", "instant", "step"):
            frames = await frames_at(service, f"{run.path}/replay/stream?mode={mode}")
            assert [int(frame.id) for frame in frames] == list(range(1, len(frames) + 1))
            assert frames[-1].json["type"] == "run.completed"
