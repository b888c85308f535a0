"""Ids of tool calls: unique in a run and its children, whatever a provider repeats."""

from batten.contract import facts as f
from batten.session.history import facts_of
from tests.models.server import ModelServer, answer
from tests.models.wire import anthropic_turn

from .stage import Stage, bash, call, say


async def test_an_id_that_comes_again_in_a_later_turn_is_another_id(stage: Stage) -> None:
    played = await stage.play(
        [bash("echo 1", "c1")], [bash("echo 2", "c1")], [bash("echo 3", "c1")], [say("done")]
    )
    assert played.ended.outcome == "completed"
    ids = [one.tool_call_id for one in played.all(f.AssistantToolCallProposed)]
    assert ids == ["c1", "c1-2", "c1-3"]
    assert [one.tool_call_id for one in played.all(f.ToolCompleted)] == ids


async def test_the_model_sees_each_result_under_the_id_of_its_call(stage: Stage) -> None:
    step = answer(anthropic_turn(calls=[("same", "bash", {"command": "echo one"})]))
    again = answer(anthropic_turn(calls=[("same", "bash", {"command": "echo two"})]))
    async with ModelServer([step, again, answer(anthropic_turn("done"))]) as server:
        stage.environ.update(server.environ())
        await stage.run("--model", "anthropic/claude-sonnet-4-5", "--allow", "bash")
    blocks = [
        block
        for message in server.requests[-1].json()["messages"]
        for block in message["content"]
        if block["type"] in ("tool_use", "tool_result")
    ]
    assert [block.get("id") or block["tool_use_id"] for block in blocks] == [
        "same", "same", "same-2", "same-2",
    ]  # fmt: skip


async def test_an_id_of_an_earlier_run_is_not_used_again_in_the_conversation(stage: Stage) -> None:
    step = answer(anthropic_turn(calls=[("same", "bash", {"command": "echo one"})]))
    done = answer(anthropic_turn("done"))
    async with ModelServer([step, done, step, done]) as server:
        stage.environ.update(server.environ())
        flags = ("--model", "anthropic/claude-sonnet-4-5", "--allow", "bash")
        first = await stage.run(*flags)
        again = await stage.run(*flags, resume=first.ended.run_id)
    assert again.one(f.AssistantToolCallProposed).tool_call_id == "same-2"
    messages = server.requests[-1].json()["messages"]
    blocks = [block for message in messages for block in message["content"]]
    ids = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert ids == ["same", "same-2"]


async def test_a_child_never_shares_an_id_with_its_parent(stage: Stage) -> None:
    stage.scenario([bash("echo 1", "c1"), bash("echo 2", "c2")], [say("here")], name="help")
    ask = call("agent", "c1", prompt="help")
    model = stage.scenario(
        [ask], [bash("echo 3", "c2")], [say("thanks")],
        name="parent", children={"help": "help.json"},
    )  # fmt: skip
    played = await stage.run("--model", model, "--allow", "bash")
    (child,) = [str(one.child_run_id) for one in played.all(f.ToolStarted) if one.child_run_id]
    journal = stage.journal()
    ids = [
        fact.tool_call_id
        async for fact in facts_of(journal, child)
        if isinstance(fact, f.AssistantToolCallProposed)
    ]
    journal.close()
    assert ids == ["c1-2", "c2"]
    own = [one.tool_call_id for one in played.all(f.AssistantToolCallProposed)]
    assert own == ["c1", "c2-2"]


async def test_calls_of_a_message_that_ends_its_turn_are_answered(stage: Stage) -> None:
    step = anthropic_turn(calls=[("c1", "bash", {"command": "echo one"})])
    ended = step.replace(b'"stop_reason":"tool_use"', b'"stop_reason":"end_turn"')
    assert ended != step
    async with ModelServer([answer(ended), answer(anthropic_turn("done"))]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", "anthropic/claude-sonnet-4-5", "--allow", "bash")
    assert (played.ended.answer, len(server.requests)) == ("done", 2)
