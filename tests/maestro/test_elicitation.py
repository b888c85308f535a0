"""A tool server, made with the official library, asks people through the client."""

from tests.agent.stage import Stage, call, end, say
from tests.maestro.asking import mcp
from tests.maestro.speaking import speaking

FLAGS = mcp("asking_server.py", "tiny")
ASK = call("mcp__tiny__ask", "c1")


async def test_a_server_asks_the_client_and_is_told_what_it_answers(stage: Stage) -> None:
    again = call("mcp__tiny__ask", "c2")
    async with speaking(stage, [ASK], [again], [say("Done."), end()], flags=FLAGS) as client:
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
    async with speaking(stage, [ASK], [say("Done."), end()], flags=FLAGS) as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        await client.prompt()
    assert client.of("server_request") == []
    assert client.of("tool_output")[0]["content"] == "decline"
