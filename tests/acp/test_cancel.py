"""`session/cancel`, a client that goes away, and signals: nothing is left open."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from acp import schema
from batten.contract.facts import ApprovalResolved, RunCancelled, RunFailed, ToolCancelled
from tests.acp.editor import desk, facts
from tests.acp.wire import opened, text, wire
from tests.agent.stage import Stage, Statement, bash, call, end, say
from tests.campaigns import embedder


async def reject(question: schema.ToolCallUpdate) -> str | None:
    return "reject_once"


async def test_a_cancelled_turn_answers_cancelled_and_the_session_lives_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("echo begun; sleep 60")], [say("Still here."), end()])
    async with desk(stage, model, "--permission-mode", "dontAsk") as at:
        await at.greet()
        session_id = await at.new()
        turn = asyncio.ensure_future(at.prompt(session_id))
        await at.editor.until(schema.ToolCallProgress, lambda one: bool(one.content))
        await at.agent.cancel(session_id=session_id)
        assert await turn == "cancelled"
        assert at.editor.of(schema.ToolCallProgress)[-1].status == "failed"
        assert await at.prompt(session_id) == "end_turn"
        assert at.editor.text() == "Still here."
    assert len(await facts(stage, ToolCancelled)) == 1
    assert [fact.by for fact in await facts(stage, RunCancelled)] == ["client"]


async def test_a_cancel_ends_the_question_that_waits(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("touch made")], [say("no"), end()])
    asked = asyncio.Event()
    answered = asyncio.Event()

    async def wait(question: schema.ToolCallUpdate) -> str | None:
        asked.set()
        await answered.wait()
        return None

    async with desk(stage, model) as at:
        at.editor.decide = wait
        await at.greet()
        session_id = await at.new()
        turn = asyncio.ensure_future(at.prompt(session_id))
        await asked.wait()
        await at.agent.cancel(session_id=session_id)
        assert await turn == "cancelled"
        answered.set()
        # The late answer is nothing to anybody; the session is there for the next prompt.
        at.editor.decide = reject
        assert await at.prompt(session_id) == "end_turn"
    assert [fact.decision for fact in await facts(stage, ApprovalResolved)] == ["cancelled"]
    assert not (stage.workspace / "made").exists()


async def test_a_cancel_while_the_model_answers_keeps_what_it_said(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    slow = {"kind": "delay", "ms": 60_000}
    model = stage.scenario([say("Well, "), slow, say("no"), end()])
    async with desk(stage, model) as at:
        await at.greet()
        session_id = await at.new()
        turn = asyncio.ensure_future(at.prompt(session_id))
        await at.editor.until(schema.AgentMessageChunk)
        await at.agent.cancel(session_id=session_id)
        await at.agent.cancel(session_id=session_id)
        assert await turn == "cancelled"
        assert at.editor.text() == "Well, "
    assert len(await facts(stage, RunCancelled)) == 1


async def test_a_cancel_while_the_editor_reads_a_file_waits_for_nobody(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    (stage.workspace / "a.txt").write_text("saved\n")
    model = stage.scenario([call("read_file", file_path="a.txt")], [say("no"), end()])
    async with desk(stage, model) as at:
        at.editor.may_read.clear()
        await at.greet(files=True)
        session_id = await at.new()
        turn = asyncio.ensure_future(at.prompt(session_id))
        await at.editor.reading.wait()
        await at.agent.cancel(session_id=session_id)
        assert await turn == "cancelled"
        at.editor.may_read.set()
        assert await at.prompt(session_id) == "end_turn"
    assert len(await facts(stage, ToolCancelled)) == 1


async def test_a_cancel_right_behind_its_prompt_is_not_lost(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("touch made; sleep 60")], [say("no"), end()])
    async with desk(stage, model, "--permission-mode", "dontAsk") as at:
        await at.greet()
        session_id = await at.new()
        turn = asyncio.ensure_future(at.prompt(session_id))
        await asyncio.sleep(0)
        await at.agent.cancel(session_id=session_id)
        assert await turn == "cancelled"


async def test_a_cancel_with_nothing_to_cancel_is_passed_over(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([say("Hello."), end()])
    async with desk(stage, model) as at:
        await at.greet()
        session_id = await at.new()
        await at.agent.cancel(session_id=session_id)
        await at.agent.cancel(session_id="nobody")
        assert await at.prompt(session_id) == "end_turn"


async def test_a_client_that_goes_away_ends_its_runs_and_the_process(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("echo begun; sleep 60")], [say("no"), end()])
    async with desk(stage, model, "--permission-mode", "dontAsk") as at:
        await at.greet()
        session_id = await at.new()
        turn = asyncio.ensure_future(at.prompt(session_id))
        await at.editor.until(schema.ToolCallProgress, lambda one: bool(one.content))
        assert at.process.stdin is not None
        at.process.stdin.close()
        assert await turn == "cancelled"
        assert await at.process.wait() == 0
    assert len(await facts(stage, RunCancelled)) == 1


async def test_a_client_that_goes_away_while_it_is_asked_denies(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("touch made")], [bash("touch made")], [say("no"), end()])
    asked = asyncio.Event()

    async def wait(question: schema.ToolCallUpdate) -> str | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    async with desk(stage, model) as at:
        at.editor.decide = wait
        await at.greet()
        turn = asyncio.ensure_future(at.prompt(await at.new()))
        await asked.wait()
        assert at.process.stdin is not None
        at.process.stdin.close()
        assert await turn == "cancelled"
        assert await at.process.wait() == 0
    assert not (stage.workspace / "made").exists()
    assert len(await facts(stage, ApprovalResolved)) == 1


async def test_a_signal_ends_every_turn_with_words(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("echo begun; sleep 60")], [say("no"), end()])
    async with desk(stage, model, "--permission-mode", "dontAsk") as at:
        await at.greet()
        sessions = [await at.new(), await at.new()]
        turns = [asyncio.ensure_future(at.prompt(one)) for one in sessions]
        for one in sessions:
            await at.editor.begun(one)
        at.process.send_signal(signal.SIGTERM)
        assert [await turn for turn in turns] == ["end_turn", "end_turn"]
        assert "SIGTERM" in at.editor.text(sessions[0])
        assert await at.process.wait() == 124
    assert len(await facts(stage, RunCancelled)) == 2


async def test_a_child_that_is_running_dies_with_its_turn(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.scenario([bash("echo begun; sleep 60")], [say("no"), end()], name="child")
    model = stage.scenario(
        [call("agent", prompt="work")], [say("ok"), end()], children={"work": "child.json"}
    )
    asked = asyncio.Event()

    async def wait(question: schema.ToolCallUpdate) -> str | None:
        asked.set()
        await asyncio.Event().wait()
        return None

    async with desk(stage, model) as at:
        at.editor.decide = wait
        await at.greet()
        session_id = await at.new()
        turn = asyncio.ensure_future(at.prompt(session_id))
        await asked.wait()
        await at.agent.cancel(session_id=session_id)
        assert await turn == "cancelled"
    assert len(await facts(stage, RunCancelled)) == 2


async def test_a_loop_that_is_stuck_ends_every_turn_and_the_process(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("[ -e go ] || { echo begun; sleep 60; }")], [stuck("asleep")])
    program = (sys.executable, embedder.__file__)
    flags = ("--permission-mode", "dontAsk")
    async with wire(stage, *flags, model=model, program=program, BATTEN_WATCHDOG_S="3") as at:
        first = await opened(at, stage)
        other = tmp_path / "other"
        other.mkdir()
        (other / "go").touch()
        made = await at.ask("session/new", {"cwd": str(other), "mcpServers": []})
        waits = at.send("session/prompt", {"sessionId": first, "prompt": [text("go")]})
        while "begun" not in str(await at.next()):
            pass
        second = made["result"]["sessionId"]
        blocks = at.send("session/prompt", {"sessionId": second, "prompt": [text("go")]})
        answers: dict[int, str] = {}
        while len(answers) < 2:
            message = await at.next()
            if message.get("id") in (waits, blocks):
                answers[message["id"]] = message["error"]["data"]["code"]
        assert answers == {waits: "timeout", blocks: "timeout"}
        assert await at.process.wait() == 1
    assert [fact.code for fact in await facts(stage, RunFailed)] == ["timeout", "timeout"]


@pytest.mark.soak
async def test_a_turn_that_does_not_hear_its_cancel_ends_the_process(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([stuck("reluctant")], [end()])
    program = (sys.executable, embedder.__file__)
    flags = ("--permission-mode", "dontAsk")
    async with wire(stage, *flags, model=model, program=program) as at:
        session_id = await opened(at, stage)
        prompt = at.send("session/prompt", {"sessionId": session_id, "prompt": [text("go")]})
        while "in_progress" not in str(await at.next()):
            pass
        at.notify("session/cancel", {"sessionId": session_id})
        assert (await at.answer(prompt))["result"] == {"stopReason": "cancelled"}
        assert await at.process.wait() == 124
    assert len(await facts(stage, RunCancelled)) == 1


def stuck(how: str) -> Statement:
    return call("stuck", how=how)
