"""One message that no model could read does not spoil the conversation it came into."""

from batten.contract import facts as f
from tests.models.server import ModelServer, answer, refusal
from tests.models.wire import anthropic_turn

from .stage import Stage, finish

PRICES = b"""{"as_of": "2026-02-03", "providers": {"anthropic": [
  [["=small"], 4000, ["1", "2"]]
]}}"""
FLAGS = ("--model", "anthropic/small", "--max-output-tokens", "100")
LONG = "word " * 10_000


async def test_a_message_that_is_too_long_is_refused_and_the_next_one_answered(
    stage: Stage,
) -> None:
    path = stage.directory / "prices.json"
    path.write_bytes(PRICES)
    stage.environ["BATTEN_PRICES"] = str(path)
    async with ModelServer([answer(anthropic_turn("fine"))]) as server:
        stage.environ.update(server.environ())
        async with stage.session(*FLAGS, "--system", "s", "--no-instructions") as session:
            first = await finish(session, await session.prompt("hello"))
            long = await finish(session, await session.prompt(LONG))
            last = await finish(session, await session.prompt("still there?"))
    assert [run.ended.outcome for run in (first, long, last)] == [
        "completed", "context_overflow", "completed",
    ]  # fmt: skip
    failed = long.one(f.RunFailed)
    assert (failed.code, failed.retriable) == ("message_too_long", False)
    assert len(server.requests) == 2
    assert LONG not in server.requests[-1].body.decode()
    async with ModelServer([answer(anthropic_turn("fine"))]) as server:
        stage.environ.update(server.environ())
        resumed = await stage.run(*FLAGS, resume=last.ended.run_id)
    assert resumed.ended.outcome == "completed"
    assert LONG not in server.requests[-1].body.decode()


async def test_a_message_that_the_provider_finds_too_long_is_dropped_too(stage: Stage) -> None:
    error = {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}
    replies = [refusal(400, {"error": error}), answer(anthropic_turn("fine"))]
    async with ModelServer(replies) as server:
        stage.environ.update(server.environ())
        async with stage.session("--model", "anthropic/claude-sonnet-4-5") as session:
            long = await finish(session, await session.prompt("too long for them"))
            last = await finish(session, await session.prompt("still there?"))
    assert [run.ended.outcome for run in (long, last)] == ["context_overflow", "completed"]
    assert "too long for them" not in server.requests[-1].body.decode()
