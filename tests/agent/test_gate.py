"""The one gate: what hooks, rules, modes and answers come to together."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import UNSET

from batten.agent.hooks.dispatch import HookVerdict, combined
from batten.agent.hooks.hooks import ClientHook, Hooks
from batten.agent.rules.verdict import Decision
from batten.contract.errors import CallerError
from batten.contract.facts import (
    ApprovalRequested,
    ApprovalResolved,
    HookCompleted,
    PolicyToolBlocked,
    PolicyToolDecided,
    RunCancelled,
    ToolInvoked,
)
from batten.contract.facts.hook import HookSaid
from batten.contract.facts.policy import Verdict
from batten.journal.contract import RequestRow
from batten.redact.redactor import Redactor
from batten.session.requests import resolve
from batten.session.session import Session

from .acting import Acting
from .hooking import deciding, hook, hooks_of, log_of, saying
from .stage import Played, Stage, Statement, call, finish, say

SECRET = "s3kr1t-Value-99"


@pytest.mark.parametrize(
    ("said", "rules", "came"),
    [
        ("none", "allow", "allow"),
        ("none", "ask", "ask"),
        ("none", "deny", "deny"),
        ("allow", "allow", "allow"),
        ("allow", "ask", "allow"),
        ("allow", "deny", "deny"),
        ("ask", "allow", "ask"),
        ("ask", "ask", "ask"),
        ("ask", "deny", "deny"),
        ("deny", "allow", "deny"),
        ("deny", "ask", "deny"),
        ("deny", "deny", "deny"),
    ],
)
def test_hooks_and_rules_come_to_one_verdict(said: HookSaid, rules: Verdict, came: Verdict) -> None:
    heard = HookVerdict(decision=said, reason="because", by="guard")
    verdict = combined(heard, Decision(rules, "by rule", "rule:x"))
    assert verdict.verdict == came
    is_hook_s = said == "deny" or (said, rules) in (("ask", "allow"), ("allow", "ask"))
    assert verdict.decided_by == ("hook:guard" if is_hook_s else "rule:x")
    assert verdict.reason == ("because" if is_hook_s else "by rule")


@pytest.mark.parametrize(
    ("mode", "said", "acted"),
    [
        ("default", "allow", True),
        ("plan", "allow", False),
        ("bypassPermissions", "deny", False),
        ("dontAsk", "deny", False),
        ("dontAsk", "ask", False),
    ],
)
async def test_a_hook_in_every_mode(stage: Stage, mode: str, said: str, acted: bool) -> None:
    tool = Acting("write")
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    hooks = hooks_of(stage, hook("PreToolUse", saying(deciding(said, "so"))))
    dangerous = ("--allow-dangerously-skip-permissions",) if mode == "bypassPermissions" else ()
    await stage.run(
        "--model", model, "--permission-mode", mode, *dangerous, tools=[tool], hooks=hooks
    )
    assert (tool.acts == ["x"]) is acted


async def test_of_several_hooks_the_strictest_decides(stage: Stage) -> None:
    tool = Acting()
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    hooks = hooks_of(
        stage,
        hook("PreToolUse", saying(deciding("ask", "let us see"))),
        hook("PreToolUse", saying(deciding("allow"))),
    )
    played = await stage.run("--model", model, "--allow", "acting", tools=[tool], hooks=hooks)
    assert tool.acts == []
    asked, denied = played.all(PolicyToolDecided)
    assert (asked.verdict, asked.reason) == ("ask", "let us see")
    assert asked.decided_by.startswith("hook:")
    assert (denied.verdict, denied.decided_by) == ("deny", "resolver:policy")


class ModelAnswer:
    """A run that waits for an answer, and how it went on."""

    def __init__(self, session: Session, run_id: str) -> None:
        self.session = session
        self.run_id = run_id
        self.finishing: asyncio.Task[Played] | None = None

    async def request(self) -> RequestRow:
        return (await self.session.deps.journal.requests(self.run_id))[-1]

    async def answer(self, *, granted: bool, key: bool = True, **more: Any) -> RequestRow:
        deps = self.session.deps
        return await resolve(
            deps.journal,
            Redactor([SECRET]),
            (await self.request()).request_id,
            granted=granted,
            by="operator",
            seal_key=deps.seal_key if key else None,
            **more,
        )

    @property
    def played(self) -> Played:
        assert self.finishing is not None
        return self.finishing.result()


@asynccontextmanager
async def asking(
    stage: Stage,
    tool: Acting,
    *statements: Statement,
    flags: tuple[str, ...] = (),
    hooks: Hooks | None = None,
) -> AsyncGenerator[ModelAnswer, None]:
    """A run up to its first question; it has ended when the block does."""
    model = stage.scenario(list(statements), [say("done")])
    flags = ("--model", model, "--ask-operator", *flags, "--ask", "acting")
    async with stage.session(*flags, tools=[tool], hooks=hooks) as session:
        execution = await session.prompt("go")
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            asked = ModelAnswer(session, execution.run_id)
            asked.finishing = group.create_task(finish(session, execution))
            async for page in session.deps.journal.follow(execution.run_id):
                if any(one.type == "approval.requested" for one in page):
                    break
            yield asked


async def test_whoever_approves_a_call_may_change_it(stage: Stage) -> None:
    tool = Acting()
    async with asking(stage, tool, call("acting", "c1", act="x")) as asked:
        row = await asked.answer(granted=True, updated_input={"act": "y"})
        assert row.answer == {"comment": "", "updated_input": {"act": "y"}}
    assert tool.acts == ["y"]
    resolved = asked.played.one(ApprovalResolved)
    assert (resolved.updated_input, resolved.sealed_artifact_id) == ({"act": "y"}, UNSET)
    assert asked.played.one(ToolInvoked).input == {"act": "y"}
    assert asked.played.all(PolicyToolDecided)[-1].decided_by == "resolver:operator"


async def test_changed_arguments_with_a_secret_are_sealed_and_run_as_given(stage: Stage) -> None:
    tool = Acting()
    async with asking(stage, tool, call("acting", "c1", act="x")) as asked:
        with pytest.raises(CallerError, match="need a key"):
            await asked.answer(granted=True, key=False, updated_input={"act": SECRET})
        row = await asked.answer(granted=True, updated_input={"act": SECRET})
    assert row.answer["updated_input"] == {"act": "<redacted>"}
    assert tool.acts == [SECRET]
    assert asked.played.one(ApprovalResolved).sealed_artifact_id


async def test_changed_arguments_too_long_for_a_fact_are_sealed(stage: Stage) -> None:
    tool, long = Acting(), "y" * 400_000
    async with asking(stage, tool, call("acting", "c1", act="x")) as asked:
        await asked.answer(granted=True, updated_input={"act": long})
    assert tool.acts == [long]


@pytest.mark.parametrize(
    ("updated", "why"),
    [
        ({"count": 1}, "cannot be used: invalid arguments for acting"),
        ({"act": "z"}, "denied by acting(z)"),
    ],
)
async def test_changed_arguments_are_checked_before_they_run(
    stage: Stage, updated: dict[str, Any], why: str
) -> None:
    tool = Acting()
    flags = ("--deny", "acting(z)")
    async with asking(stage, tool, call("acting", "c1", act="x"), flags=flags) as asked:
        await asked.answer(granted=True, updated_input=updated)
    assert tool.acts == []
    assert why in asked.played.one(PolicyToolBlocked).reason
    assert asked.played.ended.outcome == "completed"


async def test_changed_arguments_of_a_refusal_mean_nothing(stage: Stage) -> None:
    tool = Acting()
    async with asking(stage, tool, call("acting", "c1", act="x")) as asked:
        await asked.answer(granted=False, text="no", updated_input={"act": "y"})
    assert tool.acts == []
    assert asked.played.one(ApprovalResolved).updated_input is UNSET


async def test_a_refusal_may_end_the_run(stage: Stage) -> None:
    tool = Acting()
    calls = [call("acting", "c1", act="x"), call("acting", "c2", act="y")]
    async with asking(stage, tool, *calls) as asked:
        row = await asked.answer(granted=False, text="stop", halt=True)
        assert row.answer == {"comment": "stop", "halt": True}
    played = asked.played
    assert played.ended.outcome == "cancelled"
    ending = played.one(RunCancelled)
    assert (ending.by, ending.reason) == ("operator", "stop")
    assert played.one(PolicyToolBlocked).reason == "stop"
    assert tool.acts == []
    assert len(played.all(PolicyToolDecided)) == 2


async def test_rules_speak_of_what_a_hook_made_of_the_call_and_so_does_the_question(
    stage: Stage,
) -> None:
    tool = Acting()
    rewrite = hook("PreToolUse", saying(deciding("ask", updatedInput={"act": "y"})))
    hooks = hooks_of(stage, rewrite)
    async with asking(stage, tool, call("acting", "c1", act="x"), hooks=hooks) as asked:
        assert (await asked.request()).summary == "y"
        await asked.answer(granted=True)
    assert tool.acts == ["y"]
    assert asked.played.one(ApprovalRequested).input == {"act": "y"}
    assert asked.played.one(ToolInvoked).input == {"act": "y"}


REWRITE = {"hookSpecificOutput": {"updatedInput": {"act": "z"}}}
GUARD = 'grep -q \'"act":"z"\' && { echo not that >&2; exit 2; }; exit 0'
"""A hook that refuses one act."""


@pytest.mark.parametrize("answer", [REWRITE, deciding("allow", updatedInput={"act": "z"})])
async def test_rules_deny_what_a_permission_hook_made_of_a_call_before_anybody_is_asked(
    stage: Stage, answer: dict[str, Any]
) -> None:
    tool = Acting()
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    flags = ("--model", model, "--ask-operator", "--deny", "acting(z)", "--ask", "acting")
    hooks = hooks_of(stage, hook("PermissionRequest", saying(answer)))
    played = await stage.run(*flags, tools=[tool], hooks=hooks)
    assert tool.acts == []
    assert played.all(ApprovalRequested) == []
    assert played.one(PolicyToolBlocked).policy_id == "rule:cli:acting(z)"


async def test_what_a_permission_hook_made_of_a_call_is_what_is_asked_about(stage: Stage) -> None:
    tool = Acting()
    hooks = hooks_of(stage, hook("PermissionRequest", saying(REWRITE)))
    async with asking(stage, tool, call("acting", "c1", act="x"), hooks=hooks) as asked:
        assert (await asked.request()).summary == "z"
        await asked.answer(granted=True)
    assert tool.acts == ["z"]


async def test_a_rule_that_came_while_the_question_waited_denies_what_was_approved(
    stage: Stage,
) -> None:
    tool = Acting()
    async with asking(stage, tool, call("acting", "c1", act="x")) as asked:
        deny = {"action": "deny", "pattern": "acting(x)"}
        await asked.session.configure({"add_rules": [deny]})
        await asked.answer(granted=True)
    assert tool.acts == []
    assert asked.played.one(PolicyToolBlocked).reason == "denied by acting(x)"


async def rewriting(payload: dict[str, Any], call_id: str | None) -> object:
    return REWRITE


async def test_the_machine_owner_s_hook_sees_what_a_client_made_of_a_call(stage: Stage) -> None:
    tool = Acting()
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    hooks = hooks_of(
        stage,
        hook("PreToolUse", GUARD, scope="managed"),
        hook("PreToolUse", "exit 0", scope="user"),
    )
    hooks.register(ClientHook(event="PreToolUse", callback_id="client", call=rewriting))
    played = await stage.run("--model", model, "--allow", "acting", tools=[tool], hooks=hooks)
    assert tool.acts == []
    assert played.one(PolicyToolBlocked).reason == "not that"
    told = [fact.handler.name for fact in played.all(HookCompleted)]
    assert told == ["exit 0", "client", GUARD]


async def test_the_machine_owner_s_hook_sees_what_a_permission_hook_made_of_a_call(
    stage: Stage,
) -> None:
    tool, log = Acting(), log_of(stage)
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    hooks = hooks_of(
        stage,
        hook("PreToolUse", log.command),
        hook("PreToolUse", GUARD, scope="managed"),
        hook("PermissionRequest", saying(deciding("allow", updatedInput={"act": "z"}))),
    )
    played = await stage.run("--model", model, "--ask", "acting", tools=[tool], hooks=hooks)
    assert tool.acts == []
    assert played.one(PolicyToolBlocked).reason == "not that"
    assert [told["tool_input"] for told in log.payloads] == [{"act": "x"}]


@pytest.mark.parametrize(("act", "acts"), [("z", []), ("y", ["y"])])
async def test_the_machine_owner_s_hook_sees_what_an_answer_made_of_a_call(
    stage: Stage, act: str, acts: list[str]
) -> None:
    tool = Acting()
    hooks = hooks_of(stage, hook("PreToolUse", GUARD, scope="managed"))
    async with asking(stage, tool, call("acting", "c1", act="x"), hooks=hooks) as asked:
        await asked.answer(granted=True, updated_input={"act": act})
    assert tool.acts == acts
    assert len(asked.played.all(HookCompleted)) == 2


async def test_an_answer_that_changes_nothing_is_not_put_to_hooks_again(stage: Stage) -> None:
    tool = Acting()
    hooks = hooks_of(stage, hook("PreToolUse", GUARD, scope="managed"))
    async with asking(stage, tool, call("acting", "c1", act="x"), hooks=hooks) as asked:
        await asked.answer(granted=True, updated_input={"act": "x"})
    assert tool.acts == ["x"]
    assert len(asked.played.all(HookCompleted)) == 1


async def test_what_the_machine_owner_wants_asked_is_asked_though_another_hook_allowed_it(
    stage: Stage,
) -> None:
    tool = Acting()
    ask = f'grep -q \'"act":"z"\' && {saying(deciding("ask", "let me see"))}; exit 0'
    hooks = hooks_of(
        stage,
        hook("PreToolUse", ask, scope="managed"),
        hook("PermissionRequest", saying(deciding("allow", updatedInput={"act": "z"}))),
    )
    async with asking(stage, tool, call("acting", "c1", act="x"), hooks=hooks) as asked:
        await asked.answer(granted=False, text="no")
    assert tool.acts == []
    assert asked.played.one(ApprovalRequested).policy_reason == "let me see"


async def test_what_the_machine_owner_s_hook_makes_of_an_answer_is_judged_too(
    stage: Stage,
) -> None:
    tool = Acting()
    back = f'grep -q \'"act":"y"\' && {saying(REWRITE)}; exit 0'
    hooks = hooks_of(stage, hook("PreToolUse", back, scope="managed"))
    flags = ("--deny", "acting(z)")
    statement = call("acting", "c1", act="x")
    async with asking(stage, tool, statement, flags=flags, hooks=hooks) as asked:
        await asked.answer(granted=True, updated_input={"act": "y"})
    assert tool.acts == []
    assert asked.played.one(PolicyToolBlocked).reason == "denied by acting(z)"


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


async def test_arguments_that_an_answer_nests_too_deeply_are_a_refusal(stage: Stage) -> None:
    tool = Acting()
    async with asking(stage, tool, call("acting", "c1", act="x")) as asked:
        await asked.answer(granted=True, updated_input={"act": "y", "deep": nested(400)})
    assert tool.acts == []
    reason = "the changed arguments are nested more than 64 levels deep"
    assert asked.played.one(PolicyToolBlocked).reason == reason


@pytest.mark.parametrize("event", ["PreToolUse", "PermissionRequest"])
async def test_arguments_that_a_hook_nests_too_deeply_are_a_denial(
    stage: Stage, event: Any
) -> None:
    tool = Acting()
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    deep = deciding("allow", updatedInput={"act": "y", "deep": nested(400)})
    hooks = hooks_of(stage, hook(event, saying(deep)))
    played = await stage.run("--model", model, "--ask", "acting", tools=[tool], hooks=hooks)
    assert tool.acts == []
    assert "arguments nested more than 64 levels deep" in played.one(PolicyToolBlocked).reason
