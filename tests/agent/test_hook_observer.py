"""Somebody who wants to see every event: also those that no hook is told of."""

import os

import msgspec

from batten.agent.hooks.hooks import Hooks
from batten.contract.facts import HookCompleted
from batten.session.history import facts_of

from .acting import Acting
from .hooking import brief, hook
from .stage import Stage, call, finish, say

CALLING = ([call("acting", "c1", act="now")], [say("done")])


async def told(stage: Stage, hooks: Hooks, *flags: str) -> list[HookCompleted]:
    """The hook facts of a run with one call, and of the end of its session."""
    model = stage.scenario(*CALLING)
    async with stage.session("--model", model, *flags, tools=[Acting()], hooks=hooks) as session:
        played = await finish(session, await session.prompt("go"))
        assert played.ended.outcome == "completed"
        await session.close()
        stream = session.session_id.replace("chat_", "run_")
        facts = [*played.facts, *[one async for one in facts_of(session.deps.journal, stream)]]
    return [fact for fact in facts if isinstance(fact, HookCompleted)]


async def test_every_event_is_a_fact_though_there_is_no_hook(stage: Stage) -> None:
    facts = await told(stage, Hooks(observed=True), "--allow", "acting")
    assert [fact.hook_event for fact in facts] == [
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd",
    ]  # fmt: skip
    assert {(fact.handler.type, fact.router_decision) for fact in facts} == {("observer", "none")}
    before = facts[2]
    assert (before.tool_call_id, before.permission_action, before.decision) == (
        "c1", "allow", "allow",
    )  # fmt: skip
    assert before.detail == {"turn_index": 1, "tool_use_id": "c1", "matcher": "acting"}


async def test_what_the_rules_deny_and_who_is_asked_is_told(stage: Stage) -> None:
    facts = await told(stage, Hooks(observed=True), "--deny", "acting")
    assert brief(facts[2]) == ("none", "deny", "deny")
    assert facts[3].hook_event == "PermissionDenied"
    facts = await told(stage, Hooks(observed=True), "--ask", "acting")
    assert [(fact.hook_event, *brief(fact)) for fact in facts[2:4]] == [
        ("PreToolUse", "none", "ask", "ask"),
        ("PermissionRequest", "none", "ask", "ask"),
    ]


async def test_an_event_that_a_hook_is_told_of_is_not_told_again(stage: Stage) -> None:
    configs = [
        hook("PreToolUse", "true", matcher="acting"),
        hook("PostToolUse", "true", matcher="bash"),
    ]
    hooks = Hooks(configs, workspace=str(stage.workspace), environ=os.environ, observed=True)
    facts = await told(stage, hooks, "--allow", "acting")
    tools = [fact for fact in facts if fact.tool_call_id == "c1"]
    assert [(fact.hook_event, fact.handler.type) for fact in tools] == [
        ("PreToolUse", "command"),
        ("PostToolUse", "observer"),
    ]


async def test_nothing_is_told_to_nobody(stage: Stage) -> None:
    assert await told(stage, Hooks()) == []


async def test_what_is_observed_changes_nothing_that_the_model_sees(stage: Stage) -> None:
    seen: list[bytes] = []
    for observed in (False, True):
        model = stage.scenario(*CALLING)
        hooks = Hooks(observed=observed)
        async with stage.session("--model", model, tools=[Acting()], hooks=hooks) as session:
            execution = await session.prompt("go")
            await finish(session, execution)
            seen.append(msgspec.json.encode(execution.conversation.messages))
    assert seen[0] == seen[1]
