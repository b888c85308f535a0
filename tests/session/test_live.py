"""A live session without a display: commands in, facts in the journal."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager

import pytest

from batten.contract import facts as f
from batten.contract.commands import Command, Configure, Interrupt, Prompt, Resolve, ShutDown
from batten.contract.errors import CallerError, Conflict, FenceLost
from batten.contract.outcomes import Outcome
from batten.session.history import facts_of, prompts_of
from batten.session.live import LiveSession
from batten.session.prompt_queue import Bounds, PromptQueue, Waiting
from tests.agent.stage import Stage, bash, say

SLOW = say("slow words " * 20, streamMs=30_000)


@asynccontextmanager
async def living(stage: Stage, *flags: str) -> AsyncGenerator[LiveSession, None]:
    async with stage.session(*flags) as session:
        yield LiveSession(session)


async def outcomes(live: LiveSession) -> list[Outcome | None]:
    session = live.session
    rows = await prompts_of(session.deps.journal, session.session_id)
    return [row.outcome for row in rows]


async def seen(live: LiveSession, kind: str) -> str:
    """Wait for a fact of the current run; the run's id."""
    while (run_id := live.run_id) is None:  # noqa: ASYNC110  # nobody announces it
        await asyncio.sleep(0)
    async with aclosing(live.session.deps.journal.follow(run_id)) as pages:
        async for page in pages:
            if any(stored.type == kind for stored in page):
                return run_id
    raise AssertionError(kind)


async def take(live: LiveSession, *commands: Command) -> None:
    for command in commands:
        await live.take(command)


async def test_prompts_are_executed_in_order_until_a_shutdown(stage: Stage) -> None:
    model = stage.scenario([say("one")], [say("two")])
    async with living(stage, "--model", model) as live:
        await take(live, Prompt(text="first"), Prompt(text="second"), ShutDown())
        with pytest.raises(Conflict, match="no more prompts"):
            await live.take(Prompt(text="third"))
        await live.run()
        assert await outcomes(live) == ["completed", "completed"]
        assert live.outcome == "completed"


async def test_an_interrupt_ends_the_run_that_works_or_is_about_to_begin(stage: Stage) -> None:
    model = stage.scenario([SLOW], [say("two")], [say("three")])
    async with living(stage, "--model", model) as live, asyncio.TaskGroup() as group:
        await take(live, Prompt(text="first"), Interrupt())
        group.create_task(live.run())
        await seen(live, "run.cancelled")
        await take(live, Prompt(text="second"))
        while len(await outcomes(live)) < 2:  # noqa: ASYNC110  # nobody announces it
            await asyncio.sleep(0)
        await seen(live, "assistant.text_delta")
        await take(live, Interrupt(), ShutDown())
    assert await outcomes_of(stage) == ["cancelled", "cancelled"]


async def outcomes_of(stage: Stage) -> Sequence[str | None]:
    journal = stage.journal()
    found = [row.outcome for row in await journal.runs()]
    journal.close()
    return found


async def test_a_shutdown_at_once_cancels_the_run_and_drops_the_prompts_after_it(
    stage: Stage,
) -> None:
    model = stage.scenario([SLOW], [say("never")])
    async with living(stage, "--model", model) as live, asyncio.TaskGroup() as group:
        await take(live, Prompt(text="first"), Prompt(text="second"))
        group.create_task(live.run())
        await seen(live, "assistant.text_delta")
        await live.take(ShutDown(at_once=True, reason="enough"))
    assert live.dropped
    assert await outcomes_of(stage) == ["cancelled"]


async def test_an_answer_and_a_setting_are_commands(stage: Stage) -> None:
    model = stage.scenario([bash("touch made", "c1")], [bash("touch more", "c2")], [say("done")])
    async with living(stage, "--model", model, "--ask-operator") as live:
        async with asyncio.TaskGroup() as group:
            await take(live, Prompt(text="go"), ShutDown())
            group.create_task(live.run())
            run_id = await seen(live, "approval.requested")
            (request,) = await live.session.deps.journal.requests(run_id)
            rule = {"action": "allow", "pattern": "bash"}
            with pytest.raises(CallerError, match="no setting is named"):
                await live.take(Configure(changes={"colour": "red"}))
            await live.take(Configure(changes={"add_rules": [rule]}))
            await live.take(Resolve(request_id=request.request_id, granted=True, by="operator"))
        assert await outcomes(live) == ["completed"]
        asked = [one async for one in facts_of(live.session.deps.journal, run_id)]
    assert sum(isinstance(one, f.ApprovalRequested) for one in asked) == 1
    assert (stage.workspace / "made").exists()
    assert (stage.workspace / "more").exists()


async def test_a_session_that_another_process_took_ends_before_its_next_run(stage: Stage) -> None:
    model = stage.scenario([say("one")], [say("never")])
    async with living(stage, "--model", model) as live:
        await live.session.leave()
        async with stage.session("--model", model, resume=live.session.session_id):
            await live.take(Prompt(text="mine"))
            with pytest.raises(FenceLost, match="in use by another process now"):
                await live.run()
        assert await outcomes(live) == []


async def test_a_full_queue_makes_its_writer_wait() -> None:
    queue = PromptQueue(Bounds(prompts=1))
    assert await queue.put(Waiting(Prompt(text="one")))
    async with asyncio.TaskGroup() as group:
        second = group.create_task(queue.put(Waiting(Prompt(text="two"))))
        await asyncio.sleep(0)
        assert not second.done()
        first = await queue.get()
    assert first is not None
    assert (second.result(), len(queue)) == (True, 1)
    queue.close()
    assert await queue.get() is not None
    assert await queue.get() is None
    assert not await queue.put(Waiting(Prompt(text="three")))
