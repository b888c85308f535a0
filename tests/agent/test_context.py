"""Keeping a conversation inside a model's window: old results are pruned, then it is compacted."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from batten.agent.conversation import SUMMARY_MARK, Conversation
from batten.agent.execution import Execution
from batten.agent.settings import RunSettings
from batten.contract import facts as f
from batten.contract.conversation import Message, ToolResult
from batten.session.history import read_back
from batten.session.session import Session
from tests.models.server import ModelServer, Reply, answer, refusal
from tests.models.wire import (
    anthropic_end,
    anthropic_start,
    anthropic_text_block,
    anthropic_turn,
    sse,
)

from .stage import Played, Stage, bash, finish, say

PRICES = b"""{"as_of": "2026-02-03", "providers": {"anthropic": [
  [["=small"], 1000, ["1", "2"]]
]}}"""


async def prompt_with(session: Session, changes: dict[str, int]) -> tuple[Execution, Played]:
    session.settings = replace(session.settings, **changes)
    execution = await session.prompt("go")
    return execution, await finish(session, execution)


def results(messages: Sequence[Message]) -> list[str]:
    return [b.output for m in messages for b in m.blocks if isinstance(b, ToolResult)]


async def test_results_before_the_protected_tail_are_pruned_once(stage: Stage) -> None:
    command = "head -c 4000 /dev/zero | tr '\\0' x; echo "
    frames = [[bash(f"{command} {number}")] for number in range(4)]
    model = stage.scenario(*frames, [bash("echo short")], [say("done")])
    async with stage.session("--model", model, "--allow", "bash") as session:
        limits = {"prune_from_tokens": 2000, "protect_tokens": 1500}
        execution, played = await prompt_with(session, limits)
        told = results(execution.conversation.messages)
        again = Conversation()
        await read_back(again, session.deps.journal, session.deps.seal_key, session.session_id)
    assert [text.startswith("[pruned — original: 40") for text in told] == [
        True,
        True,
        True,
        False,
        False,
    ]
    pruned = [call for fact in played.all(f.ContextPruned) for call in fact.tool_call_ids]
    assert len(pruned) == len(set(pruned)) == 3
    for fact in played.all(f.ContextPruned):
        assert fact.tokens_after < fact.tokens_before
    assert again.messages == execution.conversation.messages


async def test_nothing_is_pruned_below_the_threshold(stage: Stage) -> None:
    played = await stage.play([bash("head -c 30000 /dev/zero | tr '\\0' x")], [say("done")])
    assert played.all(f.ContextPruned) == []


@pytest.fixture
def prices(stage: Stage) -> None:
    path = stage.directory / "prices.json"
    path.write_bytes(PRICES)
    stage.environ["BATTEN_PRICES"] = str(path)


async def converse(
    stage: Stage,
    replies: Sequence[Reply],
    prompts: int,
    protect_tokens: int = 100,
    compact_model: str | None = None,
) -> tuple[list[Played], ModelServer, Session]:
    """Prompts one after the other against a model of 1,000 tokens that answers as prepared."""
    async with ModelServer(replies) as server:
        stage.environ.update(server.environ())
        flags = ("--model", "anthropic/small", "--system", "Be brief.", "--no-instructions")
        async with stage.session(*flags, "--tools", "todo_write") as session:
            session.settings = replace(
                session.settings,
                protect_tokens=protect_tokens,
                max_output_tokens=50,
                compact_model=compact_model,
            )
            played = [
                await finish(session, await session.prompt(f"prompt {number} {'x' * 440}"))
                for number in range(prompts)
            ]
    return played, server, session


@pytest.mark.usefixtures("prices")
@pytest.mark.parametrize("protect_tokens", [100, RunSettings(models=("a/b",)).protect_tokens])
async def test_a_conversation_near_the_window_is_compacted_and_goes_on(
    stage: Stage, protect_tokens: int
) -> None:
    replies = [answer(anthropic_turn("a" * 440)) for _ in range(3)]
    summary = answer(anthropic_turn("we talked", input_tokens=700))
    last = answer(anthropic_turn("the end"))
    played, server, _ = await converse(stage, [*replies, summary, last], 4, protect_tokens)
    assert [one.ended.outcome for one in played] == ["completed"] * 4
    compacted = played[3].one(f.ContextCompacted)
    assert compacted.summary == "we talked"
    assert compacted.tokens_after < compacted.tokens_before
    asked = server.requests[-1].json()["messages"]
    assert asked[0]["content"][0]["text"] == f"{SUMMARY_MARK}we talked"
    assert asked[-1]["content"][0]["text"].startswith("prompt 3")
    assert "tools" not in server.requests[3].json()


@pytest.mark.usefixtures("prices")
async def test_two_messages_that_do_not_fit_together_are_compacted_and_not_refused(
    stage: Stage,
) -> None:
    """Otherwise every later prompt would be refused too: both stay in the conversation."""
    replies = ["noted", "we talked", "the end", "and on"]
    async with ModelServer([answer(anthropic_turn(text)) for text in replies]) as server:
        stage.environ.update(server.environ())
        flags = ("--model", "anthropic/small", "--system", "Be brief.", "--no-instructions")
        async with stage.session(*flags, "--no-tools") as session:
            session.settings = replace(session.settings, max_output_tokens=50)
            prompts = ["x" * 2400, "y" * 2400, "go on"]
            played = [await finish(session, await session.prompt(text)) for text in prompts]
    assert [one.ended.outcome for one in played] == ["completed"] * 3
    assert played[1].one(f.ContextCompacted).messages_removed == 2
    assert played[2].all(f.ContextCompacted) == []
    assert len(server.requests) == 4


@pytest.mark.usefixtures("prices")
async def test_no_more_is_summarized_than_the_model_can_read(stage: Stage) -> None:
    """A prompt whose compaction failed stays in the conversation, which then exceeds the window."""
    told = {"error": {"type": "invalid_request_error", "message": "not now"}}
    replies = [answer(anthropic_turn(text)) for text in ("noted", "we talked", "the end")]
    async with ModelServer([replies[0], refusal(400, told), *replies[1:]]) as server:
        stage.environ.update(server.environ())
        flags = ("--model", "anthropic/small", "--system", "Be brief.", "--no-instructions")
        async with stage.session(*flags, "--no-tools") as session:
            session.settings = replace(session.settings, max_output_tokens=50)
            prompts = ["x" * 2400, "y" * 2400, "go on"]
            played = [await finish(session, await session.prompt(text)) for text in prompts]
    assert [one.ended.outcome for one in played] == ["completed", "model_error", "completed"]
    assert b"yyy" not in server.requests[2].body
    assert b"yyy" in server.requests[3].body


@pytest.mark.usefixtures("prices")
async def test_a_model_that_is_named_for_summaries_writes_them(stage: Stage) -> None:
    replies = [answer(anthropic_turn("a" * 440)) for _ in range(3)]
    summary = answer(anthropic_turn("we talked", input_tokens=700))
    last = answer(anthropic_turn("the end"))
    weak = "anthropic/claude-haiku-4-5"
    played, server, _ = await converse(stage, [*replies, summary, last], 4, compact_model=weak)
    assert played[3].one(f.ContextCompacted).model == "claude-haiku-4-5"
    asked = [request.json()["model"] for request in server.requests]
    assert asked == ["small"] * 3 + ["claude-haiku-4-5", "small"]


@pytest.mark.usefixtures("prices")
async def test_results_are_pruned_in_a_window_smaller_than_the_usual_thresholds(
    stage: Stage,
) -> None:
    command = "head -c 600 /dev/zero | tr '\\0' x; echo"
    calls = [("bash", {"command": f"{command} {number}"}) for number in range(5)]
    steps = [
        answer(anthropic_turn(calls=[(f"c{number}", *call)])) for number, call in enumerate(calls)
    ]
    async with ModelServer([*steps, answer(anthropic_turn("done"))]) as server:
        stage.environ.update(server.environ())
        flags = ("--model", "anthropic/small", "--system", "Be brief.", "--no-instructions")
        played = await stage.run(*flags, "--tools", "bash", "--allow", "bash")
    assert played.ended.outcome == "completed"
    pruned = [call for fact in played.all(f.ContextPruned) for call in fact.tool_call_ids]
    assert pruned == ["c0", "c1", "c2"]


@pytest.mark.usefixtures("prices")
@pytest.mark.parametrize(
    ("text", "stop", "words"),
    [
        ("I would rather not", "refusal", "ended with refusal"),
        ("we talk", "max_tokens", "ended with max_tokens"),
        ("", "end_turn", "is empty"),
        (" \n", "end_turn", "is empty"),
    ],
)
async def test_a_summary_that_is_none_ends_the_run_and_keeps_the_history(
    stage: Stage, text: str, stop: str, words: str
) -> None:
    replies = [answer(anthropic_turn("a" * 440)) for _ in range(3)]
    blocks = anthropic_text_block(0, text) if text else []
    summary = answer(sse(anthropic_start(), *blocks, *anthropic_end(stop), named=True))
    played, server, session = await converse(stage, [*replies, summary], 4)
    assert played[3].ended.outcome == "context_overflow"
    assert words in played[3].ended.message
    assert played[3].all(f.ContextCompacted) == []
    assert len(server.requests) == 4
    journal = stage.journal()
    again = Conversation()
    await read_back(again, journal, session.deps.seal_key, session.session_id)
    journal.close()
    said = [message.text() for message in again.messages if message.role == "user"]
    assert [text[:8] for text in said] == [f"prompt {number}" for number in range(4)]


@pytest.mark.usefixtures("prices")
async def test_what_a_compaction_costs_is_in_the_ledger_and_in_every_total(stage: Stage) -> None:
    replies = [answer(anthropic_turn("a" * 440)) for _ in range(3)]
    summary = answer(anthropic_turn("we talked", input_tokens=700))
    played, _, session = await converse(stage, [*replies, summary, answer(anthropic_turn("x"))], 4)
    last = played[3]
    # Micro-dollars: 10 tokens in at $1 and 5 out at $2 a million; the summary had 700 in.
    turn, compaction = 20, 710
    assert last.one(f.ContextCompacted).cost_micros_usd == compaction
    assert last.one(f.RunFinished).cost_micros_usd == turn + compaction
    assert last.one(f.CostTick).cumulative_cost_micros_usd == 4 * turn + compaction
    journal = stage.journal()
    assert [row.turn_index for row in await journal.ledger(last.ended.run_id)] == [0, 1]
    assert (await journal.spend(session.task_id)).cost_micros_usd == 4 * turn + compaction
    journal.close()


@pytest.mark.usefixtures("prices")
async def test_a_failed_attempt_at_compacting_is_a_fact_too(stage: Stage) -> None:
    replies = [answer(anthropic_turn("a" * 440)) for _ in range(3)]
    busy = refusal(529, {"error": {"type": "overloaded_error", "message": "busy"}}, retry_after="0")
    rest = [busy, answer(anthropic_turn("we talked")), answer(anthropic_turn("x"))]
    played, _, _ = await converse(stage, [*replies, *rest], 4)
    types = played[3].types
    assert types.index("error.upstream") < types.index("context.compacted")


@pytest.mark.usefixtures("prices")
async def test_a_run_without_turns_is_not_compacted_either(stage: Stage) -> None:
    replies = [answer(anthropic_turn("a" * 440)) for _ in range(3)]
    played, server, session = await converse(stage, replies, 3)
    assert [one.ended.outcome for one in played] == ["completed"] * 3
    flags = ("--max-turns", "0")
    again = await stage.run(*flags, resume=session.session_id, prompt="x" * 440)
    assert again.ended.outcome == "max_turns"
    assert again.all(f.ContextCompacted) == []
    assert len(server.requests) == 3


@pytest.mark.usefixtures("prices")
async def test_what_cannot_be_made_to_fit_ends_the_run_before_a_call(stage: Stage) -> None:
    async with ModelServer([answer(anthropic_turn("x"))]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", "anthropic/small", prompt="p" * 5000)
    assert played.ended.outcome == "context_overflow"
    assert "1000" in played.ended.message
    assert server.requests == []


async def test_a_provider_that_says_the_window_is_full_ends_the_run_with_that_outcome(
    stage: Stage,
) -> None:
    told = {"error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}
    async with ModelServer([refusal(400, told)]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", "anthropic/claude-sonnet-4-5")
    assert played.ended.outcome == "context_overflow"
    assert played.one(f.TurnFailed).code == "context_overflow"


def test_the_usual_thresholds_are_those_of_the_reference() -> None:
    usual = RunSettings(models=("a/b",))
    assert (usual.prune_from_tokens, usual.protect_tokens, usual.compact_ratio) == (
        20_000,
        40_000,
        0.8,
    )
