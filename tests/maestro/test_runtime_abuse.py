"""A shared runtime and those who give it nonsense, or go away in the middle of a call."""

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from batten.contract.errors import CallerError, PeerError
from batten.embedded import ConnectAsk, DrainRequest, SubscribeAsk
from batten.protocols.maestro.incoming import Prompt
from batten.protocols.maestro.outgoing import ClientInfo
from tests.agent.stage import Stage, bash
from tests.maestro.attending import (
    DONE,
    PATIENCE_S,
    Shim,
    attending,
    hosting,
    is_valid,
    looking_on,
    replay,
)
from tests.maestro.schemas import Json

HALF = "\ud800"
"""Half a character: no text that could be written."""


def nested(levels: int) -> Json:
    value: Json = {}
    for _ in range(levels):
        value = {"inner": value}
    return value


def lending(schema: Any) -> Json:
    return {"type": "init", "client_tools": [{"name": "lent", "input_schema": schema}]}


@pytest.mark.parametrize(
    "message",
    [
        {"type": "prompt", "content": HALF},
        {"type": "hello", "client_info": {"name": HALF}},
        {"type": "tool_response", "call_id": HALF, "approved": True},
        {"type": "utility_command_start", "command_id": HALF, "command": "true"},
        {"type": "utility_file_read", "read_id": "r1", "path": HALF},
        lending(nested(300)),
        lending(nested(10_000)),
        lending({"x": object()}),
        {"type": "prompt", "content": "x" * (64 << 20)},
        None,
        ["prompt"],
    ],
    ids=lambda _: "",
)
async def test_what_could_not_come_as_a_line_is_refused_and_harms_nobody(
    stage: Stage, message: Any
) -> None:
    async with (
        hosting(stage, DONE) as runtime,
        attending(runtime, "client_tool") as controller,
        looking_on(runtime) as viewer,
    ):
        with pytest.raises(PeerError, match="Failed to parse command"):
            await runtime.message(message, connection_id=controller.connection_id)
        await controller.prompt()
        await viewer.hear("response_end")
        is_valid(runtime.state())


async def test_a_message_that_was_made_by_hand_is_read_like_any_other(stage: Stage) -> None:
    async with hosting(stage, DONE) as runtime, attending(runtime) as controller:
        wrong: Any = Prompt(content=5)  # type: ignore[arg-type]
        with pytest.raises(PeerError, match="content"):
            await runtime.message(wrong, connection_id=controller.connection_id)
        await runtime.message(Prompt(content="go"), connection_id=controller.connection_id)
        await controller.hear("response_end")


async def test_who_says_nonsense_of_itself_is_not_let_in(stage: Stage) -> None:
    wrong: list[Json] = [
        {"client_info": ClientInfo(name=HALF)},
        {"protocol_version": HALF},
        {"role": "director"},
        {"opt_out_notifications": ("weather",)},
        {"connection_id": 5},
    ]
    async with hosting(stage, DONE) as runtime, looking_on(runtime) as viewer:
        for fields in wrong:
            with pytest.raises(CallerError, match="ConnectAsk"):
                await runtime.connect(ConnectAsk(**fields))
            with pytest.raises(CallerError, match="SubscribeAsk"):
                await runtime.subscribe(SubscribeAsk(**fields))
        with pytest.raises(CallerError, match="role"):
            runtime.attach(role="director")  # type: ignore[arg-type]
        assert runtime.state().state.connection_count == 1
        async with attending(runtime) as controller:
            await controller.prompt()
            await viewer.hear("response_end")


async def test_a_drain_that_makes_no_sense_stops_nothing(stage: Stage) -> None:
    wrong: list[Any] = [
        DrainRequest(reason=HALF),
        DrainRequest(reason=5),  # type: ignore[arg-type]
        DrainRequest(export_paths="notes.md"),  # type: ignore[arg-type]
    ]
    async with hosting(stage, DONE) as runtime, attending(runtime) as controller:
        for request in wrong:
            with pytest.raises(CallerError, match="Drain"):
                await runtime.drain(request)
        await controller.prompt()


async def given_up(call: Coroutine[Any, Any, object]) -> None:
    """Begin a call, and wait for it no longer than to where it waits first."""
    calling = asyncio.ensure_future(call)
    await asyncio.sleep(0)
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def started(controller: Shim) -> int:
    """A command that does not end by itself; its process."""
    await controller.say("utility_command_start", command_id="u1", command="sleep 600")
    said = await controller.hear("utility_command_started", command_id="u1")
    pid: int = said["pid"]
    assert is_there(pid)
    return pid


async def test_what_a_connection_started_ends_with_it_whoever_waits_for_that(
    stage: Stage,
) -> None:
    async with (
        hosting(stage, DONE) as runtime,
        attending(runtime) as controller,
        attending(runtime, role="viewer") as viewer,
    ):
        pid = await started(controller)
        await given_up(runtime.disconnect(controller.connection_id))
        await viewer.hear("utility_command_exited", command_id="u1")
        await viewer.see(connection_count=1, active_utility_commands=[])
        assert not is_there(pid)


async def test_a_shutdown_goes_on_when_who_asked_for_it_is_gone(stage: Stage) -> None:
    async with (
        hosting(stage, [bash("echo ran", "c1")], DONE) as runtime,
        attending(runtime, "approval") as controller,
        attending(runtime, role="viewer") as viewer,
    ):
        pid = await started(controller)
        await controller.say("prompt", content="go")
        await controller.hear("server_request")
        ask = runtime.message({"type": "shutdown"}, connection_id=controller.connection_id)
        await given_up(ask)
        await viewer.rest()
        assert len(viewer.of("response_end")) == 1
        assert not is_there(pid)


async def test_a_drain_goes_on_when_who_asked_for_it_is_gone_and_can_be_asked_after(
    stage: Stage,
) -> None:
    async with (
        hosting(stage, [bash("echo ran", "c1")], DONE) as runtime,
        attending(runtime, "approval") as controller,
    ):
        await controller.say("prompt", content="go")
        await controller.hear("server_request")
        await given_up(runtime.drain(DrainRequest(reason="first")))
        async with asyncio.timeout(PATIENCE_S):
            drained = await runtime.drain(DrainRequest(reason="second"))
        assert (drained.status, drained.reason) == ("drained", "first")
        assert drained.manifest.runtime.flush_status == "completed"
        assert drained.manifest.work_continuity.pending_request_count == 1
        assert await runtime.drain() == drained
        said = [one["message"] for one in (await replay(runtime)).of("status")]
        assert not any("interrupted" in one for one in said)


async def test_a_drain_that_nobody_waits_for_is_finished_before_the_context_is_left(
    stage: Stage,
) -> None:
    async with hosting(stage, DONE) as runtime:
        await given_up(runtime.drain())
    assert len(list((stage.workspace / ".maestro" / "runner-snapshots").iterdir())) == 1


async def test_who_is_cancelled_while_it_opens_or_leaves_leaves_nothing_behind(
    stage: Stage,
) -> None:
    begun, opened = asyncio.Event(), asyncio.Event()

    async def host() -> None:
        begun.set()
        async with hosting(stage, [bash("echo ran", "c1")], DONE) as runtime:
            async with attending(runtime, "approval") as controller:
                await started(controller)
                await controller.say("prompt", content="go")
                await controller.hear("server_request")
            opened.set()

    async def cancelled(after: asyncio.Event, turns: int) -> None:
        begun.clear()
        opened.clear()
        hosting_it = asyncio.ensure_future(host())
        await after.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        hosting_it.cancel()
        await asyncio.wait([hosting_it])

    async with asyncio.timeout(PATIENCE_S):
        await host()  # what is loaded once stays
        open_files = len(os.listdir("/proc/self/fd"))
        for turns in range(1, 40, 3):
            await cancelled(begun, turns)
            await cancelled(opened, turns)
        assert len(os.listdir("/proc/self/fd")) <= open_files
