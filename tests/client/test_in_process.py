"""A worker in this process leaves the process as it is."""

import asyncio
import os
import signal
import threading

import pytest

from batten.cli.headless import SURFACES
from batten.client import Ended, NotStarted, ToolStarted
from batten.embedded import in_process
from tests.agent.stage import Stage, bash, end, fail, say
from tests.client.working import PATIENCE_S, until, working

DONE = [say("Done."), end()]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD)


def place_of(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino


async def test_streams_signals_and_timers_stay_the_embedders(
    stage: Stage, capfd: pytest.CaptureFixture[str]
) -> None:
    before = [signal.getsignal(number) for number in SIGNALS], [place_of(one) for one in range(3)]
    signal.setitimer(signal.ITIMER_REAL, 3600)
    try:
        frames = [bash("echo loud")], [fail("fatal", "no more")]
        async with working(stage, *frames, launch=in_process, approvals="allow") as worker:
            during = [signal.getsignal(one) for one in SIGNALS], [place_of(one) for one in range(3)]
            assert (await worker.ask("go")).outcome == "model_error"
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 3000
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    after = [signal.getsignal(number) for number in SIGNALS], [place_of(one) for one in range(3)]
    assert before == during == after
    assert tuple(capfd.readouterr()) == ("", "")


def join_but(known: set[threading.Thread]) -> None:
    """Wait for the threads of workers that were closed; what was there before is others'."""
    for thread in set(threading.enumerate()) - known:
        if thread.name in ("lines", "output", "watchdog"):
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


async def test_no_descriptor_and_no_thread_is_left(stage: Stage) -> None:
    async def work() -> None:
        async with working(stage, DONE, launch=in_process) as worker:
            await worker.ask("go")

    known = set(threading.enumerate())
    await work()
    await asyncio.to_thread(join_but, known)
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await work()
    await asyncio.to_thread(join_but, known)
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_it_runs_on_a_loop_beside_the_main_thread(stage: Stage) -> None:
    outcomes: list[str] = []

    async def work() -> None:
        frames = [bash("echo here")], DONE
        async with working(stage, *frames, launch=in_process, approvals="allow") as worker:
            outcomes.append((await worker.ask("go")).outcome)

    thread = threading.Thread(target=lambda: asyncio.run(work()))
    thread.start()
    thread.join(PATIENCE_S)
    assert outcomes == ["completed"]


async def test_what_it_says_to_people_is_said_to_who_asks(stage: Stage) -> None:
    with pytest.raises(NotStarted, match="there is no scenario at"):
        async with working(stage, launch=in_process, model="scripted/nowhere.json"):
            pass
    with pytest.raises(NotStarted, match="--no-such-flag"):
        async with working(stage, DONE, launch=in_process, flags=["--no-such-flag"]):
            pass


async def test_a_loop_that_is_held_up_is_not_ours_to_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATTEN_WATCHDOG_S", "0.1")
    frames = [bash("sleep 60")], DONE
    async with (
        working(stage, *frames, launch=in_process, approvals="allow") as worker,
        worker.prompt("go") as run,
    ):
        await until(run, ToolStarted)
        threading.Event().wait(1.5)
        await run.interrupt()
        assert (await until(run, Ended)).result.outcome == "cancelled"


async def test_a_fault_of_the_surface_is_the_workers_end_and_nobody_elses(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_at_once(*given: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched:
        patched.setitem(SURFACES, "maestro", f"{__name__}:fail_at_once")
        patched.setattr(f"{__name__}.fail_at_once", fail_at_once, raising=False)
        with pytest.raises(NotStarted, match="RuntimeError: a bug") as left:
            async with working(stage, DONE, launch=in_process):
                pass
        assert left.value.exit_code == 1
    async with working(stage, DONE, launch=in_process) as worker:
        assert (await worker.ask("go")).completed


class Failing:
    """A surface that ends before anything is read."""

    def __init__(self, *given: object) -> None:
        pass

    async def run(self) -> int:
        raise RuntimeError("a bug")

    def fail(self, *told: object) -> None:
        pass


async def test_a_surface_that_ends_before_it_is_read_leaves_no_descriptor(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SURFACES, "maestro", f"{__name__}:Failing")
    known = set(threading.enumerate())
    descriptors: list[int] = []
    for _ in range(2):
        with pytest.raises(NotStarted, match="RuntimeError: a bug"):
            async with working(stage, DONE, launch=in_process):
                pass
        await asyncio.to_thread(join_but, known)
        descriptors.append(len(os.listdir("/proc/self/fd")))
    assert descriptors[0] == descriptors[1]


async def test_a_start_that_is_cancelled_anywhere_leaves_nothing(stage: Stage) -> None:
    """After each number of rounds of the loop, until one was enough to come up."""

    async def start() -> None:
        async with working(stage, DONE, launch=in_process):
            pass

    known = set(threading.enumerate())
    await start()
    await asyncio.to_thread(join_but, known)
    descriptors, tasks = len(os.listdir("/proc/self/fd")), asyncio.all_tasks()
    for rounds in (*range(12), 20, 40, 80):
        starting = asyncio.ensure_future(start())
        for _ in range(rounds):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])
        assert starting.cancelled() or starting.exception() is None
    await asyncio.to_thread(join_but, known)
    assert asyncio.all_tasks() == tasks
    assert len(os.listdir("/proc/self/fd")) == descriptors
