"""A run that stops between any two of its facts, and whoever goes on with it."""

import pytest

from batten.contract import facts as f
from batten.contract.facts import Fact
from batten.contract.ids import new_run_id
from batten.journal.contract import NewRun
from tests.agent.stage import Played, Stage, bash, finish, say


async def cut_before(stage: Stage, played: Played, kind: type[Fact], model: str) -> str:
    """The same run once more, by a worker that died before it could record the first of `kind`."""
    facts = played.facts
    place = next(index for index, fact in enumerate(facts) if isinstance(fact, kind))
    async with stage.session("--model", model) as session:
        new = NewRun(
            run_id=new_run_id(),
            kind="agent_loop",
            worker_id="worker-of-another-machine",
            lease_s=0.0,
            task_id=session.task_id,
            session_id=session.session_id,
        )
        await session.deps.journal.create(new, facts[:place])
    return new.run_id


async def go_on(stage: Stage, run_id: str) -> Played:
    async with stage.session("--permission-mode", "dontAsk", resume=run_id) as session:
        left = await session.unfinished()
        assert left is not None
        return await finish(session, await session.go_on(left))


@pytest.mark.parametrize("kind", [f.TurnCompleted, f.AssistantFinalAnswer, f.RunFinished])
async def test_an_answer_that_was_given_is_not_asked_for_again(
    stage: Stage, kind: type[Fact]
) -> None:
    model = stage.scenario([say("Hello there.")], [say("never")])
    whole = await stage.run("--model", model)
    played = await go_on(stage, await cut_before(stage, whole, kind, model))
    assert played.ended.outcome == "completed"
    assert played.ended.answer == "Hello there."
    assert len(played.all(f.TurnStarted)) == 1
    assert len(played.all(f.TurnCompleted)) == 1
    assert len(played.all(f.AssistantFinalAnswer)) == 1


async def test_calls_of_an_aborted_message_are_not_run_by_whoever_goes_on(stage: Stage) -> None:
    model = stage.scenario([bash("touch made"), {"kind": "end", "reason": "aborted"}])
    whole = await stage.run("--model", model, "--permission-mode", "dontAsk")
    played = await go_on(stage, await cut_before(stage, whole, f.TurnCompleted, model))
    assert played.ended.outcome == whole.ended.outcome == "model_error"
    assert not (stage.workspace / "made").exists()


async def test_calls_that_were_proposed_and_not_begun_are_run_once(stage: Stage) -> None:
    model = stage.scenario([bash("echo once >> log")], [say("done")])
    whole = await stage.run("--model", model, "--permission-mode", "dontAsk")
    (stage.workspace / "log").unlink()
    played = await go_on(stage, await cut_before(stage, whole, f.PolicyToolDecided, model))
    assert played.ended.answer == "done"
    assert (stage.workspace / "log").read_text() == "once\n"


@pytest.mark.parametrize("prompt", ["go", "use sk-ant-api03-abcdefghijklmnopqrstuvwxyz012345"])
async def test_a_run_never_exists_without_its_prompt(stage: Stage, prompt: str) -> None:
    model = stage.scenario([say("hi")])
    async with stage.session("--model", model) as session:
        execution = await session.prompt(prompt)
        types = [stored.type for stored in await session.deps.journal.read(execution.run_id)]
        assert "user.message" in types
        await finish(session, execution)


async def test_a_cancel_requested_by_another_process_ends_a_running_command(stage: Stage) -> None:
    model = stage.scenario([bash("sleep 60")], [say("never")])
    async with stage.session("--model", model, "--allow", "bash") as session:
        execution = await session.prompt("go")
        journal = session.deps.journal
        requested = [f.RunCancelRequested(by="somebody", reason="enough")]
        await journal.append(execution.run_id, requested, fence=None)
        played = await finish(session, execution)
    assert played.ended.outcome == "cancelled"
    assert isinstance(played.facts[-1], f.RunCancelled)


async def test_a_blank_last_message_is_the_answer_not_what_was_said_before(stage: Stage) -> None:
    played = await stage.play([say("My plan is X."), bash("true")], [say(" ")])
    assert played.ended.answer.strip() == ""
    assert played.ended.last_text == "My plan is X."


async def test_a_call_id_that_is_used_again_becomes_another(stage: Stage) -> None:
    played = await stage.play([bash("true", "c1")], [bash("true", "c1")], [say("done")])
    assert [fact.tool_call_id for fact in played.all(f.ToolInvoked)] == ["c1", "c1-2"]
    assert [fact.tool_call_id for fact in played.all(f.ToolCompleted)] == ["c1", "c1-2"]
