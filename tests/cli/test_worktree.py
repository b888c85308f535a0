"""`--worktree`: a git worktree for a run, kept or removed by what is in it."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from batten.contract.envelope import decode
from batten.contract.facts import RunQueued
from batten.workspace.worktrees import Worktrees
from tests.agent.stage import bash, call, say
from tests.runner.given import git, needs_git
from tests.workspace.keepers import CONFINED

from .invoking import Said, Shell

pytestmark = needs_git
EDITS = ("--permission-mode", "acceptEdits")
COMMIT = "git -c user.name=a -c user.email=a@b.c commit -q -m made"


@pytest.fixture
def repository(shell: Shell) -> Path:
    """The workspace, as a repository of one commit."""
    top = shell.stage.workspace
    (top / "src").mkdir()
    (top / "src/a.txt").write_text("before\n")
    (top / ".gitignore").write_text("*.log\n")
    git(top, "init", "-q", "-b", "main")
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "first")
    return top


def place_of(said: Said) -> Path:
    """The worktree that an invocation said it made."""
    found = re.search(r"worktree \S+: (\S+), on branch (batten/\S+)", said.err)
    assert found is not None, said.err
    return Path(found[1])


def branches(repository: Path) -> list[str]:
    listed: str = git(repository, "branch", "--format=%(refname:short)")
    return listed.split()


def write(path: str, content: str) -> dict[str, object]:
    return call("write_file", file_path=path, content=content)


def test_edits_are_made_in_the_worktree_which_is_kept_with_its_branch(
    shell: Shell, repository: Path
) -> None:
    said = shell.play(
        [write("src/a.txt", "after\n")], [say("done")], flags=[*EDITS, "--worktree", "fix"]
    )
    assert said.code == 0
    place = place_of(said)
    assert (repository / "src/a.txt").read_text() == "before\n"
    assert (place / "src/a.txt").read_text() == "after\n"
    assert branches(repository) == ["batten/fix", "main"]
    assert git(place, "status", "--porcelain").split() == ["M", "src/a.txt"]
    assert git(repository, "status", "--porcelain") == ""
    assert "worktree fix is kept: 1 changed file" in said.err
    assert "git merge batten/fix" in said.err
    # What it advises to remove the worktree does so.
    advice = re.search(r"remove: (.*)", said.err)
    assert advice is not None
    subprocess.run(advice[1], shell=True, cwd=repository, check=True, capture_output=True)
    assert (place.exists(), branches(repository)) == (False, ["main"])


def test_a_worktree_that_holds_nothing_new_is_removed_with_its_branch(
    shell: Shell, repository: Path
) -> None:
    said = shell.play(
        [bash("echo ignored > trace.log")], [say("done")], flags=["--allow", "bash", "--worktree"]
    )
    assert said.code == 0
    place = place_of(said)
    assert not place.exists()
    assert branches(repository) == ["main"]
    assert git(repository, "worktree", "list").count("\n") == 0
    assert re.search(r"worktree run-[0-9a-f]{8} is removed, with its branch", said.err)
    journal = shell.stage.journal()
    (first, *_) = journal.read_now(shell.run_ids()[0], limit=1)
    journal.close()
    queued = decode(first.body).data
    assert isinstance(queued, RunQueued)
    assert (queued.workspace_mode, queued.workspace_path) == ("worktree", str(place))


def test_a_worktree_stays_while_patches_wait_for_review(shell: Shell, repository: Path) -> None:
    said = shell.play(
        [write("src/a.txt", "after\n")],
        [say("done")],
        flags=[*EDITS, "--review", "--worktree", "fix"],
    )
    assert said.code == 0
    assert "worktree fix is kept: proposed patches wait for review" in said.err
    place = place_of(said)
    assert (place / "src/a.txt").read_text() == "before\n"
    assert shell("apply", shell.run_ids()[0]).code == 0
    assert (place / "src/a.txt").read_text() == "after\n"


@pytest.mark.parametrize("layer", CONFINED)
def test_a_command_can_commit_in_it_and_cannot_write_the_repository(
    shell: Shell, repository: Path, layer: str
) -> None:
    lines = (
        f"echo x > new.txt; git add new.txt; {COMMIT};"
        f" echo x > {repository}/escaped; echo x >> {repository}/.git/config;"
        f" echo x > {repository}/.git/hooks/post-commit; true"
    )
    before = (repository / ".git/config").read_text()
    model = shell.stage.scenario([bash(lines)], [say("done")], [say("well")])
    flags = ("--sandbox", layer, "--permission-mode", "dontAsk", "--worktree=c")
    said = shell("-p", "go", "--model", model, *flags)
    assert said.code == 0
    assert "worktree c is kept: 1 new commit" in said.err
    assert git(repository, "log", "--format=%s", "main..batten/c") == "made"
    assert not (repository / "escaped").exists()
    assert not (repository / ".git/hooks/post-commit").exists()
    assert (repository / ".git/config").read_text() == before
    git(repository, "merge", "-q", "batten/c")
    # Once merged it holds nothing of its own, and the next invocation in it removes it.
    (run_id,) = shell.run_ids()
    again = shell("-p", "on", "--resume", run_id)
    assert "worktree c is removed" in again.err
    assert branches(repository) == ["main"]


def test_the_run_works_in_the_same_folder_of_the_worktree(
    shell: Shell, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository / "src")
    said = shell.play([write("b.txt", "x")], [say("done")], flags=[*EDITS, "--worktree", "sub"])
    assert (place_of(said) / "src/b.txt").read_text() == "x"


@pytest.mark.parametrize("kept", [True, False])
def test_a_resumed_session_finds_its_worktree_or_makes_it_again(
    shell: Shell, repository: Path, kept: bool
) -> None:
    model = shell.stage.scenario(
        [write("one.txt", "1") if kept else bash("true")],
        [say("done")],
        [write("two.txt", "2")],
        [say("done")],
        [write("three.txt", "3")],
        [say("done")],
    )
    said = shell.print(model, *EDITS, "--worktree", "go")
    place = place_of(said)
    assert place.exists() == kept
    (run_id,) = shell.run_ids()
    said = shell("-p", "on", "--resume", run_id, *EDITS)
    assert said.code == 0, said.err
    assert (place / "two.txt").read_text() == "2"
    assert (place / "one.txt").exists() == kept
    assert git(place, "rev-parse", "--abbrev-ref", "HEAD") == "batten/go"
    said = shell("-p", "on", "--continue", "--worktree", "go", *EDITS)
    assert said.code == 0, said.err
    assert (place / "three.txt").exists()


def test_a_worktree_in_which_another_process_works_is_kept(shell: Shell, repository: Path) -> None:
    said = shell.play([say("one")], [say("two")], flags=["--worktree", "shared"])
    place = place_of(said)
    worktrees = Worktrees(str(shell.stage.home / "worktrees"), os.environ)
    tree = worktrees.holding(str(place))
    assert tree is not None
    held = worktrees.hold(tree)
    (run_id,) = shell.run_ids()
    said = shell("-p", "on", "--resume", run_id)
    assert "worktree shared is kept: another process works in it" in said.err
    assert place.exists()
    os.close(held)


def test_a_session_that_cannot_be_resumed_leaves_its_worktree_alone(
    shell: Shell, repository: Path
) -> None:
    said = shell.play([say("one")], [say("two")], flags=["--worktree", "busy"])
    place = place_of(said)
    worktrees = Worktrees(str(shell.stage.home / "worktrees"), os.environ)
    tree = worktrees.holding(str(place))
    assert tree is not None
    worktrees.create(str(repository), "busy")  # clean, as that of a session at work may be
    (run_id,) = shell.run_ids()
    said = shell("-p", "on", "--resume", run_id, "--tools", "nonsense")
    assert said.code == 64
    assert place.exists()


def test_a_folder_that_was_deleted_by_hand_is_checked_out_from_its_branch(
    shell: Shell, repository: Path
) -> None:
    said = shell.play(
        [bash(f"echo 1 > one.txt; git add one.txt; {COMMIT}")],
        [say("done")],
        flags=["--allow", "bash", "--worktree", "lost"],
    )
    place = place_of(said)
    subprocess.run(["rm", "-rf", str(place)], check=True)
    (run_id,) = shell.run_ids()
    said = shell("-p", "on", "--resume", run_id, "--model", shell.stage.scenario([say("ok")]))
    assert said.code == 0, said.err
    assert (place / "one.txt").read_text() == "1\n"


@pytest.mark.parametrize("name", ["a b", "../a", "-x", "a..b", "x.lock", "x" * 65, "a/b"])
def test_a_bad_name_is_a_usage_error(shell: Shell, repository: Path, name: str) -> None:
    said = shell.play([say("never")], flags=[f"--worktree={name}"])
    assert said.code == 64
    assert "is no name for a worktree" in said.err


def test_a_name_in_use_is_refused_with_the_ways_out(shell: Shell, repository: Path) -> None:
    git(repository, "branch", "batten/taken")
    said = shell.play([say("never")], flags=["--worktree", "taken"])
    assert said.code == 64
    assert "the name is in use (branch batten/taken)" in said.err
    shell.play([write("x", "x")], [say("done")], flags=[*EDITS, "--worktree", "mine"])
    said = shell.play([say("never")], flags=["--worktree", "mine"])
    assert said.code == 64
    assert "git worktree remove" in said.err


def test_without_a_repository_or_a_commit_it_is_a_usage_error(shell: Shell) -> None:
    said = shell.play([say("never")], flags=["--worktree"])
    assert said.code == 64
    assert "is in none" in said.err
    git(shell.stage.workspace, "init", "-q")
    said = shell.play([say("never")], flags=["--worktree"])
    assert said.code == 64
    assert "has none yet" in said.err


def test_an_invocation_that_fails_to_begin_leaves_no_worktree(
    shell: Shell, repository: Path
) -> None:
    said = shell("-p", "go", "--worktree", "early", "--tools", "nonsense", "--model", "scripted/x")
    assert said.code != 0
    assert branches(repository) == ["main"]


def test_programs_that_the_repository_names_are_not_started(shell: Shell, repository: Path) -> None:
    planted = shell.stage.directory / "planted"
    started = shell.stage.directory / "started"
    planted.write_text(f"#!/bin/sh\ntouch {started}\ncat\n")
    planted.chmod(0o755)
    for key in ("core.fsmonitor", "filter.f.smudge", "filter.f.clean", "filter.f.process"):
        git(repository, "config", key, str(planted))
    (repository / ".git/info/attributes").write_text("* filter=f\n")
    for hook in ("post-checkout", "reference-transaction", "post-index-change"):
        (repository / ".git/hooks").mkdir(exist_ok=True)
        os.symlink(planted, repository / ".git/hooks" / hook)
    said = shell.play([say("done")], flags=["--worktree", "safe"])
    assert said.code == 0, said.err
    assert "worktree safe is removed" in said.err
    assert not started.exists()


def test_a_worktree_that_a_command_points_elsewhere_is_judged_by_our_record(
    shell: Shell, repository: Path
) -> None:
    other = shell.stage.directory / "other"
    other.mkdir()
    git(other, "init", "-q", "-b", "main")
    (other / "x").write_text("x")
    git(other, "add", ".")
    git(other, "commit", "-q", "-m", "x")
    said = shell.play(
        [bash(f"echo kept > new.txt; echo 'gitdir: {other}/.git' > .git")],
        [say("done")],
        flags=["--permission-mode", "dontAsk", "--worktree", "sly"],
    )
    assert "worktree sly is kept: 1 changed file" in said.err
    assert branches(other) == ["main"]
    assert branches(repository) == ["batten/sly", "main"]
