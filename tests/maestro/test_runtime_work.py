"""What a controller has done in a shared runtime: requests answered, utilities run and owned."""

import os

import pytest

from batten.contract.errors import Conflict, Refused
from batten.contract.facts import ApprovalResolved
from batten.protocols.maestro.hosted import SubscribeAsk
from tests.agent.stage import Stage, bash, call
from tests.maestro.asking import stored
from tests.maestro.attending import (
    DONE,
    attending,
    hosting,
    is_valid,
    looking_on,
    prepared,
    replay,
)

ASKING = [[bash("echo ran", "c1")], DONE]


async def test_a_denied_approval_reaches_the_tool_that_waits_with_its_reason(stage: Stage) -> None:
    async with hosting(stage, *ASKING) as runtime, attending(runtime, "approval") as controller:
        await controller.say("prompt", content="go")
        request = await controller.hear("server_request", request_type="approval")
        (asked,) = (await replay(runtime)).of("server_request")
        assert (asked["request_id"], asked["call_id"]) == (request["request_id"], "c1")
        (waiting,) = is_valid(runtime.state())["state"]["pending_approvals"]
        assert waiting["request_id"] == request["request_id"]
        result = {"success": False, "output": "", "error": "not on a Friday"}
        await controller.answer(request, approved=False, result=result)
        after = is_valid(runtime.state())["state"]
        assert after["pending_approvals"] == after["tracked_tools"] == []
        await controller.hear("response_end")
        assert controller.of("tool_start") == []
        (resolved,) = (await replay(runtime)).of("server_request_resolved")
        told = {name: resolved[name] for name in ("resolution", "reason", "resolved_by")}
        assert told == {"resolution": "denied", "reason": "not on a Friday", "resolved_by": "user"}
        assert resolved["request_id"] == request["request_id"]
        kinds = [one.get("message", one)["type"] for one in controller.heard]
        at = kinds.index("server_request_resolved")
        assert kinds[at + 1] == "snapshot"  # what it leads to is said before what is true then
    (fact,) = await stored(stage)
    assert isinstance(fact, ApprovalResolved)
    assert (fact.decision, fact.comment) == ("rejected", "not on a Friday")


async def test_an_answer_to_nothing_is_refused_and_says_why(stage: Stage) -> None:
    async with hosting(stage, *ASKING) as runtime, attending(runtime, "approval") as controller:
        await controller.say("prompt", content="go")
        request = await controller.hear("server_request")
        identifier = request["request_id"]
        with pytest.raises(Refused, match=f"Pending request {identifier} is approval, not user_in"):
            await controller.answer({**request, "request_type": "user_input"}, content=[])
        with pytest.raises(Refused, match="No pending server request found for request_id: other"):
            await controller.answer({**request, "request_id": "other"}, approved=True)
        with pytest.raises(Refused, match="No pending approval found for call_id: c9"):
            await controller.say("tool_response", call_id="c9", approved=True)
        with pytest.raises(Refused, match="Headless runtime is already processing a prompt"):
            await controller.say("prompt", content="and another thing")
        await controller.say("tool_response", call_id="c1", approved=True)
        await controller.hear("response_end")
        with pytest.raises(Refused, match="No pending server request found for request_id"):
            await controller.answer(request, approved=True)


async def test_a_file_is_read_inside_the_workspace_and_refused_outside(stage: Stage) -> None:
    secret = prepared(stage)
    async with hosting(stage, DONE) as runtime, attending(runtime) as controller:
        await controller.say("utility_file_read", read_id="r1", path="notes.md", limit=2)
        page = await controller.hear("utility_file_read_result", read_id="r1")
        assert page["content"] == "alpha\nbeta"
        assert (page["relative_path"], page["truncated"]) == ("notes.md", True)
        with pytest.raises(Refused, match="outside"):
            await controller.say("utility_file_read", read_id="r2", path=str(secret))


async def test_a_command_a_search_and_a_watch_belong_to_who_started_them(stage: Stage) -> None:
    prepared(stage)
    async with hosting(stage, DONE) as runtime, attending(runtime) as controller:
        owner = controller.connection_id
        await controller.say(
            "utility_command_start",
            command_id="u1",
            command="cat",
            shell_mode="direct",
            allow_stdin=True,
        )
        (command,) = is_valid(runtime.state())["state"]["active_utility_commands"]
        assert (command["command_id"], command["owner_connection_id"]) == ("u1", owner)
        await controller.say(
            "utility_command_stdin", command_id="u1", content="utility ok\n", eof=True
        )
        started = await controller.hear("utility_command_started", command_id="u1")
        assert started["owner_connection_id"] == owner
        await controller.hear("utility_command_output", content="utility ok\n", stream="stdout")
        exited = await controller.hear("utility_command_exited", command_id="u1")
        assert (exited["success"], exited["exit_code"]) == (True, 0)
        await controller.say("utility_file_search", search_id="s1", query="notes")
        found = await controller.hear("utility_file_search_results", search_id="s1")
        assert found["query"] == "notes"
        assert any(one["path"].endswith("notes.md") for one in found["results"])
        await controller.say("utility_file_watch_start", watch_id="w1", debounce_ms=0)
        (watch,) = is_valid(runtime.state())["state"]["active_file_watches"]
        assert (watch["watch_id"], watch["owner_connection_id"]) == ("w1", owner)
        told = await controller.hear("utility_file_watch_started", watch_id="w1")
        assert told["owner_connection_id"] == owner
        await controller.say("utility_file_watch_stop", watch_id="w1")
        assert is_valid(runtime.state())["state"]["active_file_watches"] == []
        stopped = await controller.hear("utility_file_watch_stopped", watch_id="w1")
        assert stopped["reason"] == "Stopped by controller"


@pytest.mark.parametrize("way", ["unsubscribe", "disconnect"])
async def test_another_controller_may_not_touch_them_and_they_end_with_their_connection(
    stage: Stage, way: str
) -> None:
    async with hosting(stage, DONE) as runtime, attending(runtime) as first:
        await first.say("utility_command_start", command_id="a", command="cat", allow_stdin=True)
        await first.say("utility_file_watch_start", watch_id="w1")
        async with attending(runtime, take_control=True) as second:
            mine = {"command_id": "b", "command": "cat", "allow_stdin": True}
            await second.say("utility_command_start", **mine)
            elsewhere = "is owned by another connection"
            with pytest.raises(Refused, match=elsewhere):
                await second.say("utility_command_stdin", command_id="a", content="x")
            with pytest.raises(Refused, match=elsewhere):
                await second.say("utility_command_resize", command_id="a", columns=80, rows=24)
            with pytest.raises(Refused, match=elsewhere):
                await second.say("utility_command_terminate", command_id="a")
            with pytest.raises(Refused, match=elsewhere):
                await second.say("utility_file_watch_stop", watch_id="w1")
            with pytest.raises(Conflict):  # it lost the lease, and keeps what it started
                await first.say("utility_command_terminate", command_id="a")
            if way == "unsubscribe":
                await runtime.unsubscribe(first.subscription_id)
            else:
                await runtime.disconnect(first.connection_id)
            exited = await second.hear("utility_command_exited", command_id="a")
            gone = "Owning connection closed while"
            assert exited["reason"] == f"{gone} utility command was still running"
            stopped = second.of("utility_file_watch_stopped", watch_id="w1")
            stopped = stopped or [await second.hear("utility_file_watch_stopped", watch_id="w1")]
            assert stopped[0]["reason"] == f"{gone} file watch was still running"
            await second.see(active_file_watches=[])
            (left,) = is_valid(runtime.state())["state"]["active_utility_commands"]
            assert left["command_id"] == "b"
            await second.say("utility_command_stdin", command_id="b", content="still here\n")
            await second.hear("utility_command_output", content="still here\n")


async def test_utilities_are_refused_to_who_did_not_offer_to_use_them(stage: Stage) -> None:
    async with hosting(stage, DONE) as runtime:
        await runtime.subscribe(SubscribeAsk())
        controller = runtime.state().state.controller_connection_id
        with pytest.raises(Refused, match="utility_file_read requires file_read capability"):
            await runtime.message(
                {"type": "utility_file_read", "read_id": "r", "path": "notes.md"},
                connection_id=str(controller),
            )


async def test_an_interrupt_cancels_what_waits_then_says_what_is_true(stage: Stage) -> None:
    frames = [[call("lookup", "c1", key="k")], DONE]
    lookup = {"name": "lookup", "input_schema": {"properties": {"key": {"type": "string"}}}}
    async with hosting(stage, *frames) as runtime, attending(runtime, "client_tool") as controller:
        await controller.say("init", client_tools=[lookup])
        await controller.say("prompt", content="go")
        request = await controller.hear("server_request", request_type="client_tool")
        await controller.say("utility_command_start", command_id="u1", command="cat")
        await controller.say("interrupt")
        state = is_valid(runtime.state())["state"]
        assert state["pending_requests"] == state["active_utility_commands"] == []
        await controller.see(pending_client_tools=[])
        kinds = [one.get("message", one)["type"] for one in controller.heard]
        assert kinds.index("server_request_resolved") < len(kinds) - 1
        (resolved,) = controller.of("server_request_resolved")
        assert (resolved["resolution"], resolved["resolved_by"]) == ("cancelled", "runtime")
        assert resolved["reason"] == "Interrupted before request completed"
        with pytest.raises(Refused, match="No pending server request"):
            await controller.answer(request, content=[])
        assert len((await replay(runtime)).of("server_request_resolved")) == 1


async def test_an_interrupt_ends_requests_then_utilities_then_the_response(stage: Stage) -> None:
    async with hosting(stage, *ASKING) as runtime, attending(runtime, "approval") as controller:
        await controller.say("utility_command_start", command_id="u1", command="sleep 60")
        await controller.say("utility_file_watch_start", watch_id="w1")
        await controller.say("prompt", content="go")
        await controller.hear("server_request", request_type="approval")
        await controller.say("interrupt")
        await controller.hear("response_end")
        ended = {"server_request_resolved", "utility_command_exited", "utility_file_watch_stopped"}
        kinds = [one["type"] for one in controller.messages if one["type"] in ended]
        assert kinds[0] == "server_request_resolved"
        assert set(kinds) == ended


async def test_what_was_said_last_in_init_is_in_every_snapshot(stage: Stage) -> None:
    async with hosting(stage, DONE) as runtime, attending(runtime) as controller:
        assert is_valid(runtime.state())["last_init"] is None
        init = {"system_prompt": "Be brief.", "approval_mode": "auto"}
        await controller.say("init", **init)
        assert is_valid(runtime.state())["last_init"] == {"type": "init", **init}
        with pytest.raises(Refused, match="client_tools requires client_tool capability"):
            await controller.say("init", client_tools=[{"name": "lookup"}])
        assert is_valid(runtime.state())["last_init"] == {"type": "init", **init}
        await controller.say("prompt", content="go")
        assert is_valid(runtime.state())["state"]["is_responding"] is True
        await controller.hear("response_end")


async def test_a_greeting_is_answered_to_who_sent_it_alone(stage: Stage) -> None:
    async with (
        hosting(stage, DONE) as runtime,
        attending(runtime) as controller,
        attending(runtime, role="viewer") as viewer,
        looking_on(runtime, 0) as reader,
    ):
        capabilities = {"server_requests": ["approval", "tool_retry"]}
        await controller.say("hello", client_info={"name": "desk"}, capabilities=capabilities)
        greeted = await controller.hear("hello_ok")
        assert greeted["connection_id"] == controller.connection_id
        await viewer.say("hello", client_info={"name": "wall"}, protocol_version="2026-01-01")
        await viewer.hear("hello_ok", connection_id=viewer.connection_id)
        told = [(await viewer.read())["message"] for _ in range(2)]
        assert [one["type"] for one in told] == ["connection_info", "status"]
        assert told[1]["message"] == "Client protocol 2026-01-01 attached to server 2026-04-02"
        await controller.say("init")
        for one in (controller, viewer, reader):
            await one.hear("status")
        assert [len(one.of("hello_ok")) for one in (controller, viewer, reader)] == [1, 1, 0]
        assert [len(one.of("connection_info")) for one in (controller, viewer, reader)] == [2] * 3
        state = is_valid(runtime.state())["state"]
        assert state["client_info"] == {"name": "desk"}  # the controller's
        assert state["connection_role"] == "controller"


async def test_who_offers_no_retries_is_asked_for_none_whoever_else_did(stage: Stage) -> None:
    frames = [[bash("exit 3", "c1")], [bash("exit 4", "c2")], DONE]
    async with hosting(stage, *frames) as runtime, attending(runtime, "tool_retry") as first:
        await first.say("init", approval_mode="auto")
        await first.say("prompt", content="go")
        request = await first.hear("server_request", request_type="tool_retry")
        async with attending(runtime, take_control=True) as second:  # and answers what waits
            await second.answer(request, decision_action="skip")
            await second.hear("response_end")
        assert len((await replay(runtime)).of("server_request")) == 1


async def test_a_watch_sees_what_happens_for_everybody(stage: Stage) -> None:
    async with (
        hosting(stage, DONE) as runtime,
        attending(runtime) as controller,
        attending(runtime, role="viewer") as viewer,
    ):
        await controller.say("utility_file_watch_start", watch_id="w1", debounce_ms=1)
        os.mkdir(stage.workspace / "new")
        event = await viewer.hear("utility_file_watch_event", relative_path="new")
        assert (event["change_type"], event["is_directory"]) == ("create", True)
