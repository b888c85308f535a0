"""`query()` of the real SDK, its newest release and an old one, with a model on loopback."""

import msgspec
import pytest

from batten.contract.facts import AssistantTextDelta
from batten.models.short_names import model_named
from batten.session.history import facts_of
from tests.claude.driving import Client, Json, bash, says, says_at_length
from tests.models.server import Fault, cut, refusal
from tests.models.wire import anthropic_start, anthropic_text_block, sse

SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}


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
    init = report.messages[0]["data"]
    assert (init["model"], init["permissionMode"]) == ("claude-sonnet-4-5", "default")
    assert {"Bash", "Read", "Write", "Edit", "Task"} <= set(init["tools"])
    assert report.blocks("ToolUseBlock")[0]["name"] == "Bash"
    assert report.results == ["hi"]
    result = report.result
    assert (result["subtype"], result["is_error"], result["num_turns"]) == ("success", False, 2)
    assert result["result"] == "All is well."
    assert result["total_cost_usd"] > 0
    if not client.sdk.is_oldest:
        assert result["model_usage"]["claude-sonnet-4-5"]["contextWindow"] >= 200_000
    assert report.stderr == []


async def test_streamed_prompts_are_turns_of_one_session(client: Client) -> None:
    report = await client.ask(says("one"), says("two"), prompts=["first", "second"])
    assert report.error is None
    assert report.kinds == ["SystemMessage", "AssistantMessage", "ResultMessage"] * 2
    assert [one["result"] for one in report.of("ResultMessage")] == ["one", "two"]
    assert len({one["session_id"] for one in report.of("ResultMessage")}) == 1


async def test_what_no_rule_allows_is_denied_and_told(client: Client) -> None:
    report = await client.ask(says("", bash("touch made")), says("Then not."), prompts="go")
    assert report.result["result"] == "Then not."
    assert not (client.stage.workspace / "made").exists()
    (block,) = report.blocks("ToolResultBlock")
    assert block["is_error"]
    if not client.sdk.is_oldest:
        denied = {"tool_name": "Bash", "tool_use_id": "toolu_1"}
        (denial,) = report.result["permission_denials"]
        assert denial == {**denied, "tool_input": {"command": "touch made"}}


async def test_a_disallowed_tool_is_not_offered_and_a_pattern_is_denied(client: Client) -> None:
    async with client.model(says("", bash("git push -f")), says("ok")) as server:
        report = await client.run(
            prompts="go",
            options={
                "allowed_tools": ["Bash"],
                "disallowed_tools": ["WebFetch", "Bash(git push:*)"],
            },
        )
    assert "WebFetch" not in report.messages[0]["data"]["tools"]
    assert "web_fetch" not in {tool["name"] for tool in server.requests[0].json()["tools"]}
    assert report.blocks("ToolResultBlock")[0]["is_error"]


async def test_the_turn_limit_is_an_error_result(client: Client) -> None:
    report = await client.ask(
        says("", bash("echo 1")),
        prompts="go",
        options={"max_turns": 1, "allowed_tools": ["Bash"]},
    )
    assert report.result["subtype"] == "error_max_turns"
    assert report.result["is_error"]
    assert report.error is not None
    if not client.sdk.is_oldest:
        assert report.error["type"] == "ResultError"
        assert "ProcessError" in report.error["bases"]


async def test_the_budget_is_an_error_result(client: Client) -> None:
    report = await client.ask(
        says("", bash("echo 1"), input_tokens=1_000_000),
        prompts="go",
        options={"max_budget_usd": 0.5, "allowed_tools": ["Bash"]},
    )
    assert report.result["subtype"] == "error_max_budget_usd"
    assert report.error is not None


async def test_an_answer_fits_the_schema_or_is_an_error(client: Client) -> None:
    flag: Json = {"output_format": {"type": "json_schema", "schema": SCHEMA}}
    if client.sdk.is_oldest:
        flag = {"extra_args": {"json-schema": msgspec.json.encode(SCHEMA).decode()}}
    good = await client.ask(says('{"count": 3}'), prompts="go", options=flag)
    assert good.result["subtype"] == "success"
    if not client.sdk.is_oldest:
        assert good.result["structured_output"] == {"count": 3}
    bad = await client.ask(says('{"total": 3}'), prompts="go", options=flag)
    assert bad.result["subtype"] == "error_max_structured_output_retries"
    assert bad.error is not None


async def test_partial_messages_are_the_events_of_the_streaming_api(client: Client) -> None:
    report = await client.ask(
        says("Hello there.", bash("true")),
        says("Done."),
        prompts="go",
        options={"include_partial_messages": True, "allowed_tools": ["Bash"]},
    )
    events = [one["event"] for one in report.of("StreamEvent")]
    first = events[: [event["type"] for event in events].index("message_stop") + 1]
    kinds = [event["type"] for event in first]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    deltas = [event["delta"] for event in first if event["type"] == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == "Hello there."
    pieces = "".join(delta.get("partial_json", "") for delta in deltas)
    assert msgspec.json.decode(pieces) == {"command": "true"}
    assert report.blocks("TextBlock")[0]["text"] == "Hello there."
    assert report.result["result"] == "Done."


async def test_a_model_that_cannot_be_reached_is_an_error_with_its_reason(client: Client) -> None:
    report = await client.ask(
        refusal(401, {"type": "error", "error": {"type": "auth", "message": "no such key"}}),
        prompts="go",
    )
    assert report.result["subtype"] == "error_during_execution"
    assert report.result["is_error"]
    assert report.error is not None
    if not client.sdk.is_oldest:
        assert report.error["type"] == "ResultError"
        assert "no such key" in report.error["text"]
        assert report.result["terminal_reason"] == "api_error"
        assert report.result["api_error_status"] == 401


async def test_a_wrong_flag_is_an_error_that_says_which(client: Client) -> None:
    report = await client.ask(
        says("never"), prompts="go", options={"extra_args": {"no-such-flag": None}}
    )
    assert report.error is not None
    assert any("no-such-flag" in line for line in report.stderr)
    if not client.sdk.is_oldest:
        assert "no-such-flag" in report.error["text"]


async def test_a_long_answer_is_cut_in_its_frames_and_whole_in_the_journal(client: Client) -> None:
    text = "y z " * 400_000
    report = await client.ask(says_at_length(text), prompts="go")
    assert report.error is None
    shown = report.result["result"]
    assert shown.startswith("y z y z")
    assert "cut here: it has 1600000 characters" in shown
    journal = client.stage.journal()
    (run,) = (run for run in await journal.runs() if run.kind == "agent_loop")
    deltas = [
        fact async for fact in facts_of(journal, run.run_id) if isinstance(fact, AssistantTextDelta)
    ]
    assert "".join(delta.delta for delta in deltas) == text
    journal.close()


async def test_text_survives_the_seams_of_the_pipe(client: Client) -> None:
    """The old SDK drops blanks where a line reaches it in pieces."""
    text = " ".join(str(number) for number in range(20_000))
    report = await client.ask(says_at_length(text), prompts="go")
    assert report.result["result"] == text


async def test_a_model_server_that_is_down_is_an_error_after_the_retries(client: Client) -> None:
    async with client.model(says("never")):
        pass
    report = await client.run(prompts="go", options={"extra_args": {"max-seconds": "20"}})
    assert report.result["is_error"]
    assert report.error is not None
    retries = [one for one in report.of("SystemMessage") if one["subtype"] == "api_retry"]
    assert [one["data"]["attempt"] for one in retries] == [1, 2]


HALF = sse(anthropic_start(), *anthropic_text_block(0, "Half of")[:-1], named=True)


async def test_an_answer_that_breaks_off_is_asked_for_again(client: Client) -> None:
    report = await client.ask(
        cut(HALF, Fault.RESET), says("Whole."), prompts="go", options={"max_turns": 3}
    )
    assert report.result["result"] == "Whole."
    told = [one["subtype"] for one in report.of("SystemMessage")]
    assert told == ["init", "api_retry"]


async def test_pieces_of_an_answer_that_breaks_off_are_taken_back(client: Client) -> None:
    options = {"max_turns": 3, "include_partial_messages": True}
    report = await client.ask(cut(HALF, Fault.RESET), says("Whole."), prompts="go", options=options)
    assert report.result["result"] == "Whole."
    told = [one["subtype"] for one in report.of("SystemMessage")]
    assert told == ["init", "message_retracted", "api_retry"]


async def test_an_answer_that_keeps_breaking_off_is_an_error(client: Client) -> None:
    options = {"max_turns": 3, "extra_args": {"max-retries": "0"}}
    report = await client.ask(cut(HALF, Fault.RESET), prompts="go", options=options)
    assert report.result["is_error"]
    assert report.error is not None


async def test_the_system_prompt_is_what_the_caller_gives(client: Client) -> None:
    (client.stage.workspace / "CLAUDE.md").write_text("Always whistle.")
    async with client.model(says("ok")) as server:
        await client.run(prompts="go", options={"system_prompt": "Be a duck."})
        appended = {"type": "preset", "preset": "claude_code", "append": "Be brief."}
        await client.run(prompts="go", options={"system_prompt": appended})
        sources = {"setting_sources": ["project"]}
        await client.run(prompts="go", options={"system_prompt": "Be a duck.", **sources})
    given = [msgspec.json.encode(one.json()["system"]).decode() for one in server.requests]
    assert "Be a duck." in given[0]
    assert "You are an agent" not in given[0]
    assert "You are an agent" in given[1]
    assert "Be brief." in given[1]
    assert "Always whistle." in given[2]


async def test_settings_given_in_place_hold(client: Client) -> None:
    settings = {"permissions": {"deny": ["Bash(rm:*)"], "allow": ["Bash"]}}
    report = await client.ask(
        says("", bash("rm -rf made", "toolu_1"), bash("echo hi", "toolu_2")),
        says("ok"),
        prompts="go",
        options={"settings": msgspec.json.encode(settings).decode()},
    )
    assert [block["is_error"] for block in report.blocks("ToolResultBlock")] == [True, False]


async def test_a_short_name_of_a_model_is_known_wherever_it_stands(client: Client) -> None:
    settings: Json = {"settings": '{"model": "opus"}', "model": None}
    async with client.model(says("ok")) as server:
        client.environ["ANTHROPIC_DEFAULT_OPUS_MODEL"] = "claude-opus-4-5"
        report = await client.run(prompts="go", options=settings)
        await client.run(prompts="go", options={"model": "sonnet"})
    assert report.error is None
    assert report.messages[0]["data"]["model"] == "claude-opus-4-5"
    models = [one.json()["model"] for one in server.requests]
    assert models == ["claude-opus-4-5", model_named("sonnet", {})]


def garden(client: Client) -> Json:
    """Options with a plugin that has two skills."""
    plugin = client.stage.directory / "plugin"
    (plugin / ".claude-plugin").mkdir(parents=True)
    (plugin / ".claude-plugin" / "plugin.json").write_text('{"name": "garden", "version": "1.0.0"}')
    for name in ("dig", "mow"):
        skill = plugin / "skills" / name
        skill.mkdir(parents=True)
        (skill / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Can {name}.\n---\nGo.")
    return {"plugins": [{"type": "local", "path": str(plugin)}]}


async def test_a_plugin_brings_its_skills(client: Client) -> None:
    report = await client.ask(says("ok"), prompts="go", options=garden(client))
    init = report.messages[0]["data"]
    assert [one["name"] for one in init["plugins"]] == ["garden"]
    assert init["skills"] == ["dig", "mow"]


async def test_only_the_skills_that_the_client_lists_are_offered(client: Client) -> None:
    if client.sdk.is_oldest:
        pytest.skip("this SDK has no such option")
    plugins = garden(client)
    async with client.model(says("ok")) as server:
        reports = [
            await client.run(prompts="go", options={**plugins, "skills": wanted})
            for wanted in (["garden:dig"], [], "all")
        ]
    shown = [report.messages[0]["data"]["skills"] for report in reports]
    assert shown == [["dig"], [], ["dig", "mow"]]
    offered = [{tool["name"]: tool for tool in one.json()["tools"]} for one in server.requests]
    assert "Can dig." in offered[0]["skill"]["description"]
    assert "Can mow." not in offered[0]["skill"]["description"]
    assert "skill" not in offered[1]
    assert "Can mow." in offered[2]["skill"]["description"]


async def test_a_mode_of_settings_means_what_claude_code_means(client: Client) -> None:
    """Our own `dontAsk` would allow it."""
    settings = {"permissions": {"defaultMode": "dontAsk"}}
    report = await client.ask(
        says("", bash("touch made")),
        says("ok"),
        prompts="go",
        options={"settings": msgspec.json.encode(settings).decode()},
    )
    assert report.messages[0]["data"]["permissionMode"] == "dontAsk"
    assert report.blocks("ToolResultBlock")[0]["is_error"]
    assert not (client.stage.workspace / "made").exists()


async def test_bypassing_asks_nobody_and_leaves_what_is_denied(client: Client) -> None:
    report = await client.ask(
        says("", bash("touch made", "toolu_1"), bash("rm made", "toolu_2")),
        says("ok"),
        prompts="go",
        options={"permission_mode": "bypassPermissions", "disallowed_tools": ["Bash(rm:*)"]},
    )
    assert [block["is_error"] for block in report.blocks("ToolResultBlock")] == [False, True]
    assert report.messages[0]["data"]["permissionMode"] == "bypassPermissions"
    assert (client.stage.workspace / "made").exists()


async def test_pictures_of_a_prompt_reach_the_model(client: Client) -> None:
    picture = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    blocks = [{"type": "text", "text": "What is it?"}, {"type": "image", "source": picture}]
    async with client.model(says("A dot.")) as server:
        report = await client.run(prompts=[blocks])
    assert report.result["result"] == "A dot."
    (message,) = server.requests[0].json()["messages"]
    assert [block["type"] for block in message["content"]] == ["text", "image"]
    assert message["content"][1]["source"] == picture


async def test_an_answer_with_a_known_secret_is_given_as_it_was_said(client: Client) -> None:
    secret = "zq8-live-0123456789-abcdefghij"
    async with client.model(says(f"It is {secret}.")):
        client.environ = {**client.environ, "SERVICE_TOKEN": secret}
        report = await client.run(prompts="go")
    assert report.result["result"] == f"It is {secret}."
    assert report.blocks("TextBlock")[-1]["text"] == f"It is {secret}."
    stored = [path for path in client.stage.home.rglob("*") if path.is_file()]
    assert not any(secret.encode() in path.read_bytes() for path in stored)
