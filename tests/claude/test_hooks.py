"""Hooks that are functions of the client's."""

from typing import Any

import msgspec
import pytest

from tests.claude.driving import Client, Json, bash, says

TURN: list[list[Any]] = [["query", "go"], ["until", "ResultMessage"]]


def pre_tool_use(**output: Any) -> Json:
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **output}}


async def test_a_hook_is_told_of_a_call_and_may_deny_it(client: Client) -> None:
    denies = pre_tool_use(permissionDecision="deny", permissionDecisionReason="not this")
    report = await client.ask(
        says("", bash("touch made")),
        says("ok"),
        steps=TURN,
        hooks={"PreToolUse": [{"matcher": "Bash", "replies": [denies]}]},
        options={"allowed_tools": ["Bash"]},
    )
    (told,) = report.callbacks
    assert told["event"] == "PreToolUse"
    assert told["tool_use_id"] == "toolu_1"
    given = told["input"]
    assert (given["hook_event_name"], given["tool_name"]) == ("PreToolUse", "Bash")
    assert given["tool_input"] == {"command": "touch made"}
    assert given["session_id"] == report.session_id
    assert given["cwd"] == str(client.stage.workspace)
    assert given["permission_mode"] == "default"
    (block,) = report.blocks("ToolResultBlock")
    assert block["is_error"]
    assert "not this" in block["content"]
    assert not (client.stage.workspace / "made").exists()


async def test_a_hook_that_allows_keeps_the_client_from_being_asked(client: Client) -> None:
    report = await client.ask(
        says("", bash("echo hi")),
        says("ok"),
        steps=TURN,
        hooks={"PreToolUse": [{"replies": [pre_tool_use(permissionDecision="allow")]}]},
        permission={"do": "deny"},
    )
    assert report.results == ["hi"]
    assert [call["event"] for call in report.callbacks] == ["PreToolUse"]


async def test_a_hook_may_change_the_input(client: Client) -> None:
    changes = pre_tool_use(permissionDecision="allow", updatedInput={"command": "echo changed"})
    report = await client.ask(
        says("", bash("echo asked")),
        says("ok"),
        steps=TURN,
        hooks={"PreToolUse": [{"matcher": "Write|Bash", "replies": [changes]}]},
    )
    assert report.results == ["changed"]


async def test_a_matcher_chooses_the_tools(client: Client) -> None:
    report = await client.ask(
        says("", bash("echo hi")),
        says("ok"),
        steps=TURN,
        hooks={"PreToolUse": [{"matcher": "Write|Edit"}]},
        options={"allowed_tools": ["Bash"]},
    )
    assert report.callbacks == []


async def test_after_a_call_a_hook_is_told_its_result_and_adds_to_it(client: Client) -> None:
    adds = {
        "hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "Mind the gap."}
    }
    async with client.model(says("", bash("echo hi")), says("ok")) as server:
        report = await client.run(
            steps=TURN,
            hooks={"PostToolUse": [{"matcher": "Bash", "replies": [adds]}]},
            options={"allowed_tools": ["Bash"]},
        )
    (told,) = report.callbacks
    assert told["input"]["tool_response"] == "hi"
    assert "Mind the gap." in server.requests[1].body.decode()


async def test_a_hook_may_add_to_a_prompt_or_refuse_it(client: Client) -> None:
    adds = {
        "hookSpecificOutput": {
            "hookEventName": "UserPromptSubmit",
            "additionalContext": "It rains.",
        }
    }
    blocks = {"decision": "block", "reason": "no politics"}
    async with client.model(says("ok"), says("again")) as server:
        report = await client.run(
            steps=[*TURN, *TURN], hooks={"UserPromptSubmit": [{"replies": [adds, blocks]}]}
        )
    assert [call["input"]["prompt"] for call in report.callbacks] == ["go", "go"]
    assert "It rains." in server.requests[0].body.decode()
    assert len(server.requests) == 1
    first, second = report.of("ResultMessage")
    assert first["result"] == "ok"
    assert second["is_error"]
    if not client.sdk.is_oldest:
        assert second["errors"] == ["no politics"]


async def test_a_hook_may_have_the_agent_go_on_when_it_wants_to_stop(client: Client) -> None:
    goes_on = {"decision": "block", "reason": "Check it once more."}
    async with client.model(says("Done."), says("Checked.")) as server:
        report = await client.run(steps=TURN, hooks={"Stop": [{"replies": [goes_on]}]})
    assert report.result["result"] == "Checked."
    assert "Check it once more." in server.requests[1].body.decode()
    assert [call["input"]["stop_hook_active"] for call in report.callbacks] == [False, True]


async def test_a_broken_hook_is_no_decision_unless_it_is_said_to_block(client: Client) -> None:
    if client.sdk.is_oldest:
        pytest.skip("this SDK cannot say it")
    for on_failure, made in (("continue", True), ("block", False)):
        report = await client.ask(
            says("", bash(f"touch {on_failure}")),
            says("ok"),
            steps=TURN,
            hooks={"PreToolUse": [{"raise": True, "on_failure": on_failure}]},
            options={"allowed_tools": ["Bash"]},
        )
        assert report.error is None
        assert (client.stage.workspace / on_failure).exists() == made


async def test_hook_events_are_shown_to_who_wants_them(client: Client) -> None:
    if client.sdk.is_oldest:
        pytest.skip("this SDK has no such messages")
    report = await client.ask(
        says("", bash("echo hi")),
        says("ok"),
        steps=TURN,
        hooks={"PreToolUse": [{"matcher": "Bash"}]},
        options={"allowed_tools": ["Bash"], "include_hook_events": True},
    )
    shown = report.of("HookEventMessage")
    assert [(one["subtype"], one["hook_event_name"]) for one in shown] == [
        ("hook_started", "PreToolUse"),
        ("hook_response", "PreToolUse"),
    ]
    assert shown[1]["data"]["outcome"] == "success"


async def test_an_error_is_the_last_that_is_told_though_hooks_follow_it(client: Client) -> None:
    if client.sdk.is_oldest:
        pytest.skip("this SDK does not tell a result from a crash")
    handler = {"type": "command", "command": "true"}
    settings = {"hooks": {"SessionEnd": [{"hooks": [handler]}]}}
    report = await client.ask(
        says("", bash("echo 1")),
        prompts="go",
        options={
            "max_turns": 1,
            "allowed_tools": ["Bash"],
            "include_hook_events": True,
            "settings": msgspec.json.encode(settings).decode(),
        },
    )
    assert report.kinds[-1] == "ResultMessage"
    assert report.error is not None
    assert (report.error["type"], report.error["subtype"]) == ("ResultError", "error_max_turns")
