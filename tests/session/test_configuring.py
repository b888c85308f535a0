"""Settings that a client changes while a session works: at once, durably, and no further."""

import asyncio
from typing import Any

import msgspec
import pytest

from batten.agent.rules.rule import Rule
from batten.agent.settings import RunSettings
from batten.contract.errors import CallerError
from batten.contract.facts import (
    PolicyToolBlocked,
    PolicyToolDecided,
    SessionConfigured,
    TurnStarted,
)
from batten.contract.ids import SessionId, session_stream
from batten.session.configuring import reconfigured
from batten.session.history import facts_of
from batten.session.session import Session
from batten.session.stored_settings import settings_of
from tests.agent.acting import Acting
from tests.agent.stage import Stage, bash, call, finish, say

BEFORE = RunSettings(
    models=("a/b", "a/fallback"),
    rules=(
        Rule("deny", "Bash(rm *)", "managed"),
        Rule("allow", "Bash(git *)", "session"),
        Rule("deny", "Read", "session"),
        Rule("allow", "Glob", "user"),
    ),
)


def changed(**changes: Any) -> RunSettings:
    return reconfigured(BEFORE, changes, ("a/first",))


def texts(settings: RunSettings) -> list[str]:
    return [f"{rule} {rule.source}" for rule in settings.rules]


@pytest.mark.parametrize("name", ["mode", "permission_mode"])
def test_the_mode_is_changed_by_either_name(name: str) -> None:
    assert changed(**{name: "plan"}).mode == "plan"


def test_the_model_is_changed_and_its_fallbacks_stay() -> None:
    assert changed(model="c/d").models == ("c/d", "a/fallback")
    assert changed(model=None).models == ("a/first",)


def test_rules_are_added_before_the_others() -> None:
    added = changed(add_rules=[{"action": "ask", "pattern": "Bash"}])
    assert texts(added) == ["ask Bash session", *texts(BEFORE)]


def test_rules_of_the_same_action_that_a_client_gave_are_replaced() -> None:
    replaced = changed(replace_rules=[{"action": "allow", "pattern": "Bash(ls)"}])
    assert texts(replaced) == [
        "allow Bash(ls) session",
        "deny Bash(rm *) managed",
        "deny Read session",
        "allow Glob user",
    ]


def test_a_client_takes_back_its_own_rules_and_nobody_else_s() -> None:
    taken = [
        {"action": "allow", "pattern": "Bash(git *)"},
        {"action": "deny", "pattern": "Bash(rm *)"},
        {"action": "allow", "pattern": "Glob"},
    ]
    left = changed(remove_rules=taken)
    assert texts(left) == ["deny Bash(rm *) managed", "deny Read session", "allow Glob user"]


def test_all_rules_but_the_machine_owner_s_can_be_replaced() -> None:
    left = changed(rules=[{"action": "deny", "pattern": "Bash", "source": "cli"}])
    assert texts(left) == ["deny Bash(rm *) managed", "deny Bash cli"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"colour": "blue"}, "no setting is named 'colour'"),
        ({"mode": "disabled"}, "no permission mode is named 'disabled'"),
        ({"mode": 7}, "no permission mode is named 7"),
        ({"model": 7}, "these settings cannot be used"),
        ({"add_rules": "Bash"}, "add_rules is a list of rules"),
        ({"add_rules": [{"pattern": "Bash"}]}, "a rule of add_rules is"),
        ({"add_rules": [{"action": "allow", "pattern": "Bash("}]}, "not closed"),
        ({"max_turns": "many"}, "these settings cannot be used"),
        ({"output_schema": msgspec.json.decode('{"not":' * 400 + "{}" + "}" * 400)}, "nested"),
    ],
)
def test_what_cannot_be_changed_so_is_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(CallerError, match=why):
        reconfigured(BEFORE, changes, BEFORE.models)


async def waiting(session: Session, tool: Acting) -> "asyncio.Task[Any]":
    """A run in the middle of its first call."""
    execution = await session.prompt("go")
    finishing = asyncio.create_task(finish(session, execution))
    async with asyncio.timeout(20):
        await tool.begun.wait()
    return finishing


class Pausing(Acting):
    """Waits in its first call until it is let go."""

    def __init__(self) -> None:
        super().__init__("write")
        self.go = asyncio.Event()

    async def run(self, arguments: dict[str, Any], context: Any) -> Any:
        if arguments["act"] == "pause":
            self.begun.set()
            await self.go.wait()
        return await super().run(arguments, context)


def granting(pattern: str) -> dict[str, Any]:
    """The change that allows a pattern from now on."""
    return {"add_rules": [{"action": "allow", "pattern": pattern, "source": "grant"}]}


async def test_a_new_mode_holds_for_the_next_decision_of_the_run_that_works(stage: Stage) -> None:
    tool = Pausing()
    model = stage.scenario(
        [call("acting", "c1", act="pause"), call("acting", "c2", act="x")], [say("done")]
    )
    async with stage.session(
        "--model", model, "--permission-mode", "dontAsk", tools=[tool]
    ) as session:
        finishing = await waiting(session, tool)
        await session.configure({"permission_mode": "plan"})
        tool.go.set()
        played = await finishing
    assert tool.acts == ["pause"]
    assert played.one(PolicyToolBlocked).reason == "acting changes things; the mode is plan"


async def test_a_grant_holds_for_the_next_decision_unless_a_rule_denies_it(stage: Stage) -> None:
    tool = Pausing()
    calls = [call("acting", act="pause"), bash("touch made"), bash("touch other")]
    flags = ("--allow", "acting", "--deny", "bash(* other)")
    async with stage.session(
        "--model", stage.scenario(calls, [say("done")]), *flags, tools=[tool]
    ) as session:
        finishing = await waiting(session, tool)
        await session.configure(granting("bash(touch *)"))
        tool.go.set()
        played = await finishing
    assert [path.name for path in stage.workspace.iterdir()] == ["made"]
    decided = [fact.decided_by for fact in played.all(PolicyToolDecided)]
    assert decided[1:] == ["rule:grant:bash(touch *)", "rule:cli:bash(* other)"]


async def test_a_child_s_decisions_follow_the_session_s_mode(stage: Stage) -> None:
    tool = Pausing()
    child = stage.scenario(
        [call("acting", act="pause"), call("acting", act="x")], [say("done")], name="child"
    )
    model = stage.scenario([call("agent", prompt="do", model=child)], [say("done")])
    flags = ("--model", model, "--fallback-model", child, "--permission-mode", "dontAsk")
    async with stage.session(*flags, tools=[tool]) as session:
        finishing = await waiting(session, tool)
        await session.configure({"permission_mode": "plan"})
        tool.go.set()
        await finishing
    assert tool.acts == ["pause"]


async def test_another_model_is_asked_from_the_next_turn_on(stage: Stage) -> None:
    tool = Pausing()
    first = stage.scenario([call("acting", act="pause")], [say("first")], name="first")
    second = stage.scenario([say("zero")], [say("second")], name="second")
    flags = ("--model", first, "--fallback-model", second, "--permission-mode", "dontAsk")
    async with stage.session(*flags, tools=[tool]) as session:
        finishing = await waiting(session, tool)
        await session.configure({"model": second})
        tool.go.set()
        played = await finishing
    asked = [f"{fact.provider}/{fact.model}" for fact in played.all(TurnStarted)]
    assert asked == [first, second]
    assert played.ended.outcome == "completed"


async def test_a_model_that_cannot_be_opened_is_refused_and_nothing_changes(stage: Stage) -> None:
    model = stage.scenario([say("done")])
    async with stage.session("--model", model) as session:
        with pytest.raises(CallerError):
            await session.configure({"model": "nobody/knows", "permission_mode": "plan"})
        assert (session.settings.models, session.settings.mode) == ((model,), "default")
        played = await finish(session, await session.prompt("go"))
    assert played.ended.outcome == "completed"


async def test_what_was_changed_is_a_fact_and_holds_after_a_resume(stage: Stage) -> None:
    model = stage.scenario([say("done")])
    async with stage.session("--model", model) as session:
        await session.configure({"permission_mode": "plan"})
        await session.configure(granting("bash(ls)"))
        await finish(session, await session.prompt("go"))
        session_id = session.session_id
        stream = session_stream(SessionId(session_id))
        facts = [one async for one in facts_of(session.deps.journal, stream)]
    assert sum(isinstance(fact, SessionConfigured) for fact in facts) == 3
    async with stage.parts() as parts:
        row = await parts.journal.session(session_id)
        assert row is not None
        kept = await settings_of(row, parts.journal, parts.seal_key)
    assert (kept.mode, kept.rules) == ("plan", (Rule("allow", "bash(ls)", "grant"),))


async def test_a_client_cannot_name_a_file_as_the_model(stage: Stage) -> None:
    stage.scenario([say("Other words.")], name="other")
    model = stage.scenario([say("done")])
    async with stage.session("--model", model) as session:
        other = f"scripted/{stage.directory}/other.json"
        for name in ("scripted//etc/hostname", other, f" {other}", f"{other} "):
            for key, value in (("model", name), ("models", [model, name]), ("compact_model", name)):
                with pytest.raises(CallerError, match="do not include"):
                    await session.configure({key: value})
        await session.configure({"model": model})
        assert session.settings.models == (model,)
