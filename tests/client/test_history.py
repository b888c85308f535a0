"""The runs of a journal, listed and read from a program."""

import asyncio
import os
import sys
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from batten.client import CallerError, History, NotFound, NotStarted, PeerError, ToolStarted
from batten.contract.envelope import Envelope, encode, timestamp
from batten.contract.facts import RunFinished, UserMessage
from batten.embedded import in_process
from tests.agent.stage import Stage, bash, end, say
from tests.client.test_death import ended
from tests.client.working import PATIENCE_S, until, working

TWO = [say("One."), end()], [say("Two."), end()]


async def test_runs_are_listed_with_their_fields(stage: Stage) -> None:
    async with working(stage, *TWO, launch=in_process) as worker:
        first = await worker.ask("count to one")
        second = await worker.ask("go on")
        runs = await worker.history.runs()
        session_id = worker.about.session_id
        assert [run.run_id for run in runs] == [second.run_id, first.run_id]
        assert await worker.history.runs(limit=1) == runs[:1]
        assert await worker.history.runs(session=session_id, limit=None) == runs
        found = await worker.history.run(first.run_id)
    assert found == runs[1]
    assert (found.prompt, found.state, found.outcome) == ("count to one", "completed", "completed")
    assert (found.session_id, found.workspace_path) == (session_id, str(stage.workspace))
    assert (found.cost_usd, found.provider, found.turns) == (0.0, "scripted", 1)
    assert found.ended_at is not None
    assert found.ended_at >= found.created_at


async def test_runs_are_filtered(stage: Stage) -> None:
    async with working(stage, *TWO, launch=in_process) as worker:
        first = await worker.ask("count to one")
        second = await worker.ask("go on")
        history = worker.history
    begun = (await history.run(second.run_id)).created_at

    async def found(**filters: Any) -> list[str]:
        return [run.run_id for run in await history.runs(**filters)]

    assert await found(grep="COUNT") == [first.run_id]
    assert await found(since=begun) == [second.run_id]
    assert await found(until=begun) == [first.run_id]
    assert await found(after=second.run_id) == [first.run_id]
    assert await found(status="max_turns,failed") == []
    assert len(await found(status="completed", workspace=stage.workspace)) == 2
    assert await found(model="other/model") == []
    with pytest.raises(CallerError, match="--status"):
        await found(status="happy")


async def test_a_fresh_home_has_no_runs(tmp_path: Path) -> None:
    history = History(env={"BATTEN_HOME": str(tmp_path / "new")})
    assert await history.runs() == []
    with pytest.raises(NotFound, match="run_1"):
        await history.run("run_1")
    assert not (tmp_path / "new").exists()


async def test_the_events_of_a_run_are_typed_facts_in_order(stage: Stage) -> None:
    async with working(stage, *TWO, launch=in_process) as worker:
        result = await worker.ask("count to one")
        history = worker.history
        events = [event async for event in history.events(result.run_id)]
    assert [event.sequence for event in events] == list(range(len(events)))
    (message,) = (event.data for event in events if isinstance(event.data, UserMessage))
    assert message.text == "count to one"
    assert any(isinstance(event.data, RunFinished) for event in events)
    assert [event async for event in history.events(result.run_id, after=3)] == events[4:]


async def test_events_of_a_run_in_progress_are_followed_to_its_end(stage: Stage) -> None:
    gate = stage.directory / "gate"
    waiting = bash(f"while ! test -e {gate}; do sleep 0.02; done")
    frames = [waiting], [say("Done."), end()]
    async with (
        asyncio.timeout(PATIENCE_S),
        working(stage, *frames, approvals="allow") as worker,
        worker.prompt("go") as run,
    ):
        await until(run, ToolStarted)
        types: list[str] = []
        async for event in worker.history.events(run.run_id, follow=True):
            types.append(event.type)
            if event.type == "tool.started":
                gate.touch()
        assert "run.finished" in types
        async for _ in run:
            pass


async def test_leaving_events_early_ends_their_process(stage: Stage) -> None:
    async with working(stage, *TWO, launch=in_process) as worker:
        result = await worker.ask("go")
        async with aclosing(worker.history.events(result.run_id)) as events:
            async for event in events:
                assert event.sequence == 0
                break


HELD = 'cat "$0"; sh -c "echo \\$\\$ > $1; exec sleep 1000"; true'
"""A child of it holds its output."""
UNREAD = 'cat "$0"; head -c 33600000 /dev/zero; echo $$ > "$1"; exec sleep 1000'
"""More than the client reads ahead."""


@pytest.mark.parametrize("text", [HELD, UNREAD])
async def test_leaving_events_early_does_not_wait_for_their_output(
    tmp_path: Path, text: str
) -> None:
    line, told = tmp_path / "line", tmp_path / "told"
    at = timestamp()
    first = Envelope(
        event_id="e", run_id="r", sequence=0, occurred_at=at, type="user.message", data={"text": ""}
    )
    line.write_bytes(encode(first) + b"\n")
    os.mkfifo(told)
    history = History(command=["sh", "-c", text, str(line), str(told)])
    async with asyncio.timeout(PATIENCE_S), aclosing(history.events("r")) as events:
        assert (await anext(events)).sequence == 0
        gone = os.pidfd_open(int(await asyncio.to_thread(told.read_text)))
    await ended(gone)


async def test_what_is_not_there_is_not_found(stage: Stage) -> None:
    async with working(stage, *TWO, launch=in_process) as worker:
        await worker.ask("go")
        history = worker.history
    with pytest.raises(NotFound, match="run_0000"):
        await history.run("run_0000")
    with pytest.raises(NotFound, match="run_0000"):
        async for _ in history.events("run_0000"):
            pass
    with pytest.raises(CallerError, match="limit"):
        await history.runs(limit=-3)


async def test_a_program_that_is_no_batten_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(NotStarted, match="cannot be started"):
        await History(command=[str(tmp_path / "missing")]).runs()
    left = tmp_path / "pid"
    program = (
        "import os, pathlib, sys, time\n"
        "pathlib.Path(sys.argv[1]).write_text(str(os.getpid()))\n"
        "print('{}', flush=True)\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(PeerError, match="what is no run"):
        await History(command=[sys.executable, "-c", program, str(left)]).runs()
    with pytest.raises(ProcessLookupError):
        os.kill(int(left.read_text()), 0)
