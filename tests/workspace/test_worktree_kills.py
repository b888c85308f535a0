"""A process that is killed while it makes or removes a worktree leaves no half of one."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from batten.workspace.worktrees import Worktree, Worktrees
from tests.runner.given import git, needs_git

pytestmark = needs_git

MAKE = "worktrees.create(repository, 'run_1', again=True)"
REMOVE = (
    "tree = worktrees.create(repository, 'run_1', again=True);"
    " worktrees.settle(tree, worktrees.hold(tree))"
)
PROGRAM = """
import os, sys
from batten.workspace.worktrees import Worktrees
folder, repository, moment = sys.argv[1:]
unlink = os.unlink
def die(*_, **__):
    os.kill(os.getpid(), 9)
def unlink_and_die(name, **more):
    unlink(name, **more)
    if name == "a.txt":
        die()
if moment == "before its record":
    Worktrees._record = die
elif moment == "while it is removed":
    os.unlink = unlink_and_die
worktrees = Worktrees(folder, os.environ)
"""
KILLING_GIT = """#!/bin/bash
{git} "$@"; code=$?
case " $* " in *" {command} "*)
  kill -9 $PPID
  # As git leaves it that is killed itself.
  [ ! -d {own} ] || echo initializing > {own}/locked
esac
exit $code
"""


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    place = tmp_path / "repository"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    for name in ("a.txt", "b.txt"):
        (place / name).write_text(name)
    git(place, "add", ".")
    git(place, "commit", "-q", "-m", "first")
    return place


def killed(tmp_path: Path, repository: Path, what: str, moment: str) -> None:
    """Make or remove a worktree in a process that is killed at a moment."""
    environ = dict(os.environ)
    if moment.startswith("git "):
        found = shutil.which("git")
        assert found is not None
        (tmp_path / "bin").mkdir()
        wrapper = tmp_path / "bin/git"
        wrapper.write_text(
            KILLING_GIT.format(
                git=found,
                command=moment.removeprefix("git "),
                own=repository / ".git/worktrees/run_1",
            )
        )
        wrapper.chmod(0o755)
        environ["PATH"] = f"{tmp_path / 'bin'}:{environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + what, str(tmp_path / "trees"), str(repository), moment],
        env=environ,
        timeout=60,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


def opened(worktrees: Worktrees, repository: Path) -> Worktree:
    """As a session does that goes on."""
    found = worktrees.holding(worktrees.path_of(str(repository), "run_1"))
    if found is None:
        return worktrees.create(str(repository), "run_1", again=True)
    tree, held = worktrees.reopen(found)
    os.close(held)
    return tree


@pytest.mark.parametrize(
    ("what", "moment"),
    [
        (MAKE, "git worktree add"),
        (MAKE, "before its record"),
        (REMOVE, "while it is removed"),
        (REMOVE, "git update-ref -d"),
    ],
)
def test_who_goes_on_gets_a_whole_worktree(
    tmp_path: Path, repository: Path, what: str, moment: str
) -> None:
    killed(tmp_path, repository, what, moment)
    worktrees = Worktrees(str(tmp_path / "trees"), os.environ)
    tree = opened(worktrees, repository)
    place = Path(tree.path)
    assert sorted(one.name for one in place.iterdir()) == [".git", "a.txt", "b.txt"]
    assert git(place, "status", "--porcelain", "--branch") == "## batten/run_1"
    assert str(place) in git(repository, "worktree", "list")
    assert [one.name for one in place.parent.iterdir()] == ["run_1"]
