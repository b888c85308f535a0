"""Runs whose process was killed: taken over in place, with what is unknown said so."""

import asyncio

import msgspec
import pytest
from msgspec import UNSET

from batten.contract import facts as f
from batten.contract.errors import Conflict
from batten.journal.workers import is_abandoned
from batten.session.history import envelopes_of, facts_of
from tests.agent.stage import Played, Stage, Statement, bash, call, finish, say
from tests.contract.order import check_order
from tests.models.server import Fault, ModelServer, answer, cut
from tests.models.wire import anthropic_start, anthropic_text_block, anthropic_turn, sse

from .processes import batten, kill_after, running, until

ALLOWED = ("--allow", "bash")


def frames(*first: Statement) -> list[list[Statement]]:
    return [list(first), [say("done")]]


async def go_on(stage: Stage, run_id: str, *flags: str) -> Played:
    async with stage.session(*flags, resume=run_id, goes_on=True) as session:
        left = await session.unfinished()
        assert left is not None
        assert left.run_id == run_id
        return await finish(session, await session.go_on(left))


def after_the_gap(played: Played) -> list[str]:
    return played.types[played.types.index("gap.run_disconnected") :]


async def test_the_cost_of_a_model_call_whose_worker_is_lost_is_unknown(stage: Stage) -> None:
    begun = sse(anthropic_start(), *anthropic_text_block(0, "begun")[:2], named=True)
    replies = [cut(begun, Fault.STALL), answer(anthropic_turn("done"))]
    async with ModelServer(replies) as server:
        stage.environ |= server.environ()
        flags = ("--model", "anthropic/claude-sonnet-4-5")
        run_id = await asyncio.to_thread(kill_after, stage, "assistant.text_delta", *flags)
        played = await go_on(stage, run_id, *flags)
    lost = played.one(f.CostCallUnfinished)
    assert (lost.provider, lost.model) == ("anthropic", "claude-sonnet-4-5")
    assert (lost.reason, lost.cost_micros_usd) == ("broken", None)
    assert after_the_gap(played)[:5] == [
        "gap.run_disconnected",
        "run.started",
        "cost.call_unfinished",
        "assistant.retracted",
        "turn.failed",
    ]
    ending = played.one(f.RunFinished)
    assert (ending.cost_micros_usd > 0, ending.cost_unknown) == (True, True)


async def test_a_tool_that_was_running_is_reported_unknown_and_not_run_again(stage: Stage) -> None:
    model = stage.scenario(*frames(bash("echo once >> log; sleep 60", "c1"), bash("echo 2", "c2")))
    run_id = kill_after(stage, "tool.shell.command", "--model", model, *ALLOWED)
    played = await go_on(stage, run_id)
    assert played.ended.run_id == run_id
    assert played.ended.outcome == "completed"
    assert (stage.workspace / "log").read_text() == "once\n"
    unknown = played.one(f.ToolFailed)
    assert (unknown.tool_call_id, unknown.error_kind) == ("c1", "outcome_unknown")
    assert played.one(f.ToolCompleted).tool_call_id == "c2"
    assert after_the_gap(played)[:4] == [
        "gap.run_disconnected",
        "run.started",
        "tool.failed",
        "policy.tool_decided",
    ]
    # The turn that was cut in two is completed once, with one model call.
    assert len(played.all(f.AssistantMessageComplete)) == 2
    assert [fact.turn_index for fact in played.all(f.TurnCompleted)] == [1, 2]


async def test_a_model_call_that_was_cut_off_is_made_again(stage: Stage) -> None:
    model = stage.scenario([say("slow words " * 20, streamMs=30_000)], [say("never")])
    run_id = kill_after(stage, "assistant.text_delta", "--model", model)
    stage.scenario([say("quick words")])
    played = await go_on(stage, run_id)
    assert played.ended.answer == "quick words"
    lost = played.one(f.TurnFailed)
    assert (lost.code, lost.will_retry) == ("worker_lost", True)
    void = played.one(f.AssistantRetracted)
    assert (void.turn_index, void.tool_call_ids) == (1, [])
    assert after_the_gap(played)[:5] == [
        "gap.run_disconnected",
        "run.started",
        "assistant.retracted",
        "turn.failed",
        "turn.started",
    ]
    assert [fact.turn_index for fact in played.all(f.TurnStarted)] == [1, 1]


async def test_calls_of_an_answer_that_was_cut_off_are_taken_back_with_its_text(
    stage: Stage,
) -> None:
    model = stage.scenario(
        [say("First."), bash("echo one >> log", "c1"), {"kind": "delay", "ms": 60_000}],
        [say("never")],
    )
    run_id = kill_after(stage, "assistant.tool_call_proposed", "--model", model, *ALLOWED)
    stage.scenario([say("Once."), bash("echo two >> log", "c2")], [say("done")])
    played = await go_on(stage, run_id, *ALLOWED)
    assert played.ended.answer == "done"
    assert played.one(f.AssistantRetracted).tool_call_ids == ["c1"]
    assert [fact.tool_call_id for fact in played.all(f.ToolInvoked)] == ["c2"]
    assert (stage.workspace / "log").read_text() == "two\n"


async def test_nothing_is_taken_back_where_no_word_had_come(stage: Stage) -> None:
    model = stage.scenario([{"kind": "delay", "ms": 60_000}, say("never")])
    run_id = kill_after(stage, "turn.started", "--model", model)
    stage.scenario([say("quick words")])
    played = await go_on(stage, run_id)
    assert played.ended.answer == "quick words"
    assert played.all(f.AssistantRetracted) == []


async def test_a_new_prompt_ends_the_run_that_was_left_and_knows_what_it_said(
    stage: Stage,
) -> None:
    model = stage.scenario(*frames(say("I begin."), bash("sleep 60", "c1"), bash("echo 2", "c2")))
    run_id = kill_after(stage, "tool.shell.command", "--model", model, *ALLOWED)
    async with stage.session(resume=run_id) as session:
        execution = await session.prompt("what happened?")
        played = await finish(session, execution)
        left = [one async for one in envelopes_of(session.deps.journal, run_id)]
        told = execution.conversation.messages
    check_order(left)
    ending = left[-1].data
    assert isinstance(ending, f.RunCancelled)
    assert (ending.outcome, ending.by) == ("interrupted", "runtime")
    assert played.ended.answer == "done"
    assert played.one(f.RunQueued).prior_run_id == run_id
    assert told[1].text() == "I begin."
    unknown, never = told[2].blocks
    assert "outcome unknown" in str(unknown)
    assert "was not run" in str(never)
    assert not (stage.workspace / "made").exists()


async def test_a_run_is_not_taken_from_a_process_that_lives(stage: Stage) -> None:
    model = stage.scenario(*frames(bash("sleep 60")))
    with running(stage, "--model", model, *ALLOWED) as process:
        run_id = until(process, "tool.shell.command")
        with pytest.raises(Conflict, match="is in use by another process"):
            async with stage.session(resume=run_id):
                pass
        refused = batten(stage, "-p", "mine now", "--resume", run_id, "--output-format", "json")
    assert refused.returncode == 1
    assert msgspec.json.decode(refused.stdout)["outcome"] == "conflict"
    assert b"is in use by another process" in refused.stderr
    assert b"Traceback" not in refused.stderr


async def test_a_child_left_behind_is_ended_with_its_parent(stage: Stage) -> None:
    stage.scenario(*frames(bash("sleep 60")), name="child")
    model = stage.scenario(
        [call("agent", "a1", prompt="help")], [say("alone then")], children={"help": "child.json"}
    )
    with running(stage, "--model", model, *ALLOWED) as process:
        run_id = until(process, "tool.started")
        async for page in stage.journal().follow(await _child_of(stage, run_id)):
            if any(stored.type == "tool.shell.command" for stored in page):
                break
    child_id = await _child_of(stage, run_id)
    played = await go_on(stage, run_id)
    assert played.ended.answer == "alone then"
    assert played.one(f.ToolFailed).error_kind == "outcome_unknown"
    journal = stage.journal()
    child = [one async for one in envelopes_of(journal, child_id)]
    row = await journal.run(child_id)
    journal.close()
    check_order(child)
    assert row is not None
    assert row.outcome == "interrupted"


async def _child_of(stage: Stage, run_id: str) -> str:
    journal = stage.journal()
    (child,) = await journal.runs(parent_run_id=run_id)
    journal.close()
    return child.run_id


async def test_a_run_somebody_wanted_cancelled_is_cancelled_when_it_is_taken_over(
    stage: Stage,
) -> None:
    model = stage.scenario(*frames(bash("sleep 60")))
    run_id = kill_after(stage, "tool.shell.command", "--model", model, *ALLOWED)
    async with stage.parts() as parts:
        asked = f.RunCancelRequested(by="operator", reason="enough")
        await parts.journal.append(run_id, [asked], fence=None)
    played = await go_on(stage, run_id)
    assert played.ended.outcome == "cancelled"
    ending = played.one(f.RunCancelled)
    assert (ending.by, ending.reason) == ("operator", "enough")


async def test_the_command_goes_on_without_a_prompt_and_says_so_when_there_is_nothing_to_do(
    stage: Stage,
) -> None:
    model = stage.scenario(*frames(bash("echo once >> log; sleep 60", "c1")))
    run_id = kill_after(stage, "tool.shell.command", "--model", model, *ALLOWED)
    done = batten(stage, "-p", "--resume", run_id)
    assert (done.returncode, done.stdout) == (0, b"done\n")
    again = batten(stage, "-p", "--resume", run_id)
    assert again.returncode == 64
    assert b"no unfinished run to go on with" in again.stderr


async def test_what_a_run_had_counted_goes_on_after_a_takeover(stage: Stage) -> None:
    model = stage.scenario([bash("echo 1")], [bash("echo 2; sleep 60")], [say("done")])
    with running(stage, "--model", model, *ALLOWED, "--max-turns", "2") as process:
        run_id = until(process, "cost.tick")
        until(process, "tool.shell.command")
    played = await go_on(stage, run_id)
    assert played.ended.outcome == "max_turns"
    assert played.one(f.RunFailed).turns == 2


async def test_a_question_left_open_takes_the_answer_that_came_meanwhile(stage: Stage) -> None:
    model = stage.scenario(*frames(bash("touch made", "c1")))
    run_id = kill_after(stage, "approval.requested", "--model", model, "--ask-operator")
    journal = stage.journal()
    (request,) = await journal.requests(run_id)
    journal.close()
    answered = batten(stage, "answer", request.request_id, "allow")
    assert answered.returncode == 0
    played = await go_on(stage, run_id)
    assert (stage.workspace / "made").exists()
    assert len(played.all(f.ApprovalRequested)) == 1
    decided = played.all(f.PolicyToolDecided)[-1]
    assert (decided.verdict, decided.decided_by) == ("allow", "resolver:operator")


async def test_a_question_left_open_is_closed_with_a_run_nobody_goes_on_with(stage: Stage) -> None:
    model = stage.scenario(*frames(bash("touch made", "c1")))
    run_id = kill_after(stage, "approval.requested", "--model", model, "--ask-operator")
    async with stage.session(resume=run_id) as session:
        await finish(session, await session.prompt("never mind"))
        left = [fact async for fact in facts_of(session.deps.journal, run_id)]
        (closed,) = [fact for fact in left if isinstance(fact, f.ApprovalResolved)]
        (request,) = await session.deps.journal.requests(run_id)
    assert (closed.decision, closed.by) == ("cancelled", "runtime")
    assert request.status == "cancelled"


async def test_a_gap_says_whether_the_worker_is_dead_or_was_not_heard_of(stage: Stage) -> None:
    model = stage.scenario([say("slow words " * 20, streamMs=30_000)])
    run_id = kill_after(stage, "assistant.text_delta", "--model", model)
    stage.scenario([say("quick words")])
    killed = await go_on(stage, run_id)
    told = killed.one(f.GapRunDisconnected)
    assert (told.reason, told.worker_exited) == ("worker_lease_expired", True)
    async with stage.session("--model", model) as session:
        journal = session.deps.journal
        queued = await session.queue("go")
        lease = await journal.claim(queued, "worker-of-another-machine", 0.05)
        started = f.RunStarted(worker_id=lease.worker_id, lease_until=lease.until)
        await journal.append(queued, [started], fence=lease.fence)
        await asyncio.sleep(0.1)
        row = await journal.run(queued)
        assert row is not None
        assert is_abandoned(row)
        silent = await finish(session, await session.go_on(row))
    gap = silent.one(f.GapRunDisconnected)
    assert (gap.reason, gap.worker_exited) == ("worker_lease_expired", UNSET)
    assert gap.prior_worker_id == "worker-of-another-machine"


async def test_a_turn_that_two_workers_made_lasts_from_its_beginning(stage: Stage) -> None:
    model = stage.scenario(*frames(bash("sleep 60", "c1")))
    run_id = kill_after(stage, "tool.shell.command", "--model", model, *ALLOWED)
    await asyncio.sleep(0.3)
    played = await go_on(stage, run_id)
    assert played.all(f.TurnCompleted)[0].duration_ms >= 300
