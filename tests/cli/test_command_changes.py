"""`batten diff` and `batten revert` on files that commands changed."""

import json
import os
import subprocess

import pytest

from batten.workspace.sandbox import Mode
from tests.agent.stage import bash, call, say
from tests.cli.invoking import Shell
from tests.session.processes import BATTEN, environment
from tests.workspace.keepers import BWRAP, CONFINED

ALLOW = ("--permission-mode", "acceptEdits", "--allow", "bash")


def test_files_that_commands_changed_are_shown_and_said_not_to_be_reverted(shell: Shell) -> None:
    workspace = shell.stage.workspace
    for name in ("kept.txt", "old.txt"):
        (workspace / name).write_text("before\n")
    said = shell.play(
        [
            call("write_file", file_path="kept.txt", content="by a tool\n"),
            bash("echo longer >> old.txt; mkdir out; echo x > out/new.txt; echo y > passing"),
        ],
        [bash("rm passing")],
        [say("done")],
        flags=ALLOW,
    )
    assert said.code == 0
    (run_id,) = shell.run_ids()
    diff = shell("diff", run_id).out.decode()
    assert "+by a tool" in diff
    line = "echo longer >> old.txt; mkdir out; echo x > out/new.txt; echo y > passing"
    changed = [
        f"modified by a command: old.txt, 14 bytes ({line})",
        f"created by a command: out/new.txt, 2 bytes ({line})",
    ]
    assert diff.splitlines()[-2:] == [f"# {one}" for one in changed]
    assert diff.count("by a command") == 2
    shown = shell("show", run_id).out.decode()
    assert "changed by the command: old.txt, out/new.txt, passing" in shown
    undone = shell("revert", run_id)
    assert undone.code == 0
    assert undone.out.decode().splitlines() == [
        "reverted kept.txt",
        *(f"not reverted: {one}" for one in changed),
    ]
    assert (workspace / "kept.txt").read_text() == "before\n"
    assert (workspace / "out/new.txt").exists()


@pytest.mark.parametrize("mode", CONFINED)
def test_what_other_programs_execute_is_named_wherever_a_person_looks(
    shell: Shell, mode: Mode
) -> None:
    workspace = shell.stage.workspace
    (workspace / "make.sh").write_text(
        "for n in $(seq 300); do echo x > a$n; done; mkdir .vscode; echo x > .vscode/tasks.json\n"
        "echo x > shared\n"
    )
    (workspace.parent / "second").write_text("")
    os.link(workspace.parent / "second", workspace / "shared")
    model = shell.stage.scenario([bash("sh make.sh")], [say("done")])
    said = shell.print(model, "--sandbox", mode, "--output-format", "stream-json", *ALLOW)
    assert said.result["executed_later"] == [
        {"path": ".vscode/tasks.json", "change": "created", "executed_by": "the editor"}
    ]
    (run_id,) = shell.run_ids()
    shown = shell("show", run_id).out.decode()
    assert "! the editor executes what a command has created: .vscode/tasks.json" in shown
    assert "! shared changed under 1 other names too (hard links)" in shown
    diff = shell("diff", run_id).out.decode()
    assert ".vscode/tasks.json, 2 bytes, which the editor executes (sh make.sh)" in diff
    assert "shared, 2 bytes, with 1 other names that changed too" in diff


@pytest.mark.parametrize("mode", [BWRAP])
def test_commands_write_what_a_rule_names_and_are_told_why_not_the_rest(
    shell: Shell, mode: Mode
) -> None:
    workspace = shell.stage.workspace
    for name in (".vscode", ".idea"):
        (workspace / name).mkdir()
    lines = ["echo x > .vscode/tasks.json", "echo x > .idea/workspace.xml"]
    for number, line in enumerate(lines):
        (workspace / f"{number}.sh").write_text(line)
    model = shell.stage.scenario([bash("sh 0.sh"), bash("sh 1.sh")], [say("done")])
    rule = ("--allow", "Edit(./.vscode/**)", "--output-format", "stream-json")
    said = shell.print(model, "--sandbox", mode, *rule, *ALLOW)
    assert (workspace / ".vscode/tasks.json").exists()
    assert not (workspace / ".idea/workspace.xml").exists()
    assert b"lets commands" in said.out
    assert "executed_later" in said.result


def test_a_revert_of_what_only_a_command_changed_says_why_it_is_refused(shell: Shell) -> None:
    (shell.stage.workspace / "data.txt").write_text("before\n")
    shell.play([bash("echo after > data.txt")], [say("done")], flags=ALLOW)
    (run_id,) = shell.run_ids()
    whole = shell("revert", run_id)
    assert whole.code == 1
    assert "modified by a command: data.txt, 6 bytes (echo after > data.txt)" in whole.err
    assert "the content from before a command is not kept" in whole.err
    one = shell("revert", run_id, "data.txt")
    assert one.code == 66
    assert "modified by a command: data.txt" in one.err
    other = shell("revert", run_id, "other.txt")
    assert (other.code, "by a command" in other.err) == (66, False)


def test_an_edit_that_a_command_changed_again_names_the_command(shell: Shell) -> None:
    path = shell.stage.workspace / "both.txt"
    shell.play(
        [call("write_file", file_path="both.txt", content="a tool\n")],
        [bash("echo a command >> both.txt")],
        [say("done")],
        flags=ALLOW,
    )
    (run_id,) = shell.run_ids()
    refused = shell("revert", run_id)
    assert refused.code == 1
    assert "Changed since the patch was made: both.txt" in refused.err
    assert "modified by a command: both.txt" in refused.err
    assert path.read_text() == "a tool\na command\n"


def test_a_large_workspace_is_recorded_beside_the_model_and_before_the_run_ends(
    shell: Shell,
) -> None:
    for number in range(400):
        (shell.stage.workspace / f"file{number}").write_text("")
    # A change within the clock's tick in which the next command begins counts for that one.
    first = "echo 1 > file7; sleep 0.05"
    shell.play([bash(first)], [bash("rm file9")], [say("done")], flags=ALLOW)
    (run_id,) = shell.run_ids()
    assert shell("diff", run_id).out.decode().splitlines() == [
        f"# modified by a command: file7, 2 bytes ({first})",
        "# deleted by a command: file9 (rm file9)",
    ]
    assert shell("verify").code == 0


def test_a_long_command_is_named_by_its_beginning_alone(shell: Shell) -> None:
    command = "echo x > made; " + "true; " * 40
    shell.play([bash(command)], [say("done")], flags=ALLOW)
    (line,) = shell("diff", "last").out.decode().splitlines()
    assert line == f"# created by a command: made, 2 bytes ({command[:79]}…)"


def test_a_command_whose_worker_was_killed_is_named(shell: Shell) -> None:
    os.mkfifo(shell.stage.workspace / "started")
    command = "echo x > made; echo $$ > started; exec tail -f /dev/null"
    model = shell.stage.scenario([bash(command)], [say("done")])
    with subprocess.Popen(
        [BATTEN, "-p", "go", "--model", model, "--sandbox", "none", *ALLOW],
        stdin=subprocess.DEVNULL, env=environment(shell.stage), cwd=shell.stage.workspace,
    ) as process:  # fmt: skip
        (shell.stage.workspace / "started").read_text()
        process.kill()
    reason = "the record is incomplete: nobody saw the end of this command: "
    assert reason in shell("diff", "last").out.decode()
    assert shell("--resume", "last", "--model", model).code == 0
    assert reason in shell("diff", "last").out.decode()
    assert reason in shell("revert", "last").err


@pytest.mark.parametrize("mode", [BWRAP])
def test_the_model_is_told_why_git_left_a_file_as_it_was(shell: Shell, mode: Mode) -> None:
    """It ends with 0, and a commit would take back what the other branch has."""
    workspace = shell.stage.workspace
    (workspace / ".npmrc").write_text("first\n")
    for line in (
        "init -q -b main .",
        "add .",
        "commit -qm first",
        "checkout -qb other",
        "commit -qam second",
        "checkout -q main",
    ):
        if line.startswith("commit -qam"):
            (workspace / ".npmrc").write_text("second\n")
        identity = ["-c", "user.name=a", "-c", "user.email=b"]
        subprocess.run(["git", *identity, *line.split()], cwd=workspace, check=True, timeout=30)
    said = shell.play(
        [bash("git checkout other 2>&1 | cat")],
        [bash("echo 'Read-only file system: what it means'")],
        [say("done")],
        flags=("--sandbox", mode, "--allow", "bash"),
    )
    assert said.code == 0
    assert (workspace / ".npmrc").read_text() == "first\n"
    checkout, other = (
        event["data"]["output"]
        for event in map(json.loads, shell("events", *shell.run_ids()).out.splitlines())
        if event["type"] == "tool.completed"
    )
    assert "unable to unlink old '.npmrc'" in checkout
    assert "could not replace as modified: do not commit them" in checkout
    assert "lets commands" not in other
