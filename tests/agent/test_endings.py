"""How a run can end: every way has one terminal fact and one outcome."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from batten.agent.ending import terminal_fact
from batten.agent.progress import Progress
from batten.contract import facts as f
from batten.contract.outcomes import ENDINGS, Outcome
from batten.journal.sqlite.lock import FileLock
from tests.models.server import Fault, ModelServer, answer, cut, refusal
from tests.models.wire import (
    anthropic_end,
    anthropic_start,
    anthropic_text_block,
    anthropic_turn,
    sse,
)

from .acting import Acting
from .stage import Played, Stage, bash, call, end, fail, finish, say

SONNET = "anthropic/claude-sonnet-4-5"


def failed(played: Played, outcome: Outcome, code: str | None = None) -> f.RunFailed:
    """The terminal fact of a run that must have failed so; with a narrower code if one is given."""
    fact = played.one(f.RunFailed)
    assert played.ended.outcome == fact.outcome == outcome
    assert fact.code == (code or ENDINGS[outcome].code)
    assert played.ended.message == fact.message
    return fact


async def test_an_answer_without_calls_ends_the_run(stage: Stage) -> None:
    played = await stage.play([say("One. "), say("Two.")])
    assert played.ended.answer == "One. Two."
    assert played.one(f.AssistantFinalAnswer).summary == "One. Two."
    assert played.one(f.RunFinished).turns == 1


async def test_an_explicit_end_stops_after_the_tools_of_its_message(stage: Stage) -> None:
    played = await stage.play([say("Done."), bash("touch made"), end()], [say("never said")])
    assert (stage.workspace / "made").exists()
    assert played.ended.answer == "Done."


async def test_two_hundred_equal_turns_are_a_loop(stage: Stage) -> None:
    again = [call("todo_write", todos=[])]
    played = await stage.play(*[again] * 200, [say("never said")])
    assert failed(played, "loop").message == "Doom loop detected: 200 iterations"
    assert len(played.all(f.ToolCompleted)) == 200


async def test_a_model_may_poll_with_the_same_call(stage: Stage) -> None:
    again = [bash("echo again >> log; test $(wc -l < log) -ge 6 && echo ready")]
    played = await stage.play(*[again] * 6, [say("done")])
    assert played.ended.outcome == "completed"


async def test_a_run_that_wants_more_turns_than_it_has_ends_there(stage: Stage) -> None:
    played = await stage.play(
        [bash("echo 1")], [bash("echo 2")], [say("done")], flags=["--max-turns", "2"]
    )
    assert failed(played, "max_turns").turns == 2
    assert len(played.all(f.TurnStarted)) == 2


async def test_an_answer_in_the_last_turn_is_in_time(stage: Stage) -> None:
    played = await stage.play([bash("echo 1")], [say("done")], flags=["--max-turns", "2"])
    assert played.ended.outcome == "completed"


async def test_no_turns_at_all_make_no_model_call(stage: Stage) -> None:
    async with ModelServer([answer(anthropic_turn("x"))]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", SONNET, "--max-turns", "0")
    assert failed(played, "max_turns").turns == 0
    assert server.requests == []
    assert played.all(f.TurnStarted) == []


async def test_wall_time_ends_a_tool_and_the_run(stage: Stage) -> None:
    played = await stage.play([bash("sleep 60")], flags=["--max-seconds", "1"])
    assert failed(played, "timeout").message == "the limit of 1 s is reached"
    assert played.one(f.ToolTimedOut).tool_name == "bash"


async def test_wall_time_ends_a_model_call_and_the_run(stage: Stage) -> None:
    async with ModelServer([[Fault.STALL]]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", SONNET, "--max-seconds", "0.3")
        async with asyncio.timeout(10):
            await server.client_gone.wait()
    failed(played, "timeout")
    assert played.one(f.TurnFailed).code == "cut_short"


@pytest.mark.parametrize(
    ("stop", "outcome", "code"),
    [("refusal", "refused", "model_refused"), ("max_tokens", "model_error", "model_cut_off")],
)
async def test_an_answer_that_is_none_ends_the_run_with_its_reason(
    stage: Stage, stop: str, outcome: Outcome, code: str
) -> None:
    body = sse(
        anthropic_start(), *anthropic_text_block(0, "I will"), *anthropic_end(stop), named=True
    )
    async with ModelServer([answer(body)]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", SONNET)
    assert not failed(played, outcome, code).retriable
    assert played.ended.last_text == "I will"


async def test_an_answer_cut_off_says_at_which_limit(stage: Stage) -> None:
    played = await stage.play(
        [say("half"), end("limit_exceeded")], flags=["--max-output-tokens", "77"]
    )
    fact = failed(played, "model_error", "model_cut_off")
    assert fact.message == "the answer was cut off at 77 output tokens"


async def test_an_answer_cut_off_by_the_context_window_says_so(stage: Stage) -> None:
    ending = anthropic_end("model_context_window_exceeded")
    body = sse(anthropic_start(), *anthropic_text_block(0, "I will"), *ending, named=True)
    async with ModelServer([answer(body)]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", SONNET)
    fact = failed(played, "context_overflow")
    assert fact.message == "the answer was cut off: the model's context window is full"
    assert played.ended.last_text == "I will"


async def test_a_filtered_answer_is_its_own_outcome(stage: Stage) -> None:
    choice = {"index": 0, "delta": {"content": ""}, "finish_reason": "content_filter"}
    body = sse({"id": "c", "choices": [choice]}, "[DONE]")
    async with ModelServer([answer(body)]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", "compat/any")
    failed(played, "filtered")


@pytest.mark.parametrize("reason", ["aborted"])
async def test_calls_of_a_message_that_was_given_up_are_not_run(stage: Stage, reason: str) -> None:
    played = await stage.play([bash("touch made"), end(reason)], [say("never said")])
    assert not failed(played, "model_error", "model_aborted").retriable
    assert not (stage.workspace / "made").exists()
    assert played.all(f.ToolInvoked) == []


async def test_a_fatal_error_of_the_model_ends_the_run_with_its_words(stage: Stage) -> None:
    played = await stage.play([bash("echo 1")], [fail("fatal", "the stars are wrong")])
    assert failed(played, "model_error", "scenario_fatal").message == "the stars are wrong"
    turn = played.one(f.TurnFailed)
    assert (turn.turn_index, turn.code, turn.will_retry) == (2, "scenario_fatal", False)
    assert played.one(f.RunFailed).turns == 1


async def test_a_stream_that_breaks_ends_the_run_with_one_terminal_fact(stage: Stage) -> None:
    begun = sse(anthropic_start(), *anthropic_text_block(0, "Half of")[:2], named=True)
    async with ModelServer([cut(begun, Fault.RESET)]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", SONNET, "--max-retries", "0")
    assert failed(played, "model_error", "model_unreachable").retriable
    assert len(server.requests) == 1


async def test_a_wrong_key_is_not_tried_again(stage: Stage) -> None:
    told = {"error": {"type": "authentication_error", "message": "invalid x-api-key"}}
    async with ModelServer([refusal(401, told)]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", SONNET)
    fact = failed(played, "model_error", "model_auth")
    assert "invalid x-api-key" in fact.message
    assert not fact.retriable
    assert len(server.requests) == 1


async def test_a_limit_of_the_provider_is_named_and_may_be_tried_again_later(stage: Stage) -> None:
    told = {"error": {"type": "rate_limit_error", "message": "slow down"}}
    async with ModelServer([refusal(429, told, retry_after="0")]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", SONNET)
    assert failed(played, "model_error", "model_rate_limited").retriable


async def test_a_missing_key_ends_the_run_as_a_wrong_one_does(stage: Stage) -> None:
    played = await stage.run("--model", SONNET)
    fact = failed(played, "model_error", "model_auth")
    assert "ANTHROPIC_API_KEY" in fact.message
    assert not fact.retriable


async def test_a_bug_ends_its_run_loudly_and_nothing_else(stage: Stage) -> None:
    class Buggy(Acting):
        def subject(self, arguments: dict[str, object]) -> str:
            raise ZeroDivisionError("a bug in a rule's subject")

    model = stage.scenario([call("acting", act="x")], [say("done")])
    played = await stage.run("--model", model, "--deny", "acting(y)", tools=[Buggy()])
    fact = failed(played, "internal")
    assert fact.message == "ZeroDivisionError: a bug in a rule's subject"
    assert "in subject" in str(fact.traceback)


async def test_an_ending_fits_whatever_it_tells_of_and_has_no_half_secret(tmp_path: Path) -> None:
    secret = "s3kr1t-Value-99"
    stage = Stage(tmp_path, {"DEPLOY_TOKEN": secret})

    class Wordy(Acting):
        def subject(self, arguments: dict[str, object]) -> str:
            raise ZeroDivisionError("\0" * 300_000 + secret + "x" * 7990)

    model = stage.scenario([call("acting", act="x")], [say("done")])
    played = await stage.run("--model", model, "--deny", "acting(y)", tools=[Wordy()])
    fact = played.one(f.RunFailed)
    assert len(fact.message) == 8000
    assert len(str(fact.traceback)) == 8000
    assert secret[-4:] not in str(fact.traceback)


def test_of_many_commands_left_running_the_first_are_told_and_how_many_more() -> None:
    left = [f"sleep {number} {'x' * 9000}" for number in range(1000)]
    fact = terminal_fact("completed", "", Progress(left_running=left), 1)
    assert isinstance(fact, f.RunFinished)
    assert isinstance(fact.background, list)
    assert fact.background[0].startswith("sleep 0 x")
    assert fact.background[20:] == ["… and 980 more"]
    assert len(msgspec.json.encode(fact)) < 16_000


async def test_a_timeout_of_somebody_else_is_not_the_runs(stage: Stage) -> None:
    class Late(Acting):
        def subject(self, arguments: dict[str, object]) -> str:
            raise TimeoutError("some socket")

    model = stage.scenario([call("acting", act="x")], [say("done")])
    played = await stage.run("--model", model, "--deny", "acting(y)", tools=[Late()])
    failed(played, "internal")


async def test_a_cancelled_run_ends_its_tool_first_and_says_who_asked(stage: Stage) -> None:
    tool = Acting()
    model = stage.scenario([call("acting", act="wait"), bash("touch made")], [say("done")])
    flags = ("--model", model, "--permission-mode", "dontAsk")
    async with stage.session(*flags, tools=[tool]) as session:
        execution = await session.prompt("go")
        async with asyncio.TaskGroup() as group:
            finishing = group.create_task(finish(session, execution))
            await tool.begun.wait()
            await execution.cancel("operator", "enough")
            await execution.cancel("somebody else", "too late to count")
        played = finishing.result()
    assert tool.ended.is_set()
    assert not (stage.workspace / "made").exists()
    assert played.one(f.RunCancelRequested).by == "operator"
    ended = played.one(f.RunCancelled)
    assert (ended.by, ended.reason, ended.outcome) == ("operator", "enough", "cancelled")
    assert played.ended.outcome == "cancelled"
    assert played.types[-5:] == [
        "tool.cancelled",
        "turn.completed",
        "cost.tick",
        "run.checkpoint_saved",
        "run.cancelled",
    ]


async def test_a_run_cancelled_before_it_began_does_nothing(stage: Stage) -> None:
    model = stage.scenario([bash("touch made")], [say("done")])
    async with stage.session("--model", model, "--allow", "bash") as session:
        execution = await session.prompt("go")
        await execution.cancel("operator", "never mind")
        played = await finish(session, execution)
    assert played.ended.outcome == "cancelled"
    assert played.all(f.TurnStarted) == []
    assert not (stage.workspace / "made").exists()


async def test_a_secret_in_the_reason_of_a_cancel_is_not_stored(stage: Stage) -> None:
    secret = "ghp_" + "A1b2C3d4E5f6G7h8I9j0K1L2M3N4O5P6"
    model = stage.scenario([say("done")])
    async with stage.session("--model", model) as session:
        execution = await session.prompt("go")
        await execution.cancel("operator", f"wrong key {secret}")
        played = await finish(session, execution)
    assert played.one(f.RunCancelRequested).reason == "wrong key ghp_<redacted>"
    assert played.one(f.RunCancelled).reason == "wrong key ghp_<redacted>"


async def test_a_cancel_asked_for_elsewhere_keeps_the_next_tool_from_beginning(
    stage: Stage,
) -> None:
    model = stage.scenario([bash("touch made")], [say("done")])
    async with stage.session("--model", model, "--allow", "bash") as session:
        execution = await session.prompt("go")
        asked = f.RunCancelRequested(by="console", reason="enough")
        await session.deps.journal.append(execution.run_id, [asked], fence=None)
        played = await finish(session, execution)
    assert played.ended.outcome == "cancelled"
    ended = played.one(f.RunCancelled)
    assert (ended.by, ended.reason) == ("console", "enough")
    assert not (stage.workspace / "made").exists()


async def test_what_was_said_last_is_known_whatever_the_ending(stage: Stage) -> None:
    played = await stage.play(
        [say("First."), bash("echo 1")], [bash("echo 2")], [fail("fatal", "broken")]
    )
    assert played.ended.last_text == "First."
    assert played.ended.tool_calls == 2


async def test_a_run_whose_start_is_cancelled_while_it_is_stored_has_its_ending(
    stage: Stage,
) -> None:
    async with stage.session("--model", stage.scenario([say("well")])) as session:
        other = FileLock(f"{stage.home}/journal.db.lock")
        other.acquire(5)
        starting = asyncio.ensure_future(session.prompt("go"))
        for _ in range(20):  # as far as it comes without the store
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.sleep(0)
        other.release()
        other.close()
        with pytest.raises(asyncio.CancelledError):
            await starting
        (row,) = await session.deps.journal.runs(kind="agent_loop")
        assert row.outcome == "cancelled"
        assert (await finish(session, await session.prompt("on"))).ended.outcome == "completed"
