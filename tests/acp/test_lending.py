"""What an editor lends: its files with what is not saved, and its terminals."""

import asyncio
from pathlib import Path
from typing import Any

from acp import schema
from batten.contract.facts import (
    ArtifactUpdated,
    ToolCompleted,
    ToolEditApplied,
    ToolEditProposed,
    ToolFileReadCompleted,
    ToolFileWriteApplied,
    ToolShellCommand,
    ToolShellExited,
    ToolShellOutputChunk,
    ToolTimedOut,
)
from tests.acp.editor import desk, facts
from tests.agent.stage import Stage, bash, call, end, say


async def test_reading_sees_what_the_user_has_not_saved(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    path = stage.workspace / "a.txt"
    path.write_text("saved\n")
    model = stage.scenario([call("read_file", file_path="a.txt")], [say("ok"), end()])
    async with desk(stage, model) as at:
        at.editor.buffers[str(path)] = "not saved\n"
        await at.greet(files=True)
        assert await at.prompt(await at.new()) == "end_turn"
        assert at.editor.reads == [str(path)]
        (told,) = at.editor.contents("content", at_end=True)
        assert told.content.text == "not saved\n"
    (read,) = await facts(stage, ToolFileReadCompleted)
    assert (read.path, read.lines, read.size_bytes) == ("a.txt", 1, 10)


async def test_an_edit_goes_through_the_editor_with_its_patch_and_facts(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    path = stage.workspace / "a.txt"
    path.write_text("saved\n")
    edit = call("edit_file", file_path="a.txt", old_string="not saved", new_string="changed")
    model = stage.scenario([edit], [say("ok"), end()])
    async with desk(stage, model) as at:
        at.editor.buffers[str(path)] = "not saved\n"
        await at.greet(files=True)
        assert await at.prompt(await at.new()) == "end_turn"
        assert at.editor.buffers[str(path)] == "changed\n"
        assert at.editor.writes == [str(path)]
        (diff,) = at.editor.contents("diff")
        assert (diff.path, diff.old_text, diff.new_text) == (
            str(path),
            "not saved\n",
            "changed\n",
        )
    assert path.read_text() == "saved\n"
    (proposed,) = await facts(stage, ToolEditProposed)
    (applied,) = await facts(stage, ToolEditApplied)
    assert applied.patch_artifact_id == proposed.patch_artifact_id
    statuses = [fact.new_value for fact in await facts(stage, ArtifactUpdated)]
    assert statuses == ["applied"]


async def test_a_new_file_is_written_by_the_editor(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario(
        [call("write_file", file_path="new/b.txt", content="hi\n")], [say("ok"), end()]
    )
    async with desk(stage, model) as at:
        await at.greet(files=True)
        assert await at.prompt(await at.new()) == "end_turn"
        assert at.editor.buffers == {str(stage.workspace / "new/b.txt"): "hi\n"}
        assert at.editor.contents("diff")[0].old_text is None
    assert len(await facts(stage, ToolFileWriteApplied)) == 1
    assert not (stage.workspace / "new").exists()


async def test_a_write_that_the_editor_refuses_changes_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    for name in ("a", "b"):
        (stage.workspace / name).write_text("old\n")
    edits = [{"file_path": name, "old_string": "old", "new_string": "new"} for name in ("a", "b")]
    model = stage.scenario([call("multi_edit", edits=edits)], [say("ok"), end()])
    async with desk(stage, model) as at:
        at.editor.unwritable.add(str(stage.workspace / "b"))
        await at.greet(files=True)
        assert await at.prompt(await at.new()) == "end_turn"
        assert at.editor.buffers == {str(stage.workspace / "a"): "old\n"}
        assert at.editor.of(schema.ToolCallProgress)[-1].status == "failed"
    assert [fact.new_value for fact in await facts(stage, ArtifactUpdated)] == [
        "rejected",
        "rejected",
    ]


async def test_a_path_outside_the_workspace_is_never_asked_for(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    (tmp_path / "secret").write_text("x")
    model = stage.scenario([call("read_file", file_path="../secret")], [say("ok"), end()])
    async with desk(stage, model) as at:
        await at.greet(files=True)
        assert await at.prompt(await at.new()) == "end_turn"
        assert at.editor.reads == []
        assert at.editor.of(schema.ToolCallProgress)[-1].status == "failed"


async def test_nothing_is_asked_of_an_editor_that_lends_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario(
        [call("write_file", file_path="a", content="hi"), bash("cat a")], [say("ok"), end()]
    )
    async with desk(stage, model) as at:
        await at.greet()
        assert await at.prompt(await at.new()) == "end_turn"
        assert (at.editor.reads, at.editor.writes, at.editor.terminals) == ([], [], {})
    assert (stage.workspace / "a").read_text() == "hi"


async def test_a_command_runs_in_a_terminal_of_the_editor(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("echo out; echo err >&2; exit 3")], [say("ok"), end()])
    async with desk(stage, model) as at:
        await at.greet(terminal=True)
        assert await at.prompt(await at.new()) == "end_turn"
        (terminal,) = at.editor.terminals.values()
        assert terminal.released
        (shown,) = at.editor.contents("terminal")
        assert shown.terminal_id == "term-0"
        last = at.editor.of(schema.ToolCallProgress)[-1]
        assert (last.status, last.raw_output["exitCode"]) == ("failed", 3)
    (command,) = await facts(stage, ToolShellCommand)
    assert (command.terminal_id, command.sandbox_layer) == ("term-0", "none")
    (chunk,) = await facts(stage, ToolShellOutputChunk)
    assert chunk.data == "out\nerr\n"
    (exited,) = await facts(stage, ToolShellExited)
    assert exited.exit_code == 3


async def test_output_of_which_the_editor_kept_the_end_says_so(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("echo the end")], [say("ok"), end()])
    async with desk(stage, model) as at:
        at.editor.truncates = True
        await at.greet(terminal=True)
        assert await at.prompt(await at.new()) == "end_turn"
        assert at.editor.limits == [1 << 20]
        assert [
            one.raw_output for one in at.editor.of(schema.ToolCallProgress) if one.raw_output
        ] == [{"exitCode": 0, "signal": None, "truncated": True}]
    (whole,) = await facts(stage, ToolCompleted)
    assert str(whole.output).startswith("[the beginning of the output was not kept]\nthe end")


async def test_a_terminal_that_the_editor_refuses_is_a_failed_call_that_says_so(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("echo hi")], [say("ok"), end()])
    async with desk(stage, model) as at:
        at.editor.has_terminals = False
        await at.greet(terminal=True)
        assert await at.prompt(await at.new()) == "end_turn"
        (shown,) = at.editor.contents("content", at_end=True)
        assert shown.content.text == "Error: the client did not open a terminal: none is free"


async def test_a_command_that_takes_too_long_is_killed_in_its_terminal(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    slow = call("bash", command="echo begun; sleep 60", timeout=2)
    model = stage.scenario([slow], [say("ok"), end()])
    async with desk(stage, model) as at:
        await at.greet(terminal=True)
        assert await at.prompt(await at.new()) == "end_turn"
        (terminal,) = at.editor.terminals.values()
        assert terminal.released
    assert len(await facts(stage, ToolTimedOut)) == 1
    assert [fact.data for fact in await facts(stage, ToolShellOutputChunk)] == ["begun\n"]


async def test_a_cancelled_turn_gives_its_terminal_back(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("sleep 60")], [say("ok"), end()])
    async with desk(stage, model) as at:
        await at.greet(terminal=True)
        session_id = await at.new()
        turn = asyncio.ensure_future(at.prompt(session_id))
        await at.editor.begun(session_id)
        await at.agent.cancel(session_id=session_id)
        assert await turn == "cancelled"
        (terminal,) = at.editor.terminals.values()
        assert terminal.released
        await terminal.process.wait()


async def test_an_editor_that_goes_away_while_its_terminal_works_ends_the_run(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("sleep 60")], [say("ok"), end()])
    async with desk(stage, model) as at:
        await at.greet(terminal=True)
        session_id = await at.new()
        turn = asyncio.ensure_future(at.prompt(session_id))
        await at.editor.begun(session_id)
        assert at.process.stdin is not None
        at.process.stdin.close()
        assert await turn == "cancelled"
        assert await at.process.wait() == 0


async def test_a_write_that_was_asked_for_is_seen_through_before_a_cancel(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario(
        [call("write_file", file_path="a.txt", content="hi\n"), bash("touch made")],
        [say("ok"), end()],
    )
    async with desk(stage, model, "--permission-mode", "dontAsk") as at:
        at.editor.may_write.clear()
        await at.greet(files=True)
        session_id = await at.new()
        turn = asyncio.ensure_future(at.prompt(session_id))
        await at.editor.writing.wait()
        await at.agent.cancel(session_id=session_id)
        at.editor.may_write.set()
        assert await turn == "cancelled"
        assert at.editor.buffers == {str(stage.workspace / "a.txt"): "hi\n"}
    assert len(await facts(stage, ToolFileWriteApplied)) == 1
    assert [fact.new_value for fact in await facts(stage, ArtifactUpdated)] == ["applied"]
    assert not (stage.workspace / "made").exists()


async def test_a_question_about_an_edit_shows_what_would_change(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    path = stage.workspace / "a.txt"
    path.write_text("one two\n")
    edits = [
        {"old_string": "one", "new_string": "1"},
        {"old_string": "two", "new_string": "2"},
    ]
    model = stage.scenario(
        [
            call("write_file", file_path="b.txt", content="new\n"),
            call("edit_file", file_path="a.txt", old_string="three", new_string="3"),
            call("multi_edit", file_path="a.txt", edits=edits),
        ],
        [say("ok"), end()],
    )
    async with desk(stage, model) as at:
        at.editor.buffers[str(path)] = "one two, not saved\n"
        await at.greet(files=True)
        assert await at.prompt(await at.new()) == "end_turn"
        written, impossible, edited = at.editor.questions
        assert impossible.content is None
        shown: list[Any] = [*(written.content or []), *(edited.content or [])]
        assert [(one.path, one.old_text, one.new_text) for one in shown] == [
            (str(stage.workspace / "b.txt"), None, "new\n"),
            (str(path), "one two, not saved\n", "1 2, not saved\n"),
        ]


async def test_what_is_no_text_or_too_large_is_read_and_changed_on_the_disk(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    odd, large = stage.workspace / "odd.txt", stage.workspace / "large.txt"
    odd.write_bytes(b"caf\xe9 old\n")
    large.write_bytes(b"old\n" + (b"x" * 1023 + b"\n") * (9 << 10))
    model = stage.scenario(
        [
            call("edit_file", file_path="odd.txt", old_string="old", new_string="new"),
            call("edit_file", file_path="large.txt", old_string="old", new_string="new"),
        ],
        [say("ok"), end()],
    )
    async with desk(stage, model, "--permission-mode", "dontAsk") as at:
        await at.greet(files=True)
        assert await at.prompt(await at.new()) == "end_turn"
        assert set(at.editor.reads) == {str(odd)}
        assert at.editor.writes == []
    assert odd.read_bytes() == b"caf\xe9 new\n"
    assert large.read_bytes().startswith(b"new\nxx")
