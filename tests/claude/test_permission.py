"""`can_use_tool`: the client decides where no rule does."""

from typing import Any

import pytest

from batten.contract.facts import ApprovalRequested, ApprovalResolved
from batten.session.history import facts_of
from tests.claude.driving import Client, Json, bash, says

TURN: list[list[Any]] = [["query", "go"], ["until", "ResultMessage"]]


async def test_an_allowed_call_runs_and_the_question_is_in_the_journal(client: Client) -> None:
    report = await client.ask(
        says("", bash("echo hi")), says("ok"), steps=TURN, permission={"do": "allow"}
    )
    assert report.error is None
    assert report.results == ["hi"]
    (asked,) = report.callbacks
    assert (asked["tool"], asked["input"]) == ("Bash", {"command": "echo hi"})
    if not client.sdk.is_oldest:
        assert (asked["tool_use_id"], asked["suggestions"]) == ("toolu_1", 1)
    journal = client.stage.journal()
    (run,) = (run for run in await journal.runs() if run.kind == "agent_loop")
    facts = [one async for one in facts_of(journal, run.run_id)]
    (question,) = (fact for fact in facts if isinstance(fact, ApprovalRequested))
    (answered,) = (fact for fact in facts if isinstance(fact, ApprovalResolved))
    assert question.tool_call_id == "toolu_1"
    assert (answered.decision, answered.by) == ("approved", "client")
    journal.close()


async def test_a_title_has_marks_for_hidden_characters_and_the_input_stays(client: Client) -> None:
    command = "echo a\u200b\u3164b"
    report = await client.ask(
        says("", bash(command)), says("ok"), steps=TURN, permission={"do": "allow"}
    )
    (asked,) = report.callbacks
    assert asked["input"] == {"command": command}
    if not client.sdk.is_oldest:
        assert asked["title"] == "Bash: echo a\ufffd\ufffdb"


async def test_a_call_runs_with_the_input_that_the_client_changed(client: Client) -> None:
    report = await client.ask(
        says("", bash("echo asked")),
        says("ok"),
        steps=TURN,
        permission={"do": "allow", "input": {"command": "echo changed"}},
    )
    assert report.results == ["changed"]


async def test_changed_input_is_held_against_what_is_denied(client: Client) -> None:
    report = await client.ask(
        says("", bash("echo asked")),
        says("ok"),
        steps=TURN,
        permission={"do": "allow", "input": {"command": "touch made"}},
        options={"disallowed_tools": ["Bash(touch:*)"]},
    )
    assert report.blocks("ToolResultBlock")[0]["is_error"]
    assert not (client.stage.workspace / "made").exists()


async def test_a_denied_call_is_told_to_the_model_and_the_turn_goes_on(client: Client) -> None:
    report = await client.ask(
        says("", bash("touch made")),
        says("Then not."),
        steps=TURN,
        permission={"do": "deny", "message": "not in my house"},
    )
    (block,) = report.blocks("ToolResultBlock")
    assert block["is_error"]
    assert "not in my house" in block["content"]
    assert report.result["result"] == "Then not."
    assert not (client.stage.workspace / "made").exists()


async def test_a_denial_with_an_interrupt_ends_the_turn_and_not_the_session(client: Client) -> None:
    report = await client.ask(
        says("", bash("touch made")),
        says("Still here."),
        steps=[*TURN, *TURN],
        permission={"do": "deny", "message": "stop it", "interrupt": True},
    )
    first, second = report.of("ResultMessage")
    assert (first["subtype"], first["is_error"]) == ("error_during_execution", True)
    assert second["result"] == "Still here."
    assert not (client.stage.workspace / "made").exists()


async def test_always_allow_is_asked_once(client: Client) -> None:
    report = await client.ask(
        says("", bash("echo 1", "toolu_1")),
        says("", bash("echo 2", "toolu_2")),
        says("ok"),
        steps=TURN,
        permission={"do": "always"},
    )
    assert report.results == ["1", "2"]
    assert len(report.callbacks) == 1


async def test_the_suggested_rule_covers_the_command_that_was_asked_about_and_no_other(
    client: Client,
) -> None:
    if client.sdk.is_oldest:
        pytest.skip("it cannot send a suggestion back")
    report = await client.ask(
        says("", bash("touch a*b > out")),
        says("", bash("touch a*b > out", "toolu_2")),
        says("", bash("touch other", "toolu_3")),
        says("ok"),
        steps=TURN,
        permission={"do": "suggested"},
    )
    assert report.error is None
    commands = [asked["input"]["command"] for asked in report.callbacks]
    assert commands == ["touch a*b > out", "touch other"]


async def test_a_callback_that_fails_denies(client: Client) -> None:
    report = await client.ask(
        says("", bash("touch made")), says("ok"), steps=TURN, permission={"do": "raise"}
    )
    (block,) = report.blocks("ToolResultBlock")
    assert block["is_error"]
    assert "the callback is broken" in block["content"]
    assert not (client.stage.workspace / "made").exists()


async def test_what_a_rule_allows_is_not_asked(client: Client) -> None:
    report = await client.ask(
        says("", bash("echo hi")),
        says("ok"),
        steps=TURN,
        permission={"do": "deny"},
        options={"allowed_tools": ["Bash(echo:*)"]},
    )
    assert report.results == ["hi"]
    assert report.callbacks == []


async def test_a_question_of_the_agent_is_answered_by_the_client(client: Client) -> None:
    question = {"question": "Which colour?", "options": ["red", "blue"]}
    given: Json = {"questions": [], "answers": {"Which colour?": "blue"}}
    report = await client.ask(
        says("", ("toolu_1", "ask_user", question)),
        says("ok"),
        steps=TURN,
        permission={"do": "allow", "input": given},
    )
    assert report.results == ["blue"]
    (asked,) = report.callbacks
    assert asked["tool"] == "AskUserQuestion"
    assert asked["input"]["questions"][0]["question"] == "Which colour?"


async def test_a_client_that_is_gone_denies_at_once(client: Client) -> None:
    """The old SDK ends its input with its prompts; a question then finds nobody."""
    report = await client.ask(
        says("", bash("touch made")), says("ok"), prompts=["go"], permission={"do": "allow"}
    )
    if client.sdk.is_oldest:
        assert report.blocks("ToolResultBlock")[0]["is_error"]
        assert report.callbacks == []
    else:
        assert (client.stage.workspace / "made").exists()
    assert report.result["result"] == "ok"
