"""How a conversation begins, and how it ends before it has begun."""

import asyncio
import sys

import pytest

from tests.agent.stage import Stage, bash, end, say
from tests.maestro.speaking import BATTEN, speaking

DONE = [say("Done."), end()]


async def test_a_greeting_and_the_end_of_input_are_a_whole_conversation(stage: Stage) -> None:
    async with speaking(stage, DONE, flags=()) as client:
        client.say("hello", protocol_version="2026-04-02")
        client.hang_up()
        assert await client.rest() == 0
    assert client.kinds() == ["hello_ok", "connection_info", "ready", "session_info"]
    ready = client.of("ready")[0]
    assert ready["executor_type"] == "replay"
    assert ready["session_id"] == client.of("session_info")[0]["session_id"]
    assert client.errors == b""


async def test_the_end_of_input_without_a_word_is_no_error(stage: Stage) -> None:
    async with speaking(stage, DONE, flags=()) as client:
        client.hang_up()
        assert await client.rest() == 0
    assert client.heard == []


@pytest.mark.parametrize(
    ("model", "flags"),
    [
        ("nobody/nothing", ()),
        ("scripted//nowhere.json", ()),
        (f"scripted/{__file__}", ()),
        ("anthropic/claude-sonnet-4-5", ()),
        ("nobody/nothing", ("--sandbox", "none")),
        ("scripted//nowhere.json", ("--no-such-flag",)),
        ("", ("--workspace", "/nowhere/at/all")),
        ("", ("--sandbox", "none", "--workspace", "/nowhere/at/all")),
        ("", ("--max-turns", "none")),
        ("", ("--resume", "chat_01M7H4ZMG4E8KVCTNT2SQABE0B", "--no-save")),
        ("", ("--resume", "nobody")),
        ("", ("--settings", "{")),
        ("", ("--mcp-config", '{"mcpServers": {"x": {"command": "/nowhere", "required": true}}}')),
    ],
)
async def test_what_cannot_start_says_so_in_one_fatal_message(
    stage: Stage, model: str, flags: tuple[str, ...]
) -> None:
    async with speaking(stage, DONE, model=model or None, flags=flags) as client:
        client.say("hello")
        assert await client.rest() != 0
    assert client.of("ready") == []
    (error,) = client.of("error")
    assert error == client.heard[-1]
    assert error["message"].startswith("Headless startup failed: ")
    assert (error["fatal"], error["error_type"]) == (True, "fatal")
    problem = error["message"].removeprefix("Headless startup failed: ")
    is_unknown = model == "nobody/nothing"
    assert (client.errors.count(b"Traceback"), b"Exception Group" in client.errors) == (
        int(is_unknown),
        False,
    )
    told = client.errors.decode().strip()
    assert told.endswith(f"batten: {problem}")
    assert is_unknown or told == f"batten: {problem}"


@pytest.mark.parametrize(
    ("place", "content"),
    [
        ("home", b"in the way"),
        ("home/journal.db", b"in the way"),
        ("home/journal.db", b"SQLite format 3\0" + bytes(4080)),
    ],
)
async def test_what_only_opening_the_session_shows_is_fatal_too(
    stage: Stage, place: str, content: bytes
) -> None:
    (stage.directory / place).parent.mkdir(exist_ok=True)
    (stage.directory / place).write_bytes(content)
    async with speaking(stage, DONE, store=False) as client:
        client.say("hello")
        assert await client.rest() != 0
    (error,) = client.of("error")
    assert error["message"].startswith("Headless startup failed: ")
    assert (error["fatal"], error["error_type"]) == (True, "fatal")
    assert client.of("ready") == client.of("session_info") == []


async def test_the_model_may_come_from_settings_and_is_then_named_later(stage: Stage) -> None:
    model = stage.scenario(DONE)
    process = await asyncio.create_subprocess_exec(
        *(BATTEN, "headless", "--protocol", "maestro", "--workspace", str(stage.workspace)),
        *("--settings", f'{{"model": "{model}"}}'),
        env={**stage.environ, "BATTEN_HOME": str(stage.home)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate(b'{"type":"hello"}\n')
    assert process.returncode == 0
    assert b'"executor_type":"replay"' in output


async def test_nothing_else_writes_where_messages_are_written(stage: Stage) -> None:
    """Each line that is heard is a message; what commands write goes where it belongs."""
    frames = [[bash("echo to the tool; echo to nobody > /dev/stderr", "c1")], DONE]
    async with speaking(stage, *frames) as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        await client.prompt()
        script = f"{sys.executable} -c 'print(1)'"
        client.say("utility_command_start", command_id="u", command=script)
        await client.until("utility_command_exited")
        client.say("shutdown")
        assert await client.rest() == 0
    assert client.errors == b""


async def test_a_prompt_that_runs_when_input_ends_is_finished(stage: Stage) -> None:
    fifo = stage.workspace / "fifo"
    frames = [[bash("mkfifo fifo; echo begun; cat fifo", "c1")], DONE]
    async with speaking(stage, *frames) as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        client.say("prompt", content="go")
        await client.until("tool_output")
        client.hang_up()
        await asyncio.to_thread(fifo.write_text, "the rest\n")
        assert await client.rest() == 0
    output = "".join(one["content"] for one in client.of("tool_output"))
    assert output == "begun\nthe rest\n"
    assert client.kinds()[-1] == "response_end"
    assert client.of("response_chunk")[0]["content"] == "Done."


async def test_a_rule_about_a_tool_that_there_is_not_is_told_at_the_first_prompt(
    stage: Stage,
) -> None:
    async with speaking(stage, DONE, flags=("--deny", "read_fil")) as client:
        client.say("hello")
        client.say("prompt", content="go")
        client.hang_up()
        assert await client.rest() == 0
    (error,) = client.of("error")
    assert "permission rule 'read_fil' (cli) names no tool that there is" in error["message"]
    assert client.of("response_end") == []
