"""Commands as hooks at the gate: what they say, how they fail, and what comes of it."""

import shlex

import msgspec
import pytest
from msgspec import UNSET

from batten.agent.hooks.hooks import Hooks
from batten.contract.errors import CallerError
from batten.contract.facts import (
    HookCompleted,
    HookDispatched,
    PolicyToolBlocked,
    PolicyToolDecided,
    ToolCompleted,
    ToolInvoked,
)
from batten.settings.contract import HandlerConfig, HookConfig

from .acting import Acting
from .hooking import brief, deciding, hook, hooks_of, log_of, saying
from .stage import Played, Stage, bash, call, say

ALLOWED = ("--allow", "acting", "--allow", "bash")


async def act(stage: Stage, *configs: HookConfig, tool: Acting | None = None) -> Played:
    """One call of the acting tool, which the rules allow."""
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    flags = ("--model", model, *ALLOWED)
    hooks = hooks_of(stage, *configs)
    return await stage.run(*flags, tools=[tool or Acting()], hooks=hooks)


async def test_a_hook_that_exits_with_0_has_no_objection_and_gives_no_permission(
    stage: Stage,
) -> None:
    played = await act(stage, hook("PreToolUse", "exit 0"))
    told = played.one(HookCompleted)
    assert brief(told) == ("none", "allow", "allow")
    assert (told.exit_code, told.failure, told.pace) == (0, UNSET, "sync")
    assert played.all(HookDispatched) == []
    assert played.one(PolicyToolDecided).decided_by == "rule:cli:acting"
    assert played.one(ToolCompleted).output == "did x"


async def test_a_hook_that_exits_with_2_denies_and_its_stderr_is_the_reason(stage: Stage) -> None:
    tool = Acting()
    guard = "echo not today >&2; exit 2"
    played = await act(stage, hook("PreToolUse", guard), tool=tool)
    assert tool.acts == []
    assert brief(played.one(HookCompleted)) == ("deny", "allow", "deny")
    decided, blocked = played.one(PolicyToolDecided), played.one(PolicyToolBlocked)
    assert (decided.verdict, decided.decided_by) == ("deny", f"hook:{guard}")
    assert blocked.output == "Error: Permission denied — not today"
    assert played.all(ToolInvoked) == []
    assert played.ended.outcome == "completed"


async def test_the_denial_is_recorded_before_the_call_is_blocked(stage: Stage) -> None:
    played = await act(stage, hook("PreToolUse", "exit 2"))
    types = [type_ for type_ in played.types if type_.startswith(("hook.", "policy.", "tool."))]
    assert types == ["hook.completed", "policy.tool_decided", "policy.tool_blocked"]


async def test_of_a_long_reason_8_kib_are_kept(stage: Stage) -> None:
    long = "python3 -c 'import sys; sys.stderr.write(\"r\" * 100_000); sys.exit(2)'"
    played = await act(stage, hook("PreToolUse", long))
    assert played.one(HookCompleted).reason == "r" * 8192


FAILURES = {
    "exit code": ("echo oops >&2; exit 3", "it ended with exit code 3: oops"),
    "timeout": ("sleep 60", "it did not answer within 0.3 s"),
    "signal": ("kill -9 $$", "it was ended by SIGKILL"),
    "nonsense": ("echo '{not json'", "its answer is no JSON"),
    "no such decision": (
        saying({"hookSpecificOutput": {"permissionDecision": "perhaps"}}),
        "its permissionDecision is 'perhaps'",
    ),
    "too long": ("head -c 2000000 /dev/zero", "it answered with more than"),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_hook_that_fails_denies(stage: Stage, failure: str) -> None:
    command, why = FAILURES[failure]
    tool = Acting()
    played = await act(stage, hook("PreToolUse", command, timeout_s=_time(failure)), tool=tool)
    told = played.one(HookCompleted)
    assert brief(told) == ("none", "allow", "deny")
    assert str(told.failure).startswith(why)
    assert tool.acts == []
    assert "gave no answer" in str(played.one(PolicyToolBlocked).output)


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_hook_that_fails_is_passed_over_if_it_says_so(stage: Stage, failure: str) -> None:
    command, why = FAILURES[failure]
    tool = Acting()
    lenient = hook("PreToolUse", command, timeout_s=_time(failure), on_failure="allow")
    played = await act(stage, lenient, tool=tool)
    told = played.one(HookCompleted)
    assert brief(told) == ("none", "allow", "allow")
    assert str(told.failure).startswith(why)
    assert tool.acts == ["x"]


def _time(failure: str) -> float:
    return 0.3 if failure == "timeout" else 30.0


async def test_a_hook_that_fails_leniently_does_not_allow_what_is_asked(stage: Stage) -> None:
    model = stage.scenario([bash("touch made")], [say("done")])
    hooks = hooks_of(stage, hook("PreToolUse", "exit 7", on_failure="allow"))
    played = await stage.run("--model", model, hooks=hooks)
    assert brief(played.one(HookCompleted)) == ("none", "ask", "ask")
    assert not (stage.workspace / "made").exists()


@pytest.mark.parametrize("on_failure", ["deny", "allow"])
async def test_a_hook_that_cannot_be_started_has_failed(stage: Stage, on_failure: str) -> None:
    handler = HandlerConfig(
        type="command",
        command="/no/such/program",
        args=("a",),
        on_failure="deny" if on_failure == "deny" else "allow",
    )
    tool = Acting()
    played = await act(stage, HookConfig(event="PreToolUse", handlers=(handler,)), tool=tool)
    assert "it could not be started" in str(played.one(HookCompleted).failure)
    assert tool.acts == ([] if on_failure == "deny" else ["x"])


@pytest.mark.parametrize("exit_code", [0, 1, 2])
async def test_a_denial_in_json_counts_whatever_the_exit_code(stage: Stage, exit_code: int) -> None:
    tool = Acting()
    command = saying(deciding("deny", "no"), exit_code=exit_code)
    played = await act(stage, hook("PreToolUse", command, on_failure="allow"), tool=tool)
    told = played.one(HookCompleted)
    assert (told.decision, told.reason, told.failure) == ("deny", "no", UNSET)
    assert tool.acts == []


@pytest.mark.parametrize(("exit_code", "acts"), [(0, ["x"]), (1, []), (2, [])])
async def test_a_permission_in_json_counts_only_with_exit_code_0(
    stage: Stage, exit_code: int, acts: list[str]
) -> None:
    tool = Acting()
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    command = saying(deciding("allow", "fine"), exit_code=exit_code)
    hooks = hooks_of(stage, hook("PreToolUse", command, on_failure="allow"))
    played = await stage.run("--model", model, "--ask", "acting", tools=[tool], hooks=hooks)
    assert tool.acts == acts
    assert played.one(HookCompleted).exit_code == exit_code


async def test_json_without_a_decision_does_not_hide_the_exit_code(stage: Stage) -> None:
    tool = Acting()
    quiet = f"echo hidden >&2; {saying({'systemMessage': 'hello'}, exit_code=2)}"
    played = await act(stage, hook("PreToolUse", quiet), tool=tool)
    told = played.one(HookCompleted)
    assert (told.decision, told.reason, told.system_message) == ("deny", "hidden", "hello")
    assert tool.acts == []


async def test_the_flat_form_of_a_denial_counts_too(stage: Stage) -> None:
    tool = Acting()
    flat = hook("PreToolUse", saying({"decision": "block", "reason": "flatly"}))
    played = await act(stage, flat, tool=tool)
    assert played.one(PolicyToolBlocked).reason == "flatly"
    assert tool.acts == []


async def test_what_a_hook_changes_is_what_runs_and_what_later_hooks_and_rules_see(
    stage: Stage,
) -> None:
    log = log_of(stage)
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    rewrite = hook("PreToolUse", saying(deciding("allow", updatedInput={"act": "y"})))
    tool = Acting()
    played = await stage.run(
        *("--model", model, "--allow", "acting(y)", "--deny", "acting(x)"),
        tools=[tool],
        hooks=hooks_of(stage, rewrite, hook("PreToolUse", log.command)),
    )
    assert tool.acts == ["y"]
    (seen,) = log.payloads
    assert seen["tool_input"] == seen["tool"]["input"] == {"act": "y"}
    assert seen["fact"]["data"]["input"] == {"act": "y"}
    first, second = played.all(HookCompleted)
    assert (first.changed_input, second.changed_input) == (True, UNSET)
    assert brief(first) == ("allow", "allow", "allow")
    assert played.one(PolicyToolDecided).decided_by == "rule:cli:acting(y)"
    assert played.one(ToolInvoked).input == {"act": "y"}
    assert played.one(ToolInvoked).sealed_artifact_id is UNSET


async def test_a_rule_denies_what_a_hook_changed_the_call_to(stage: Stage) -> None:
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    rewrite = hook("PreToolUse", saying(deciding("allow", updatedInput={"act": "y"})))
    tool = Acting()
    played = await stage.run(
        *("--model", model, "--deny", "acting(y)", "--allow", "acting"),
        tools=[tool],
        hooks=hooks_of(stage, rewrite),
    )
    assert tool.acts == []
    assert brief(played.one(HookCompleted)) == ("allow", "deny", "deny")
    assert played.one(PolicyToolDecided).decided_by == "rule:cli:acting(y)"


async def test_a_call_that_is_not_changed_says_nothing_of_its_arguments(stage: Stage) -> None:
    played = await act(stage, hook("PreToolUse", saying(deciding("allow"))))
    assert played.one(ToolInvoked).input is UNSET


@pytest.mark.parametrize("on_failure", ["deny", "allow"])
@pytest.mark.parametrize("updated", [{"count": 1}, {"act": 7}])
async def test_arguments_that_do_not_fit_the_tool_are_a_denial_whatever_the_hook_says(
    stage: Stage, updated: dict[str, object], on_failure: str
) -> None:
    tool = Acting()
    command = saying(deciding("allow", updatedInput=updated))
    played = await act(stage, hook("PreToolUse", command, on_failure=on_failure), tool=tool)
    assert tool.acts == []
    told = played.one(HookCompleted)
    assert "its updatedInput cannot be used: invalid arguments" in str(told.failure)
    assert told.decision == "deny"


async def test_updated_input_that_is_no_object_is_nonsense(stage: Stage) -> None:
    tool = Acting()
    command = saying({"hookSpecificOutput": {"updatedInput": "y"}})
    played = await act(stage, hook("PreToolUse", command), tool=tool)
    assert "its updatedInput is not of type object" in str(played.one(HookCompleted).failure)
    assert tool.acts == []


async def test_the_first_denial_ends_the_asking(stage: Stage) -> None:
    log = log_of(stage)
    played = await act(
        stage,
        hook("PreToolUse", saying(deciding("allow"))),
        hook("PreToolUse", "exit 2"),
        hook("PreToolUse", log.command),
    )
    assert [fact.router_decision for fact in played.all(HookCompleted)] == ["allow", "deny"]
    assert log.payloads == []


@pytest.mark.parametrize(
    ("matcher", "told"),
    [
        ("*", True),
        ("", True),
        ("bash", True),
        ("Bash", True),
        ("run_command", True),
        ("Read|Bash", True),
        ("ba*", True),
        ("B.*", True),
        ("Read", False),
        ("bas", False),
        ("Read|Write", False),
    ],
)
async def test_a_matcher_is_held_against_all_names_of_a_tool(
    stage: Stage, matcher: str, told: bool
) -> None:
    model = stage.scenario([bash("true")], [say("done")])
    hooks = hooks_of(stage, hook("PreToolUse", "exit 0", matcher=matcher))
    played = await stage.run("--model", model, "--allow", "bash", hooks=hooks)
    assert bool(played.all(HookCompleted)) is told


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("Bash(git *)", True),
        ("Bash:~push", True),
        ("Bash(rm *)", False),
        ("Read", False),
    ],
)
async def test_a_condition_must_hold_too(stage: Stage, condition: str, told: bool) -> None:
    model = stage.scenario([bash("cd . && git push || true")], [say("done")])
    hooks = hooks_of(stage, hook("PreToolUse", "exit 2", matcher="Bash", condition=condition))
    played = await stage.run("--model", model, "--allow", "bash", hooks=hooks)
    assert bool(played.all(HookCompleted)) is told
    assert bool(played.all(PolicyToolBlocked)) is told


def test_a_condition_that_is_no_pattern_is_refused_at_once() -> None:
    with pytest.raises(CallerError, match=r"the `if` of a hook: .*not closed") as refused:
        Hooks([hook("PreToolUse", "exit 0", condition="Bash(git")])
    assert refused.value.code == "config"


async def test_a_hook_that_does_not_read_what_it_is_told_gets_through(stage: Stage) -> None:
    long = "x" * 300_000
    model = stage.scenario([call("acting", "c1", act=long)], [say("done")])
    hooks = hooks_of(stage, hook("PreToolUse", "exec 0<&-; exit 0"))
    tool = Acting()
    await stage.run("--model", model, *ALLOWED, tools=[tool], hooks=hooks)
    assert tool.acts == [long]


async def test_a_command_with_arguments_gets_them_as_they_are(stage: Stage) -> None:
    tool = Acting()
    handler = HandlerConfig(
        type="command", command="/bin/sh", args=("-c", 'echo "$0 $X" >&2; exit 2', "a  b;c"),
        env={"X": "y"},
    )  # fmt: skip
    played = await act(stage, HookConfig(event="PreToolUse", handlers=(handler,)), tool=tool)
    assert played.one(PolicyToolBlocked).reason == "a  b;c y"


async def test_a_hook_runs_in_the_workspace_and_outside_the_sandbox(stage: Stage) -> None:
    outside = stage.directory / "outside"
    command = f"pwd > {shlex.quote(str(outside))}; echo $CLAUDE_PROJECT_DIR >> {outside}"
    await act(stage, hook("PreToolUse", command))
    assert outside.read_text().splitlines() == [str(stage.workspace)] * 2


async def test_a_hook_may_end_the_run(stage: Stage) -> None:
    tool = Acting()
    ends = saying({"continue": False, "stopReason": "enough for today"})
    model = stage.scenario([call("acting", "c1", act="x")], [say("never said")])
    hooks = hooks_of(stage, hook("PreToolUse", ends))
    played = await stage.run("--model", model, *ALLOWED, tools=[tool], hooks=hooks)
    assert (played.ended.outcome, played.ended.message) == ("hook_denied", "enough for today")
    assert played.one(PolicyToolBlocked).reason == "enough for today"
    assert tool.acts == []


async def test_what_a_hook_adds_is_told_to_the_model_beside_the_result(stage: Stage) -> None:
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    before = saying(deciding("allow", additionalContext="mind the gap"))
    after = saying({"decision": "block", "reason": "the linter complains"})
    hooks = hooks_of(stage, hook("PreToolUse", before), hook("PostToolUse", after))
    async with stage.session("--model", model, *ALLOWED, tools=[Acting()], hooks=hooks) as session:
        execution = await session.prompt("go")
        await execution.finish()
        (result,) = execution.conversation.messages[2].blocks
    assert msgspec.to_builtins(result)["output"] == (
        "did x\n\nmind the gap\n\nthe linter complains"
    )


async def test_without_hooks_a_run_has_no_facts_of_hooks(stage: Stage) -> None:
    played = await act(stage)
    assert not [type_ for type_ in played.types if type_.startswith("hook.")]
