"""Turns, driven by the official SDK over real pipes: what is shown, and how each ends."""

import base64
from pathlib import Path
from typing import Any

import pytest

from acp import RequestError, schema
from batten.contract.facts import UserAttachment, UserMessage
from tests.acp.editor import desk, facts
from tests.agent.stage import Stage, bash, call, end, fail, say
from tests.models.server import ModelServer, answer
from tests.models.wire import anthropic_end, anthropic_start, anthropic_text_block, sse

PNG = b"\x89PNG\r\n\x1a\n"
GIF = b"GIF89a"
SECRET = "sk-ant-api03-" + "q7Zx" * 10


async def test_a_prompt_is_shown_as_it_happens_and_ends_its_turn(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([say("Hello "), say("there."), end()])
    async with desk(stage, model) as at:
        greeted = await at.greet()
        assert greeted.protocol_version == 1
        assert greeted.agent_info is not None
        assert greeted.agent_info.name == "batten"
        session_id = await at.new()
        assert await at.prompt(session_id, "say  hello") == "end_turn"
        assert at.editor.text(session_id) == "Hello there."
        (info,) = at.editor.of(schema.SessionInfoUpdate)
        assert info.title == "say hello"
        (usage,) = at.editor.of(schema.UsageUpdate)
        assert usage.size > 0
    assert at.process.returncode == 0


async def test_an_answer_that_breaks_off_is_said_to_and_the_past_has_the_whole_one(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([say("Half."), fail("transient", "cut", times=1), say(" Whole."), end()])
    async with desk(stage, model) as at:
        await at.greet()
        session_id = await at.new()
        assert await at.prompt(session_id, "go") == "end_turn"
        assert at.editor.text(session_id) == (
            "Half.\n\n[The answer starts again: cut Try again.]\n\nHalf. Whole."
        )
    async with desk(stage, model) as at:
        await at.greet()
        await at.agent.load_session(cwd=str(stage.workspace), session_id=session_id)
        assert at.editor.text(session_id) == "Half. Whole."


async def test_everything_a_prompt_may_bring_reaches_the_run(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([say("I see."), end()])
    blocks: list[Any] = [
        schema.TextContentBlock(type="text", text="What is this?"),
        schema.ImageContentBlock(
            type="image", data=base64.b64encode(PNG).decode(), mime_type="image/png"
        ),
        schema.ResourceContentBlock(type="resource_link", uri="file:///w/a.py", name="a.py"),
        schema.EmbeddedResourceContentBlock(
            type="resource",
            resource=schema.TextResourceContents(uri="file:///w/b.py", text="x = 1"),
            annotations=schema.Annotations(audience=["assistant"], priority=0.5),
        ),
        schema.EmbeddedResourceContentBlock(
            type="resource",
            resource=schema.BlobResourceContents(
                uri="file:///w/c.gif", blob=base64.b64encode(GIF).decode(), mime_type="image/gif"
            ),
            field_meta={"editor": {"open": True}},
        ),
    ]
    async with desk(stage, model) as at:
        await at.greet()
        session_id = await at.new()
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        answered = await at.agent.prompt(session_id=session_id, prompt=blocks, traceparent=trace)
        assert answered.stop_reason == "end_turn"
        await at.agent.load_session(cwd=str(stage.workspace), session_id=session_id)
        said, png, gif = at.editor.of(schema.UserMessageChunk)
        assert (said.content.type, len({one.message_id for one in (said, png, gif)})) == ("text", 1)
        assert [base64.b64decode(one.content.data) for one in (png, gif)] == [PNG, GIF]
        assert [one.content.mime_type for one in (png, gif)] == ["image/png", "image/gif"]
    (message,) = await facts(stage, UserMessage)
    assert message.text.startswith("What is this?\n[@a.py](file:///w/a.py)\n")
    assert "x = 1" in message.text
    assert "[@file:///w/c.gif]" in message.text
    kinds = ["image/png", "image/gif", "application/octet-stream"]
    assert [one.mime for one in await facts(stage, UserAttachment)] == kinds


async def test_thinking_is_shown_as_thoughts_before_what_is_said(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    thinking = [
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": ""},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "thinking_delta", "thinking": "Let me see."},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "signature_delta", "signature": "c2ln"},
        },
        {"type": "content_block_stop", "index": 0},
    ]
    said = anthropic_text_block(1, "Yes.")
    reply = answer(sse(anthropic_start(), *thinking, *said, *anthropic_end(), named=True))
    async with (
        ModelServer([reply]) as server,
        desk(stage, "anthropic/claude-sonnet-4-5", **server.environ()) as at,
    ):
        await at.greet()
        assert await at.prompt(await at.new()) == "end_turn"
        (thought,) = at.editor.of(schema.AgentThoughtChunk)
        assert thought.content.text == "Let me see."
        said_first = [
            isinstance(update, schema.AgentThoughtChunk)
            for _, update in at.editor.updates
            if isinstance(update, schema.AgentThoughtChunk | schema.AgentMessageChunk)
        ]
        assert said_first == sorted(said_first, reverse=True)
        (usage,) = at.editor.of(schema.UsageUpdate)
        assert usage.cost is not None


async def test_a_to_do_list_is_shown_as_a_plan(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    todos = [{"content": "read", "status": "completed"}, {"content": "write", "status": "pending"}]
    model = stage.scenario([call("todo_write", todos=todos)], [say("ok"), end()])
    async with desk(stage, model) as at:
        await at.greet()
        assert await at.prompt(await at.new()) == "end_turn"
        (plan,) = at.editor.of(schema.AgentPlanUpdate)
        assert [(entry.content, entry.status) for entry in plan.entries] == [
            ("read", "completed"),
            ("write", "pending"),
        ]


@pytest.mark.parametrize(
    ("flags", "reason", "words"),
    [(("--max-turns", "1"), "max_turn_requests", "Stopped: "), ((), "end_turn", "")],
)
async def test_a_turn_says_why_it_ends(
    tmp_path: Path, flags: tuple[str, ...], reason: str, words: str
) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("true")], [end()])
    async with desk(stage, model, "--permission-mode", "dontAsk", *flags) as at:
        await at.greet()
        assert await at.prompt(await at.new()) == reason
        assert at.editor.text().startswith(words)


async def test_a_model_that_fails_is_an_error_and_the_session_lives_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([fail("fatal", "the model is gone")], [say("Back."), end()])
    async with desk(stage, model) as at:
        await at.greet()
        session_id = await at.new()
        with pytest.raises(RequestError) as failed:
            await at.prompt(session_id)
        assert failed.value.code == -32603
        data: Any = failed.value.data
        assert "the model is gone" in data["details"]
        assert data["retriable"] is False
        with pytest.raises(RequestError):
            await at.prompt(session_id)


async def test_without_a_key_a_session_asks_for_authentication(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    async with desk(stage, "anthropic/claude-sonnet-4-5") as at:
        await at.greet()
        with pytest.raises(RequestError) as refused:
            await at.new()
        assert refused.value.code == -32000
        data: Any = refused.value.data
        assert "ANTHROPIC_API_KEY" in data["details"]


async def test_a_secret_is_in_nothing_that_is_shown(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    (stage.workspace / "env").write_text(f"KEY={SECRET}\n")
    edit = call("edit_file", file_path="env", old_string="KEY", new_string="TOKEN")
    model = stage.scenario(
        [edit, call("read_file", file_path="env"), bash("cat env")], [say("ok"), end()]
    )
    async with desk(stage, model, "--permission-mode", "dontAsk") as at:
        await at.greet()
        session_id = await at.new()
        assert await at.prompt(session_id) == "end_turn"
        assert len(at.editor.contents("diff")) == 1
        assert SECRET not in str(at.editor.updates)
        await at.agent.load_session(cwd=str(stage.workspace), session_id=session_id)
        assert SECRET not in str(at.editor.updates)
    assert (stage.workspace / "env").read_text() == f"TOKEN={SECRET}\n"


async def test_an_answer_with_a_secret_is_shown_redacted_and_once(tmp_path: Path) -> None:
    """Chunks cannot be taken back: the rest of a text must fit what was shown before it."""
    stage = Stage(tmp_path)
    model = stage.scenario([say(f"Use {SECRET}, then forget it."), end()])
    async with desk(stage, model) as at:
        await at.greet()
        session_id = await at.new()
        assert await at.prompt(session_id) == "end_turn"
        assert at.editor.text(session_id) == "Use sk-ant-<redacted>, then forget it."


async def test_a_skill_is_a_command_of_the_editor(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    skill = tmp_path / ".config" / "batten" / "skills" / "greet"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: greet\ndescription: How to greet.\n---\nBow.\n")
    model = stage.scenario([say("ok"), end()])
    async with desk(stage, model) as at:
        await at.greet()
        session_id = await at.new()
        offered = await at.editor.until(schema.AvailableCommandsUpdate)
        (command,) = offered.available_commands
        assert (command.name, command.description) == ("greet", "How to greet.")
        await at.prompt(session_id, "/greet the queen")
    (message,) = await facts(stage, UserMessage)
    assert message.text == "Use the skill 'greet'. the queen"
