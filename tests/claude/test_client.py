"""`ClaudeSDKClient`: several turns, and what is asked while they run."""

from typing import Any

import pytest

from tests.claude.driving import Client, bash, says
from tests.models.server import Fault, cut
from tests.models.wire import anthropic_start, anthropic_text_block, sse

HALF = cut(sse(anthropic_start(), *anthropic_text_block(0, "So far")[:-1], named=True), Fault.STALL)


def turn(text: str) -> list[list[Any]]:
    return [["query", text], ["until", "ResultMessage"]]


async def test_several_turns_share_one_session_and_one_conversation(client: Client) -> None:
    async with client.model(says("one"), says("two"), says("three")) as server:
        report = await client.run(steps=[*turn("first"), *turn("second"), *turn("third")])
    assert report.error is None
    results = report.of("ResultMessage")
    assert [one["result"] for one in results] == ["one", "two", "three"]
    assert len({one["session_id"] for one in results}) == 1
    assert report.kinds.count("SystemMessage") == 3
    assert len(server.requests[2].json()["messages"]) == 5


async def test_cost_grows_over_the_turns_of_a_process(client: Client) -> None:
    report = await client.ask(says("one"), says("two"), steps=[*turn("first"), *turn("second")])
    first, second = (one["total_cost_usd"] for one in report.of("ResultMessage"))
    assert second == pytest.approx(2 * first)


async def test_an_interrupt_ends_a_model_call_and_the_next_turn_works(client: Client) -> None:
    steps = [
        ["query", "go"],
        ["until", "StreamEvent"],
        ["interrupt"],
        ["until", "ResultMessage"],
        *turn("and now?"),
    ]
    report = await client.ask(
        HALF, says("Here I am."), steps=steps, options={"include_partial_messages": True}
    )
    assert report.error is None
    stopped, then = report.of("ResultMessage")
    assert (stopped["subtype"], stopped["is_error"]) == ("error_during_execution", True)
    assert (then["subtype"], then["result"]) == ("success", "Here I am.")
    if not client.sdk.is_oldest:
        assert stopped["terminal_reason"] == "aborted_streaming"


async def test_an_interrupt_ends_a_running_command(client: Client) -> None:
    steps = [
        ["query", "go"],
        ["until", "AssistantMessage"],
        ["interrupt"],
        ["until", "ResultMessage"],
    ]
    report = await client.ask(
        says("", bash("sleep 60; touch made")), steps=steps, options={"allowed_tools": ["Bash"]}
    )
    assert report.error is None
    assert report.result["subtype"] == "error_during_execution"
    assert not (client.stage.workspace / "made").exists()


async def test_a_mode_that_is_set_holds_for_the_next_call(client: Client) -> None:
    write = ("toolu_1", "write_file", {"file_path": "made", "content": "x"})
    report = await client.ask(
        says("", write),
        says("denied"),
        says("", write),
        says("written"),
        steps=[*turn("first"), ["set_permission_mode", "acceptEdits"], *turn("second")],
    )
    assert [block["is_error"] for block in report.blocks("ToolResultBlock")] == [True, False]
    modes = [one["data"]["permissionMode"] for one in report.of("SystemMessage")]
    assert modes == ["default", "acceptEdits"]
    assert (client.stage.workspace / "made").read_text() == "x"


async def test_a_mode_that_is_none_and_one_that_is_too_much_are_refused(client: Client) -> None:
    report = await client.ask(
        says("ok"),
        steps=[
            ["set_permission_mode", "whatever"],
            ["set_permission_mode", "bypassPermissions"],
            *turn("go"),
        ],
    )
    assert "whatever" in report.answers[0]["error"]
    assert "bypassPermissions" in report.answers[1]["error"]
    assert report.result["subtype"] == "success"


async def test_dont_ask_denies_what_would_be_asked(client: Client) -> None:
    """Ours of that name allows it."""
    report = await client.ask(
        says("", bash("touch made")),
        says("ok"),
        steps=turn("go"),
        permission={"do": "allow"},
        options={"extra_args": {"permission-mode": "dontAsk"}},
    )
    assert report.callbacks == []
    assert report.blocks("ToolResultBlock")[0]["is_error"]
    assert report.messages[0]["data"]["permissionMode"] == "dontAsk"
    assert not (client.stage.workspace / "made").exists()


async def test_a_model_that_is_set_answers_the_next_turn(client: Client) -> None:
    steps = [*turn("1"), ["set_model", "claude-haiku-4-5"], *turn("2"), ["set_model"], *turn("3")]
    async with client.model(says("ok")) as server:
        report = await client.run(steps=steps)
    models = [one.json()["model"] for one in server.requests]
    assert models == ["claude-sonnet-4-5", "claude-haiku-4-5", "claude-sonnet-4-5"]
    assert [one["data"]["model"] for one in report.of("SystemMessage")] == models


async def test_a_model_that_is_none_is_refused_and_the_old_one_stays(client: Client) -> None:
    steps = [["set_model", "no/such"], *turn("go")]
    report = await client.ask(says("ok"), steps=steps)
    assert "no/such" in report.answers[0]["error"]
    assert report.result["result"] == "ok"


async def test_a_client_cannot_set_a_file_as_the_model(client: Client) -> None:
    steps = [["set_model", "scripted//etc/hostname"], *turn("go")]
    report = await client.ask(says("ok"), steps=steps)
    assert "do not include 'scripted//etc/hostname'" in report.answers[0]["error"]
    assert report.result["result"] == "ok"


async def test_prompts_that_come_while_a_turn_runs_wait_for_it(client: Client) -> None:
    steps = [
        ["query", "first"],
        ["query", "second"],
        ["until", "ResultMessage"],
        ["until", "ResultMessage"],
    ]
    report = await client.ask(says("one"), says("two"), steps=steps)
    assert [one["result"] for one in report.of("ResultMessage")] == ["one", "two"]


async def test_the_server_says_who_it_is(client: Client) -> None:
    report = await client.ask(says("ok"), steps=[["get_server_info"], *turn("go")])
    assert report.answers[0]["output_style"] == "default"
    assert report.answers[0]["models"][0]["value"] == "claude-sonnet-4-5"


async def test_context_files_and_tasks_are_answered_or_refused(client: Client) -> None:
    if client.sdk.is_oldest:
        pytest.skip("this SDK has no such calls")
    write = ("toolu_1", "write_file", {"file_path": "made", "content": "x"})
    steps = [
        *turn("go"),
        ["get_context_usage"],
        ["stop_task", "nothing"],
        ["rewind_files", "00000000-0000-0000-0000-000000000000"],
    ]
    report = await client.ask(
        says("", write),
        says("ok"),
        steps=steps,
        options={"permission_mode": "acceptEdits"},
    )
    usage, stopped, rewound = (one for one in report.answers if one is not None)
    assert usage["totalTokens"] > 0
    assert usage["maxTokens"] > usage["totalTokens"]
    assert "nothing" in stopped["error"]
    assert "no prompt" in rewound["error"]
    assert (client.stage.workspace / "made").exists()


async def test_what_a_child_run_does_is_shown_under_the_call_that_started_it(
    client: Client,
) -> None:
    async with client.model(
        says("", ("toolu_1", "agent", {"prompt": "look", "description": "a look"})),
        says("I am a child.", bash("echo hi", "toolu_2")),
        says("child's answer"),
        says("parent's answer"),
    ):
        report = await client.run(steps=turn("go"), options={"allowed_tools": ["Bash"]})
    parents = [one["parent_tool_use_id"] for one in report.messages if "content" in one]
    assert parents == [None, "toolu_1", "toolu_1", None, None]
    assert report.results == ["hi", "child's answer"]
    assert [one["text"] for one in report.blocks("TextBlock")] == ["parent's answer"]
    assert report.result["total_cost_usd"] == pytest.approx(4 * 0.000105)


async def test_files_are_rewound_to_a_prompt(client: Client) -> None:
    if client.sdk.is_oldest:
        pytest.skip("this SDK has no such call")
    note = client.stage.workspace / "note"
    note.write_text("before")
    write = [
        says("", (f"toolu_{n}", "write_file", {"file_path": "note", "content": text}))
        for n, text in enumerate(("one", "two"))
    ]
    steps = [*turn("first"), *turn("second"), ["rewind_files", "{second}"]]
    replay = {"replay-user-messages": None}
    report = await client.ask(
        write[0],
        says("ok"),
        write[1],
        says("ok"),
        steps=steps,
        options={"permission_mode": "acceptEdits", "extra_args": replay},
    )
    assert report.answers[-1] is None, report.answers
    assert note.read_text() == "one"


async def test_an_agent_of_the_client_has_its_own_prompt_tools_and_model(client: Client) -> None:
    reviewer = {
        "description": "Reviews code.",
        "prompt": "You review.",
        "tools": ["Read", "Grep"],
        "model": "haiku",
    }
    asked = {"prompt": "look", "description": "a look", "subagent_type": "reviewer"}
    async with client.model(
        says("", ("toolu_1", "agent", asked)), says("fine"), says("It is fine.")
    ) as server:
        client.environ["ANTHROPIC_DEFAULT_HAIKU_MODEL"] = "claude-haiku-4-5"
        report = await client.run(steps=turn("go"), options={"agents": {"reviewer": reviewer}})
    assert report.results == ["fine"]
    assert report.messages[0]["data"]["agents"] == ["reviewer"]
    parent, child, _ = (one.json() for one in server.requests)
    offered = {tool["name"]: tool for tool in parent["tools"]}
    kind = offered["agent"]["input_schema"]["properties"]["subagent_type"]
    assert kind["enum"] == ["reviewer"]
    assert "Reviews code." in kind["description"]
    assert child["model"] == "claude-haiku-4-5"
    assert "You review." in str(child["system"])
    assert {tool["name"] for tool in child["tools"]} == {"read_file", "grep"}


async def test_an_agent_of_the_client_cannot_have_a_file_as_its_model(client: Client) -> None:
    reader = {"description": "Reads.", "prompt": "You read.", "model": "scripted//etc/hostname"}
    asked = {"prompt": "look", "description": "a look", "subagent_type": "reader"}
    async with client.model(says("", ("toolu_1", "agent", asked)), says("Then not.")) as server:
        report = await client.run(steps=turn("go"), options={"agents": {"reader": reader}})
    assert len(server.requests) == 2
    assert "do not include 'scripted//etc/hostname'" in report.results[0]
