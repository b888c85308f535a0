"""The commands that look at the journal, answer it, and keep it in order."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from batten.contract import facts as f
from batten.contract.envelope import decode
from batten.journal.sqlite import SqliteJournal
from tests.agent.stage import Stage, bash, call, say
from tests.session.processes import BATTEN, environment, running, until

from .invoking import Shell


@pytest.fixture
def run_id(shell: Shell) -> str:
    said = shell.play([say("I look."), bash("echo hi")], [say("well")], flags=["--allow", "bash"])
    assert said.code == 0
    return shell.run_ids()[-1]


def test_runs_are_listed_newest_first_one_object_a_line(shell: Shell, run_id: str) -> None:
    shell.play([bash("echo 1")], [say("x")], flags=["--max-turns", "1"], prompt="another")
    newest, oldest = shell("runs", "--json").frames()
    assert (oldest["run_id"], oldest["state"], oldest["prompt"]) == (run_id, "completed", "go")
    assert (newest["state"], newest["outcome"]) == ("max_turns", "max_turns")
    lines = shell("runs").out.decode().splitlines()
    assert [line.split()[0] for line in lines] == ["RUN", newest["run_id"], run_id]
    assert lines[1].endswith("  another")
    assert len(shell("runs", "--limit", "1").out.splitlines()) == 2
    session = shell("runs", "--session", oldest["session_id"], "--json").frames()
    assert [row["run_id"] for row in session] == [run_id]


def test_a_run_is_shown_as_people_read_it(shell: Shell, run_id: str) -> None:
    shown = shell("show", run_id).out.decode()
    for words in (
        "> go",
        "I look.",
        "bash echo hi",
        "│ hi",
        "well",
        "finished: 2 turns",
        "session chat_",
    ):
        assert words in shown


def test_a_run_whose_process_died_is_said_to_be_abandoned(shell: Shell) -> None:
    model = shell.stage.scenario([bash("sleep 60")], [say("x")])
    with running(shell.stage, "--model", model, "--allow", "bash") as process:
        run_id = until(process, "tool.shell.command")
    (row,) = shell("runs", "--json").frames()
    assert row["state"] == "abandoned"
    assert f"`batten -p --resume {run_id}` goes on with it" in shell("show", run_id).out.decode()


def test_events_are_read_from_a_place_on(shell: Shell, run_id: str) -> None:
    whole = shell("events", run_id).out.splitlines()
    assert shell("events", run_id, "--after", "4").out.splitlines() == whole[5:]
    assert shell("events", run_id, "--after", str(len(whole))).out == b""


@pytest.mark.parametrize("after", ["-1", "3", "1000"])
def test_following_a_run_that_has_ended_ends(shell: Shell, run_id: str, after: str) -> None:
    followed = shell("events", run_id, "--follow", "--after", after)
    assert followed.out == shell("events", run_id, "--after", after).out


def test_following_a_run_shows_all_of_it_and_ends_with_it(stage: Stage) -> None:
    model = stage.scenario([bash("while [ ! -e go ]; do sleep 0.02; done")], [say("well")])
    with running(stage, "--model", model, "--allow", "bash") as process:
        run_id = until(process, "tool.shell.command")
        follower = subprocess.Popen(
            [BATTEN, "events", run_id, "--follow"], env=environment(stage), stdout=subprocess.PIPE
        )
        with follower:
            assert follower.stdout is not None
            first = follower.stdout.readline()
            (stage.workspace / "go").touch()
            rest = follower.stdout.read()
            assert follower.wait(20) == 0
        process.wait(20)
    journal = stage.journal()
    stored = [one.body + b"\n" for one in journal.read_now(run_id, limit=1000)]
    journal.close()
    assert [first, *rest.splitlines(keepends=True)] == stored


def test_artifacts_are_listed_and_their_bodies_written_as_they_are(
    shell: Shell, run_id: str
) -> None:
    (row,) = shell("artifacts", run_id, "--json").frames()
    assert row["size_bytes"] == 3
    assert row["artifact_id"] in shell("artifacts", run_id).out.decode()
    assert shell("artifacts", row["artifact_id"]).out == b"hi\n"


def test_what_is_sealed_is_never_shown(shell: Shell) -> None:
    shell.set(SERVICE_TOKEN="tok-0123456789-abcdefghij")
    shell.play([say("well")], prompt="use tok-0123456789-abcdefghij")
    (run_id,) = shell.run_ids()
    (row,) = shell("artifacts", run_id, "--json").frames()
    assert row["kind"] == "sealed"
    said = shell("artifacts", row["artifact_id"])
    assert (said.code, said.out) == (66, b"")
    assert "is sealed" in said.err


@pytest.mark.parametrize(
    "argv",
    [
        ["show", "run_nobody"],
        ["events", "run_nobody"],
        ["events", "run_nobody", "--follow"],
        ["artifacts", "run_nobody"],
        ["artifacts", "art_nobody"],
        ["diff", "run_nobody"],
        ["revert", "run_nobody"],
        ["verify", "run_nobody"],
        ["prune", "run_nobody", "--before", "1"],
        ["requests", "run_nobody"],
        ["answer", "appr_nobody", "allow"],
        ["scenario", "validate", "/nowhere.json"],
    ],
)
def test_what_is_not_there_is_said_not_to_be(shell: Shell, run_id: str, argv: list[str]) -> None:
    said = shell(*argv)
    assert (said.code, said.out) == (66, b"")
    assert said.err.startswith("batten: ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [
        ["show"],
        ["runs", "--limit", "-1"],
        ["runs", "extra"],
        ["events", "run_x", "--after", "first"],
        ["prune", "run_x"],
        ["prune", "run_x", "--before", "-1"],
        ["answer", "appr_x", "perhaps"],
        ["scenario", "rehearse", "x.json"],
        ["verify", "--loud"],
    ],
)
def test_a_command_with_wrong_words_is_a_usage_error(shell: Shell, argv: list[str]) -> None:
    said = shell(*argv)
    assert (said.code, said.out) == (64, b"")
    assert "try: batten " in said.err


def test_verify_finds_a_changed_byte(shell: Shell, run_id: str) -> None:
    sound = shell("verify")
    assert (sound.code, sound.out) == (0, b"everything stored is what was written\n")
    database = shell.stage.home / "journal.db"
    data = database.read_bytes()
    assert data.count(b"I look.") > 0
    database.write_bytes(data.replace(b"I look.", b"I loot."))
    found = shell("verify", run_id)
    assert found.code == 1
    assert run_id in found.out.decode()
    assert shell("verify", "--json").frames()[0]["run_id"] == run_id


def test_a_pruned_run_keeps_a_marker_and_its_session_goes_on(shell: Shell, run_id: str) -> None:
    shell.stage.scenario([say("x")], [say("y")], [say("still here")])
    pruned = shell("prune", run_id, "--before", "10")
    assert (pruned.code, pruned.out[:16]) == (0, b"pruned; marker a")
    assert shell("prune", run_id, "--before", "3").out == b"nothing to prune\n"
    events = shell("events", run_id).frames()
    assert (events[0]["sequence"], events[-1]["type"]) == (10, "gap.events_pruned")
    assert "facts 0 to 9 pruned" in shell("show", run_id).out.decode()
    assert shell("verify").code == 0
    assert shell("-p", "and now?", "--resume", run_id).out == b"still here\n"


@pytest.mark.parametrize("name", ["diff", "revert"])
def test_a_run_that_changed_nothing_has_nothing_to_show_or_undo(
    shell: Shell, run_id: str, name: str
) -> None:
    said = shell(name, run_id)
    assert said.out == b""
    assert said.code == (0 if name == "diff" else 1)


def write(path: str, content: str) -> dict[str, object]:
    return call("write_file", file_path=path, content=content)


def test_changes_are_shown_and_undone_whole_or_by_file(shell: Shell) -> None:
    kept = shell.stage.workspace / "kept.txt"
    kept.write_text("before\n")
    new = shell.stage.workspace / "new.txt"
    said = shell.play(
        [call("read_file", file_path="kept.txt")],
        [write("kept.txt", "after\n"), write("new.txt", "hello\n")],
        [say("well")],
        flags=["--permission-mode", "acceptEdits"],
    )
    assert said.code == 0
    assert kept.read_text() == "after\n"
    (run_id,) = shell.run_ids()
    diff = shell("diff", run_id).out.decode()
    assert "-before" in diff
    assert "+after" in diff
    assert "+hello" in diff
    missing = shell("revert", run_id, "nothing.txt")
    assert missing.code == 66
    one = shell("revert", run_id, "new.txt", "--reason", "not wanted")
    assert (one.code, one.out) == (0, b"reverted new.txt\n")
    assert not new.exists()
    assert "+hello" not in shell("diff", run_id).out.decode()
    kept.write_text("changed by hand\n")
    refused = shell("revert", run_id)
    assert refused.code == 1
    assert "kept.txt" in refused.err
    assert kept.read_text() == "changed by hand\n"
    kept.write_text("after\n")
    assert shell("revert", run_id).code == 0
    assert kept.read_text() == "before\n"
    assert shell("verify").code == 0


def test_a_revert_tells_of_the_whole_edit_and_of_the_patches_it_used(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.txt", "b.txt"):
        (shell.stage.workspace / name).write_text("before\n")
    edits = [
        {"file_path": name, "old_string": "before", "new_string": "after"}
        for name in ("a.txt", "b.txt")
    ]
    said = shell.play(
        [call("read_file", file_path="a.txt"), call("read_file", file_path="b.txt")],
        [call("multi_edit", edits=edits)],
        [say("well")],
        flags=["--permission-mode", "acceptEdits"],
    )
    assert said.code == 0
    (run_id,) = shell.run_ids()
    monkeypatch.setenv("DEPLOY_TOKEN", "s3kr1t-Value-99")
    assert shell("revert", run_id, "--reason", "not with s3kr1t-Value-99").code == 0
    journal = shell.stage.journal()
    told = [decode(stored.body) for stored in journal.read_now(run_id, limit=1000)]
    journal.close()
    facts = [envelope.data for envelope in told]
    (proposed,) = [one for one in facts if isinstance(one, f.ToolMultiEditProposed)]
    (reverted,) = [one for one in facts if isinstance(one, f.ToolMultiEditReverted)]
    assert reverted.patch_artifact_ids == proposed.patch_artifact_ids
    assert reverted.reason == "not with <redacted>"
    undone = {one.event_id: one.data for one in told if isinstance(one.data, f.ToolEditReverted)}
    used = [one for one in facts if isinstance(one, f.ArtifactReferenced)]
    assert len(used) == 2
    for one in used:
        assert one.relation == "reverted"
        assert undone[one.by_event_id].patch_artifact_id == one.artifact_id


@pytest.mark.parametrize("argv", [["runs"], ["show"], ["events"], ["artifacts"]])
def test_a_reader_that_goes_away_is_one_line_and_no_traceback(
    stage: Stage, argv: list[str]
) -> None:
    frames = [[bash(f"seq {number}000 {number}999")] for number in range(1, 6)]
    model = stage.scenario(*frames, [say("well")])
    printed = subprocess.run(
        [BATTEN, "-p", "go", "--model", model, "--allow", "bash", "--sandbox", "none"],
        env=environment(stage), cwd=stage.workspace, check=True, capture_output=True,
    )  # fmt: skip
    assert printed.stdout == b"well\n"
    journal = stage.journal()
    (row,) = asyncio.run(journal.runs())
    journal.close()
    words = argv if argv == ["runs"] else [*argv, row.run_id]
    reading, writing = os.pipe()
    os.close(reading)
    said = subprocess.run(
        [BATTEN, *words],
        env=environment(stage),
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    line = b"batten: standard output is not complete: Broken pipe\n"
    assert (said.returncode, said.stderr) == (1, line)


def test_a_full_disk_at_the_other_end_is_said_in_a_line(stage: Stage, run_id: str) -> None:
    with open("/dev/full", "w") as full:
        said = subprocess.run(
            [BATTEN, "events", run_id],
            env=environment(stage), stdout=full, stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
    assert said.returncode == 1
    assert b"No space left on device" in said.stderr
    assert b"Traceback" not in said.stderr


def test_requests_are_none_when_nobody_asks(shell: Shell, run_id: str) -> None:
    assert shell("requests").out == b""
    assert shell("requests", run_id, "--json").out == b""


def test_continue_is_the_newest_session_of_this_place(shell: Shell, tmp_path: Path) -> None:
    model = shell.stage.scenario([say("one")], [say("two")], [say("three")])
    shell.print(model, prompt="first session")
    shell.print(model, prompt="second session")
    said = shell("-p", "go on", "--continue")
    assert said.out == b"two\n"
    prompts = [row["prompt"] for row in shell("runs", "--json").frames()]
    assert prompts == ["go on", "second session", "first session"]
    newest, second, first = shell("runs", "--json").frames()
    assert newest["session_id"] == second["session_id"] != first["session_id"]
    resumed = shell("-p", "go on", "-r", first["run_id"], "--continue")
    assert resumed.out == b"two\n"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    nothing = shell("-p", "go on", "-c", "--workspace", str(elsewhere))
    assert nothing.code == 66


def test_a_branch_begins_at_the_fact_it_names(shell: Shell, run_id: str) -> None:
    place = next(
        one["sequence"]
        for one in shell("events", run_id).frames()
        if one["type"] == "run.checkpoint_saved"
    )
    branched = shell(
        "-p", "another way", "--branch", f"{run_id}:{place}", "--output-format", "events"
    )
    assert branched.code == 0
    first = branched.frames()[0]
    assert first["type"] == "run.resumed_from_event"
    assert (first["data"]["from_run_id"], first["data"]["from_sequence"]) == (run_id, place)
    assert shell("-p", "x", "--branch", run_id).code == 0


@pytest.mark.parametrize("place", ["last", "-1", "99999", "1.5", "²"])
def test_a_branch_from_nowhere_says_which_facts_there_are(
    shell: Shell, run_id: str, place: str
) -> None:
    said = shell("-p", "x", "--branch", f"{run_id}:{place}")
    assert said.code == 64
    assert f"{run_id} has facts 0 to " in said.err
    early = shell("-p", "x", "--branch", f"{run_id}:0")
    assert (early.code, "no checkpoint at or before 0" in early.err) == (64, True)
    assert shell.run_ids() == [run_id]


def test_a_branch_without_a_prompt_is_a_usage_error(shell: Shell, run_id: str) -> None:
    assert shell("-p", "--branch", run_id).code == 64


def test_the_journal_of_another_process_is_read_while_it_is_written(shell: Shell) -> None:
    journal = SqliteJournal.open(shell.stage.home)
    try:
        assert shell("runs").code == 0
        assert shell("verify").code == 0
    finally:
        journal.close()
