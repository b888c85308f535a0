"""Limits and rules as arguments of `Worker.start`."""

from typing import Any

import pytest

from batten.client import CallerError, Launch, NotStarted, Worker, client_tool
from batten.embedded import in_process
from tests.agent.stage import Stage, bash, call, end, say
from tests.client.working import working

LOOPING = [[bash(f"echo {number}")] for number in range(5)]
ONE = [bash("touch made.txt")], [say("Done."), end()]


async def test_a_limit_of_turns_ends_the_run(stage: Stage, launch: Launch) -> None:
    limited: dict[str, Any] = {"max_turns": 2, "approvals": "allow", "launch": launch}
    async with working(stage, *LOOPING, **limited) as worker:
        assert (await worker.ask("go")).outcome == "max_turns"


async def test_limits_of_money_time_and_tokens_reach_the_session(stage: Stage) -> None:
    limits: dict[str, Any] = {"max_budget_usd": 0.5, "max_seconds": 90}
    limits |= {"max_output_tokens": 77, "temperature": 1.5}
    async with working(stage, *ONE, launch=in_process, **limits) as worker:
        assert (await worker.ask("go")).completed
        session_id = worker.about.session_id
    journal = stage.journal()
    row = await journal.session(session_id)
    journal.close()
    assert row is not None
    settings = {name: row.settings[name] for name in ("max_seconds", "max_output_tokens")}
    assert settings == {"max_seconds": 90, "max_output_tokens": 77}
    assert (row.settings["budget_micros_usd"], row.settings["temperature"]) == (500_000, 1.5)


@pytest.mark.parametrize(
    ("rules", "allowed"),
    [
        ({"allow": ["bash(touch *)"]}, True),
        ({}, False),
        ({"permission_mode": "dontAsk"}, True),
        ({"permission_mode": "dontAsk", "deny": ["bash(touch *)"]}, False),
        ({"permission_mode": "plan", "approvals": "allow"}, True),
        ({"allow": ["bash"], "ask": ["bash(touch *)"]}, False),
        ({"settings": {"permissions": {"allow": ["bash(touch *)"]}}}, True),
    ],
)
async def test_rules_decide_which_calls_may_begin(
    stage: Stage, rules: dict[str, Any], allowed: bool
) -> None:
    async with working(stage, *ONE, launch=in_process, **rules) as worker:
        await worker.ask("go")
    assert (stage.workspace / "made.txt").exists() is allowed


async def test_a_rule_about_a_tool_that_there_is_not_is_refused(
    stage: Stage, launch: Launch
) -> None:
    wrong: dict[str, Any] = {"deny": ["read_fil(secrets/**)"], "launch": launch}
    with pytest.raises(NotStarted, match=r"'read_fil\(secrets/\*\*\)' \(cli\) names no tool"):
        async with working(stage, *ONE, **wrong):
            pass


async def test_a_rule_may_be_about_a_tool_that_the_client_lends(stage: Stage) -> None:
    @client_tool("The price of an article.")
    async def price() -> str:
        return "1200 EUR"

    lent: dict[str, Any] = {"tools": [price], "deny": ["price"], "launch": in_process}
    frames = [call("price")], [say("Done."), end()]
    async with working(stage, *frames, **lent) as worker:
        assert (await worker.ask("go")).calls_failed == 1


async def test_only_the_named_tools_are_offered(stage: Stage) -> None:
    for only_tools in (["read_file"], []):
        named: dict[str, Any] = {"only_tools": only_tools, "approvals": "allow"}
        async with working(stage, *ONE, launch=in_process, **named) as worker:
            assert (await worker.ask("go")).calls_failed == 1
    assert not (stage.workspace / "made.txt").exists()


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ({"max_turns": -1}, "max_turns is -1; it must be a whole number from 0"),
        ({"max_turns": 1.5}, "max_turns is 1.5; it must be a whole number"),
        ({"max_turns": True}, "max_turns is True"),
        ({"max_budget_usd": "1"}, "max_budget_usd is '1'; it must be a number"),
        ({"max_budget_usd": float("nan")}, "max_budget_usd is nan"),
        ({"max_seconds": 0}, "max_seconds is 0"),
        ({"max_output_tokens": 0}, "max_output_tokens is 0"),
        ({"temperature": 3}, "temperature is 3; it must be a number from 0 to 2"),
        ({"allow": "bash"}, "allow is 'bash'; it must be a list of words"),
        ({"only_tools": ["a,b"]}, "it must be a list of names of tools"),
        ({"settings": {"a": object()}}, "settings cannot be written as JSON"),
        ({"settings": "x.json"}, "settings is 'x.json'"),
        ({"permission_mode": "yolo"}, "permission_mode is 'yolo'; it must be one of default"),
        ({"permission_mode": "dontAsk", "approvals": "ask"}, "leave one out"),
    ],
)
async def test_an_invalid_argument_is_named_with_what_is_valid(
    argument: dict[str, Any], words: str
) -> None:
    with pytest.raises(CallerError, match=words.replace("(", r"\(")):
        async with Worker.start(**argument):
            pass


async def test_an_invalid_rule_is_refused_with_its_reason(stage: Stage, launch: Launch) -> None:
    with pytest.raises(NotStarted, match=r"bash\(unclosed"):
        async with working(stage, *ONE, launch=launch, allow=["bash(unclosed"]):
            pass
