"""Directories that tasks name: looked at again when a run begins, because commands make links."""

from pathlib import Path

import pytest

from batten.contract.errors import CallerError, Refused
from batten.contract.facts import RunFailed
from batten.control.directories import unfit_to_write
from batten.wiring.spec import TaskGrants
from tests.agent.stage import Stage

from .service import BY, Service, serving

pytestmark = pytest.mark.attack

SHELL = {"execution_kind": "shell", "shell_command": "touch made"}


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """What a command would like a run of another task to write in."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


def replaced(folder: Path, target: Path) -> None:
    """What a command in the folder above does."""
    folder.rmdir()
    folder.symlink_to(target)


async def test_a_root_that_has_become_a_link_is_refused_before_the_run_begins(
    stage: Stage, tmp_path: Path
) -> None:
    below = stage.workspace / "below"
    below.mkdir()
    async with serving(stage, "--auto-allow") as service:
        task = await service.create(
            **SHELL, working_directory=str(stage.workspace), sandbox_allowed_root=str(below)
        )
        replaced(below, tmp_path)
        row = await service.ended((await service.tasks.start(task, by=BY)).run_id)
        failed = await service.fact(row.run_id, RunFailed)
    assert "sandbox_allowed_root" in failed.message
    assert not (tmp_path / "made").exists()


async def test_a_directory_that_has_become_a_link_since_it_was_queued_is_refused(
    service: Service, elsewhere: Path
) -> None:
    below = service.stage.workspace / "below"
    below.mkdir()
    task_id = await service.create(**SHELL, workspace_mode="in_place", working_directory=str(below))
    row = await service.ended((await service.tasks.start(task_id, by=BY)).run_id)
    (below / "made").unlink()
    replaced(below, elsewhere)
    task = await service.tasks.described(await service.tasks.find(task_id))
    assert task is not None
    with pytest.raises(Refused, match="has become a link"):
        await service.tasks.workspaces.provide(service.journal, task, row)
    resumed = await service.tasks.start(task_id, by=BY)  # its real path is looked up again
    assert resumed.workspace_path == str(elsewhere)


async def test_a_listed_directory_bounds_every_mode_and_what_is_written_beside(
    stage: Stage, elsewhere: Path
) -> None:
    grants = TaskGrants(directories=(str(stage.workspace),))
    inside = stage.workspace / "inside"
    inside.mkdir()
    async with serving(stage, "--auto-allow", grants=grants) as service:
        row = await service.run(**SHELL, working_directory=str(inside))
        assert row.status == "completed"
        (stage.workspace / "way").symlink_to(elsewhere)
        for path in (elsewhere, stage.workspace / "way"):
            for mode in ("clone", "worktree", "in_place"):
                task = await service.create(
                    **SHELL, working_directory=str(path), workspace_mode=mode
                )
                with pytest.raises(CallerError, match="--allow-task-dir"):
                    await service.tasks.start(task, by=BY)
            with pytest.raises(Refused, match="sandbox_allowed_root"):
                await service.create(
                    **SHELL, working_directory=str(path), sandbox_allowed_root=str(path)
                )


async def test_a_run_s_own_workspace_may_be_the_source_of_the_next(stage: Stage) -> None:
    grants = TaskGrants(directories=(str(stage.workspace),))
    async with serving(stage, "--auto-allow", grants=grants) as service:
        row = await service.run(**SHELL)
        there = {"working_directory": row.workspace_path, "workspace_mode": "in_place"}
        assert (await service.run(**SHELL, **there)).status == "completed"


def test_a_directory_for_work_in_a_home_is_fit_and_one_for_settings_is_not(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PATH": f"{tmp_path}/bin:relative::/usr/bin"}

    def why(path: str) -> str:
        return unfit_to_write(str(tmp_path / path), environ)

    assert [why(path) for path in ("work", "work/.hidden", "binary", "x/bin")] == [""] * 4
    assert "holds the home directory" in why("")
    assert "is a hidden folder" in why(".config")
    assert "is a hidden folder" in why(".local/bin")
    assert "is on the PATH" in why("bin/sub")
    assert unfit_to_write(str(tmp_path), environ, [str(tmp_path)]) == ""
