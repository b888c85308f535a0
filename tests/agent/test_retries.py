"""A model that fails: tried again, replaced by another one, and every attempt a fact."""

import asyncio

import pytest

from batten.contract import facts as f
from tests.models.server import ModelServer, answer, refusal
from tests.models.wire import anthropic_turn, responses_turn

from .stage import Stage, fail, finish, say

BUSY = refusal(529, {"error": {"type": "overloaded_error", "message": "busy"}}, retry_after="0")
SONNET = "anthropic/claude-sonnet-4-5"


async def test_a_busy_provider_is_asked_again_and_each_attempt_is_a_fact(stage: Stage) -> None:
    async with ModelServer([BUSY, BUSY, answer(anthropic_turn("done"))]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", SONNET)
    assert played.ended.answer == "done"
    attempts = played.all(f.ErrorUpstream)
    assert [(one.attempt, one.max_attempts, one.status) for one in attempts] == [
        (1, 3, 529),
        (2, 3, 529),
    ]
    assert {(one.category, one.retry_delay_ms, one.provider) for one in attempts} == {
        ("overloaded", 0, "anthropic")
    }
    assert played.types.index("error.upstream") > played.types.index("turn.started")


async def test_a_provider_that_stays_busy_ends_the_run(stage: Stage) -> None:
    async with ModelServer([BUSY]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", SONNET)
    assert played.ended.outcome == "model_error"
    assert len(server.requests) == 3
    failed = played.one(f.TurnFailed)
    assert (failed.code, isinstance(failed.duration_ms, int)) == ("model_overloaded", True)


async def test_a_scripted_hiccup_is_tried_again(stage: Stage) -> None:
    played = await stage.play([fail("transient", "hiccup.", times=1), say("done")])
    assert played.ended.answer == "done"
    assert played.one(f.ErrorUpstream).message == "hiccup. Try again."


async def test_another_model_answers_when_the_first_is_unavailable(stage: Stage) -> None:
    async with (
        ModelServer([BUSY]) as busy,
        ModelServer([answer(responses_turn("done"))]) as spare,
    ):
        stage.environ.update(
            {**spare.environ(), "ANTHROPIC_BASE_URL": busy.url, "ANTHROPIC_API_KEY": "k"}
        )
        played = await stage.run("--model", SONNET, "--fallback-model", "openai/gpt-5.5")
    assert played.ended.answer == "done"
    rewrote = played.one(f.PolicyModelRewrote)
    assert (rewrote.from_model, rewrote.to_model) == (SONNET, "openai/gpt-5.5")
    assert "busy" in rewrote.reason
    message = played.one(f.AssistantMessageComplete)
    assert (message.provider, message.model) == ("openai", "gpt-5.5")
    assert message.cost_micros_usd is not None
    assert spare.requests[0].json()["model"] == "gpt-5.5"


@pytest.mark.parametrize("status", [400, 401])
async def test_a_wrong_request_is_not_given_to_another_model(stage: Stage, status: int) -> None:
    wrong = refusal(status, {"error": {"type": "some_error", "message": "wrong"}})
    async with ModelServer([wrong]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", SONNET, "--fallback-model", "openai/gpt-5.5")
    assert played.ended.outcome == "model_error"
    assert len(server.requests) == 1
    assert played.all(f.PolicyModelRewrote) == []


async def test_a_pause_before_another_attempt_ends_with_the_run(stage: Stage) -> None:
    patient = refusal(529, {"error": {"type": "overloaded_error"}}, retry_after="50")
    async with ModelServer([patient]) as server:
        stage.environ.update(server.environ())
        async with stage.session("--model", SONNET) as session:
            execution = await session.prompt("go")
            async with asyncio.timeout(10), asyncio.TaskGroup() as group:
                finishing = group.create_task(finish(session, execution))
                async for page in session.deps.journal.follow(execution.run_id):
                    if any(stored.type == "error.upstream" for stored in page):
                        break
                await execution.cancel("operator", "enough")
            played = finishing.result()
    assert played.ended.outcome == "cancelled"
    assert played.one(f.ErrorUpstream).retry_delay_ms == 50_000
    assert played.all(f.CostCallUnfinished) == []
    assert len(server.requests) == 1
