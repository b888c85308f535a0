"""A stream that breaks off after its output began: asked again, and what it said is taken back."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from batten.agent.conversation import Conversation
from batten.contract import facts as f
from batten.contract.conversation import Message, Text
from batten.session.history import read_back
from tests.models.server import Fault, ModelServer, Reply, answer, cut, refusal
from tests.models.wire import (
    anthropic_block,
    anthropic_call_block,
    anthropic_start,
    anthropic_text_block,
    anthropic_turn,
    responses_turn,
    sse,
)

from .stage import Played, Stage, finish

SONNET = ("--model", "anthropic/claude-sonnet-4-5", "--allow", "bash")
TOUCH = ("c1", "bash", {"command": "touch made"})
DONE = answer(anthropic_turn("The whole."))
PRICES = b"""{"as_of": "2026-02-03", "providers": {"anthropic": [
  [["=priced"], 200000, ["1000", "2000", "100", "1250"]]
]}}"""
BROKEN_COST = 12_000
"""What a broken call costs: 10 tokens in and 1 out."""


def half(*more: Any, text: str = "Half an ans", fault: Fault = Fault.CLOSE) -> Reply:
    """An answer that ends within a block after its text."""
    blocks = [*anthropic_text_block(0, text), *more] if more else anthropic_text_block(0, text)[:-1]
    return cut(sse(anthropic_start(), *blocks, named=True), fault)


def with_call() -> Reply:
    """An answer that ends after a whole tool call."""
    return half(*anthropic_call_block(1, TOUCH))


async def served(stage: Stage, replies: list[Reply], *flags: str) -> tuple[Played, ModelServer]:
    async with ModelServer(replies) as server:
        stage.environ.update(server.environ())
        played = await stage.run(*(flags or SONNET))
    return played, server


@pytest.fixture
def priced(stage: Stage) -> tuple[str, ...]:
    path = stage.directory / "prices.json"
    path.write_bytes(PRICES)
    stage.environ["BATTEN_PRICES"] = str(path)
    return ("--model", "anthropic/priced", "--allow", "bash")


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.CLOSE])
async def test_a_broken_answer_is_taken_back_and_asked_for_again(
    stage: Stage, fault: Fault
) -> None:
    played, server = await served(stage, [half(fault=fault), DONE])
    assert played.ended.answer == "The whole."
    assert len(server.requests) == 2
    retracted = played.one(f.AssistantRetracted)
    assert (retracted.turn_index, retracted.tool_call_ids) == (1, [])
    upstream = played.one(f.ErrorUpstream)
    assert (upstream.attempt, upstream.max_attempts, upstream.message) == (1, 3, retracted.reason)
    order = ["assistant.text_delta", "cost.call_unfinished", "assistant.retracted"]
    order += ["error.upstream", "assistant.text_complete", "assistant.message_complete"]
    assert [one for one in dict.fromkeys(played.types) if one in order] == order
    assert played.one(f.AssistantTextComplete).text == "The whole."


async def test_a_call_of_a_broken_answer_never_runs_and_the_new_one_does(stage: Stage) -> None:
    whole = answer(anthropic_turn("Again.", [TOUCH]))
    played, server = await served(stage, [with_call(), whole, DONE])
    first, second = played.all(f.AssistantToolCallProposed)
    assert played.one(f.AssistantRetracted).tool_call_ids == [first.tool_call_id]
    assert played.one(f.ToolInvoked).tool_call_id == second.tool_call_id != first.tool_call_id
    assert (stage.workspace / "made").exists()
    last = server.requests[-1].json()["messages"]
    assert "Half an ans" not in str(last)
    assert first.tool_call_id not in {
        block.get("id") for message in last for block in message["content"]
    }


async def test_what_is_read_back_is_what_the_live_run_knew(tmp_path: Path) -> None:
    secret = "sk-live-0123456789abcdefghij"
    stage = Stage(tmp_path, {"SERVICE_TOKEN": secret})
    thought = anthropic_block(
        1, {"type": "thinking", "thinking": ""}, {"type": "signature_delta", "signature": "s"}
    )
    broken = half(*thought, *anthropic_call_block(2, TOUCH), text=f"It is {secret}")
    whole = answer(anthropic_turn(f"Now {secret}", [TOUCH]))
    async with ModelServer([broken, whole, half(), DONE]) as server:
        stage.environ.update(server.environ())
        async with stage.session(*SONNET) as session:
            execution = await session.prompt("go")
            played = await finish(session, execution)
            again = Conversation()
            deps = session.deps
            await read_back(again, deps.journal, deps.seal_key, session.session_id)
    assert len(played.all(f.AssistantRetracted)) == 2
    assert again.messages == execution.conversation.messages
    assert again.messages[-1] == Message("assistant", (Text("The whole."),))
    assert Text(f"Now {secret}") in again.messages[1].blocks


async def test_when_the_retries_are_used_up_the_last_text_stays(stage: Stage) -> None:
    replies = [half(text="One"), half(text="Two"), half(text="Three")]
    played, server = await served(stage, replies)
    assert played.ended.outcome == "model_error"
    assert len(server.requests) == 3
    assert len(played.all(f.AssistantRetracted)) == 2
    assert played.one(f.AssistantTextComplete).text == "Three"
    failed = played.one(f.RunFailed)
    assert (failed.code, failed.retriable) == ("model_unreachable", True)
    assert failed.message.endswith("(after 2 retries)")


async def test_a_failure_that_no_retry_mends_leaves_what_was_said(stage: Stage) -> None:
    refused = {"type": "error", "error": {"type": "authentication_error", "message": "revoked"}}
    begun = sse(anthropic_start(), *anthropic_text_block(0, "Half")[:-1], refused, named=True)
    played, server = await served(stage, [answer(begun), DONE])
    assert played.one(f.RunFailed).code == "model_auth"
    assert len(server.requests) == 1
    assert played.all(f.AssistantRetracted) == []
    assert played.one(f.AssistantTextComplete).text == "Half"


async def test_each_broken_call_is_a_row_of_the_ledger(
    stage: Stage, priced: tuple[str, ...]
) -> None:
    played, _ = await served(stage, [half(), half(), DONE], *priced)
    broken = played.all(f.CostCallUnfinished)
    assert [(one.reason, one.cost_micros_usd) for one in broken] == [("broken", BROKEN_COST)] * 2
    finished = played.one(f.RunFinished)
    assert (finished.cost_micros_usd, finished.cost_unknown) == (2 * BROKEN_COST + 20_000, True)


async def test_a_broken_call_that_spent_the_budget_is_not_made_again(
    stage: Stage, priced: tuple[str, ...]
) -> None:
    flags = (*priced, "--max-budget-usd", "0.01")
    played, server = await served(stage, [half(), DONE], *flags)
    assert played.ended.outcome == "budget"
    assert len(server.requests) == 1
    assert played.all(f.AssistantRetracted) == []
    assert played.one(f.AssistantTextComplete).text == "Half an ans"
    assert played.one(f.TurnFailed).will_retry is False


async def test_another_model_answers_when_the_first_keeps_breaking_off(stage: Stage) -> None:
    async with (
        ModelServer([half()]) as first,
        ModelServer([answer(responses_turn("Mine."))]) as two,
    ):
        keys = {"ANTHROPIC_BASE_URL": first.url, "ANTHROPIC_API_KEY": "k"}
        stage.environ.update({**two.environ(), **keys})
        played = await stage.run(*SONNET, "--fallback-model", "openai/gpt-5.5")
    assert played.ended.answer == "Mine."
    assert len(played.all(f.AssistantRetracted)) == 3
    assert played.one(f.PolicyModelRewrote).to_model == "openai/gpt-5.5"
    assert {one.model for one in played.all(f.CostCallUnfinished)} == {"claude-sonnet-4-5"}


async def test_a_time_limit_ends_the_pause_before_a_retry_and_it_costs_nothing(
    stage: Stage, priced: tuple[str, ...]
) -> None:
    busy = refusal(529, {"error": {"type": "overloaded_error"}}, retry_after="50")
    async with asyncio.timeout(30):
        played, server = await served(stage, [busy], *priced, "--max-seconds", "0.5")
    assert played.ended.outcome == "timeout"
    assert len(server.requests) == 1
    assert played.one(f.ErrorUpstream).retry_delay_ms == 50_000
    assert played.all(f.CostCallUnfinished) == []
    assert played.one(f.RunFailed).cost_unknown is not True
