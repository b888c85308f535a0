"""Starts worker processes, replaces those that end, hang or grow, and ends them all with itself.

A worker reads a pipe whose other end this process holds: it ends when we do, even when we are
killed. On another pipe it sends a byte now and then, as long as its event loop goes round.
"""

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from msgspec import Struct

from batten.journal.workers import process_of

BEAT_S = 1.0
"""A worker sends a byte this often."""

_log = logging.getLogger("batten.workers")
SILENT_S = 4 * BEAT_S
"""A worker is suspect after so long without a byte."""
_SOON_S = 5.0
"""A worker that ends within this time is replaced with a growing pause."""
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0


class Staff(Struct, frozen=True, kw_only=True):
    """Which workers to keep running."""

    commands: tuple[tuple[str, ...], ...]
    """One for each worker."""
    environ: Mapping[str, str]
    hung_s: float = 30.0
    """A worker that says nothing for so long is killed."""
    memory_mib: int = 0
    """A worker that needs more is replaced after its runs; 0 for no limit."""
    grace_s: float = 10.0
    """A worker that is asked to leave and has not ended after so long is killed."""


class _Worker:
    """One worker process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.silent_s = 0.0
        """Since its last byte, as our own loop has counted: while this process is stopped, or the
        machine sleeps, time passes that does not count.
        """

    async def watch(self, staff: Staff, heard: Callable[[bytes], None]) -> None:
        """Until it has ended, or has to: kill it if it hangs, ask it to leave if it grows."""
        said = self.process.stdout
        assert said is not None
        beat_s = min(BEAT_S, staff.hung_s / 2)
        while True:
            try:
                async with asyncio.timeout(beat_s):
                    beats = await said.read(4096)
            except TimeoutError:
                self.silent_s += beat_s
                if self.silent_s >= staff.hung_s:
                    self.kill(f"it hangs: it said nothing for {staff.hung_s:g} s")
                    return
                continue
            if not beats:
                return
            self.silent_s = 0.0
            heard(beats)
            needed_mib = _memory_mib(self.process.pid)
            if staff.memory_mib and needed_mib > staff.memory_mib:
                await self.leave(
                    f"it needs {needed_mib} MiB, more than {staff.memory_mib}", staff.grace_s
                )
                return

    async def leave(self, why: str, grace_s: float) -> None:
        """Ask it to finish or hand over its runs and to end; kill it if it does not."""
        _log.info("worker %d is asked to leave: %s", self.process.pid, why)
        _leave_idle_class(self.process.pid)
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_s):
                await self.process.wait()
        except TimeoutError:
            self.kill(f"it did not end within {grace_s:g} s")

    def kill(self, why: str) -> None:
        _log.warning("worker %d is killed: %s", self.process.pid, why)
        with suppress(ProcessLookupError):
            self.process.kill()


class Supervisor:
    """Keeps a number of worker processes running."""

    def __init__(
        self,
        staff: Staff,
        lost: Callable[[], None],
        heard: Callable[[bytes], None] = lambda said: None,
    ) -> None:
        """`lost` is called whenever a worker has ended, `heard` with what one says."""
        self._staff = staff
        self._lost = lost
        self._heard = heard
        self._workers: dict[int, _Worker] = {}
        self.restarts = 0

    @property
    def pids(self) -> list[int]:
        return sorted(self._workers)

    async def run(self) -> None:
        """Until cancelled; then every worker is asked to leave, and killed if it does not."""
        try:
            async with asyncio.TaskGroup() as group:
                for command in self._staff.commands:
                    group.create_task(self._keep_one(command))
        finally:
            await asyncio.shield(self._end_all())

    async def _keep_one(self, command: tuple[str, ...]) -> None:
        pause_s = _FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                code = await self._run_one(command)
            except OSError as error:  # the machine has no room for another process
                _log.error("a worker cannot be started: %s", error)
            else:
                self.restarts += 1
                _log.warning("a worker ended with %s and is replaced", code)
            if time.monotonic() - began > _SOON_S:
                pause_s = _FIRST_PAUSE_S
            else:
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _run_one(self, command: tuple[str, ...]) -> int:
        """Run one worker until it ends."""
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=dict(self._staff.environ),
        )
        worker = self._workers[process.pid] = _Worker(process)
        try:
            await worker.watch(self._staff, self._heard)
            return await process.wait()
        finally:
            if process.returncode is not None:
                del self._workers[process.pid]
            self._lost()

    def kill_worker(self, worker_id: str) -> None:
        """Kill a worker that has let a lease run out, if it is one of ours and says nothing."""
        worker = self._workers.get(process_of(worker_id) or 0)
        if worker is not None and worker.silent_s > SILENT_S:
            worker.kill("it hangs: it let the lease of a run expire")

    async def _end_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for worker in self._workers.values():
                group.create_task(worker.leave("the service stops", self._staff.grace_s))
        for worker in self._workers.values():
            await worker.process.wait()
        self._workers.clear()


def _leave_idle_class(pid: int) -> None:
    """Let a process run like any other, where we may: in the idle class even one that was killed
    does not get to its end while all cores are busy.
    """
    with suppress(OSError):
        for thread in map(int, os.listdir(f"/proc/{pid}/task")):
            if os.sched_getscheduler(thread) == os.SCHED_IDLE:
                os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def _memory_mib(pid: int) -> int:
    """The memory of a process; 0 if it is gone."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    except OSError:
        return 0


def worker_count(given: int | None) -> int:
    """The number of workers: as given, else one for each core."""
    return given if given is not None else len(os.sched_getaffinity(0))


def shares(workers: int, runs: int, most: int) -> list[int]:
    """How many runs each worker executes at once: up to `runs`, and `most` in all; 0 for no limit.

    No worker is without a share, so there may be fewer than `workers`.
    """
    if not most:
        return [runs] * workers
    workers = min(workers, most)
    return [min(runs, most // workers + (number < most % workers)) for number in range(workers)]
