"""Edits under review from the command line: propose, look, apply, reject."""

from tests.agent.stage import call, say
from tests.cli.invoking import Shell


def model(shell: Shell) -> str:
    edit = call("edit_file", "e", file_path="a.txt", old_string="one", new_string="1")
    write = call("write_file", "w", file_path="new.txt", content="new\n")
    return shell.stage.scenario([edit, write], [say("Done.")])


def review(shell: Shell) -> None:
    (shell.stage.workspace / "a.txt").write_text("one\n")
    said = shell("-p", "go", "--model", model(shell), "--review", "--auto-allow")
    assert said.code == 0, said.err


def test_edits_under_review_change_files_when_they_are_applied(shell: Shell) -> None:
    review(shell)
    workspace = shell.stage.workspace
    assert (workspace / "a.txt").read_text() == "one\n"
    assert not (workspace / "new.txt").exists()
    assert shell("diff", "last").out == b""
    shown = shell("diff", "last", "--proposed").out
    assert b"-one\n+1\n" in shown
    assert b"+new\n" in shown

    applied = shell("apply", "last", "a.txt")

    assert (applied.code, applied.out) == (0, b"applied a.txt\n")
    assert (workspace / "a.txt").read_text() == "1\n"
    rejected = shell("reject", "last", "--reason", "no need")
    assert (rejected.code, rejected.out) == (0, b"rejected new.txt\n")
    assert not (workspace / "new.txt").exists()
    again = shell("apply", "last")
    assert (again.code, "no patch that is proposed" in again.err) == (1, True)
    assert shell("verify").code == 0
    assert shell("revert", "last").out == b"reverted a.txt\n"
    assert (workspace / "a.txt").read_text() == "one\n"


def test_a_file_that_changed_since_is_not_overwritten(shell: Shell) -> None:
    review(shell)
    (shell.stage.workspace / "a.txt").write_text("mine\n")

    refused = shell("apply", "last")

    assert refused.code == 1
    assert "a.txt" in refused.err
    assert (shell.stage.workspace / "a.txt").read_text() == "mine\n"
    assert not (shell.stage.workspace / "new.txt").exists()
