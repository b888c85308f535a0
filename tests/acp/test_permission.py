"""`session/request_permission`: the editor decides, the journal remembers."""

from hashlib import sha256
from pathlib import Path

from acp import schema
from batten.contract.facts import ApprovalRequested, ApprovalResolved, ToolInvoked
from tests.acp.editor import desk, facts
from tests.agent.stage import Stage, bash, call, end, say

ENDED = ("completed", "failed")


async def test_an_allowed_call_runs_and_the_question_is_in_the_journal(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("echo hi > made", "call_1")], [say("Done."), end()])
    async with desk(stage, model) as at:
        await at.greet()
        session_id = await at.new()
        assert await at.prompt(session_id) == "end_turn"
        (started,) = at.editor.of(schema.ToolCallStart)
        assert (started.title, started.kind, started.status) == (
            "echo hi > made",
            "execute",
            "pending",
        )
        (asked,) = at.editor.questions
        assert asked.tool_call_id == started.tool_call_id
        assert asked.raw_input == {"command": "echo hi > made"}
        kinds = [option.kind for option in at.editor.options[0]]
        assert kinds == ["allow_once", "allow_always", "reject_once", "reject_always"]
        updates = at.editor.of(schema.ToolCallProgress)
        assert {one.tool_call_id for one in updates} == {started.tool_call_id}
        assert updates[-1].status == "completed"
    assert (stage.workspace / "made").read_text() == "hi\n"
    (question,) = await facts(stage, ApprovalRequested)
    (answer,) = await facts(stage, ApprovalResolved)
    assert (answer.approval_id, answer.decision, answer.by) == (
        question.approval_id,
        "approved",
        "client",
    )


async def test_a_rejected_call_is_told_to_the_model_and_never_runs(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("touch made")], [say("Then not."), end()])
    async with desk(stage, model) as at:
        at.editor.decide = choosing("reject_once")
        await at.greet()
        session_id = await at.new()
        assert await at.prompt(session_id) == "end_turn"
        assert at.editor.text() == "Then not."
        assert at.editor.of(schema.ToolCallProgress)[-1].status == "failed"
    assert not (stage.workspace / "made").exists()
    assert await facts(stage, ToolInvoked) == []


async def test_a_question_shows_all_of_a_command_or_a_marked_cut(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    hidden = "echo ok" + " " * 3000 + "\nrm -rf / #\x1b\u200b\u3164[2K"
    long = "echo " + "a" * 20_000
    model = stage.scenario([bash(hidden)], [bash(long)], [bash("echo 1")], [say("Done."), end()])
    async with desk(stage, model) as at:
        at.editor.decide = choosing("reject_once")
        await at.greet()
        session_id = await at.new()
        assert await at.prompt(session_id) == "end_turn"
        asked = at.editor.questions
    commands = [{"command": command} for command in (hidden, long, "echo 1")]
    assert [one.raw_input for one in asked] == commands
    assert asked[0].title == "echo ok ⏎rm -rf / #\ufffd\ufffd\ufffd[2K"
    assert texts(asked[0]) == [hidden.replace("\x1b\u200b\u3164", "\ufffd\ufffd\ufffd")]
    assert asked[1].title == long[:199] + "…"
    (text,) = texts(asked[1])
    digest = sha256(long.encode()).hexdigest()
    assert text.endswith(f"… [cut here: 20005 characters, sha256 {digest}]")
    assert (asked[2].title, texts(asked[2])) == ("echo 1", [])


def texts(asked: schema.ToolCallUpdate) -> list[str]:
    """The texts that a question shows."""
    blocks = [one.content for one in asked.content or [] if one.type == "content"]
    return [block.text for block in blocks if block.type == "text"]


async def test_always_is_a_grant_for_what_was_asked_and_no_more(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario(
        [bash("echo 1", "a")], [bash("echo 1", "b")], [bash("echo 2", "c")], [say("ok"), end()]
    )
    async with desk(stage, model) as at:
        at.editor.decide = choosing("allow_always")
        await at.greet()
        assert await at.prompt(await at.new()) == "end_turn"
        assert [asked.title for asked in at.editor.questions] == ["echo 1", "echo 2"]
        assert "bash(echo 1)" in at.editor.options[0][1].name


async def test_rejecting_always_denies_the_next_one_without_a_question(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("touch x", "a")], [bash("touch x", "b")], [say("ok"), end()])
    async with desk(stage, model) as at:
        at.editor.decide = choosing("reject_always")
        await at.greet()
        assert await at.prompt(await at.new()) == "end_turn"
        assert len(at.editor.questions) == 1
    assert not (stage.workspace / "x").exists()


async def test_what_was_decided_for_always_holds_after_a_restart(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario(
        [bash("touch x", "a"), bash("echo hi > y", "b")],
        [say("ok"), end()],
        [bash("touch x", "a"), bash("echo hi > y", "b")],
        [say("ok"), end()],
    )

    async def decide(asked: schema.ToolCallUpdate) -> str | None:
        return "reject_always" if asked.title == "touch x" else "allow_always"

    async with desk(stage, model) as at:
        at.editor.decide = decide
        await at.greet()
        session_id = await at.new()
        await at.prompt(session_id)
    async with desk(stage, model) as at:
        await at.greet()
        await at.agent.resume_session(cwd=str(stage.workspace), session_id=session_id)
        assert await at.prompt(session_id) == "end_turn"
        assert at.editor.questions == []
    assert not (stage.workspace / "x").exists()
    assert len(await facts(stage, ToolInvoked)) == 2


async def test_a_question_that_the_client_cancels_cancels_the_turn(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("touch made")], [say("no"), end()])
    async with desk(stage, model) as at:
        at.editor.decide = choosing(None)
        await at.greet()
        session_id = await at.new()
        assert await at.prompt(session_id) == "cancelled"
        assert at.editor.of(schema.ToolCallProgress)[-1].status == "failed"
        at.editor.decide = choosing("allow_once")
        assert await at.prompt(session_id) == "end_turn"
    assert not (stage.workspace / "made").exists()


async def test_a_question_of_a_child_is_put_for_the_call_that_started_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.scenario([bash("touch made")], [say("Made it."), end()], name="child")
    model = stage.scenario(
        [call("agent", prompt="make it")], [say("ok"), end()], children={"make it": "child.json"}
    )
    async with desk(stage, model) as at:
        await at.greet()
        assert await at.prompt(await at.new()) == "end_turn"
        (started,) = at.editor.of(schema.ToolCallStart)
        (asked,) = at.editor.questions
        assert asked.tool_call_id == started.tool_call_id
        assert asked.title == "touch made"
    assert (stage.workspace / "made").exists()


def choosing(option: str | None):  # type: ignore[no-untyped-def]
    async def decide(asked: schema.ToolCallUpdate) -> str | None:
        return option

    return decide
