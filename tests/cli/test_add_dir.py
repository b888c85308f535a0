"""`--add-dir`: directories to read and write beside the workspace, confined as it is."""

import os
from pathlib import Path

import msgspec
import pytest

from batten.contract.envelope import decode
from batten.contract.facts import RunQueued
from tests.agent.stage import bash, call, say
from tests.models.server import answer
from tests.models.wire import anthropic_turn
from tests.workspace.keepers import CONFINED

from .invoking import Shell, serving

EDITS = ("--permission-mode", "acceptEdits")


@pytest.fixture
def beside(shell: Shell) -> Path:
    directory = shell.stage.directory / "beside"
    directory.mkdir()
    (directory / "known.txt").write_text("before\n")
    return directory


def outputs(shell: Shell) -> list[str]:
    """The results that the model received in the newest run."""
    journal = shell.stage.journal()
    stored = journal.read_now(shell.run_ids()[-1], limit=1000)
    journal.close()
    found = (getattr(decode(each.body).data, "output", None) for each in stored)
    return [output for output in found if isinstance(output, str)]


def test_file_tools_read_and_write_there_and_nowhere_else(shell: Shell, beside: Path) -> None:
    outside = shell.stage.directory / "outside"
    outside.mkdir()
    (beside / "way").symlink_to(outside)
    said = shell.play(
        [
            call("read_file", file_path=f"{beside}/known.txt"),
            call("grep", pattern="before", path=str(beside)),
            call("glob", pattern="*.txt", path="../beside"),
            call("write_file", file_path="../beside/new.txt", content="x"),
            call("write_file", file_path=f"{beside}/way/out.txt", content="x"),
            call("write_file", file_path=f"{outside}/out.txt", content="x"),
        ],
        [say("done")],
        flags=[*EDITS, "--add-dir", "../beside"],
    )
    assert said.code == 0
    read, grep, glob, written, *refused = outputs(shell)
    assert read == "before\n"
    assert grep == f"{beside}/known.txt:1:before"
    assert glob == f"{beside}/known.txt"
    assert written == f"Wrote 1 bytes to {beside}/new.txt"
    assert all("outside workspace root" in each for each in refused)
    assert len(refused) == 2
    assert (beside / "new.txt").read_text() == "x"
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("layer", CONFINED)
def test_commands_write_there_and_the_rest_stays_closed(
    shell: Shell, beside: Path, layer: str
) -> None:
    line = f"echo 1 > {beside}/made; echo 1 > {shell.stage.directory}/escaped; true"
    flags = ("--allow", "bash", "--sandbox", layer)
    model = shell.stage.scenario([bash(line)], [say("done")])
    shell("-p", "go", "--model", model, *flags)
    assert not (beside / "made").exists()
    assert shell("-p", "go", "--model", model, *flags, "--add-dir", str(beside)).code == 0
    assert (beside / "made").exists()
    assert not (shell.stage.directory / "escaped").exists()
    diff = shell("diff", shell.run_ids()[-1]).out.decode()
    assert f"# created by a command: {beside}/made, 2 bytes" in diff


def test_rules_about_paths_hold_there_too(shell: Shell, beside: Path) -> None:
    (beside / ".env").write_text("")
    flags = [
        "--add-dir",
        str(beside),
        "--deny",
        "edit_file(.env)",
        "--deny",
        f"Edit(/{beside}/a/**)",
    ]
    shell.play(
        [
            call("write_file", file_path=f"{beside}/.env", content="x"),
            call("write_file", file_path=f"{beside}/a/b.txt", content="x"),
            call("write_file", file_path=f"{beside}/b.txt", content="x"),
        ],
        [say("done")],
        flags=[*EDITS, *flags],
    )
    first, second, third = outputs(shell)
    assert "Permission denied" in first
    assert "Permission denied" in second
    assert third.startswith("Wrote")


def test_the_first_frame_the_model_and_the_journal_know_of_it(shell: Shell, beside: Path) -> None:
    with serving(shell, [answer(anthropic_turn("done"))]) as server:
        said = shell.print(
            "anthropic/claude-sonnet-4-6",
            *("--output-format", "stream-json", "--add-dir", str(beside), "--add-dir", "."),
        )
        (request,) = server.requests
    assert said.code == 0
    # What the workspace holds already is not beside it.
    assert said.frames()[0]["additional_directories"] == [str(beside)]
    assert f"You can also read and write files in: {beside}." in request.body.decode()
    journal = shell.stage.journal()
    (queued, *_) = journal.read_now(shell.run_ids()[-1], limit=1)
    journal.close()
    fact = decode(queued.body).data
    assert isinstance(fact, RunQueued)
    assert fact.additional_directories == [str(beside)]


def test_a_resumed_invocation_names_its_own(shell: Shell, beside: Path) -> None:
    model = shell.stage.scenario(
        [say("one")],
        [call("write_file", file_path=f"{beside}/new.txt", content="x"), say("two")],
        [say("three")],
    )
    shell.print(model, "--add-dir", str(beside))
    (run_id,) = shell.run_ids()
    said = shell("-p", "on", "--resume", run_id, *EDITS, "--output-format", "stream-json")
    assert "additional_directories" not in said.frames()[0]
    assert not (beside / "new.txt").exists()


def test_edits_there_are_shown_and_reverted(shell: Shell, beside: Path) -> None:
    shell.play(
        [call("write_file", file_path=f"{beside}/known.txt", content="after\n")],
        [say("done")],
        flags=[*EDITS, "--add-dir", str(beside)],
    )
    assert (beside / "known.txt").read_text() == "after\n"
    (run_id,) = shell.run_ids()
    assert "+after" in shell("diff", run_id).out.decode()
    undone = shell("revert", run_id)
    assert (undone.code, undone.out.decode()) == (0, f"reverted {beside}/known.txt\n")
    assert (beside / "known.txt").read_text() == "before\n"


def test_a_revert_does_not_follow_a_link_that_took_the_directory_s_place(
    shell: Shell, beside: Path
) -> None:
    shell.play(
        [call("write_file", file_path=f"{beside}/known.txt", content="after\n")],
        [say("done")],
        flags=[*EDITS, "--add-dir", str(beside)],
    )
    (run_id,) = shell.run_ids()
    other = shell.stage.directory / "other"
    os.rename(beside, other)
    beside.symlink_to(other)
    assert shell("revert", run_id).code == 1
    assert (other / "known.txt").read_text() == "after\n"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("missing", "--add-dir missing does not exist"),
        ("file", "--add-dir file is not a directory"),
        ("/", "would open the whole machine"),
        ("../home", "belongs to Batten"),
        ("../home/memory", "belongs to Batten"),
        (" ", "names no directory"),
    ],
)
def test_a_directory_that_cannot_be_added_is_a_usage_error(
    shell: Shell, path: str, problem: str
) -> None:
    (shell.stage.workspace / "file").touch()
    (shell.stage.home / "memory").mkdir(parents=True)
    said = shell.play([say("never")], flags=["--add-dir", path])
    assert said.code == 64
    assert problem in said.err


def test_settings_name_directories_and_those_of_a_workspace_need_trust(
    shell: Shell, beside: Path
) -> None:
    frames = ("--output-format", "stream-json")
    inline = msgspec.json.encode({"permissions": {"additionalDirectories": [str(beside)]}}).decode()
    said = shell.play([say("well")], flags=[*frames, "--settings", inline])
    assert said.frames()[0]["additional_directories"] == [str(beside)]
    settings = shell.stage.workspace / ".batten" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"permissions": {"additional_directories": ["../beside"]}}')
    said = shell.play([say("well")], flags=frames)
    assert "additional_directories" not in said.frames()[0]
    assert "additional directory" in shell("trust", "--yes").out.decode()
    said = shell.play([say("well")], flags=frames)
    assert said.frames()[0]["additional_directories"] == [str(beside)]
    beside.rename(beside.with_name("moved"))
    said = shell.play([say("well")], flags=frames)
    assert said.code == 78
    assert "additional_directories" in said.err
