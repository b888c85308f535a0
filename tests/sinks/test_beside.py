"""Sinks of a session that is still open: they are told by a process beside it."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from batten.sinks.wanted import has_sinks
from tests.agent.stage import Stage, bash, end, say
from tests.maestro.speaking import Speaker, speaking
from tests.sinks.events import check_event
from tests.sinks.nats_server import NatsServer

FRAMES = ([bash("echo hello", "c1")], [say("Done."), end()])


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "stage")


async def play(speaker: Speaker) -> None:
    await speaker.hello()
    speaker.say("init", approval_mode="auto")
    await speaker.prompt()


def beside(pid: int) -> list[int]:
    """Processes of sinks that this one started."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    children = [int(one) for one in path.read_text().split()]
    said = b"\0sinks\0run\0"
    return [one for one in children if said in Path(f"/proc/{one}/cmdline").read_bytes()]


async def test_a_run_is_told_while_its_session_is_open_and_the_rest_at_its_end(
    stage: Stage, server: NatsServer
) -> None:
    async with speaking(stage, *FRAMES, environ={"MAESTRO_EVENT_BUS_URL": server.url}) as speaker:
        await play(speaker)
        told = await server.until("maestro.events.tool_call.completed")
        for one in told:
            check_event(one)
        assert told[0]["type"] == "maestro.sessions.session.started"
        [child] = beside(speaker.pid)
        speaker.say("shutdown")
        assert await speaker.rest() == 0
    assert not os.path.exists(f"/proc/{child}")
    events = await server.events()
    assert events[: len(told)] == told
    assert [one["type"] for one in events[len(told) :]] == ["maestro.sessions.session.closed"]


async def test_a_killed_session_leaves_no_process_behind(stage: Stage, server: NatsServer) -> None:
    async with speaking(stage, *FRAMES, environ={"MAESTRO_EVENT_BUS_URL": server.url}) as speaker:
        await play(speaker)
        [child] = beside(speaker.pid)
        exited = asyncio.Event()
        watched = os.pidfd_open(child)
        asyncio.get_running_loop().add_reader(watched, exited.set)
        speaker.signal(signal.SIGKILL)
        await speaker.gone()
    async with asyncio.timeout(30):
        await exited.wait()
    asyncio.get_running_loop().remove_reader(watched)
    os.close(watched)


async def test_a_bus_that_is_turned_off_starts_nothing(stage: Stage, server: NatsServer) -> None:
    environ = {"MAESTRO_EVENT_BUS_URL": server.url, "MAESTRO_EVENT_BUS": "false"}
    async with speaking(stage, *FRAMES, environ=environ) as speaker:
        await play(speaker)
        assert beside(speaker.pid) == []
    assert await server.events() == []
    assert not has_sinks(str(stage.home), environ, {})
    assert has_sinks(str(stage.home), {**environ, "MAESTRO_EVENT_BUS": ""}, {})
    assert has_sinks(str(stage.home), {"MAESTRO_EVENT_BUS": "1"}, {})
