"""A tool server asks people through the client."""

import sys
from pathlib import Path

import msgspec

from tests.agent.stage import Stage, call, end, say
from tests.maestro.speaking import speaking

SERVER = Path(__file__).with_name("asking_server.py")
ASK = call("mcp__tiny__ask", "c1")


def flags(*more: str) -> tuple[str, ...]:
    server = {"command": sys.executable, "args": [str(SERVER)]}
    config = msgspec.json.encode({"mcpServers": {"tiny": server}}).decode()
    return ("--sandbox", "none", "--mcp-config", config, *more)


async def test_a_server_asks_the_client_and_is_told_what_it_answers(stage: Stage) -> None:
    again = call("mcp__tiny__ask", "c2")
    async with speaking(stage, [ASK], [again], [say("Done."), end()], flags=flags()) as client:
        await client.hello("mcp_elicitation")
        client.say("init", approval_mode="auto")
        client.say("prompt", content="go")
        request = await client.until("server_request", request_type="mcp_elicitation")
        assert (request["tool"], request["call_id"]) == ("mcp_elicitation", "c1")
        assert request["args"]["message"] == "Which word?"
        assert request["reason"] == "MCP server requested additional user input"
        client.say(
            "server_request_response",
            request_id=request["request_id"],
            request_type="mcp_elicitation",
            content=[{"type": "text", "text": '{"word": "weft"}'}],
        )
        await client.until("server_request_resolved", resolution="answered")
        request = await client.until("server_request")
        client.say("client_tool_result", call_id="c2", content=[], is_error=True)
        await client.until("server_request_resolved", resolution="failed", resolved_by="client")
        await client.until("response_end")
    first, second = (one["content"] for one in client.of("tool_output"))
    assert (first, second) == ("weft", "decline")


async def test_a_server_is_declined_where_the_client_does_not_answer_servers(stage: Stage) -> None:
    async with speaking(stage, [ASK], [say("Done."), end()], flags=flags()) as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        await client.prompt()
    assert client.of("server_request") == []
    assert client.of("tool_output")[0]["content"] == "decline"


async def test_what_a_server_asks_is_answered_once_or_never_or_left_with_the_client(
    stage: Stage,
) -> None:
    calls = [[call("mcp__tiny__ask", f"c{number}")] for number in range(3)]
    environ = {"MAESTRO_HEADLESS_CLIENT_TIMEOUT_MS": "1000"}
    done = [say("Done."), end()]
    async with speaking(stage, *calls, done, flags=flags(), environ=environ) as client:
        await client.hello("mcp_elicitation", "user_input")
        client.say("init", approval_mode="auto")
        client.say("prompt", content="go")
        first = await client.until("server_request")
        said = {"request_id": first["request_id"], "content": [{"type": "text", "text": "weft"}]}
        gone = f"No pending client tool request found for request_id: {first['request_id']}"
        client.say("server_request_response", request_type="user_input", **said)
        await client.until("error", message=gone)  # it is of another class
        client.say("server_request_response", request_type="mcp_elicitation", **said)
        client.say("server_request_response", request_type="mcp_elicitation", **said)
        await client.until("error", message=gone)
        await client.until("server_request_resolved", resolution="failed", resolved_by="policy")
        client.say("server_request_response", request_type="mcp_elicitation", **said)
        await client.until("error", message=gone)
        if len(client.of("server_request")) < 3:
            await client.until("server_request")
        client.hang_up()
        assert await client.rest() == 0
    resolved = [
        (one["resolution"], one["resolved_by"]) for one in client.of("server_request_resolved")
    ]
    assert resolved == [("answered", "client"), ("failed", "policy"), ("cancelled", "runtime")]
    assert [one["content"] for one in client.of("tool_output")] == ["weft", "decline", "decline"]
