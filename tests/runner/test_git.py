"""What git says of a workspace, and what it may not be made to do."""

import asyncio
import os
from pathlib import Path

import pytest
from msgspec import UNSET

from batten.runner import git as git_state
from batten.runner.git import GitState, state_of
from batten.workspace import git as workspace_git

from .given import git, needs_git


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than a runner waits."""
    monkeypatch.setattr(git_state, "DEADLINE_S", 60.0)


def repository(directory: Path) -> str:
    """One commit of everything on a branch; its name."""
    git(directory, "init", "-q", "-b", "main")
    git(directory, "add", ".")
    git(directory, "commit", "-q", "-m", "first")
    return git(directory, "rev-parse", "HEAD")


def program(directory: Path, lines: str, name: str = "git") -> None:
    path = directory / name
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)


def shell_of_a_repository(directory: Path) -> None:
    """As much as it takes for git to be asked."""
    (directory / ".git").mkdir()
    (directory / ".git" / "HEAD").write_text("ref: refs/heads/main\n")


@needs_git
async def test_commit_branch_and_changes_are_told(workspace: Path) -> None:
    commit = repository(workspace)
    (workspace / ".maestro/agent").mkdir(parents=True)
    (workspace / ".maestro/agent/session").write_text("what a drain leaves is no change")
    assert await state_of(str(workspace), os.environ) == GitState(
        commit=commit, branch="main", dirty=False
    )
    (workspace / "new.txt").write_text("new")
    assert await state_of(str(workspace), os.environ) == GitState(
        commit=commit, branch="main", dirty=True
    )


@needs_git
async def test_on_no_branch_none_is_told(workspace: Path) -> None:
    commit = repository(workspace)
    git(workspace, "checkout", "-q", "--detach")
    assert await state_of(str(workspace), os.environ) == GitState(commit=commit, dirty=False)


@needs_git
async def test_before_the_first_commit_there_is_a_branch_alone(workspace: Path) -> None:
    git(workspace, "init", "-q", "-b", "main")
    assert await state_of(str(workspace), os.environ) == GitState(branch="main", dirty=True)


@needs_git
async def test_without_a_repository_nothing_is_told(workspace: Path) -> None:
    assert await state_of(str(workspace), os.environ) is UNSET


async def test_without_git_nothing_is_told(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(workspace))
    assert await state_of(str(workspace), os.environ) is UNSET


async def test_a_git_that_does_not_answer_is_not_waited_for_and_left_behind_by_nobody(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell_of_a_repository(workspace)
    monkeypatch.setattr(git_state, "DEADLINE_S", 1.0)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    pids = tmp_path / "pids"
    program(tmp_path, f"echo $$ >> {pids}\nsleep 600 &\necho $! >> {pids}\nwait")
    async with asyncio.timeout(60):
        assert await state_of(str(workspace), os.environ) is UNSET
    # A busy machine may not have come to start any.
    for pid in pids.read_text().split() if pids.exists() else ():
        await gone(int(pid))


async def gone(pid: int) -> None:
    """A killed child of a child is reaped by another, in its own time."""
    async with asyncio.timeout(30):
        while True:
            try:
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            except FileNotFoundError:
                return
            if state == "Z":
                return
            await asyncio.sleep(0.01)


async def test_one_question_without_an_answer_leaves_the_others(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell_of_a_repository(workspace)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program(tmp_path, 'case "$*" in *rev-parse*) echo abc ;; *) exit 1 ;; esac')
    assert await state_of(str(workspace), os.environ) == GitState(commit="abc", dirty=True)


async def test_an_answer_without_end_is_no_answer(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell_of_a_repository(workspace)
    monkeypatch.setattr(workspace_git, "_LONGEST", 4096)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    program(tmp_path, "exec yes")
    assert await state_of(str(workspace), os.environ) is UNSET


@needs_git
async def test_programs_that_a_repository_names_are_not_started(
    workspace: Path, tmp_path: Path
) -> None:
    repository(workspace)
    program(tmp_path, f"touch {tmp_path}/started\ncat", "planted")
    planted = str(tmp_path / "planted")
    git(workspace, "config", "core.fsmonitor", planted)
    git(workspace, "config", "core.hooksPath", str(tmp_path))
    git(workspace, "config", "filter.f.clean", planted)
    git(workspace, "config", "filter.f.process", planted)
    git(workspace, "config", "filter.f.required", "true")
    (workspace / ".git" / "info" / "attributes").write_text("* filter=f\n")
    # Neither its size nor its content: only its time, so that git has to read it.
    os.utime(workspace / "notes.md", (1, 1))
    found = await state_of(str(workspace), os.environ)
    assert isinstance(found, GitState)
    assert not (tmp_path / "started").exists()
    assert not found.dirty


@needs_git
@pytest.mark.parametrize("name", ["a=b", "A", "a.b", "a\nb"])
async def test_filters_of_any_name_are_not_started(
    workspace: Path, tmp_path: Path, name: str
) -> None:
    repository(workspace)
    program(tmp_path, f"touch {tmp_path}/started\ncat", "planted")
    with (workspace / ".git" / "config").open("a") as config:
        spelled = name.replace("\n", "")
        config.write(f'[filter "{spelled}"]\n\tclean = {tmp_path}/planted\n')
    (workspace / ".git" / "info" / "attributes").write_text(f"* filter={spelled}\n")
    os.utime(workspace / "notes.md", (1, 1))
    found = await state_of(str(workspace), os.environ)
    assert isinstance(found, GitState)
    assert not found.dirty
    assert not (tmp_path / "started").exists()


@needs_git
async def test_objects_that_are_missing_are_not_fetched_by_a_program_of_the_repository(
    workspace: Path, tmp_path: Path
) -> None:
    commit = repository(workspace)
    program(tmp_path, f"touch {tmp_path}/started", "planted")
    git(workspace, "config", "core.repositoryformatversion", "1")
    git(workspace, "config", "extensions.partialClone", "origin")
    git(workspace, "config", "remote.origin.url", f"ext::{tmp_path}/planted")
    git(workspace, "config", "remote.origin.promisor", "true")
    git(workspace, "config", "protocol.ext.allow", "always")
    tree = git(workspace, "rev-parse", "HEAD^{tree}")
    (workspace / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    (workspace / ".git" / "index").unlink()
    found = await state_of(str(workspace), os.environ)
    assert found == GitState(commit=commit, branch="main", dirty=True)
    assert not (tmp_path / "started").exists()


@needs_git
async def test_git_of_the_workspace_is_not_started(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repository(workspace)
    (workspace / ".git" / "info" / "exclude").write_text("bin\n")
    (workspace / "bin").mkdir()
    program(workspace / "bin", f"touch {workspace}/started")
    monkeypatch.setenv("PATH", f"{workspace}/bin:{os.environ['PATH']}")
    assert await state_of(str(workspace), os.environ) == GitState(
        commit=commit, branch="main", dirty=False
    )
    assert not (workspace / "started").exists()


@needs_git
async def test_linked_working_tree_and_folder_below_are_asked_about(
    workspace: Path, tmp_path: Path
) -> None:
    commit = repository(workspace)
    other = tmp_path / "other"
    git(workspace, "worktree", "add", "-q", "-b", "side", str(other))
    (other / "below").mkdir()
    assert await state_of(str(other / "below"), os.environ) == GitState(
        commit=commit, branch="side", dirty=False
    )
    (other / "notes.md").write_text("changed")
    assert await state_of(str(other), os.environ) == GitState(
        commit=commit, branch="side", dirty=True
    )


@needs_git
async def test_the_workspace_is_asked_about_and_not_what_the_environment_names(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = repository(workspace)
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "other"))
    assert await state_of(str(workspace), os.environ) == GitState(
        commit=commit, branch="main", dirty=False
    )
