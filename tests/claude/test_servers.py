"""Tool servers that live in the client's process."""

from pathlib import Path
from typing import Any

import pytest

from tests.claude.driving import Client, says

TURN: list[list[Any]] = [["query", "go"], ["until", "ResultMessage"]]
ADD = "mcp__calc__add"


async def test_a_tool_of_the_client_is_offered_called_and_answers(client: Client) -> None:
    async with client.model(
        says("", ("toolu_1", ADD, {"a": 2, "b": 3})), says("It is 5.")
    ) as server:
        report = await client.run(
            steps=TURN,
            calculator=True,
            options={"allowed_tools": [ADD], "tools": ["Read"]}
            if not client.sdk.is_oldest
            else {"allowed_tools": [ADD]},
        )
    assert report.error is None
    assert report.results == ["the sum is 5"]
    assert report.callbacks == [{"added": {"a": 2, "b": 3}}]
    init = report.messages[0]["data"]
    assert {"name": "calc", "status": "connected"} in init["mcp_servers"]
    assert ADD in init["tools"]
    offered = {tool["name"]: tool for tool in server.requests[0].json()["tools"]}
    assert offered[ADD]["description"] == "Adds two numbers."
    assert set(offered[ADD]["input_schema"]["properties"]) == {"a", "b"}
    if not client.sdk.is_oldest:
        assert set(offered) == {ADD, "read_file"}


async def test_a_tool_of_the_client_needs_permission_like_any_other(client: Client) -> None:
    report = await client.ask(
        says("", ("toolu_1", ADD, {"a": 2, "b": 3})), says("ok"), steps=TURN, calculator=True
    )
    assert report.callbacks == []
    assert report.blocks("ToolResultBlock")[0]["is_error"]


async def test_a_tool_that_raises_is_a_failed_call(client: Client) -> None:
    report = await client.ask(
        says("", ("toolu_1", ADD, {"a": -1, "b": 3})),
        says("ok"),
        steps=TURN,
        calculator=True,
        options={"allowed_tools": ["mcp__calc"]},
    )
    (block,) = report.blocks("ToolResultBlock")
    assert "no negative numbers" in block["content"]
    assert report.result["result"] == "ok"


async def test_without_the_library_a_call_fails_and_says_what_brings_it(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "mcp_types.py").write_text("raise ModuleNotFoundError(name='mcp_types')\n")
    calls = says("", ("toolu_1", ADD, {"a": 1, "b": 3}))
    async with client.model(calls, says("ok")):
        client.environ["PYTHONPATH"] = str(tmp_path)
        report = await client.run(
            steps=TURN, calculator=True, options={"allowed_tools": ["mcp__calc"]}
        )
    (block,) = report.blocks("ToolResultBlock")
    assert "need the Python package mcp_types, which is not installed" in block["content"]
    assert report.result["result"] == "ok"


async def test_query_keeps_its_side_open_for_the_calls_of_its_tools(client: Client) -> None:
    if client.sdk.is_oldest:
        pytest.skip("this SDK closes its side with the prompt")
    report = await client.ask(
        says("", ("toolu_1", ADD, {"a": 2, "b": 3})),
        says("ok"),
        prompts="go",
        calculator=True,
        options={"allowed_tools": [ADD]},
    )
    assert report.results == ["the sum is 5"]
    assert report.error is None


async def test_servers_are_told_of_and_switched_off_and_on(client: Client) -> None:
    if client.sdk.is_oldest:
        pytest.skip("this SDK has no such calls")
    steps = [
        ["get_mcp_status"],
        ["toggle_mcp_server", "calc", False],
        *TURN,
        ["toggle_mcp_server", "calc", True],
        *TURN,
        ["reconnect_mcp_server", "calc"],
        ["reconnect_mcp_server", "nobody"],
    ]
    report = await client.ask(says("ok"), steps=steps, calculator=True)
    status, *_, failed = (one for one in report.answers if one is not None)
    (server,) = status["mcpServers"]
    assert (server["name"], server["status"]) == ("calc", "connected")
    assert server["serverInfo"]["name"] == "calc"
    assert [tool["name"] for tool in server["tools"]] == ["add"]
    offered = [ADD in one["data"]["tools"] for one in report.of("SystemMessage")]
    assert offered == [False, True]
    assert "nobody" in failed["error"]


async def test_servers_of_ours_stand_beside_those_of_the_client(client: Client) -> None:
    report = await client.ask(
        says("ok"),
        steps=TURN,
        calculator=True,
        options={"mcp_servers": {"gone": {"command": "/no/such/server"}}},
    )
    assert report.messages[0]["data"]["mcp_servers"] == [
        {"name": "gone", "status": "failed"},
        {"name": "calc", "status": "connected"},
    ]
