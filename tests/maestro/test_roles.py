"""Who may say what: a viewer looks on, and nothing it says changes anything."""

import asyncio

import pytest

from tests.agent.stage import Stage, bash, end, say
from tests.maestro.asking import CLASSES, answer, asked, talking
from tests.maestro.schemas import Json
from tests.maestro.speaking import BATTEN, speaking

DONE = [say("Done."), end()]
VIEWER = "Viewer headless connections cannot send messages"


def refused(request_id: str) -> list[tuple[str, Json]]:
    """Every message but a greeting."""
    response: Json = {"request_id": request_id, "request_type": "approval", "approved": True}
    return [
        ("interrupt", {}),
        ("cancel", {}),
        ("prompt", {"content": "go"}),
        ("init", {"approval_mode": "auto"}),
        ("utility_command_start", {"command_id": "u", "command": "touch made"}),
        ("utility_command_stdin", {"command_id": "u", "content": "x"}),
        ("utility_command_resize", {"command_id": "u", "columns": 1, "rows": 1}),
        ("utility_command_terminate", {"command_id": "u"}),
        ("utility_file_search", {"search_id": "s", "query": "x"}),
        ("utility_file_read", {"read_id": "r", "path": "x"}),
        ("utility_file_watch_start", {"watch_id": "w"}),
        ("utility_file_watch_stop", {"watch_id": "w"}),
        ("tool_response", {"call_id": "c1", "approved": True}),
        ("client_tool_result", {"call_id": "c1", "content": [], "is_error": False}),
        ("server_request_response", response),
        ("shutdown", {}),
    ]


async def test_a_viewer_ends_starts_and_answers_nothing_while_a_run_waits(stage: Stage) -> None:
    """Who prompts before greeting may still become a viewer, and then only looks on."""
    async with speaking(stage, [bash("echo ran", "c1")], DONE) as client:
        client.say("prompt", content="go")
        await client.until("tool_call", requires_approval=True)
        journal = stage.journal()
        (run,) = await journal.runs()
        (request,) = await journal.requests(run.run_id)
        journal.close()
        client.say("hello", role="viewer", capabilities={"server_requests": ["approval"]})
        assert (await client.until("hello_ok"))["role"] == "viewer"
        for kind, fields in refused(request.request_id):
            client.say(kind, **fields)
            error = await client.until("error")
            said = (error["message"], error["fatal"], error["error_type"])
            assert said == (VIEWER, False, "protocol")
        assert client.of("response_end") == client.of("tool_start") == client.of("tool_end") == []
        answering = await asyncio.create_subprocess_exec(
            *(BATTEN, "answer", request.request_id, "allow"),
            env={**stage.environ, "BATTEN_HOME": str(stage.home)},
            stdout=asyncio.subprocess.DEVNULL,
        )
        assert await answering.wait() == 0
        await client.until("response_end")  # all of which a viewer sees
    assert client.of("tool_output")[0]["content"] == "ran\n"
    assert len(client.of("response_start")) == 1
    assert not (stage.workspace / "made").exists()


async def test_a_viewer_may_greet_again_but_not_ask_for_more(stage: Stage) -> None:
    async with speaking(stage, DONE) as client:
        greeted = await client.hello("approval", "client_tool", role="viewer")
        assert (greeted["role"], greeted["controller_connection_id"]) == ("viewer", None)
        before = client.conversation.state
        for kind in ("tool_retry", "user_input", "mcp_elicitation"):
            client.say("hello", capabilities={"server_requests": ["approval", kind]})
            error = await client.until("error")
            said = f"viewer headless connections cannot negotiate {kind} requests"
            assert (error["message"], error["error_type"]) == (said, "protocol")
        client.say("hello", role="controller", capabilities={"server_requests": ["user_input"]})
        error = await client.until("error")
        assert error["message"] == "headless connection role cannot change after hello"
        assert len(client.of("hello_ok")) == 1
        assert client.conversation.state.capabilities == before.capabilities
        client.say("hello")
        assert (await client.until("hello_ok"))["role"] == "viewer"
        client.hang_up()
        assert await client.rest() == 0


async def test_a_viewer_is_refused_before_anything_was_agreed(stage: Stage) -> None:
    async with speaking(stage, DONE) as client:
        for kind in ("tool_retry", "user_input", "mcp_elicitation"):
            client.say("hello", role="viewer", capabilities={"server_requests": [kind]})
            await client.until("error")
        assert client.kinds() == ["error"] * 3
        assert (await client.hello("user_input"))["role"] == "controller"


@pytest.mark.parametrize("role", [None, "controller"])
async def test_a_controller_stays_one(stage: Stage, role: str | None) -> None:
    async with speaking(stage, DONE) as client:
        client.say("hello", **({} if role is None else {"role": role}))
        assert (await client.until("hello_ok"))["role"] == "controller"
        client.say("hello", role="viewer")
        await client.until("error", message="headless connection role cannot change after hello")
        await client.prompt()


async def test_a_request_is_put_to_the_client_of_its_own_session_alone(stage: Stage) -> None:
    async with talking(stage, "approval") as client:
        request = await asked(client, "approval")
        async with speaking(stage, [CLASSES["approval"].asks], DONE) as other:
            await other.hello("approval")
            answer(other, request)
            gone = CLASSES["approval"].not_pending + request["request_id"]
            await other.until("error", message=gone)
            assert other.of("server_request") == []
            answer(client, request)
            await client.until("response_end")
        assert other.of("server_request") == other.of("server_request_resolved") == []
    assert len(client.of("server_request_resolved")) == 1
