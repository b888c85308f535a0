"""Each class of request: answered, twice, late, by the wrong one, never, and with nobody there."""

import asyncio
from typing import Any

import pytest

from batten.contract.facts import ApprovalResolved, RequestClosed
from batten.session.history import facts_of
from tests.agent.stage import Stage, Statement, bash, call, end, say
from tests.maestro.schemas import Json
from tests.maestro.speaking import Speaker, speaking

LOOKUP = {
    "name": "lookup",
    "description": "Looks something up.",
    "input_schema": {"properties": {"key": {"type": "string"}}, "required": ["key"]},
}
FRAMES: dict[str, list[list[Statement]]] = {
    "approval": [[bash("echo ran", "c1")], [say("Done."), end()]],
    "client_tool": [[call("lookup", "c1", key="k")], [say("Done."), end()]],
    "user_input": [[call("ask_user", "c1", question="Which one?")], [say("Done."), end()]],
    "tool_retry": [[bash("echo x >> tries; exit 3", "c1")], [say("Done."), end()]],
}
KINDS = list(FRAMES)
each_kind = pytest.mark.parametrize("kind", KINDS)
YES: dict[str, Json] = {
    "approval": {"approved": True, "result": {"success": True, "output": "Fine by me"}},
    "client_tool": {"content": [{"type": "text", "text": "value of k"}], "is_error": False},
    "user_input": {"content": [{"type": "text", "text": "the second"}]},
    "tool_retry": {"decision_action": "skip", "reason": "not worth it"},
}
ANSWERED = {
    "approval": ("approved", "user"),
    "client_tool": ("completed", "client"),
    "user_input": ("answered", "client"),
    "tool_retry": ("skipped", "client"),
}
NOT_PENDING = {
    "approval": "No pending approval found for request_id: ",
    "client_tool": "No pending client tool request found for request_id: ",
    "user_input": "No pending client tool request found for request_id: ",
    "tool_retry": "No pending tool retry request found for request_id: ",
}


def talking(stage: Stage, kind: str, **environ: str) -> Any:
    return speaking(stage, *FRAMES[kind], environ=environ)


async def asked(client: Speaker, kind: str) -> Json:
    """Greet, prompt, and hear the request."""
    await client.hello(kind)
    if kind == "client_tool":
        client.say("init", client_tools=[LOOKUP])
    client.say("init", approval_mode="prompt" if kind == "approval" else "auto")
    client.say("prompt", content="go")
    return await client.until("server_request", request_type=kind)


def answer(client: Speaker, request: Json, **fields: Any) -> None:
    kind = request["request_type"]
    said = {"request_id": request["request_id"], "request_type": kind, **YES[kind], **fields}
    client.say("server_request_response", **said)


async def stored(stage: Stage) -> list[Any]:
    """How requests were resolved, as the journal has it."""
    journal = stage.journal()
    runs = journal.runs()
    facts = [fact for run in runs for fact in facts_of(journal, run.run_id)]
    journal.close()
    return [fact for fact in facts if isinstance(fact, ApprovalResolved | RequestClosed)]


@each_kind
async def test_a_request_that_is_answered_is_resolved_once_and_the_run_goes_on(
    stage: Stage, kind: str
) -> None:
    async with talking(stage, kind) as client:
        request = await asked(client, kind)
        answer(client, request)
        await client.until("response_end")
    (resolved,) = client.of("server_request_resolved")
    assert (resolved["resolution"], resolved["resolved_by"]) == ANSWERED[kind]
    same = ("request_id", "request_type", "call_id", "started_at_ms")
    assert {key: resolved[key] for key in same} == {key: request[key] for key in same}
    assert resolved["resolved_at_ms"] >= resolved["started_at_ms"]
    assert len(client.of("server_request")) == 1
    ends = [one["success"] for one in client.of("tool_end")]
    assert ends == [kind != "tool_retry"]
    assert client.of("response_chunk")[-1]["content"] == "Done."
    assert len(await stored(stage)) == 1


@each_kind
async def test_a_second_answer_and_a_late_one_find_nothing_that_waits(
    stage: Stage, kind: str
) -> None:
    async with talking(stage, kind) as client:
        request = await asked(client, kind)
        answer(client, request)
        answer(client, request)
        error = await client.until("error")
        assert error["message"] == NOT_PENDING[kind] + request["request_id"]
        if not client.of("response_end"):
            await client.until("response_end")
        answer(client, request)
        late = await client.until("error")
        assert (late["message"], late["fatal"]) == (error["message"], False)
    assert len(client.of("server_request_resolved")) == 1
    assert len(await stored(stage)) == 1


@each_kind
async def test_an_answer_of_another_class_is_not_taken_and_the_request_still_waits(
    stage: Stage, kind: str
) -> None:
    other = KINDS[KINDS.index(kind) - 1]
    async with talking(stage, kind) as client:
        request = await asked(client, kind)
        client.say("server_request_response", request_id=request["request_id"], request_type=other)
        error = await client.until("error")
        assert error["message"] == NOT_PENDING[other] + request["request_id"]
        answer(client, request)
        await client.until("response_end")
    assert len(client.of("server_request_resolved")) == 1


@each_kind
async def test_a_request_that_nobody_answers_ends_with_its_deadline(
    stage: Stage, kind: str
) -> None:
    variable = {"approval": "APPROVAL", "tool_retry": "RETRY"}.get(kind, "CLIENT")
    async with talking(stage, kind, **{f"MAESTRO_HEADLESS_{variable}_TIMEOUT_MS": "200"}) as client:
        request = await asked(client, kind)
        resolved = await client.until("server_request_resolved")
        await client.until("response_end")
        answer(client, request)
        await client.until("error", message=NOT_PENDING[kind] + request["request_id"])
    expected = {"approval": "denied", "tool_retry": "cancelled"}.get(kind, "failed")
    assert (resolved["resolution"], resolved["resolved_by"]) == (expected, "policy")
    assert resolved["reason"].endswith("timed out")


@each_kind
async def test_an_interrupt_cancels_what_waits_and_then_ends_the_response(
    stage: Stage, kind: str
) -> None:
    async with talking(stage, kind) as client:
        await asked(client, kind)
        client.say("interrupt")
        resolved = await client.until("server_request_resolved")
        await client.until("response_end")
        client.say("init")
        await client.until("status", message="Init received with no changes")
    assert (resolved["resolution"], resolved["resolved_by"]) == ("cancelled", "runtime")
    assert resolved["reason"] == "Interrupted before request completed"
    assert client.of("error") == []
    assert len(client.of("server_request_resolved")) == 1


@each_kind
async def test_a_client_that_goes_away_leaves_nothing_waiting(stage: Stage, kind: str) -> None:
    async with talking(stage, kind) as client:
        await asked(client, kind)
        client.hang_up()
        assert await client.rest() == 0
    (resolved,) = client.of("server_request_resolved")
    assert (resolved["resolution"], resolved["resolved_by"]) == ("cancelled", "runtime")
    assert resolved["reason"] == "Client closed its side before request completed"
    assert client.kinds()[-1] == "response_end"


@each_kind
async def test_a_class_that_was_not_negotiated_is_decided_without_a_request(
    stage: Stage, kind: str
) -> None:
    async with talking(stage, kind) as client:
        await client.hello()
        client.say("init", approval_mode="fail" if kind == "approval" else "auto")
        await client.prompt()
    assert client.of("server_request") == client.of("server_request_resolved") == []
    assert client.of("client_tool_request") == []
    assert [one["success"] for one in client.of("tool_end")] == [False]
    assert len(client.of("response_end")) == 1


async def test_a_denied_call_never_starts_and_says_who_denied_it(stage: Stage) -> None:
    async with talking(stage, "approval") as client:
        request = await asked(client, "approval")
        answer(
            client,
            request,
            approved=False,
            result={"success": False, "output": "", "error": "Not now"},
        )
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
        answer(client, request, content=[{"type": "text", "text": "broke"}], is_error=True)
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
        client.say(
            "server_request_response",
            request_id=request["request_id"],
            request_type="tool_retry",
            decision_action="retry",
        )
        again = await client.until("server_request")
        client.say(
            "server_request_response",
            request_id=again["request_id"],
            request_type="tool_retry",
        )
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


async def test_a_request_of_a_child_run_is_put_and_answered_like_any_other(stage: Stage) -> None:
    stage.scenario([bash("echo child", "k1")], [say("Child done."), end()], name="child")
    frames = [[call("agent", "c1", prompt="do it")], [say("Done."), end()]]
    async with speaking(stage, *frames, children={"do it": "child.json"}) as client:
        await client.hello("approval")
        client.say("prompt", content="go")
        request = await client.until("server_request")
        assert (request["call_id"], request["tool"]) == ("k1", "bash")
        assert request["args"] == {"command": "echo child"}
        answer(client, request)
        await client.until("response_end")
    (resolved,) = client.of("server_request_resolved")
    assert resolved["resolution"] == "approved"
    assert "Child done." in client.of("tool_output")[-1]["content"]


async def test_somebody_else_may_answer_first_and_the_client_is_told(stage: Stage) -> None:
    async with talking(stage, "approval") as client:
        request = await asked(client, "approval")
        from tests.maestro.speaking import BATTEN

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
