"""What later minors added, for clients that ask for them."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.stage import Stage, bash, end, say
from tests.heddle.working import Json, events, init, names, working


def lines(path: Path) -> list[Json]:
    return [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]


@pytest.mark.parametrize(
    ("asked", "spoken"),
    [
        ("0.2.0", "0.2.0"),
        ("0.2.9", "0.2.0"),
        ("0.2.0-beta.1+build.5", "0.2.0"),
        ("0.4", "0.4.0"),
        ("0.9.1", "0.5.0"),
        (None, "0.2.0"),
    ],
)
async def test_the_version_in_init_ok_is_one_of_the_server_s(
    stage: Stage, asked: str | None, spoken: str
) -> None:
    async with working(stage, "--model", stage.scenario([say("x"), end()])) as worker:
        greeted = await worker.ask(init(asked), "init_ok")
        assert greeted["protocol_version"] == spoken


async def test_the_operator_may_hold_the_version_down(stage: Stage) -> None:
    environ = {"HEDDLE_PROTOCOL_VERSION": "0.3.0"}
    model = stage.scenario([say("x"), end()])
    async with working(stage, "--model", model, environ=environ) as worker:
        greeted = await worker.ask(init("0.5.0"), "init_ok")
        assert greeted["protocol_version"] == "0.3.0"
        assert "capabilities" not in greeted


async def test_since_0_5_a_send_tells_where_it_is(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([say("x"), end()])) as worker:
        await worker.ask(init("0.5.0"), "init_ok")
        heard = await worker.send("s")
        assert [event["state"] for event in events(heard, "turn_state")] == [
            "queued",
            "running",
            "completed",
        ]
        assert names(heard)[0] == "turn_state"
        assert names(heard)[-1] == "turn_state"
        assert [frame["event_seq"] for frame in heard[:-1]] == list(range(len(heard) - 1))


async def test_since_0_5_a_cancelled_send_tells_who_cancelled_it(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([bash("sleep 300")])) as worker:
        await worker.ask(init("0.5.0"), "init_ok")
        await worker.say({"type": "send", "id": "s", "message": "go"})
        heard = await worker.until("tool_start")
        await worker.say({"type": "cancel", "id": "c", "target_id": "s"})
        heard += await worker.until("result", "s")
        assert [event["state"] for event in events(heard, "turn_state")] == [
            "queued",
            "running",
            "cancelling",
            "completed",
        ]
        failure = heard[-1]["failure"]
        assert failure["cancellation_source"] == "user"
        assert failure["last_tool"]["args"] == {"command": "sleep 300"}


async def test_since_0_5_a_loop_tells_its_count_and_its_last_tool(stage: Stage) -> None:
    again = [bash("echo again", "c1")]
    async with working(stage, "--model", stage.scenario(again, again, again)) as worker:
        await worker.ask(init("0.5.0"), "init_ok")
        failure = (await worker.send("s"))[-1]["failure"]
        assert (failure["loop_count"], failure["loop_threshold"]) == (3, 3)
        assert failure["last_tool"] == {
            "name": "bash",
            "args": {"command": "echo again"},
            "id": "c1-3",
        }
        assert failure["tool_calls_made"] == 3


async def test_0_4_tells_of_failures_without_the_details_of_0_5(stage: Stage) -> None:
    again = [bash("echo again")]
    async with working(stage, "--model", stage.scenario(again, again, again)) as worker:
        await worker.ask(init("0.4.0"), "init_ok")
        assert (await worker.send("s"))[-1]["failure"] == {
            "code": "loop_detected",
            "termination_reason": "Doom loop detected: 3 iterations",
            "iterations": 3,
            "tool_calls_made": 3,
            "last_tool_name": "bash",
        }


async def test_workers_set_up_alike_have_the_same_fingerprint(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([say("x"), end()])) as worker:
        asked = [
            init("0.5.0"),
            init("0.5.0", system_prompt="Other."),
            init("0.5.0", max_iterations=3),
        ]
        greeted = [await worker.ask(one, "init_ok") for one in asked]
        prints = [one["profile"]["fingerprint"] for one in greeted]
        assert prints[0] == prints[1] != prints[2]
        assert prints[0].startswith("sha256:")


async def test_an_isolated_session_leaves_a_transcript_and_nothing_else(stage: Stage) -> None:
    root, theirs = stage.directory / "state", stage.directory / "heddle"
    theirs.mkdir()
    (stage.workspace / "AGENTS.md").write_text("Speak only in rhymes.")
    runtime = {"mode": "isolated", "state_root": str(root)}
    environ = {"HEDDLE_HOME": str(theirs)}
    model = stage.scenario([say("Hello."), end()], [say("Hello."), end()])
    async with working(stage, "--model", model, environ=environ) as worker:
        greeted = await worker.ask(init("0.4.0", runtime=runtime), "init_ok")
        path = root / "sessions" / f"{greeted['session_id']}.jsonl"
        told = {**runtime, "transcript_path": str(path)}
        assert greeted["runtime"] == told
        for send_id in ("s", "t"):
            assert (await worker.send(send_id, "greet me"))[-1]["runtime"] == told
    assert list(theirs.iterdir()) == []
    meta, system, *messages = lines(path)
    assert (meta["type"], meta["id"]) == ("session_meta", greeted["session_id"])
    assert (system["role"], system["content"]) == ("system", "Be brief.")
    said = [(message["role"], message["content"]) for message in messages]
    assert said == [("user", "greet me"), ("assistant", "Hello.")] * 2


async def test_a_transcript_keeps_calls_and_results(stage: Stage) -> None:
    path = stage.directory / "transcript.jsonl"
    model = stage.scenario([bash("echo out", "c1")], [say("Done."), end()])
    async with working(stage, "--model", model) as worker:
        await worker.ask(init("0.4.0", runtime={"transcript_path": str(path)}), "init_ok")
        await worker.send("s")
    messages = lines(path)[1:]
    roles = [message["role"] for message in messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert messages[2]["tool_calls"][0]["id"] == messages[3]["tool_call_id"] == "c1"


@pytest.mark.parametrize(
    ("runtime", "problem"),
    [
        (
            {"mode": "isolated"},
            "runtime.state_root is required when runtime.mode is isolated",
        ),
        (
            {"mode": "isolated", "state_root": "here"},
            "runtime.state_root must be an absolute path",
        ),
        ({"transcript_path": "here"}, "runtime.transcript_path must be an absolute path"),
        ({"mode": "odd"}, "runtime.mode must be one of default, isolated"),
    ],
)
async def test_a_place_that_cannot_be_is_refused(stage: Stage, runtime: Any, problem: str) -> None:
    async with working(stage, "--model", stage.scenario([say("x"), end()])) as worker:
        refusal = await worker.ask(init("0.4.0", runtime=runtime), "result")
        assert refusal["error"]["message"] == problem


async def test_routing_is_repeated_and_what_was_observed_is_told_apart(stage: Stage) -> None:
    routing = {"gateway": "g", "request_id": "r-1"}
    async with working(stage, "--model", stage.scenario([say("x"), end()])) as worker:
        greeted = await worker.ask(init("0.5.0", routing=routing), "init_ok")
        assert greeted["routing"] == greeted["requested_routing"] == routing
        assert "effective_routing" not in greeted
        assert (await worker.send("s"))[-1]["requested_routing"] == routing


async def test_a_response_is_as_it_was_said_and_the_transcript_as_it_is_stored(
    stage: Stage,
) -> None:
    path, secret = stage.directory / "transcript.jsonl", "zq8-live-0123456789-abcdefghij"
    model = stage.scenario([say(f"It is {secret}."), end()])
    environ = {"SERVICE_TOKEN": secret}
    async with working(stage, "--model", model, environ=environ) as worker:
        await worker.ask(init("0.4.0", runtime={"transcript_path": str(path)}), "init_ok")
        result = (await worker.send("s"))[-1]
    assert result["response"] == f"It is {secret}."
    assert lines(path)[-1]["content"] == "It is <redacted>."
