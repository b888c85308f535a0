"""One session and many connections in this process: who may speak, and what everybody reads."""

import pytest

from batten.contract.errors import Conflict, NotFound, Refused
from batten.protocols.maestro.hosted import SubscribeAsk
from tests.agent.stage import Stage, bash
from tests.maestro.attending import (
    DONE,
    attending,
    hosting,
    is_valid,
    join,
    json_of,
    looking_on,
    replay,
    valid,
)

ALREADY_HELD = "Controller lease is already held by another connection"
HELD_ELSEWHERE = "Controller lease is currently held by another connection"
VIEWER = "Viewer headless connections cannot send messages"
WORK = [[bash("echo one", "c1")], DONE]


async def test_a_controller_and_a_viewer_are_told_who_has_the_lease(stage: Stage) -> None:
    async with hosting(stage, DONE) as runtime:
        controller = valid("SubscriptionSnapshot", await join(runtime, "approval"))
        assert (controller["role"], controller["controller_lease_granted"]) == ("controller", True)
        viewer = valid("SubscriptionSnapshot", await join(runtime, role="viewer"))
        assert (viewer["role"], viewer["controller_lease_granted"]) == ("viewer", False)
        assert viewer["controller_connection_id"] == controller["connection_id"]
        for one, has_lease in ((controller, True), (viewer, False)):
            beat = runtime.heartbeat(subscription_id=one["subscription_id"])
            assert valid("HeartbeatSnapshot", beat)["controller_lease_granted"] is has_lease
        state = is_valid(runtime.state())["state"]
        assert (state["connection_count"], state["subscriber_count"]) == (2, 2)
        assert state["controller_connection_id"] == controller["connection_id"]


async def test_a_viewer_says_nothing_and_a_second_controller_needs_to_take_control(
    stage: Stage,
) -> None:
    async with hosting(stage, DONE) as runtime, attending(runtime, role="viewer") as viewer:
        first = await join(runtime)
        with pytest.raises(Refused, match=VIEWER):
            await viewer.say("prompt", content="go")
        with pytest.raises(Conflict, match=ALREADY_HELD):
            await join(runtime)
        second = await join(runtime, take_control=True)
        assert second.controller_connection_id == second.connection_id
        assert not runtime.heartbeat(subscription_id=first.subscription_id).controller_lease_granted
        with pytest.raises(Conflict, match=HELD_ELSEWHERE):
            await runtime.message(
                {"type": "prompt", "content": "go"}, subscription_id=first.subscription_id
            )
        await viewer.see(controller_connection_id=second.connection_id)
        assert runtime.state().state.is_responding is False


async def test_a_stream_begins_with_what_is_true_or_with_all_that_was_said(stage: Stage) -> None:
    async with hosting(stage, *WORK) as runtime, attending(runtime) as controller:
        await controller.say("init", approval_mode="auto")
        said = await controller.prompt()
        status = {"type": "status", "message": "Completed 1 tool call"}
        assert status in said
        async with looking_on(runtime) as reader:
            first = await reader.read()
            assert first["type"] == "snapshot"
            assert first["snapshot"]["state"]["last_status"] == status["message"]
        all_of_it = await replay(runtime)
        assert status in all_of_it.messages
        assert len(all_of_it.of("ready")) == len(all_of_it.of("session_info")) == 1
        assert [one["message"] for one in all_of_it.of("status")] == [
            "Initialized: approval_mode",
            "Completed 1 tool call",
        ]
        assert not all_of_it.of("server_request")  # nobody was asked
        assert not all_of_it.of("tool_call", requires_approval=True)
        assert all_of_it.cursors == sorted(set(all_of_it.cursors))
        assert controller.messages == all_of_it.messages[-len(controller.messages) :]
        async with looking_on(runtime, -999) as reader:
            reset = await reader.read()
            assert (reset["type"], reset["reason"]) == ("reset", "replay_gap")


async def test_who_disconnects_is_gone_and_the_runtime_stays(stage: Stage) -> None:
    async with hosting(stage, *WORK) as runtime:
        controller, viewer = await join(runtime), await join(runtime, role="viewer")
        closed = await runtime.disconnect(subscription_id=viewer.subscription_id)
        assert json_of(closed) == {
            "success": True,
            "connection_id": viewer.connection_id,
            "controller_connection_id": controller.connection_id,
            "disconnected_subscription_ids": [viewer.subscription_id],
        }
        closed = await runtime.disconnect(connection_id=controller.connection_id)
        assert json_of(closed) == {
            "success": True,
            "connection_id": controller.connection_id,
            "controller_connection_id": None,
            "disconnected_subscription_ids": [controller.subscription_id],
        }
        assert {"ready", "session_info"} <= {
            one["type"] for one in (await replay(runtime)).messages
        }
        assert is_valid(runtime.state())["state"]["is_ready"] is True
        with pytest.raises(NotFound, match="Headless subscriber not found"):
            runtime.attach(controller.subscription_id)
        async with attending(runtime) as another:  # nobody has the lease, so anybody may
            await another.say("init", approval_mode="auto")
            assert (await another.prompt())[-1]["type"] == "response_end"


async def test_a_message_of_nobody_is_taken_while_nobody_has_the_lease(stage: Stage) -> None:
    async with hosting(stage, DONE, DONE) as runtime, looking_on(runtime, 0) as reader:
        await runtime.message({"type": "prompt", "content": "go"})
        await reader.hear("response_end")
        await join(runtime)
        with pytest.raises(Conflict, match=HELD_ELSEWHERE):
            await runtime.message({"type": "prompt", "content": "go"})


async def test_a_lease_that_nobody_has_is_claimed_by_a_message_and_that_is_announced(
    stage: Stage,
) -> None:
    async with hosting(stage, DONE) as runtime, attending(runtime, role="viewer") as viewer:
        second = await join(runtime)
        first = await join(runtime, take_control=True)
        await runtime.disconnect(connection_id=first.connection_id)
        await runtime.message({"type": "init"}, connection_id=second.connection_id)
        told = await viewer.hear("connection_info", controller_connection_id=second.connection_id)
        assert told["connection_count"] == 2
        await viewer.see(controller_connection_id=second.connection_id)
        await runtime.subscribe(SubscribeAsk(connection_id=second.connection_id))
