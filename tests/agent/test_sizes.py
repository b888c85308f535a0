"""Content too large for an event: the model gets all of it, live and after a resume."""

import pytest

from batten.contract import facts as f
from batten.contract.conversation import ToolCall, ToolResult
from batten.contract.envelope import decode_fact
from batten.journal.recorder import whole_fact

from .acting import Acting
from .stage import Stage, bash, call, end, finish, say


def written(stage: Stage, count: int) -> None:
    for number in range(count):
        (stage.workspace / f"f{number}").write_text("a" * 1500)


async def test_a_long_prompt_of_wide_characters_comes_back_whole(stage: Stage) -> None:
    prompt = "界" * 90_000
    model = stage.scenario([say("one")], [say("two")])
    first = await stage.run("--model", model, prompt=prompt)
    assert first.one(f.UserMessage).text != prompt
    async with stage.session("--model", model, resume=first.ended.run_id) as session:
        execution = await session.prompt("again")
        assert execution.conversation.messages[0].text() == prompt
        await finish(session, execution)


async def test_output_of_control_characters_is_all_there(stage: Stage) -> None:
    both = "head -c 200000 /dev/zero; head -c 200000 /dev/zero >&2"
    model = stage.scenario([bash(both, "c1")], [say("done")])
    async with stage.session("--model", model, "--allow", "bash") as session:
        execution = await session.prompt("go")
        played = await finish(session, execution)
        live = execution.conversation.messages
    assert played.ended.outcome == "completed"
    for stream in ("stdout", "stderr"):
        chunks = [one for one in played.all(f.ToolShellOutputChunk) if one.stream == stream]
        assert "".join(one.data for one in chunks) == "\0" * 200_000
        assert [one.byte_offset for one in chunks] == sorted({one.byte_offset for one in chunks})
    assert isinstance(played.one(f.ToolCompleted).whole_artifact_id, str)
    (result,) = [one for one in live[2].blocks if isinstance(one, ToolResult)]
    assert result.output.count("\0") > 49_000
    async with stage.session("--model", model, resume=session.session_id) as again:
        resumed = await again.prompt("more")
        assert resumed.conversation.messages[: len(live)] == live


async def test_a_call_with_many_long_arguments_is_proposed_and_run(stage: Stage) -> None:
    written(stage, 100)
    edits = [
        {"file_path": f"f{n}", "old_string": "a" * 1500, "new_string": "b" * 1500}
        for n in range(100)
    ]
    reads = [call("read_file", file_path=f"f{n}") for n in range(100)]
    played = await stage.play(reads, [call("multi_edit", "c1", edits=edits)], [say("done")])
    assert played.ended.outcome == "completed"
    proposed = [one for one in played.all(f.AssistantToolCallProposed) if one.tool_call_id == "c1"]
    assert len(proposed) == 1
    assert (stage.workspace / "f99").read_text() == "b" * 1500


async def test_a_call_with_very_many_keys_comes_back_whole(stage: Stage) -> None:
    place = {f"key {number}": "界" * 20 for number in range(5000)}
    model = stage.scenario([call("acting", "c1", act="x", place=place), end()])
    first = await stage.run("--model", model)
    assert len(first.all(f.AssistantToolCallProposed)) == 1
    async with stage.session("--model", model, resume=first.ended.run_id) as session:
        execution = await session.prompt("again")
        (asked,) = [
            one for one in execution.conversation.messages[1].blocks if isinstance(one, ToolCall)
        ]
        await finish(session, execution)
    assert asked.input["place"] == place


async def test_the_whole_of_a_large_call_is_kept_without_its_secrets(stage: Stage) -> None:
    secret = "sk-ant-api03-" + "Ab1" * 20
    stage.environ["MY_API_KEY"] = secret
    long = "a" * 300_000
    model = stage.scenario([call("acting", "c1", act="x", place={"key": secret, "text": long})])
    async with stage.session("--model", model, tools=[Acting()]) as session:
        execution = await session.prompt("go")
        ended = await execution.finish()
        stored = [
            decode_fact(one.body)
            for one in await session.deps.journal.read(ended.run_id)
            if one.type == "assistant.tool_call_proposed"
        ]
        (cut,) = stored
        whole = await whole_fact(cut, session.deps.journal)
        (asked,) = execution.conversation.messages[1].tool_calls()
    assert isinstance(cut, f.AssistantToolCallProposed)
    assert len(cut.input["place"]["text"]) < len(long)
    assert isinstance(whole, f.AssistantToolCallProposed)
    assert whole.input["place"]["text"] == long
    assert secret not in str(whole.input)
    assert asked.input["place"] == {"key": secret, "text": long}


@pytest.mark.parametrize("words", ["\0" * 70_000, "界" * 150_000])
async def test_a_long_answer_is_the_joined_deltas(stage: Stage, words: str) -> None:
    played = await stage.play([say(words)])
    assert played.ended.answer == words
    assert "".join(one.delta for one in played.all(f.AssistantTextDelta)) == words
    assert len(played.all(f.AssistantTextComplete)) == 1
    assert len(played.all(f.AssistantFinalAnswer)) == 1


async def test_output_that_is_shown_in_part_is_whole_in_its_artifact(stage: Stage) -> None:
    played = await stage.play([bash("head -c 600000 /dev/zero | tr '\\0' x")], [say("done")])
    exited, kept = played.one(f.ToolShellExited), played.one(f.ArtifactCreated)
    shown = sum(len(chunk.data) for chunk in played.all(f.ToolShellOutputChunk))
    assert shown < exited.stdout_bytes == kept.size_bytes == 600_000
    assert exited.truncated
    assert isinstance(kept.metadata, dict)
    assert kept.metadata["truncated"] is False


async def test_output_beyond_the_cap_times_the_call_out(stage: Stage) -> None:
    stage.environ["BATTEN_ARTIFACT_MIB"] = str(1000 / (1 << 20))
    played = await stage.play([bash("head -c 5000 /dev/urandom | base64; exit 3")], [say("done")])
    timed_out = played.one(f.ToolTimedOut)
    assert timed_out.summary == "output cap exceeded"
    assert "Exited with status 3" in str(timed_out.output)
    assert played.one(f.ToolShellExited).truncated
    assert played.one(f.GapArtifactCapped).kept_bytes == 1000
    metadata = played.one(f.ArtifactCreated).metadata
    assert isinstance(metadata, dict)
    assert metadata["truncated"] is True
