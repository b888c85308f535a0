"""Requests in particular: what is denied, told in the older way, lent, tried again, asked twice."""

import asyncio

from tests.agent.stage import Stage, bash, call, end
from tests.maestro.asking import LOOKUP, answer, asked, talking
from tests.maestro.speaking import BATTEN, speaking


async def test_a_denied_call_never_starts_and_says_who_denied_it(stage: Stage) -> None:
    async with talking(stage, "approval") as client:
        request = await asked(client, "approval")
        result = {"success": False, "output": "", "error": "Not now"}
        answer(client, request, {"approved": False, "result": result})
        await client.until("response_end")
    (resolved,) = client.of("server_request_resolved")
    assert (resolved["resolution"], resolved["reason"]) == ("denied", "Not now")
    assert client.of("tool_start") == []
    (ended,) = client.of("tool_end")
    assert ended["error_code"] == "permission_denied"
    assert ended["approval_request_id"] == request["request_id"]
    assert ended["governed_outcome"] == "denied"


async def test_an_approval_is_told_in_the_older_way_too_and_may_be_answered_so(
    stage: Stage,
) -> None:
    async with talking(stage, "approval") as client:
        request = await asked(client, "approval")
        (called,) = client.of("tool_call")
        assert (called["call_id"], called["requires_approval"]) == (request["call_id"], True)
        client.say("tool_response", call_id="another", approved=True)
        error = await client.until("error")
        assert error["message"] == "No pending approval found for call_id: another"
        client.say("tool_response", call_id="c1", approved=True)
        await client.until("response_end")
    assert client.of("server_request_resolved")[0]["reason"] == "Approved"
    assert [one["success"] for one in client.of("tool_end")] == [True]


async def test_a_client_without_a_greeting_answers_approvals_in_the_older_way(
    stage: Stage,
) -> None:
    async with talking(stage, "approval") as client:
        client.say("prompt", content="go")
        await client.until("tool_call", requires_approval=True)
        client.say("tool_response", call_id="c1", approved=False)
        await client.until("response_end")
    assert client.kinds()[0] == "ready"
    assert client.of("server_request") == []
    assert [one["success"] for one in client.of("tool_end")] == [False]


async def test_an_approval_of_the_older_form_is_answered_in_the_newer_one_by_its_call(
    stage: Stage,
) -> None:
    async with talking(stage, "approval") as client:
        await client.hello()
        client.say("prompt", content="go")
        await client.until("tool_call", requires_approval=True)
        (waiting,) = client.conversation.state.pending_requests
        request = {"request_id": waiting.id, "request_type": waiting.kind}
        client.say("server_request_response", **request, approved=True)
        await client.until("response_end")
    assert client.of("error") == []
    assert client.of("tool_end")[0]["success"] is True


async def test_an_approval_that_waits_is_answered_in_the_older_way_whatever_the_mode_is_now(
    stage: Stage,
) -> None:
    async with talking(stage, "approval") as client:
        client.say("prompt", content="go")
        await client.until("tool_call", requires_approval=True)
        client.say("init", approval_mode="auto")
        client.say("tool_response", call_id="c1", approved=True)
        await client.until("response_end")
    assert client.of("tool_output")[0]["content"] == "ran\n"


async def test_a_tool_response_outside_of_prompt_mode_changes_nothing(stage: Stage) -> None:
    async with talking(stage, "approval") as client:
        await client.hello("approval")
        client.say("init", approval_mode="auto")
        client.say("tool_response", call_id="c1", approved=True)
        said = "Tool response ignored (auto-approval mode)"
        await client.until("status", message=said)


async def test_content_of_a_client_tool_reaches_the_model_by_either_answer(stage: Stage) -> None:
    frames = [[call("lookup", "c1", key="a")], [call("lookup", "c2", key="b")], [end()]]
    async with speaking(stage, *frames) as client:
        await client.hello("client_tool")
        for wrong in ({"properties": "key"}, {"$ref": "http://127.0.0.1/"}, {"type": 5}):
            client.say("init", client_tools=[{**LOOKUP, "input_schema": wrong}])
            refused = await client.until("error")
            assert "the input_schema of lookup cannot be used" in refused["message"]
        for name in ("bash", "Bash", "TodoWrite"):  # to lend one would allow ours
            client.say("init", client_tools=[{**LOOKUP, "name": name}])
            await client.until("error", message=f"client_tools: the name {name} is taken")
        client.say("init", client_tools=[LOOKUP], approval_mode="prompt")
        client.say("prompt", content="go")
        request = await client.until("server_request")
        assert client.of("client_tool_request")[0]["args"] == {"key": "a"}
        assert request["reason"] == "Client tool lookup requires local execution"
        pixel = {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}
        content = [{"type": "text", "text": "first"}, pixel]
        client.say("client_tool_result", call_id="c1", content=content, is_error=False)
        request = await client.until("server_request")
        client.say("client_tool_result", call_id="c1", content=[], is_error=False)
        await client.until("error", message="No pending client tool request found for call_id: c1")
        broke = [{"type": "text", "text": "broke"}]
        answer(client, request, {"content": broke, "is_error": True})
        await client.until("response_end")
    shown = [one["content"] for one in client.of("tool_output")]
    assert shown == ["first\n[image:image/png]", "broke"]
    assert [one["success"] for one in client.of("tool_end")] == [True, False]
    assert [one["resolution"] for one in client.of("server_request_resolved")] == [
        "completed",
        "failed",
    ]


async def test_an_aborted_retry_ends_the_run_and_a_retry_runs_the_call_again(stage: Stage) -> None:
    frames = [
        [bash("echo x >> tries; test $(wc -l < tries) = 2", "c1")],
        [bash("exit 4", "c2")],
        [end()],
    ]
    async with speaking(stage, *frames) as client:
        await client.hello("tool_retry")
        client.say("init", approval_mode="auto")
        client.say("prompt", content="go")
        request = await client.until("server_request")
        assert request["args"]["attempt"] == 2
        assert request["request_id"] != request["call_id"] == "c1"
        answer(client, request, {"decision_action": "retry"})
        again = await client.until("server_request")
        answer(client, again, {})  # no decision is a decision to give up
        ended = await client.until("response_end")
    assert [one["resolution"] for one in client.of("server_request_resolved")] == [
        "retried",
        "aborted",
    ]
    assert [(one["call_id"], one["success"]) for one in client.of("tool_end")] == [
        ("c1", False),
        ("c1", True),
        ("c2", False),
    ]
    assert ended["tools_summary"]["calls_succeeded"] == 1
    assert ended["tools_summary"]["calls_failed"] == 2


async def test_somebody_else_may_answer_first_and_the_client_is_told(stage: Stage) -> None:
    async with talking(stage, "approval") as client:
        request = await asked(client, "approval")
        environ = {**stage.environ, "BATTEN_HOME": str(stage.home)}
        answering = await asyncio.create_subprocess_exec(
            BATTEN,
            "answer",
            request["request_id"],
            "allow",
            env=environ,
            stdout=asyncio.subprocess.DEVNULL,
        )
        assert await answering.wait() == 0
        await client.until("response_end")
    (resolved,) = client.of("server_request_resolved")
    assert (resolved["resolution"], resolved["resolved_by"]) == ("approved", "user")
