"""Scenarios played instead of a model, through the protocol: with real tools, and no chance."""

import asyncio
import shutil

import pytest

from batten.models.scenario import CallTool, End, load
from tests.agent.stage import Stage, Statement, bash, call, end, fail, say
from tests.maestro.schemas import PRESENT, PUBLISHED
from tests.maestro.speaking import BATTEN, Speaker, environment, speaking

DONE = [say("Done."), end()]
TURNS = 5


def text(client: Speaker) -> str:
    chunks = client.of("response_chunk", is_thinking=False)
    return "".join(one["content"] for one in chunks)


async def play_ten_frames(stage: Stage, delay_ms: int) -> Speaker:
    """Ten frames and five tools, each frame with a pause before it."""
    pause = {"kind": "delay", "ms": delay_ms}
    frames = [
        frame
        for number in range(TURNS)
        for frame in (
            [pause, say(f"{number}. "), bash(f"echo {number} >> log", f"c{number}")],
            [pause, say("Next. "), {"kind": "wait_for_user"}],
        )
    ]
    async with speaking(stage, *frames) as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        for _ in range(TURNS):
            await client.prompt()
    return client


async def test_ten_frames_and_five_tools_are_played_each_in_its_place(stage: Stage) -> None:
    client = await play_ten_frames(stage, 1)
    (ready,) = client.of("ready")
    assert ready["executor_type"] == "replay"
    assert text(client) == "".join(f"{number}. Next. " for number in range(TURNS))
    assert (stage.workspace / "log").read_text() == "".join(f"{one}\n" for one in range(TURNS))
    assert [one["success"] for one in client.of("tool_end")] == [True] * TURNS
    usage = client.of("response_end")[-1]["usage"]
    assert (usage["total_tokens"], usage["total_cost_usd"]) == (0, 0)
    assert (usage["model_id"], usage["provider"]) == (ready["model"], ready["provider"])


@pytest.mark.soak
async def test_a_scenario_of_half_a_minute_keeps_its_time(stage: Stage) -> None:
    client = await play_ten_frames(stage, 30_000 // (2 * TURNS))
    took_ms = sum(one["duration_ms"] for one in client.of("response_end"))
    assert 30_000 <= took_ms < 36_000


async def test_a_transient_error_is_tried_again_and_said_so(stage: Stage) -> None:
    frames = [[fail("transient", "overloaded", times=1), say("Then it went."), end()]]
    async with speaking(stage, *frames) as client:
        await client.hello()
        await client.prompt()
    assert text(client) == "Then it went."
    assert client.of("error") == []
    retrying = [one["message"] for one in client.of("status")]
    assert retrying[0].startswith("Retrying the model call: attempt 1 of ")
    assert "overloaded Try again." in retrying[0]


async def test_an_answer_that_breaks_off_starts_the_response_again(stage: Stage) -> None:
    broken = [say("Half."), fail("transient", "cut", times=1), say(" Whole."), end()]
    async with speaking(stage, broken) as client:
        await client.hello()
        await client.prompt()
    kinds = [one["type"] for one in client.heard if one["type"].startswith("response")]
    first, again = (place for place, kind in enumerate(kinds) if kind == "response_start")
    assert set(kinds[first + 1 : again]) == {"response_chunk"}
    starts = client.of("response_start")
    assert starts[0]["response_id"] == starts[1]["response_id"]
    said = [one["content"] for one in client.of("response_chunk")]
    assert "".join(said) == "Half.Half. Whole."
    assert client.of("error") == []


SLOW = [{"kind": "delay", "ms": 600_000}, say("slow words " * 20, streamMs=600_000)]


@pytest.mark.parametrize("slow", SLOW)
async def test_an_interrupt_ends_a_pause_and_a_slow_text(stage: Stage, slow: Statement) -> None:
    async with speaking(stage, [say("Now. "), slow, end()]) as client:
        await client.hello()
        client.say("prompt", content="go")
        await client.until("response_chunk")
        client.say("interrupt")
        await client.until("response_end")
        client.say("init")
        await client.until("status", message="Init received with no changes")
    assert client.of("error") == []
    assert len(client.of("response_end")) == 1


async def test_another_result_than_expected_ends_the_turn_and_the_frame_stays(
    stage: Stage,
) -> None:
    expected = {**bash("exit 3", "c1"), "expectedResult": "success"}
    async with speaking(stage, [expected], DONE) as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        await client.prompt()
        (first,) = client.of("error")
        assert "c1" in first["message"]
        await client.prompt("again")
        assert len(client.of("error")) == 2  # it waits at the same frame
    assert text(client) == ""


@pytest.mark.parametrize(
    ("reason", "errors"), [("complete", 0), ("aborted", 1), ("limit_exceeded", 1)]
)
async def test_an_ending_that_is_none_of_success_is_said(
    stage: Stage, reason: str, errors: int
) -> None:
    async with speaking(stage, [say("So far."), end(reason)]) as client:
        await client.hello()
        shown = await client.prompt()
    assert text(client) == "So far."
    assert len(client.of("error")) == errors
    assert shown[-1]["type"] == "response_end"


@pytest.mark.skipif(not PRESENT, reason="the published fixtures are not here")
async def test_the_published_scenario_is_played_to_its_end(stage: Stage) -> None:
    path = stage.directory / "published.json"
    shutil.copy(PUBLISHED / "scripted-replay-basic-tool-call.json", path)
    (stage.workspace / "package.json").write_text("{}")
    async with speaking(stage, model=f"scripted/{path}") as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        await client.prompt()
        await client.prompt()
    assert text(client).endswith(" complete.")
    assert [one["success"] for one in client.of("tool_end")] == [True]
    assert client.of("error") == []


async def test_a_child_may_be_played_from_a_file_of_its_own(stage: Stage) -> None:
    stage.scenario([say("Child done."), end()], name="child")
    frames = [[call("agent", "c1", prompt="do it")], DONE]
    async with speaking(stage, *frames, children={"do it": "child.json"}) as client:
        await client.hello()
        await client.prompt()
    assert "Child done." in client.of("tool_output")[0]["content"]


async def test_a_recording_has_for_each_prompt_what_was_answered_to_it(stage: Stage) -> None:
    path = stage.directory / "recorded.json"
    slow = say("slow words " * 20, streamMs=600_000)
    frames = [bash("sleep 60", "c1")], [slow, end()]
    async with speaking(stage, *frames, flags=("--sandbox", "none", "--record", str(path))) as one:
        await one.hello()
        one.say("init", approval_mode="auto")
        for prompt, kind in (("a tool", "tool_start"), ("a slow text", "response_chunk")):
            one.say("prompt", content=prompt)
            await one.until(kind)
            one.say("interrupt")
            await one.until("response_end")
    recorded = load(str(path))
    assert recorded.prompts == ("a tool",)
    assert [type(one) for one in recorded.frames[0].statements] == [CallTool, End]


async def test_a_call_that_was_never_approved_does_not_run_in_a_replay(stage: Stage) -> None:
    path = stage.directory / "recorded.json"
    flags = ("--sandbox", "none", "--record", str(path))
    async with speaking(stage, [bash("touch made", "c1")], DONE, flags=flags) as client:
        await client.hello("approval")
        client.say("init", approval_mode="prompt")
        client.say("prompt", content="go")
        await client.until("server_request")
        client.say("interrupt")
        await client.until("response_end")
    place = ("--workspace", str(stage.workspace))
    judging = await asyncio.create_subprocess_exec(
        BATTEN, "scenario", "run", str(path), *place, env=environment(stage)
    )
    assert await judging.wait() == 0
    assert not (stage.workspace / "made").exists()
