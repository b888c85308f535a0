"""Starts worker processes, replaces those that end, and ends them all with itself.

A worker reads a pipe whose other end this process holds: it ends when we do, even when we are
killed. It says nothing; the journal shows what it does.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from batten.journal.workers import process_of

_log = logging.getLogger("batten.workers")
_SOON_S = 5.0
"""A worker that ends within this time is replaced with a growing pause."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
_GRACE_S = 10.0


class Supervisor:
    """Keeps a number of worker processes running."""

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        count: int,
        lost: Callable[[], None],
    ) -> None:
        """`lost` is called whenever a worker has ended."""
        self._command = tuple(command)
        self._environ = dict(environ)
        self._count = count
        self._lost = lost
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = False
        self.restarts = 0

    @property
    def pids(self) -> list[int]:
        return sorted(self._processes)

    async def run(self) -> None:
        """Until cancelled; then every worker is asked to leave, and killed if it does not."""
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._count):
                    group.create_task(self._keep_one())
        finally:
            await asyncio.shield(self._end_all())

    async def _keep_one(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            code = await self._run_one()
            self.restarts += 1
            _log.warning("a worker ended with %s and is replaced", code)
            if time.monotonic() - began > _SOON_S:
                pause_s = _FIRST_PAUSE_S
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _run_one(self) -> int:
        """Run one worker until it ends."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            env=self._environ,
        )
        self._processes[process.pid] = process
        try:
            return await process.wait()
        finally:
            if process.returncode is not None:
                del self._processes[process.pid]
            self._lost()

    def kill_worker(self, worker_id: str) -> None:
        """Kill a worker that hangs, if it is one of ours; it is replaced."""
        for pid, process in self._processes.items():
            if process_of(worker_id) == pid:
                _log.warning("worker %s hangs and is killed", worker_id)
                with suppress(ProcessLookupError):
                    process.kill()

    async def _end_all(self) -> None:
        processes = list(self._processes.values())
        for process in processes:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await _all_ended(processes)
        for process in processes:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
        await _all_ended(processes)
        self._processes.clear()


async def _all_ended(processes: Sequence[asyncio.subprocess.Process]) -> None:
    for process in processes:
        await process.wait()


def worker_count(given: int | None) -> int:
    """The number of workers: as given, else one for each core."""
    return given if given is not None else len(os.sched_getaffinity(0))
