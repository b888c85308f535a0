"""Prompts: their events, their results, and the ways to leave them."""

import asyncio
from pathlib import Path

import pytest

from batten.client import (
    Conflict,
    Ended,
    JournalEvent,
    Launch,
    NoAnswer,
    Problem,
    RunStarted,
    Status,
    TextDelta,
    ThinkingDelta,
    ToolEnded,
    ToolOutput,
    ToolProposed,
    ToolStarted,
    WorkerClosed,
)
from tests.agent.stage import Stage, bash, end, fail, say
from tests.client.working import PATIENCE_S, of, until, working

DONE = [say("Done."), end()]


async def test_a_run_is_a_stream_of_typed_events_with_one_ending(
    stage: Stage, launch: Launch
) -> None:
    frames = [say("Let me look."), bash("echo seen", "c1")], [say("That "), say("is all."), end()]
    async with working(stage, *frames, launch=launch, approvals="allow") as worker:
        async with worker.prompt("go") as run:
            events = [event async for event in run]
        result = run.result
    assert [type(event) for event in events] == [
        RunStarted,
        TextDelta,
        ToolProposed,
        ToolStarted,
        ToolOutput,
        ToolEnded,
        Status,
        TextDelta,
        TextDelta,
        Ended,
    ]
    assert events[2] == ToolProposed(call_id="c1", tool="bash", arguments={"command": "echo seen"})
    assert events[4] == ToolOutput(call_id="c1", text="seen\n")
    assert events[-1] == Ended(result=result)
    assert (result.outcome, result.text, result.message) == ("completed", "That is all.", "")
    assert (result.tools_used, result.calls_succeeded, result.calls_failed) == (("bash",), 1, 0)
    assert result.cost_usd == 0.0
    assert result.usage.provider == "scripted"
    journal = stage.journal()
    stored = await journal.run(result.run_id)
    journal.close()
    assert stored is not None
    assert (stored.outcome, result.run_id) == ("completed", run.run_id)


async def test_prompts_follow_one_another_in_one_session(stage: Stage, launch: Launch) -> None:
    frames = [say("One."), end()], [say("Two."), end()]
    async with working(stage, *frames, launch=launch) as worker:
        first = await worker.ask("1")
        second = await worker.ask("2")
        about = worker.about
    assert (first.text, second.text) == ("One.", "Two.")
    assert (about.executor, about.workspace) == ("replay", str(stage.workspace))
    journal = stage.journal()
    sessions = {row.session_id for row in await journal.runs() if row.run_id.startswith("run_")}
    journal.close()
    assert sessions == {about.session_id}


async def test_a_second_prompt_beside_a_running_one_is_a_conflict(
    stage: Stage, launch: Launch
) -> None:
    async with (
        working(stage, [bash("sleep 60")], DONE, launch=launch, approvals="allow") as worker,
        worker.prompt("go") as run,
    ):
        await until(run, ToolStarted)
        assert worker.is_working
        with pytest.raises(Conflict, match="is being worked on"):
            await worker.ask("more")
        with pytest.raises(Conflict, match="has not ended"):
            assert run.result


async def test_an_interrupt_ends_the_run_and_the_worker_goes_on(
    stage: Stage, launch: Launch
) -> None:
    frames = [bash("sleep 60", "c1")], DONE
    async with working(stage, *frames, launch=launch, approvals="allow") as worker:
        async with worker.prompt("go") as run:
            await until(run, ToolStarted)
            await worker.interrupt()
            ended = await until(run, Ended)
        assert ended.result.outcome == "cancelled"
        assert "Interrupted" in ended.result.message
        await worker.interrupt()  # there is nothing to end, and that is fine
        assert (await worker.ask("go on")).outcome == "completed"


async def test_an_interrupt_finds_a_run_in_the_middle_of_its_words(
    stage: Stage, launch: Launch
) -> None:
    frames = [say("word " * 50, streamMs=60_000), end()], DONE
    async with working(stage, *frames, launch=launch) as worker:
        async with worker.prompt("go") as run:
            await until(run, TextDelta)
            await run.interrupt()
            ended = await until(run, Ended)
        assert ended.result.outcome == "cancelled"
        assert 0 < len(ended.result.text) < len("word " * 50)


async def test_who_leaves_a_run_interrupts_it(stage: Stage, launch: Launch) -> None:
    frames = [bash("sleep 60")], DONE
    async with working(stage, *frames, launch=launch, approvals="allow") as worker:
        async with worker.prompt("go") as run:
            await until(run, ToolStarted)
        assert run.result.outcome == "cancelled"
        assert not worker.is_working
        assert (await worker.ask("go on")).outcome == "completed"


async def test_who_leaves_at_once_interrupts_what_has_not_begun(
    stage: Stage, launch: Launch
) -> None:
    frames = [bash("sleep 60")], DONE
    async with working(stage, *frames, launch=launch, approvals="allow") as worker:
        async with worker.prompt("go") as run:
            pass
        assert run.result.outcome == "cancelled"
        assert (await worker.run_command("true")).success


async def test_a_cancelled_reader_interrupts_the_run(stage: Stage, launch: Launch) -> None:
    frames = [bash("sleep 60")], DONE
    async with working(stage, *frames, launch=launch, approvals="allow") as worker:
        started = asyncio.Event()

        async def read() -> None:
            async with worker.prompt("go") as run:
                await until(run, ToolStarted)
                started.set()
                await until(run, Ended)

        async with asyncio.TaskGroup() as group:
            reading = group.create_task(read())
            await started.wait()
            reading.cancel()
        assert reading.cancelled()
        assert (await worker.ask("go on")).outcome == "completed"
    journal = stage.journal()
    outcomes = sorted(str(row.outcome) for row in await journal.runs() if row.outcome is not None)
    journal.close()
    assert outcomes == ["cancelled", "completed"]


async def test_a_run_that_is_left_at_once_ends_whatever_ended_before_it(
    stage: Stage, launch: Launch
) -> None:
    """An interrupt that follows on a prompt is for that one, also if the worker is still busy
    with the end of the last.
    """
    frames = [[bash("sleep 60")] for _ in range(40)]
    async with working(stage, *frames, launch=launch, approvals="allow") as worker:
        for rounds in range(40):
            async with worker.prompt("go") as run:
                for _ in range(rounds % 4):
                    await asyncio.sleep(0)
            assert run.result.outcome == "cancelled"


async def test_an_answer_that_takes_too_long_is_interrupted(stage: Stage, launch: Launch) -> None:
    frames = [bash("sleep 60")], DONE
    async with working(stage, *frames, launch=launch, approvals="allow") as worker:
        with pytest.raises(NoAnswer, match=r"within 0\.5 s"):
            await worker.ask("go", within_s=0.5)
        assert (await worker.run_command("true")).success
    journal = stage.journal()
    outcomes = [row.outcome for row in await journal.runs() if row.run_id.startswith("run_")]
    journal.close()
    assert outcomes == ["cancelled"]


async def test_a_session_is_resumed_by_another_worker(stage: Stage, launch: Launch) -> None:
    frames = [say("One."), end()], [say("Two."), end()]
    async with working(stage, *frames, launch=launch) as worker:
        first = await worker.ask("1")
        session_id = worker.about.session_id
    async with working(stage, *frames, launch=launch, resume=first.run_id) as worker:
        assert worker.about.session_id == session_id
        assert (await worker.ask("2")).text == "Two."


async def test_a_failed_run_says_how_it_failed(stage: Stage, launch: Launch) -> None:
    async with (
        working(stage, [fail("fatal", "the model is on fire")], launch=launch) as worker,
        worker.prompt("go") as run,
    ):
        problem = await until(run, Problem)
        ended = await until(run, Ended)
    assert problem.kind == "fatal"
    assert (ended.result.outcome, ended.result.completed) == ("model_error", False)
    assert "on fire" in ended.result.message


async def test_the_error_of_whoever_reads_is_raised_as_it_is(stage: Stage, launch: Launch) -> None:
    async def fail_while_reading() -> None:
        async with (
            working(stage, [bash("sleep 60")], launch=launch, approvals="allow") as worker,
            worker.prompt("go") as run,
        ):
            await until(run, ToolStarted)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_while_reading()


async def test_stored_events_are_shown_to_who_asks(stage: Stage, launch: Launch) -> None:
    async with (
        working(stage, DONE, launch=launch, journal_events=True) as worker,
        worker.prompt("go") as run,
    ):
        stored = of([event async for event in run], JournalEvent)
    types = [event.type for event in stored]
    assert (types[0], types[-1]) == ("run.queued", "run.finished")
    assert stored[-1].body["run_id"] == run.run_id


async def test_files_come_with_a_prompt_and_one_that_is_missing_is_said(
    stage: Stage, launch: Launch, tmp_path: Path
) -> None:
    there = tmp_path / "there.txt"
    there.write_text("text")
    async with (
        working(stage, DONE, launch=launch) as worker,
        worker.prompt("go", attachments=[there, "missing.txt"]) as run,
    ):
        events = [event async for event in run]
    assert "missing.txt" in of(events, Problem)[0].message
    assert run.result.outcome == "completed"
    assert of(events, ThinkingDelta) == []


async def test_a_closed_worker_is_closed(stage: Stage, launch: Launch) -> None:
    async with working(stage, DONE, launch=launch) as worker:
        pass
    with pytest.raises(WorkerClosed):
        await worker.ask("go")
    with pytest.raises(WorkerClosed):
        await worker.run_command("true")


async def test_workers_work_beside_each_other(stage: Stage, launch: Launch) -> None:
    """Each waits for a file that another one writes."""
    commands = (
        "touch a; until [ -e b ]; do sleep 0.01; done",
        "touch b; until [ -e a ]; do sleep 0.01; done",
    )

    async def work(number: int) -> str:
        model = stage.scenario([bash(commands[number])], DONE, name=f"s{number}")
        async with working(stage, model=model, launch=launch, approvals="allow") as worker:
            return (await worker.ask("go", within_s=PATIENCE_S)).outcome

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work(number)) for number in range(2)]
    assert [task.result() for task in tasks] == ["completed", "completed"]
