"""What a model or a person wrote comes out as it was written; only known secrets are sealed."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.agent.conversation import Conversation
from batten.contract import facts as f
from batten.session.history import read_back
from tests.agent.acting import Acting
from tests.agent.stage import Stage, bash, call, finish, say

SECRET = "zq8-live-0123456789-abcdefghij"
CODE = 'const token = "abc123def456";\npassword: hunter22\ncurl -u ann:hunter22 x'
INPUT = {"act": CODE, "place": {"password": "hunter22", "headers": {"Cookie": "a=b12345"}}}


async def test_names_and_assignments_in_a_models_words_are_left_alone(stage: Stage) -> None:
    model = stage.scenario([say(CODE), call("acting", "c1", **INPUT)], [say(CODE)])
    flags = ("--model", model, "--permission-mode", "dontAsk")
    played = await stage.run(*flags, prompt=CODE, tools=[Acting()])
    assert played.one(f.UserMessage).text == CODE
    assert [one.text for one in played.all(f.AssistantTextComplete)] == [CODE, CODE]
    assert "".join(one.delta for one in played.all(f.AssistantTextDelta)) == CODE * 2
    assert played.one(f.AssistantToolCallProposed).input == INPUT
    assert played.one(f.AssistantFinalAnswer).summary == CODE
    assert played.ended.answer == CODE
    assert not any(one.kind == "sealed" for one in played.all(f.ArtifactCreated))


@pytest.mark.parametrize("said", [SECRET[:1], SECRET[:2], SECRET[:-1], "s", "sk", "g", "0", "7"])
async def test_an_answer_that_may_begin_a_secret_is_given_once(tmp_path: Path, said: str) -> None:
    stage = Stage(tmp_path, {"SERVICE_TOKEN": SECRET, "OTHER_TOKEN": "0777-1234-5678-abcd"})
    played = await stage.play([say(said)])
    assert played.ended.answer == played.one(f.AssistantTextComplete).text == said
    assert "".join(one.delta for one in played.all(f.AssistantTextDelta)) == said


async def test_a_pattern_that_a_model_searches_for_is_left_alone(stage: Stage) -> None:
    pattern = 'password = "hunter22"'
    (stage.workspace / "a.ini").write_text(f"{pattern}\n")
    played = await stage.play([call("grep", "c1", pattern=pattern)], [say("ok")])
    assert played.one(f.ToolGrepCompleted).pattern == pattern
    assert "hunter22" not in str(played.one(f.ToolCompleted).output)


async def test_what_a_command_prints_is_still_searched_for_them(stage: Stage) -> None:
    played = await stage.play([bash("echo 'password=hunter22'")], [say("ok")])
    assert played.one(f.AssistantToolCallProposed).input == {"command": "echo 'password=hunter22'"}
    assert played.one(f.ToolShellCommand).argv[-1] == "echo 'password=hunter22'"
    assert played.one(f.ToolCompleted).output == "password=<redacted>"


async def test_an_answer_with_a_known_secret_is_sealed_and_given_as_it_was_written(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, {"SERVICE_TOKEN": SECRET})
    said = f"it is {SECRET}, keep it"
    async with stage.session("--model", stage.scenario([say(said)], [say("ok")])) as session:
        execution = await session.prompt("go")
        played = await finish(session, execution)
        again = Conversation()
        deps = session.deps
        await read_back(again, deps.journal, deps.seal_key, session.session_id)
        assert again.messages == execution.conversation.messages
    assert played.ended.answer == said
    complete = played.one(f.AssistantTextComplete)
    assert complete.text == "it is <redacted>, keep it"
    assert again.said() == said
    for path in stage.home.rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()


async def test_a_long_answer_with_a_known_secret_comes_back_whole(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"SERVICE_TOKEN": SECRET})
    said = "word " * 20_000 + SECRET + " word" * 20_000
    async with stage.session("--model", stage.scenario([say(said)])) as session:
        played = await finish(session, await session.prompt("go"))
        again = Conversation()
        await read_back(again, session.deps.journal, session.deps.seal_key, session.session_id)
    assert played.ended.answer == said
    assert again.said() == said


SCHEMA = {
    "type": "object",
    "properties": {"password": {"type": "string", "pattern": "^[a-z0-9-]+$"}},
    "required": ["password"],
}


@pytest.mark.parametrize("password", ["hunter22", SECRET])
async def test_a_schema_is_checked_against_the_true_text(tmp_path: Path, password: str) -> None:
    stage = Stage(tmp_path, {"SERVICE_TOKEN": SECRET})
    value: Any = {"password": password}
    said = msgspec.json.encode(value).decode()
    played = await stage.play(
        [say(said)], flags=["--json-schema", msgspec.json.encode(SCHEMA).decode()]
    )
    assert played.ended.outcome == "completed"
    assert played.ended.progress.structured_output == value
    final = played.one(f.AssistantFinalAnswer)
    is_known = password == SECRET
    assert final.structured_output == ({"password": "<redacted>"} if is_known else value)
    assert (final.sealed_artifact_id is not msgspec.UNSET) is is_known


async def test_the_answer_of_a_child_is_a_models_words_too(stage: Stage) -> None:
    stage.scenario([say(CODE)], name="child")
    model = stage.scenario(
        [call("agent", "c1", prompt="write it")],
        [say("ok")],
        children={"write it": "child.json"},
    )
    played = await stage.run("--model", model, "--permission-mode", "dontAsk")
    assert played.one(f.ToolCompleted).output == CODE
