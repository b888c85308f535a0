"""The directories that tasks work in: in place, a clone or a copy, a worktree."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from batten.contract.errors import CallerError, Conflict, Refused
from batten.contract.facts import RunCancelled, RunFailed, RunQueued
from batten.contract.ids import new_task_id
from batten.control import workspaces
from batten.control.reconciler import Sweeper
from batten.control.workspaces import Workspaces
from batten.journal.sqlite import SqliteJournal
from batten.protocols.hecate.creation import new_task
from batten.protocols.hecate.tasks import CreateTask
from batten.workspace.worktrees import Worktrees
from tests.agent.stage import Stage, bash, say
from tests.runner.given import git, needs_git

from .service import BY, PATIENCE_S, Service, serving

SHELL = {"execution_kind": "shell"}
TRAP = "#!/bin/sh\ntouch {trap}\n"


@pytest.fixture
def repository(stage: Stage, tmp_path: Path) -> Path:
    """The workspace as a repository with two branches, whose configuration runs programs."""
    top = stage.workspace
    git(top, "init", "-q", "-b", "main")
    (top / "a.txt").write_text("main\n")
    git(top, "add", ".")
    git(top, "commit", "-q", "-m", "first")
    git(top, "checkout", "-q", "-b", "other")
    (top / "a.txt").write_text("other\n")
    git(top, "commit", "-q", "-a", "-m", "second")
    git(top, "checkout", "-q", "main")
    trap = tmp_path / "trap"
    program = tmp_path / "program"
    program.write_text(TRAP.format(trap=trap))
    program.chmod(0o755)
    for name in ("post-checkout", "reference-transaction"):
        hook = top / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(TRAP.format(trap=trap))
        hook.chmod(0o755)
    for key in ("core.fsmonitor", "uploadpack.packObjectsHook", "core.sshCommand"):
        git(top, "config", key, str(program))
    git(top, "config", "core.hooksPath", str(top / ".git/hooks"))
    return top


@needs_git
async def test_a_clone_shares_no_file_and_runs_nothing_of_the_repository(
    service: Service, repository: Path, tmp_path: Path
) -> None:
    (tmp_path / "trap").unlink(missing_ok=True)
    row = await service.run(
        **SHELL,
        shell_command="cat a.txt; git log --format=%s; git status --short; echo x > b",
        working_directory=str(repository),
    )
    assert row.status == "completed"
    place = Path(row.workspace_path)
    assert place == service.stage.home / "workspaces" / str(row.task_id) / row.run_id
    assert git(place, "rev-parse", "HEAD") == git(repository, "rev-parse", "main")
    assert git(place, "remote", "get-url", "origin").strip() == str(repository)
    assert not (tmp_path / "trap").exists()
    assert "hooksPath" not in (place / ".git/config").read_text()
    assert not (repository / "b").exists()
    held = {path.stat().st_ino for path in (repository / ".git/objects").rglob("*")}
    assert not held & {path.stat().st_ino for path in (place / ".git/objects").rglob("*")}


@needs_git
async def test_a_clone_begins_at_its_base_branch(service: Service, repository: Path) -> None:
    there = {"working_directory": str(repository), "base_branch": "other"}
    row = await service.run(**SHELL, shell_command="grep -q other a.txt", **there)
    assert row.status == "completed"
    assert git(Path(row.workspace_path), "branch", "--show-current").strip() == "other"
    row = await service.run(**SHELL, shell_command="true", **{**there, "base_branch": "none"})
    failed = await service.fact(row.run_id, RunFailed)
    assert failed.code == "workspace_failed"
    assert "none not found" in failed.message
    assert await asyncio.to_thread(os.listdir, os.path.dirname(row.workspace_path)) == []


@needs_git
async def test_a_bare_repository_is_cloned_too(
    service: Service, repository: Path, tmp_path: Path
) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(repository), str(tmp_path / "bare.git"))
    row = await service.run(
        **SHELL, shell_command="grep -q main a.txt", repo=str(tmp_path / "bare.git")
    )
    assert row.status == "completed"


async def test_another_directory_is_copied_with_its_links(
    service: Service, stage: Stage, tmp_path: Path
) -> None:
    top = stage.workspace
    (top / "folder").mkdir()
    (top / "folder/a.sh").write_text("echo a\n")
    (top / "folder/a.sh").chmod(0o755)
    (top / "near").symlink_to("folder/a.sh")
    (top / "far").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(top / "pipe")
    row = await service.run(
        **SHELL, shell_command="./near && rm folder/a.sh", working_directory=str(top)
    )
    assert row.status == "completed"
    place = Path(row.workspace_path)
    assert (place / "near").readlink() == Path("folder/a.sh")
    assert (place / "far").readlink() == tmp_path / "elsewhere"
    assert sorted(os.listdir(place)) == ["far", "folder", "near"]
    assert (top / "folder/a.sh").exists()


async def test_a_copy_leaves_out_what_belongs_to_batten(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    async with serving(stage, "--auto-allow") as service:
        row = await service.run(**SHELL, shell_command="ls", working_directory=str(tmp_path))
        assert row.status == "completed"
        assert sorted(os.listdir(row.workspace_path)) == ["file", "workspace"]


async def test_a_task_without_a_source_gets_an_empty_directory(service: Service) -> None:
    row = await service.run(**SHELL, shell_command='test -z "$(ls -A)" && pwd > where')
    assert (await service.file(row.run_id, "where")).read_text() == row.workspace_path + "\n"
    assert os.stat(row.workspace_path).st_mode & 0o777 == 0o700


async def test_line_52_in_place_without_a_valid_source_fails_the_start(
    service: Service, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "missing", tmp_path / "file", service.stage.home):
        task = await service.create(
            **SHELL,
            shell_command="true",
            workspace_mode="in_place",
            working_directory=str(place),
        )
        with pytest.raises(CallerError) as refused:
            await service.tasks.start(task, by=BY)
        assert refused.value.code == "workspace_invalid"
        assert await service.journal.runs(task_id=task) == []
    with pytest.raises(CallerError, match="absolute path"):
        new_task(CreateTask(prompt="x", workspace_mode="in_place", working_directory="src"), by=BY)
    for mode in ("in_place", "worktree"):
        task = await service.create(**SHELL, shell_command="true", workspace_mode=mode)
        with pytest.raises(CallerError, match="needs a working_directory") as refused:
            await service.tasks.start(task, by=BY)
        assert refused.value.code == "workspace_invalid"
        assert await service.journal.runs(task_id=task) == []


async def test_in_place_is_the_directory_itself(service: Service, stage: Stage) -> None:
    row = await service.run(
        **SHELL,
        shell_command="echo x > made",
        workspace_mode="in_place",
        working_directory=str(stage.workspace),
    )
    assert (row.workspace_path, row.workspace_mode) == (str(stage.workspace), "in_place")
    assert (stage.workspace / "made").read_text() == "x\n"


async def test_a_source_that_vanished_refuses_the_start(stage: Stage, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    async with serving(stage, "--auto-allow") as service:
        task = await service.create(**SHELL, shell_command="true", working_directory=str(gone))
        gone.rmdir()
        with pytest.raises(CallerError):
            await service.tasks.start(task, by=BY)


async def test_a_resumed_run_goes_on_in_the_workspace_and_a_retry_gets_a_new_one(
    stage: Stage,
) -> None:
    model = stage.scenario([bash("echo x >> made")], [say("done")])
    async with serving(stage, "--auto-allow") as service:
        first = await service.run(prompt="go", requested_model=model)
        task = str(first.task_id)
        again = await service.tasks.go_on(task, first.run_id, "more", by=BY)
        again = await service.ended(again.run_id)
        assert (again.status, again.workspace_path) == ("completed", first.workspace_path)
        turned = await service.tasks.retry_from_turn(task, again.run_id, 1, by=BY)
        assert (await service.ended(turned.run_id)).workspace_path == first.workspace_path
        fresh = await service.tasks.retry(task, first.run_id, by=BY)
        fresh = await service.ended(fresh.run_id)
        assert fresh.workspace_path != first.workspace_path
        assert (await service.file(fresh.run_id, "made")).read_text() == "x\n"


async def test_a_run_whose_earlier_workspace_is_gone_says_so(stage: Stage) -> None:
    model = stage.scenario([say("done")])
    async with serving(stage, "--auto-allow") as service:
        first = await service.run(prompt="go", requested_model=model)
        os.rmdir(first.workspace_path)
        again = await service.tasks.go_on(str(first.task_id), first.run_id, "more", by=BY)
        again = await service.ended(again.run_id)
        assert (await service.fact(again.run_id, RunFailed)).code == "workspace_gone"


async def test_a_run_whose_workspace_went_while_it_waited_keeps_its_turns(
    stage: Stage, tmp_path: Path
) -> None:
    model = stage.scenario([bash("true")], [say("done")])
    (tmp_path / "there").mkdir()
    here = {"workspace_mode": "in_place", "working_directory": str(tmp_path / "there")}
    async with serving(stage) as service:
        task = await service.create(prompt="go", requested_model=model, **here)
        row = await service.tasks.start(task, by=BY)
        request = await service.parked(row.run_id)
        (tmp_path / "there").rmdir()
        await service.answer(request, granted=True)
        row = await service.ended(row.run_id)
        failed = await service.fact(row.run_id, RunFailed)
        types = await service.types(row.run_id)
    assert (failed.code, failed.turns, row.turns) == ("workspace_gone", 1, 1)
    assert types[-3:] == ["turn.completed", "cost.tick", "run.failed"]


async def test_a_workspace_that_takes_too_long_fails_and_one_that_is_cancelled_stops(
    service: Service, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open(stage.workspace / "endless", "wb") as file:
        file.truncate(1 << 38)
    there = {"working_directory": str(stage.workspace)}
    task = await service.create(**SHELL, shell_command="true", **there)
    row = await service.tasks.start(task, by=BY)
    folder = Path(row.workspace_path).parent
    async with asyncio.timeout(PATIENCE_S):
        while not list(folder.glob(".run_*/endless")):  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.005)
    await service.tasks.cancel(task, row.run_id, by="bob", reason="no need")
    row = await service.ended(row.run_id)
    cancelled = await service.fact(row.run_id, RunCancelled)
    assert (cancelled.by, cancelled.reason) == ("bob", "no need")
    assert os.listdir(os.path.dirname(row.workspace_path)) == []
    monkeypatch.setattr(workspaces, "PROVIDING_S", 0.05)
    row = await service.run(**SHELL, shell_command="true", **there)
    failed = await service.fact(row.run_id, RunFailed)
    assert (failed.code, row.outcome) == ("workspace_failed", "config")
    assert "within 0.05 s" in failed.message
    assert os.listdir(os.path.dirname(row.workspace_path)) == []


@needs_git
async def test_a_worktree_begins_at_its_branch_and_its_commit_is_in_the_repository(
    service: Service, repository: Path
) -> None:
    row = await service.run(
        **SHELL,
        shell_command="grep other a.txt && echo x > b && git add b &&"
        " git -c user.name=a -c user.email=a@b commit -qm made",
        workspace_mode="worktree",
        working_directory=str(repository),
        base_branch="other",
    )
    assert (row.status, row.workspace_mode) == ("completed", "worktree")
    assert (await service.fact(row.run_id, RunQueued)).workspace_path == row.workspace_path
    assert Path(row.workspace_path).is_relative_to(service.stage.home / "worktrees")
    assert (Path(row.workspace_path) / "b").exists()
    log = git(repository, "log", "--format=%s", f"batten/{row.run_id}")
    assert log.split() == ["made", "second", "first"]


@needs_git
async def test_a_worktree_needs_a_repository(service: Service, tmp_path: Path) -> None:
    task = await service.create(
        **SHELL, shell_command="true", workspace_mode="worktree", working_directory=str(tmp_path)
    )
    with pytest.raises(CallerError, match="worktree needs a git repository") as refused:
        await service.tasks.start(task, by=BY)
    assert refused.value.code == "workspace_invalid"


@needs_git
async def test_a_worktree_that_cannot_be_made_fails_the_run_as_a_clone_does(
    service: Service, repository: Path, tmp_path: Path
) -> None:
    git(tmp_path, "init", "-q", "empty")
    for place, branch, problem in (
        (repository, "missing", "has no branch 'missing' to begin at"),
        (tmp_path / "empty", "", "needs a commit to begin at"),
    ):
        wanted = {"base_branch": branch} if branch else {}
        row = await service.run(**_worktree(place, "true"), **wanted)
        failed = await service.fact(row.run_id, RunFailed)
        assert (failed.code, row.outcome) == ("workspace_failed", "config")
        assert problem in failed.message
        assert "--" not in failed.message


def test_line_51_ids_are_single_names_in_a_path(tmp_path: Path) -> None:
    places = Workspaces(str(tmp_path), {"HOME": str(tmp_path)})
    for name in ("..", "a/b", "", "task_1", "task_01ARZ3NDEKTSV4RRFFQ69G5FAV/.."):
        with pytest.raises(Refused):
            places.of_task(name)


async def test_a_link_on_the_way_to_a_workspace_is_refused(
    service: Service, tmp_path: Path
) -> None:
    task = await service.create(**SHELL, shell_command="true")
    (service.stage.home / "workspaces").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (service.stage.home / "workspaces" / task).symlink_to(tmp_path / "elsewhere")
    row = await service.tasks.start(task, by=BY)
    row = await service.ended(row.run_id)
    assert (await service.fact(row.run_id, RunFailed)).code == "workspace_violation"
    assert list((tmp_path / "elsewhere").iterdir()) == []


@needs_git
async def test_what_a_run_changed_in_its_clone_is_an_artifact(
    service: Service, repository: Path
) -> None:
    there = {"working_directory": str(repository)}
    row = await service.run(**SHELL, shell_command="echo new > b.txt; echo x >> a.txt", **there)
    (artifact,) = await service.journal.artifacts(row.run_id, kind="tool_result_blob")
    assert artifact.metadata == {"name": "git-changes.json", "file_count": 2}
    body = msgspec.json.decode(await service.journal.body(artifact.sha256))
    assert body["files"] == [
        {"path": "a.txt", "status": " M"},
        {"path": "b.txt", "status": "??"},
    ]
    assert "1 file changed" in body["diff_stat"]
    row = await service.run(**SHELL, shell_command="true", **there)
    assert await service.journal.artifacts(row.run_id, kind="tool_result_blob") == []


@needs_git
async def test_a_parked_run_finds_its_worktree_again_at_the_same_branch(
    stage: Stage, repository: Path
) -> None:
    async with serving(stage) as service:
        task = await service.create(
            **SHELL,
            shell_command="grep other a.txt && touch made",
            workspace_mode="worktree",
            working_directory=str(repository),
            base_branch="other",
        )
        row = await service.tasks.start(task, by=BY)
        await service.answer(await service.parked(row.run_id), granted=True)
        row = await service.ended(row.run_id)
        assert row.status == "completed"
        assert (Path(row.workspace_path) / "made").exists()


async def test_workspaces_of_tasks_that_are_gone_are_swept(service: Service) -> None:
    kept = await service.run(**SHELL, shell_command="true")
    gone = service.stage.home / "workspaces" / new_task_id()
    (gone / "run/folder").mkdir(parents=True)
    (service.stage.home / "workspaces/not ours").mkdir()
    assert await Sweeper(service.tasks).sweep() == 1
    assert not gone.exists()
    assert (service.stage.home / "workspaces/not ours").exists()
    assert Path(kept.workspace_path).exists()


async def test_a_worker_that_stops_leaves_no_half_workspace_and_another_goes_on(
    stage: Stage,
) -> None:
    with open(stage.workspace / "endless", "wb") as file:
        file.truncate(1 << 38)
    async with serving(stage, "--auto-allow") as service:
        task = await service.create(
            **SHELL, shell_command="true", working_directory=str(stage.workspace)
        )
        row = await service.tasks.start(task, by=BY)
        folder = Path(row.workspace_path).parent
        async with asyncio.timeout(PATIENCE_S):
            while not list(folder.glob(".run_*/endless")):  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.005)
        service.worker.stop()
        service.worker.stop()  # hands over at once
    assert os.listdir(folder) == []
    os.unlink(stage.workspace / "endless")
    async with serving(stage, "--auto-allow") as service:
        assert (await service.ended(row.run_id)).status == "completed"
        types = await service.types(row.run_id)
        assert types[:2] == ["run.queued", "run.started"]


@needs_git
async def test_a_worktree_that_a_killed_worker_left_half_made_is_made_again(
    stage: Stage, repository: Path
) -> None:
    async with serving(stage) as service:  # asks, so that the worktree is there before it works
        task = await service.create(**_worktree(repository, "cat a.txt > copy"))
        row = await service.tasks.start(task, by=BY)
        request = await service.parked(row.run_id)
        half = Path(row.workspace_path)
        (half / "a.txt").write_text("half of")
        record = half.parent.parent / ".records" / half.parent.name / f"{half.name}.json"
        record.rename(record.with_suffix(".making"))
        await service.answer(request, granted=True)
        assert (await service.ended(row.run_id)).status == "completed"
        assert (half / "copy").read_text() == "main\n"
        assert not record.with_suffix(".making").exists()


def _worktree(repository: Path, command: str) -> dict[str, str]:
    return {
        **SHELL,
        "shell_command": command,
        "workspace_mode": "worktree",
        "working_directory": str(repository),
    }


@needs_git
async def test_worktrees_of_tasks_that_are_gone_are_swept_but_not_those_in_use(
    stage: Stage, repository: Path
) -> None:
    async with serving(stage, "--auto-allow") as service:
        rows = [await service.run(**_worktree(repository, "touch made")) for _ in range(3)]
        pruned, half, kept = (Path(row.workspace_path) for row in rows)
        trees = Worktrees(str(stage.home / "worktrees"), service.opener.base.environ)
        persons = trees.create(str(repository), "of-a-person")
        assert await Sweeper(service.tasks).sweep() == 0
        journal = service.journal
        assert isinstance(journal, SqliteJournal)
        for row in rows[:2]:
            await _deleted(journal, str(row.session_id))
        tree = trees.holding(str(pruned))
        assert tree is not None
        held = trees.hold(tree)
        record = half.parent.parent / ".records" / half.parent.name / f"{half.name}.json"
        record.rename(record.with_suffix(".making"))
        assert await Sweeper(service.tasks).sweep() == 1
        assert (pruned.exists(), half.exists()) == (True, False)
        os.close(held)
        await _swept(service, pruned)
        assert kept.exists()
        assert os.path.isdir(persons.path)
        assert await Sweeper(service.tasks).sweep() == 0


async def _swept(service: Service, path: Path) -> None:
    """Sweep until a directory is gone: its worker may be about to leave it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await Sweeper(service.tasks).sweep()
            if not path.exists():
                return
            await asyncio.sleep(0.01)


async def _deleted(journal: SqliteJournal, session_id: str) -> None:
    """As pruning does it: only the store is changed."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await journal.delete_session(session_id, only_ended=True)
                return
            except Conflict:  # its worker is about to leave it
                await asyncio.sleep(0.01)
