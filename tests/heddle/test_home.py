"""Heddle's own directory and what an operator may see: config, instructions, transcripts, debug."""

from pathlib import Path

import msgspec
import pytest

from tests.agent.stage import Stage, bash, end, say
from tests.heddle.test_provider import served
from tests.heddle.working import events, init, saying, working
from tests.models.server import ModelServer

CONFIG = """
model = "vendor/from-the-file"
api_key = "key-of-the-file"
base_url = "{url}/v1"
max_tokens = 55
temperature = "warm"
tools = ["grep"]
approval_mode = "suggest"
"""


def a_home(stage: Stage, config: str = "") -> Path:
    home = stage.directory / "heddle"
    home.mkdir()
    (home / "config.toml").write_text(config)
    return home


async def test_the_file_is_under_the_variables_and_the_client_over_both(stage: Stage) -> None:
    async with ModelServer([saying("x")]) as server:
        home = a_home(stage, CONFIG.format(url=server.url))
        environ = {"HEDDLE_HOME": str(home), "HEDDLE_MAX_TOKENS": "77"}
        async with working(stage, environ=environ) as worker:
            await worker.ask(init(model=""), "init_ok")
            await worker.send("s")
            await worker.ask(init(request_id="j", model="vendor/of-the-client"), "init_ok")
            await worker.send("t")
        first, second = server.requests
        assert first.json()["model"] == "vendor/from-the-file"
        assert second.json()["model"] == "vendor/of-the-client"
        assert first.json()["max_tokens"] == 77
        assert "temperature" not in first.json(), "a text is no number, and as if not set"
        offered = {tool["function"]["name"] for tool in first.json()["tools"]}
        assert offered == {"bash", "glob"}, "the client's"
        assert first.headers["authorization"] == "Bearer key-of-the-file"


async def test_the_file_chooses_the_mode_and_when_a_loop_is_one(stage: Stage) -> None:
    home = a_home(stage, 'approval_mode = "suggest"\ndoom_loop_threshold = 2\n')
    again = [bash("echo again")]
    model = stage.scenario(again, again, [say("x"), end()])
    environ = {"HEDDLE_HOME": str(home)}
    async with working(stage, "--model", model, environ=environ) as worker:
        await worker.ask(init("0.5.0"), "init_ok")
        heard = await worker.send("s")
        assert len(events(heard, "permission_denied")) == 2
        assert heard[-1]["error"]["message"] == "Doom loop detected: 2 iterations"
        failure = heard[-1]["failure"]
        assert (failure["loop_count"], failure["loop_threshold"]) == (2, 2)


@pytest.mark.parametrize("config", ["= no toml", "a = " + "[" * 5000, ""])
async def test_a_file_that_is_no_config_is_as_if_it_were_empty(stage: Stage, config: str) -> None:
    environ = {"HEDDLE_HOME": str(a_home(stage, config))}
    model = stage.scenario([say("x"), end()])
    async with working(stage, "--model", model, environ=environ) as worker:
        await worker.ask(init(), "init_ok")
        assert (await worker.send("s"))[-1]["response"] == "x"


async def test_a_workspace_cannot_choose_for_its_operator(stage: Stage) -> None:
    (stage.workspace / ".heddle").mkdir()
    (stage.workspace / ".heddle" / "config.toml").write_text('base_url = "http://127.0.0.1:1"')
    async with served(stage, [saying("x")]) as (worker, server):
        await worker.ask(init(), "init_ok")
        assert (await worker.send("s"))[-1]["response"] == "x"
        assert len(server.requests) == 1


async def test_what_is_always_to_be_read_comes_before_the_system_prompt(stage: Stage) -> None:
    home = a_home(stage)
    (home / "agents.md").write_text("Speak only in rhymes.\n")
    (home / "MEMORY.md").write_text("The build is slow.\n")
    async with served(stage, [saying("x")], HEDDLE_HOME=str(home)) as (worker, server):
        await worker.ask(init(), "init_ok")
        await worker.send("s")
        system = server.requests[0].json()["messages"][0]["content"]
        said = "Speak only in rhymes.\n\nThe build is slow.\n\nBe brief."
        assert system.startswith(said)


async def test_messages_are_kept_where_heddle_s_programs_look_for_them(stage: Stage) -> None:
    home = a_home(stage)
    model = stage.scenario([say("Hello."), end()])
    async with working(stage, "--model", model, environ={"HEDDLE_HOME": str(home)}) as worker:
        greeted = await worker.ask(init(), "init_ok")
        assert "runtime" not in greeted
        await worker.send("s", "greet me")
    project = str(stage.workspace).replace("/", "-")
    path = home / "projects" / project / "sessions" / f"{greeted['session_id']}.jsonl"
    meta, *messages = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    assert (meta["type"], meta["id"], meta["cwd"]) == (
        "session_meta",
        greeted["session_id"],
        str(stage.workspace),
    )
    assert all("timestamp" in message for message in messages)
    assert [message["role"] for message in messages] == ["system", "user", "assistant"]


async def test_a_directory_without_room_for_transcripts_is_still_a_config(stage: Stage) -> None:
    home = a_home(stage)
    (home / "projects").write_text("a file in the place of a directory")
    model = stage.scenario([say("x"), end()])
    environ = {"HEDDLE_HOME": str(home)}
    async with working(stage, "--model", model, environ=environ) as worker:
        await worker.ask(init(), "init_ok")
        assert (await worker.send("s"))[-1]["status"] == "ok"


async def test_debugging_tells_of_kinds_and_sizes_but_not_of_content(stage: Stage) -> None:
    log = stage.directory / "debug.log"
    environ = {"HEDDLE_DEBUG": "1", "HEDDLE_DEBUG_FILE": str(log)}
    model = stage.scenario([say("Hello."), end()])
    async with working(stage, "--model", model, environ=environ) as worker:
        await worker.ask(init("0.9.0"), "init_ok")
        await worker.send("s", "a private matter")
    lines = log.read_text().splitlines()
    assert lines[:2] == [
        "heddle:protocol: read Init i",
        "heddle:version: client=0.9.0, spoken=0.5.0",
    ]
    assert "heddle:protocol: read Send s" in lines
    assert "private" not in log.read_text()


async def test_debugging_tells_only_of_the_channels_asked_for(stage: Stage) -> None:
    model = stage.scenario([say("Hello."), end()])
    environ = {"HEDDLE_DEBUG": "version, other"}
    async with working(stage, "--model", model, environ=environ) as worker:
        await worker.ask(init("0.3.9"), "init_ok")
        await worker.ask(init("0.9.0", "j"), "init_ok")
        await worker.rest()
        assert await worker.errors() == "heddle:version: client=0.9.0, spoken=0.5.0\n"
