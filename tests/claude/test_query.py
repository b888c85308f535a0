"""`query()` of the real SDK, its newest release and an old one, with a model on loopback."""

from tests.claude.conftest import Client, bash, says


async def test_a_prompt_gives_an_init_the_messages_and_one_result(client: Client) -> None:
    report = await client.ask(
        says("I look.", bash("echo hi")),
        says("All is well."),
        prompts="go",
        options={"allowed_tools": ["Bash"]},
    )
    assert report.error is None
    assert report.kinds == [
        "SystemMessage",
        "AssistantMessage",
        "UserMessage",
        "AssistantMessage",
        "ResultMessage",
    ]
    assert report.messages[0]["data"]["model"] == "claude-sonnet-4-5"
    assert "Bash" in report.messages[0]["data"]["tools"]
    assert report.blocks("ToolUseBlock")[0]["name"] == "Bash"
    assert report.results == ["hi"]
    result = report.result
    assert (result["subtype"], result["is_error"], result["num_turns"]) == ("success", False, 2)
    assert result["result"] == "All is well."
    assert result["total_cost_usd"] > 0
    assert report.stderr == []
