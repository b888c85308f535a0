"""Worker processes: those that end, hang or grow are replaced, and none outlives its supervisor."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from batten.control.supervisor import Staff, Supervisor, shares
from batten.journal.workers import process_of, this_worker

_PATIENCE_S = 30
_BEATS = "import os, sys, time\nwhile True:\n os.write(1, b'.')\n time.sleep(0.05)\n"
_HANGS = "while True: pass"
_GROWS = f"kept = bytearray(64 << 20)\n{_BEATS}"


class Watched:
    """A supervisor, and what became of its workers."""

    def __init__(self, program: str, count: int = 1, **options: float) -> None:
        self._lost = asyncio.Event()
        self.ended = 0
        self.supervisor = Supervisor(
            Staff(
                commands=((sys.executable, "-c", program),) * count,
                environ=dict(os.environ),
                hung_s=options.get("hung_s", 30.0),
                memory_mib=int(options.get("memory_mib", 0)),
            ),
            self._one_ended,
            self._hear,
        )
        self.heard = 0
        self._heard = asyncio.Event()

    def _one_ended(self) -> None:
        self.ended += 1
        self._lost.set()

    def _hear(self, beats: bytes) -> None:
        self.heard += len(beats)
        self._heard.set()

    async def hears_after(self, count: int) -> None:
        """Until the workers have sent more than what they had sent before, and something new."""
        async with asyncio.timeout(_PATIENCE_S):
            for _ in range(20):
                self._heard.clear()
                await self._heard.wait()
        assert self.heard > count

    async def one_ends(self) -> None:
        async with asyncio.timeout(_PATIENCE_S):
            await self._lost.wait()
        self._lost.clear()

    async def runs(self, count: int = 1) -> list[int]:
        """The processes, once there are so many."""
        return await asyncio.to_thread(self._wait_for, count)

    def _wait_for(self, count: int) -> list[int]:
        patience = time.monotonic() + _PATIENCE_S
        while len(pids := self.supervisor.pids) != count:
            assert time.monotonic() < patience
            time.sleep(0.01)
        return pids


def _pause_this_process() -> None:
    """As in a paused container: nothing of this process runs, its workers send what fits."""
    time.sleep(1.5)


@asynccontextmanager
async def watched(program: str, count: int = 1, **options: float) -> AsyncGenerator[Watched]:
    made = Watched(program, count, **options)
    task = asyncio.ensure_future(made.supervisor.run())
    try:
        yield made
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_a_worker_that_ends_is_replaced() -> None:
    async with watched(_BEATS, count=2) as made:
        first = await made.runs(2)
        os.kill(first[0], 9)
        await made.one_ends()
        second = await made.runs(2)
        assert first[1] in second
        assert first[0] not in second
    assert not any(map(_lives, second))
    assert made.supervisor.restarts == 1


async def test_a_worker_that_says_nothing_is_killed_and_replaced() -> None:
    async with watched(_HANGS, hung_s=0.5) as made:
        (first,) = await made.runs()
        await made.one_ends()
        assert not _lives(first)
        (second,) = await made.runs()
        assert second != first


async def test_a_supervisor_that_was_stopped_itself_kills_no_healthy_worker() -> None:
    async with watched(_BEATS, count=2, hung_s=0.5) as made:
        before = await made.runs(2)
        heard = made.heard
        _pause_this_process()
        worker_ids = [this_worker().replace(f"-{os.getpid()}-", f"-{pid}-") for pid in before]
        for worker_id in worker_ids:
            made.supervisor.kill_worker(worker_id)
        await made.hears_after(heard)
        assert made.supervisor.pids == before
        assert made.ended == 0


async def test_a_worker_that_grows_is_asked_to_leave_and_replaced() -> None:
    async with watched(_GROWS, memory_mib=48) as made:
        (first,) = await made.runs()
        await made.one_ends()
        (second,) = await made.runs()
        assert second != first


async def test_a_worker_that_lets_a_lease_run_out_is_killed_only_if_it_says_nothing() -> None:
    async with watched(_BEATS) as made:
        (pid,) = await made.runs()
        worker_id = this_worker().replace(f"-{os.getpid()}-", f"-{pid}-")
        assert process_of(worker_id) == pid
        made.supervisor.kill_worker(worker_id)
        assert _lives(pid)
        assert made.ended == 0


async def test_a_worker_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    program = tmp_path / "worker"
    staff = Staff(commands=((str(program),),), environ=dict(os.environ))
    supervisor = Supervisor(staff, lambda: None)
    running = asyncio.ensure_future(supervisor.run())
    await asyncio.sleep(0)
    program.write_text(f"#!{sys.executable}\n{_BEATS}")
    program.chmod(0o700)
    async with asyncio.timeout(_PATIENCE_S):
        while not supervisor.pids:
            assert not running.done()
            await asyncio.sleep(0.01)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert supervisor.restarts == 0


@pytest.mark.parametrize(
    ("workers", "runs", "most", "each"),
    [
        (2, 16, 0, [16, 16]),
        (2, 16, 5, [3, 2]),
        (4, 16, 7, [2, 2, 2, 1]),
        (8, 16, 3, [1, 1, 1]),
        (2, 3, 5, [3, 2]),
        (2, 2, 5, [2, 2]),
        (0, 16, 5, []),
    ],
)
def test_a_limit_in_all_is_shared_out_without_a_rest(
    workers: int, runs: int, most: int, each: list[int]
) -> None:
    assert shares(workers, runs, most) == each
