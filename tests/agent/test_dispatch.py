"""From a model's wish to an effect: what is recorded, and what the model is told."""

from pathlib import Path
from typing import Any

import pytest

from batten.agent.dispatch import Dispatch
from batten.contract.conversation import ToolCall, ToolResult
from batten.contract.facts import (
    PolicyToolBlocked,
    PolicyToolDecided,
    ToolCompleted,
    ToolFailed,
    ToolInvoked,
    ToolTimedOut,
)
from batten.contract.facts.base import Fact

from .acting import Acting
from .stage import Played, Stage, Statement, bash, call, finish, say


async def act(stage: Stage, *statements: Statement, flags: tuple[str, ...] = ()) -> Played:
    """One turn of these calls, then an answer; the acting tool is at hand and allowed."""
    model = stage.scenario(list(statements), [say("done")])
    played = await stage.run(
        "--model", model, "--permission-mode", "dontAsk", *flags, tools=[Acting()]
    )
    assert played.ended.outcome == "completed"
    assert played.ended.answer == "done"
    return played


def of_calls(played: Played) -> list[str]:
    """The facts between the first proposal and the end of the turn."""
    return played.types[played.types.index("assistant.tool_call_proposed") :]


async def test_a_turn_has_its_facts_in_the_order_of_the_design(stage: Stage) -> None:
    played = await act(stage, say("Looking."), bash("echo hi", "c1"))
    assert played.types == [
        "run.queued",
        "run.started",
        "user.message",
        "turn.started",
        "assistant.text_delta",
        "assistant.text_complete",
        "assistant.tool_call_proposed",
        "assistant.message_complete",
        "policy.tool_decided",
        "tool.invoked",
        "tool.started",
        "tool.shell.command",
        "tool.shell.output_chunk",
        "tool.shell.exited",
        "artifact.created",
        "tool.completed",
        "turn.completed",
        "cost.tick",
        "run.checkpoint_saved",
        "turn.started",
        "assistant.text_delta",
        "assistant.text_complete",
        "assistant.message_complete",
        "turn.completed",
        "cost.tick",
        "run.checkpoint_saved",
        "assistant.final_answer",
        "run.finished",
    ]


async def test_calls_of_one_turn_run_in_the_order_they_were_proposed(stage: Stage) -> None:
    played = await act(stage, bash("echo 1 >> log", "a"), bash("echo 2 >> log", "b"))
    assert (stage.workspace / "log").read_text() == "1\n2\n"
    assert [fact.tool_call_id for fact in played.all(ToolInvoked)] == ["a", "b"]
    assert [fact.tool_call_id for fact in played.all(ToolCompleted)] == ["a", "b"]


@pytest.mark.parametrize(
    ("wish", "kind", "error_kind", "told"),
    [
        (
            call("acting", act="raise"),
            ToolFailed,
            "tool_raised",
            "Error: RuntimeError: it broke",
        ),
        (
            call("acting", act="refuse"),
            ToolFailed,
            "backend_away",
            "Error: its backend is away",
        ),
        (call("acting", act="fail"), ToolFailed, "luck", "no luck"),
        (call("acting", act="time out"), ToolTimedOut, None, "too slow"),
        (
            call("acting"),
            ToolFailed,
            "invalid_arguments",
            "Error: invalid arguments for acting: arguments: 'act' is required",
        ),
        (
            call("acting", act="x", count="many"),
            ToolFailed,
            "invalid_arguments",
            "Error: invalid arguments for acting: count: 'many' is not of type integer",
        ),
        (
            call("actng", act="x"),
            ToolFailed,
            "unknown_tool",
            'Error: Unknown tool: actng. Did you mean "acting"?',
        ),
    ],
)
async def test_a_call_that_goes_wrong_is_told_to_the_model_and_the_run_goes_on(
    stage: Stage, wish: Statement, kind: type[Fact], error_kind: str | None, told: str
) -> None:
    played = await act(stage, wish)
    ended = played.one(kind)
    assert isinstance(ended, ToolFailed | ToolTimedOut)
    assert str(ended.output).startswith(told)
    if error_kind is not None:
        assert isinstance(ended, ToolFailed)
        assert ended.error_kind == error_kind


@pytest.mark.parametrize("wish", [call("nothing_like_it"), call("acting", count=1)])
async def test_a_call_that_cannot_run_is_decided_and_ended_like_any_other(
    stage: Stage, wish: Statement
) -> None:
    played = await act(stage, wish)
    assert of_calls(played)[:6] == [
        "assistant.tool_call_proposed",
        "assistant.message_complete",
        "policy.tool_decided",
        "tool.invoked",
        "tool.failed",
        "turn.completed",
    ]
    assert played.one(PolicyToolDecided).decided_by == "toolbox"


async def test_an_unknown_tool_is_answered_with_the_names_there_are(stage: Stage) -> None:
    told = str((await act(stage, call("zzzzzzzz"))).one(ToolFailed).output)
    assert "Did you mean" not in told
    for name in ("bash", "acting", "agent"):
        assert name in told


async def test_an_unknown_tool_of_a_tool_server_names_the_server(stage: Stage) -> None:
    played = await act(stage, call("mcp__files__read__all", "c1"))
    for told in (played.one(ToolInvoked), played.one(ToolFailed)):
        assert (told.kind, told.mcp_server, told.mcp_tool) == ("mcp", "files", "read__all")
    assert (played.one(ToolFailed).result, played.one(ToolFailed).error_kind) == (
        "failed",
        "unknown_tool",
    )


async def test_a_tool_of_another_world_is_found_by_that_name(stage: Stage) -> None:
    played = await act(stage, call("shell_exec", cmd="echo hi"))
    assert played.one(ToolCompleted).tool_name == "bash"
    assert played.one(ToolCompleted).output == "hi"


async def test_a_command_that_takes_too_long_is_ended_and_said_to_have_timed_out(
    stage: Stage,
) -> None:
    played = await act(stage, call("bash", command="sleep 60", timeout=0.2))
    assert played.one(ToolTimedOut).tool_name == "bash"


async def test_a_denied_call_is_recorded_and_never_executed(stage: Stage) -> None:
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    tool = Acting()
    played = await stage.run("--model", model, "--deny", "acting", tools=[tool])
    assert tool.acts == []
    decided, blocked = played.one(PolicyToolDecided), played.one(PolicyToolBlocked)
    assert (decided.verdict, decided.decided_by) == ("deny", "rule:cli:acting")
    assert (blocked.tool_call_id, blocked.result) == ("c1", "blocked")
    assert played.ended.outcome == "completed"
    assert played.ended.tool_calls == 1


async def test_where_nobody_is_declared_to_answer_a_question_is_denied_at_once(
    stage: Stage,
) -> None:
    model = stage.scenario([bash("touch made", "c1")], [say("done")])
    played = await stage.run("--model", model)
    assert not (stage.workspace / "made").exists()
    asked, answered = played.all(PolicyToolDecided)
    assert (asked.verdict, answered.verdict) == ("ask", "deny")
    assert answered.decided_by == "resolver:policy"
    assert "approval.requested" not in played.types
    assert played.one(PolicyToolBlocked).output == (
        "Error: Permission denied — bash needs approval, and nobody is declared to give it "
        "(the rule is: ask * (default))"
    )
    assert played.ended.outcome == "completed"


async def test_a_long_result_is_an_artifact_and_the_model_gets_its_head_and_tail(
    stage: Stage,
) -> None:
    played = await act(stage, call("acting", act="long"))
    ended = played.one(ToolCompleted)
    assert len(str(ended.output)) < 60_000
    assert "70000 characters left out" in str(ended.output)
    journal = stage.journal()
    row = await journal.artifact(str(ended.result_artifact_id))
    assert row is not None
    assert await journal.body(row.sha256) == b"0123456789" * 12_000
    journal.close()


async def test_unreadable_arguments_are_told_and_nothing_is_run(stage: Stage) -> None:
    # A script cannot say broken JSON, so the conversation is made to hold such a call.
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    tool = Acting()
    async with stage.session("--model", model, "--allow", "acting", tools=[tool]) as session:
        execution = await session.prompt("go")
        toolbox = session.deps.toolbox(session.deps, session.settings, 0)
        dispatch = Dispatch(session.deps, execution.recorder, session.settings, toolbox)
        await dispatch.run(0, ToolCall("broken", "acting", {}, raw='{"act": '))
        played = await finish(session, execution)
    failed = played.one(ToolFailed)
    assert failed.output == 'Error: Invalid JSON arguments: {"act": '
    assert tool.acts == ["x"]


@pytest.mark.parametrize("tool_name", ["acting", "nobody"])
async def test_arguments_nested_too_deeply_are_told_and_nothing_is_run(
    stage: Stage, tool_name: str
) -> None:
    deep: Any = 1
    for _ in range(400):
        deep = {"a": deep}
    tool = Acting()
    model = stage.scenario([call(tool_name, "c1", act="x", place=deep)], [say("done")])
    async with stage.session("--model", model, "--allow", "acting", tools=[tool]) as session:
        played = await finish(session, await session.prompt("go"))
    assert played.ended.outcome == "completed"
    assert tool.acts == []
    failed = played.one(ToolFailed)
    if tool_name == "acting":
        told = "Error: Invalid JSON arguments: they are nested too deeply"
        assert (failed.output, failed.error_kind) == (told, "invalid_arguments")
    else:
        assert failed.error_kind == "unknown_tool"


async def test_a_secret_is_not_left_in_half_where_a_text_is_cut(tmp_path: Path) -> None:
    secret = "zq8-live-0123456789-abcdefghij-0123456789"
    stage = Stage(tmp_path, {"SERVICE_TOKEN": secret})
    cut = [
        "x" * 180 + secret,  # a summary of 200 characters
        "y" * 470 + secret,  # an approval's summary, an error
        "z" * (96 * 1024 - 20) + secret,  # a field of a fact
        "w" * 29_970 + secret + "v" * 40_000,  # the head of what a model is told
    ]
    model = stage.scenario(
        [call("acting", act=text) for text in cut], [bash(f"echo {cut[1]}")], [say("done")]
    )
    flags = ("--model", model, "--allow", "acting", "--ask-operator", "--request-seconds", "0.1")
    async with stage.session(*flags, tools=[Acting()]) as session:
        await finish(session, await session.prompt(cut[2]))
    for path in stage.home.rglob("*"):
        assert path.is_dir() or b"zq8-live" not in path.read_bytes(), path


async def test_the_model_is_told_results_under_the_name_it_gave_the_tool(stage: Stage) -> None:
    model = stage.scenario([call("Bash", "c1", command="echo hi")], [say("done")])
    async with stage.session("--model", model, "--allow", "bash") as session:
        execution = await session.prompt("go")
        await finish(session, execution)
        results = execution.conversation.messages[2].blocks
    assert results == (ToolResult("c1", "Bash", "hi"),)
