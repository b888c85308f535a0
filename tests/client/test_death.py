"""Workers that do not come up, die in the middle or break the protocol; embedders that are gone."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from batten.client import (
    FilePage,
    NotStarted,
    PeerError,
    ToolOutput,
    Worker,
    WorkerClosed,
    WorkerDied,
)
from batten.embedded import in_process
from batten.protocols.maestro.outgoing import encode
from tests.agent.stage import Stage, bash, end, say
from tests.client.test_pressure import GREETING
from tests.client.working import PATIENCE_S, until, working

DONE = [say("Done."), end()]


def script(text: str) -> list[str]:
    """A program in the worker's place, which is given flags that it does not mind."""
    return [sys.executable, "-c", text]


async def ended(descriptor: int) -> None:
    """Wait for the end of a process by its descriptor."""
    gone = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, gone.set)
    try:
        async with asyncio.timeout(PATIENCE_S):
            await gone.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def worker_below(pid: int) -> int:
    """The one child of a process of ours."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (worker,) = map(int, children)
    return worker


async def test_a_worker_that_is_killed_is_a_typed_error_for_everything_that_waits(
    stage: Stage,
) -> None:
    async def read_on(worker: Worker) -> None:
        async with worker.prompt("go") as run:
            await until(run, ToolOutput)
            await worker.run_command("true")
            (pid,) = [child for child in children() if is_worker(child)]
            os.kill(pid, signal.SIGKILL)
            await until(run, ToolOutput)

    frames = [bash("echo began; sleep 600", "c1")], DONE
    async with working(stage, *frames, approvals="allow") as worker:
        waiting = asyncio.ensure_future(worker.run_command("sleep 600"))
        with pytest.raises(WorkerDied) as died:
            await read_on(worker)
        assert died.value.exit_code == -signal.SIGKILL
        with pytest.raises(WorkerDied):
            await waiting
        with pytest.raises(WorkerDied):
            await worker.ask("more")
    async with working(stage, DONE) as worker:  # another one is fine
        assert (await worker.ask("go")).completed


async def test_a_prompt_after_a_crash_gets_its_own_answer(stage: Stage) -> None:
    """And not that of the run which the killed worker left."""

    async def die_within(worker: Worker) -> str:
        async with worker.prompt("first") as run:
            await until(run, ToolOutput)
            (pid,) = [child for child in children() if is_worker(child)]
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(WorkerDied):
                await until(run, ToolOutput)
        return run.run_id

    frames = [bash("echo began; sleep 600", "c1")], [say("Later."), end()]
    async with working(stage, *frames, approvals="allow") as worker:
        first = await die_within(worker)
    async with working(stage, *frames, launch=in_process, resume=first) as worker:
        later = await worker.ask("second")
        left = await worker.history.run(first)
        own = await worker.history.run(later.run_id)
    assert (later.text, later.problems) == ("Later.", ())
    assert (left.prompt, left.state) == ("first", "interrupted")
    assert (own.prompt, own.state) == ("second", "completed")


def children() -> list[int]:
    listed = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [int(pid) for one in listed for pid in one.read_text().split()]


def is_worker(pid: int) -> bool:
    try:
        return b"headless" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False  # it is gone


async def test_a_worker_that_cannot_start_says_why(stage: Stage) -> None:
    with pytest.raises(NotStarted, match="there is no scenario at") as refused:
        async with working(stage, model="scripted/nowhere.json"):
            pass
    assert refused.value.exit_code is None
    with pytest.raises(NotStarted, match="--no-such-flag"):
        async with working(stage, DONE, flags=["--no-such-flag"]):
            pass


async def test_a_program_that_is_no_worker_is_found_out() -> None:
    with pytest.raises(NotStarted, match="cannot be started"):
        async with Worker.start(command=["/nowhere/batten"]):
            pass
    with pytest.raises(NotStarted, match="last words") as left:
        async with Worker.start(command=script("import sys; sys.exit('last words')")):
            pass
    assert (left.value.exit_code, left.value.complaints) == (1, "last words\n")
    with pytest.raises(PeerError, match="no message"):
        async with Worker.start(command=script("print('Welcome!', flush=True); input()")):
            pass
    with pytest.raises(NotStarted, match=r"within 0\.5 s"):
        async with Worker.start(
            command=script("import sys; sys.stdin.read()"), starts_within_s=0.5
        ):
            pass


async def test_a_worker_that_speaks_another_version_is_not_used() -> None:
    other = '{"type":"hello_ok","protocol_version":"2031-01-01"}'
    with pytest.raises(NotStarted, match="2031-01-01"):
        async with Worker.start(command=script(f"print({other!r}, flush=True); input(); input()")):
            pass


STUBBORN = """
import json, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
sys.stdin.readline(), sys.stdin.readline()
for said in {said!r}:
    print(said, flush=True)
while True:
    time.sleep(1)
"""


async def test_who_is_cancelled_again_while_leaving_leaves_nothing() -> None:
    said = [encode(message).decode().strip() for message in GREETING]
    up = asyncio.Event()
    beside: list[asyncio.Task[FilePage]] = []

    async def use() -> None:
        async with Worker.start(command=script(STUBBORN.format(said=said))) as worker:
            beside.append(asyncio.create_task(worker.read_file("a", within_s=10 * PATIENCE_S)))
            await asyncio.sleep(0)
            up.set()
            await worker.run_command("x" * (8 << 20))  # more than a pipe takes: it is not read

    before = asyncio.all_tasks()
    using = asyncio.ensure_future(use())
    async with asyncio.timeout(PATIENCE_S):
        await up.wait()
        (pid,) = children()
        gone = os.pidfd_open(pid)
        while not using.done():
            using.cancel()
            await asyncio.sleep(0.01)
        with pytest.raises(WorkerClosed):
            await beside[0]
    assert using.cancelled()
    await ended(gone)
    assert asyncio.all_tasks() == before


IGNORING = """
import asyncio, signal, sys
from batten.client import Worker, own_process
from batten.embedded import in_process
signal.signal(signal.SIGCHLD, signal.SIG_IGN)

async def main():
    for launch in (own_process, in_process):
        async with Worker.start(model=sys.argv[1], workspace=sys.argv[2], approvals="allow",
                                flags=["--sandbox", "none"], launch=launch) as worker:
            result = await worker.ask("go")
            ran = await worker.run_command("exit 4")
            print(result.outcome, result.calls_succeeded, result.calls_failed, ran.exit_code)

asyncio.run(main())
"""


async def test_an_embedder_that_ignores_its_children_has_workers_that_do_not(stage: Stage) -> None:
    model = stage.scenario([bash("true")], [bash("exit 3")], DONE)
    embedder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", IGNORING, model, str(stage.workspace)),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "BATTEN_HOME": str(stage.home), "HOME": str(stage.directory)},
    )
    try:
        async with asyncio.timeout(PATIENCE_S):
            said, _ = await embedder.communicate()
    finally:
        if embedder.returncode is None:
            embedder.kill()
            await embedder.wait()
    assert said.decode().split("\n") == ["completed 1 1 4", "completed 1 1 4", ""]


EMBEDDER = """
import asyncio, os, sys
from batten.client import ToolStarted, Worker

async def main():
    async with Worker.start(model=sys.argv[1], workspace=sys.argv[2], approvals="allow",
                            flags=["--sandbox", "none"]) as worker:
        async with worker.prompt("go") as run:
            async for event in run:
                if isinstance(event, ToolStarted):
                    await worker.run_command("until [ -s pid ]; do sleep 0.01; done")
                    print("started", flush=True)
                    if sys.argv[3] == "leave":
                        os._exit(0)

asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["kill", "leave"])
async def test_nothing_is_left_of_an_embedder_that_is_gone(stage: Stage, how: str) -> None:
    """Its worker is silent in a long command, and is not told to end."""
    model = stage.scenario([bash("echo $$ > pid; sleep 600", "c1")], DONE)
    embedder = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", EMBEDDER, model, str(stage.workspace), how),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "BATTEN_HOME": str(stage.home), "HOME": str(stage.directory)},
    )
    assert embedder.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        worker = command = None
        if how == "kill":
            assert await embedder.stdout.readline() == b"started\n"
            worker = os.pidfd_open(worker_below(embedder.pid))
            command = os.pidfd_open(int((stage.workspace / "pid").read_text()))
            embedder.kill()
        await embedder.communicate()
    if worker is not None and command is not None:
        await ended(command)
        await ended(worker)
    await has_ending(stage)


async def has_ending(stage: Stage) -> None:
    """Follow the run until its ending is stored."""
    journal = stage.journal()
    try:
        (run,) = [row for row in await journal.runs() if row.run_id.startswith("run_")]
        async with asyncio.timeout(PATIENCE_S):
            async for page in journal.follow(run.run_id):
                if any(stored.type == "run.cancelled" for stored in page):
                    return
    finally:
        journal.close()


async def test_leaving_a_worker_ends_what_it_is_doing(stage: Stage) -> None:
    commands: list[int] = []

    async def be_cancelled() -> None:
        frames = [bash("echo $$ > pid; sleep 600", "c1")], DONE
        async with (
            working(stage, *frames, approvals="allow") as worker,
            worker.prompt("go"),
        ):
            await worker.run_command("until [ -s pid ]; do sleep 0.01; done")
            commands.append(os.pidfd_open(int((stage.workspace / "pid").read_text())))
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await be_cancelled()
    assert not any(map(is_worker, children()))
    await ended(*commands)
