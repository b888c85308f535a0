"""Child runs: a journal of their own, their parent's limits, and an end no later than its."""

import asyncio

import pytest

from batten.agent.child import DEEPEST
from batten.contract import facts as f
from batten.contract.conversation import Message, Text
from batten.journal.contract import RunRow
from batten.models.scenario import load
from batten.session.history import envelopes_of, prompts_of
from tests.contract.order import check_order
from tests.models.server import ModelServer, answer
from tests.models.wire import anthropic_turn

from .acting import Acting
from .stage import Stage, Statement, bash, call, finish, say


def ask(prompt: str, call_id: str = "a1", **more: str) -> Statement:
    return call("agent", call_id, prompt=prompt, **more)


def parent_of(stage: Stage, *frames: list[Statement], **children: list[list[Statement]]) -> str:
    """A scenario whose children, by their prompts, play scenarios of their own."""
    for name, played in children.items():
        stage.scenario(*played, name=name)
    return stage.scenario(
        *frames, name="parent", children={name: f"{name}.json" for name in children}
    )


async def runs_of(stage: Stage) -> list[RunRow]:
    journal = stage.journal()
    rows = await journal.runs()
    for row in rows:
        check_order([one async for one in envelopes_of(journal, row.run_id)])
    journal.close()
    return rows[::-1]


async def test_a_child_has_a_journal_of_its_own_and_its_answer_is_the_result(
    stage: Stage,
) -> None:
    model = parent_of(
        stage, [ask("help")], [say("thanks")], help=[[bash("touch made")], [say("I did it.")]]
    )
    played = await stage.run("--model", model, "--allow", "bash")
    parent, child = await runs_of(stage)
    assert (stage.workspace / "made").exists()
    started, ended = played.one(f.ToolStarted), played.one(f.ToolCompleted)
    assert (ended.output, ended.kind) == ("I did it.", "agent")
    assert started.child_run_id == child.run_id
    assert child.parent_run_id == parent.run_id == played.ended.run_id
    assert (child.session_id, child.task_id) == (parent.session_id, parent.task_id)
    assert (child.outcome, child.prompt) == ("completed", "help")
    assert "tool.shell.command" not in played.types


async def test_a_child_names_the_call_that_started_it(stage: Stage) -> None:
    model = parent_of(stage, [ask("help", "the-call")], [say("thanks")], help=[[say("Here.")]])
    await stage.run("--model", model)
    journal = stage.journal()
    (child,) = await journal.runs(parent_run_id=(await runs_of(stage))[0].run_id)
    queued = (await anext(envelopes_of(journal, child.run_id))).data
    journal.close()
    assert isinstance(queued, f.RunQueued)
    assert queued.parent_tool_call_id == "the-call"


async def test_the_conversation_of_a_session_does_not_hold_its_childs(stage: Stage) -> None:
    model = parent_of(stage, [ask("help")], [say("thanks")], help=[[say("Child's words.")]])
    async with stage.session("--model", model) as session:
        execution = await session.prompt("go")
        await finish(session, execution)
        rows = await prompts_of(session.deps.journal, session.session_id)
        second = await session.prompt("and now?")
        await finish(session, second)
        assert len(rows) == 1
        assert second.conversation.messages[0] == Message("user", (Text("go"),))
        texts = [message.text() for message in second.conversation.messages]
    assert texts[3:5] == ["thanks", "and now?"]
    assert "Child's words." not in texts
    assert "help" not in texts


async def test_a_child_that_fails_is_a_failed_tool_and_the_parent_goes_on(stage: Stage) -> None:
    model = parent_of(
        stage,
        [ask("help")],
        [say("too bad")],
        help=[[{"kind": "error", "type": "fatal", "message": "no"}]],
    )
    played = await stage.run("--model", model)
    failed = played.one(f.ToolFailed)
    assert failed.output == "Error: the agent ended with model_error: no"
    assert failed.error_kind == "model_error"
    assert played.ended.outcome == "completed"


async def test_a_child_is_bound_by_its_parents_rules(stage: Stage) -> None:
    model = parent_of(
        stage, [ask("help")], [say("ok")], help=[[bash("touch made")], [say("denied")]]
    )
    await stage.run("--model", model)
    assert not (stage.workspace / "made").exists()


async def test_a_child_need_not_answer_in_its_parents_schema(stage: Stage) -> None:
    model = parent_of(stage, [ask("help")], [say("{}")], help=[[say("plain words")]])
    played = await stage.run("--model", model, "--json-schema", '{"type": "object"}')
    assert played.one(f.ToolCompleted).output == "plain words"
    assert played.ended.outcome == "completed"


async def test_agents_start_agents_only_so_deep(stage: Stage) -> None:
    chain = {f"p{depth}": [[ask(f"p{depth + 1}")], [say("up")]] for depth in range(DEEPEST + 1)}
    for depth in range(DEEPEST, -1, -1):
        following = f"p{depth + 1}"
        known = {following: f"{following}.json"} if following in chain else {}
        stage.scenario(*chain[f"p{depth}"], name=f"p{depth}", children=known)
    played = await stage.run("--model", f"scripted/{stage.directory}/p0.json")
    assert played.ended.outcome == "completed"
    rows = await runs_of(stage)
    assert len(rows) == DEEPEST + 1
    journal = stage.journal()
    deepest = [envelope.data async for envelope in envelopes_of(journal, rows[-1].run_id)]
    journal.close()
    (refused,) = [fact for fact in deepest if isinstance(fact, f.ToolFailed)]
    assert refused.error_kind == "too_deep"


async def test_a_child_may_use_another_model(stage: Stage) -> None:
    stage.scenario([say("Other words.")], name="other")
    other = f"scripted/{stage.directory}/other.json"
    model = stage.scenario([ask("help", model=other)], [say("thanks")])
    played = await stage.run("--model", model, "--fallback-model", other)
    assert played.one(f.ToolCompleted).output == "Other words."


@pytest.mark.parametrize("other", ["scripted//etc/hostname", "scripted/{}/other.json", "openai/o9"])
async def test_a_child_may_not_use_a_model_that_the_session_does_not_have(
    stage: Stage, other: str
) -> None:
    stage.scenario([say("Other words.")], name="other")
    other = other.format(stage.directory)
    model = stage.scenario([ask("help", model=other)], [say("then not")])
    played = await stage.run("--model", model)
    refused = played.one(f.ToolFailed)
    assert refused.error_kind == "config"
    assert f"this session does not allow the model {other!r}" in refused.error
    assert len(await runs_of(stage)) == 1


async def test_a_model_nobody_has_fails_the_child_and_not_the_parent(stage: Stage) -> None:
    model = stage.scenario([ask("help", model="nobody/nothing")], [say("then not")])
    played = await stage.run("--model", model)
    assert played.one(f.ToolFailed).error_kind == "config"
    assert played.ended.outcome == "completed"


async def test_cancelling_a_run_ends_its_child_first(stage: Stage) -> None:
    tool = Acting()
    model = parent_of(
        stage, [ask("help")], [say("never")], help=[[call("acting", act="wait")], [say("never")]]
    )
    flags = ("--model", model, "--allow", "acting")
    async with stage.session(*flags, tools=[tool]) as session:
        execution = await session.prompt("go")
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            finishing = group.create_task(finish(session, execution))
            await tool.begun.wait()
            await execution.cancel("operator", "enough")
        played = finishing.result()
    assert played.ended.outcome == "cancelled"
    parent, child = await runs_of(stage)
    assert tool.ended.is_set()
    assert (parent.outcome, child.outcome) == ("cancelled", "cancelled")
    assert child.ended_at is not None
    assert parent.ended_at is not None
    assert child.ended_at <= parent.ended_at


async def test_cancelling_while_a_child_begins_leaves_no_run_without_an_ending(
    stage: Stage,
) -> None:
    model = parent_of(stage, [ask("help")], [say("x")], help=[[say("slow", streamMs=60_000)]])
    for after in ("tool.invoked", "tool.started"):
        async with stage.session("--model", model) as session:
            execution = await session.prompt("go")
            async with asyncio.timeout(10), asyncio.TaskGroup() as group:
                finishing = group.create_task(execution.finish())
                async for page in session.deps.journal.follow(execution.run_id):
                    if any(stored.type == after for stored in page):
                        break
                await execution.cancel("operator", "enough")
            assert finishing.result().outcome == "cancelled"
    assert {row.outcome for row in await runs_of(stage)} == {"cancelled"}


async def test_a_childs_words_are_not_in_its_parents_recording(stage: Stage) -> None:
    model = parent_of(stage, [ask("help")], [say("thanks")], help=[[say("Child's words.")]])
    recorded = stage.directory / "recorded.json"
    await stage.run("--model", model, "--record", str(recorded))
    frames = load(str(recorded)).frames
    assert len(frames) == 2
    assert "Child's words." not in recorded.read_text()


async def test_wall_time_of_a_parent_ends_its_child(stage: Stage) -> None:
    model = parent_of(stage, [ask("help")], [say("x")], help=[[say("slow", streamMs=60_000)]])
    played = await stage.run("--model", model, "--max-seconds", "0.5")
    assert played.ended.outcome == "timeout"
    assert all(row.outcome in ("timeout", "cancelled") for row in await runs_of(stage))


async def test_what_children_spend_is_in_the_tasks_total(stage: Stage) -> None:
    asked = answer(anthropic_turn(calls=[("a1", "agent", {"prompt": "help"})]))
    async with ModelServer([asked, answer(anthropic_turn("x"))]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", "anthropic/claude-sonnet-4-5")
    first, second = played.all(f.CostTick)
    assert first.cumulative_input_tokens == 20
    assert second.cumulative_input_tokens == 30
    assert second.cumulative_cost_micros_usd == 3 * played.all(f.TurnCompleted)[0].cost_micros_usd
