"""Deleting a task: everything of it goes, and nothing that its client named."""

import os
from pathlib import Path

import pytest

from batten.contract.errors import CallerError, Conflict, NotFound
from tests.agent.stage import Stage, bash, say
from tests.runner.given import git, needs_git

from .service import BY, Service, serving

SHELL = {"execution_kind": "shell"}


async def test_line_58_a_deleted_task_leaves_nothing(service: Service, stage: Stage) -> None:
    kept = await service.run(**SHELL, shell_command="echo kept > made")
    row = await service.run(
        **SHELL,
        shell_command="mkdir locked && touch locked/a && chmod 500 locked && seq 100000",
        working_directory=str(stage.workspace),
    )
    task = str(row.task_id)
    again = await service.tasks.retry(task, row.run_id, by=BY)
    await service.ended(again.run_id)
    (artifact,) = await service.journal.artifacts(row.run_id, kind="command_output")
    await service.tasks.delete(task)
    with pytest.raises(NotFound):
        await service.tasks.find(task)
    with pytest.raises(NotFound):
        await service.tasks.delete(task)
    for run_id in (row.run_id, again.run_id):
        assert await service.journal.run(run_id) is None
        with pytest.raises(NotFound):
            await service.journal.read(run_id)
        assert await service.journal.requests(run_id) == []
        assert await service.journal.artifacts(run_id) == []
    assert await service.journal.artifact(artifact.artifact_id) is None
    left = {stored.run_id for stored in await service.journal.feed(limit=1000)}
    assert not left & {row.run_id, again.run_id}
    assert kept.run_id in left
    assert not os.path.exists(os.path.dirname(row.workspace_path))
    assert stage.workspace.is_dir()
    assert (Path(kept.workspace_path) / "made").read_text() == "kept\n"
    assert await service.journal.verify() == []


async def test_line_35_a_task_with_an_active_run_is_neither_started_nor_deleted(
    stage: Stage,
) -> None:
    async with serving(stage) as service:
        task = await service.create(**SHELL, shell_command="true")
        row = await service.tasks.start(task, by=BY)
        await service.parked(row.run_id)
        with pytest.raises(Conflict):
            await service.tasks.start(task, by=BY)
        with pytest.raises(Conflict, match="cancel it first"):
            await service.tasks.delete(task)
        assert (await service.row(row.run_id)).status == "awaiting_approval"
        await service.tasks.cancel(task, row.run_id, by=BY)
        await service.tasks.delete(task)


async def test_line_36_nothing_follows_a_run_while_another_is_active(stage: Stage) -> None:
    model = stage.scenario([bash("touch made")], [say("done")])
    async with serving(stage) as service:
        task = await service.create(prompt="go", requested_model=model)
        first = await service.tasks.start(task, by=BY)
        await service.parked(first.run_id)
        for again in (service.tasks.retry, service.tasks.resume):
            with pytest.raises(Conflict):
                await again(task, first.run_id, by=BY)
        await service.tasks.cancel(task, first.run_id, by=BY)
        second = await service.tasks.retry(task, first.run_id, by=BY)
        await service.parked(second.run_id)
        for again in (service.tasks.retry, service.tasks.resume):
            with pytest.raises(Conflict):
                await again(task, first.run_id, by=BY)
        with pytest.raises(Conflict):
            await service.tasks.go_on(task, first.run_id, "more", by=BY)
        with pytest.raises(Conflict):
            await service.tasks.retry_from_turn(task, first.run_id, 1, by=BY)
        with pytest.raises(CallerError, match="has not ended"):
            await service.tasks.retry_from_turn(task, second.run_id, 1, by=BY)


async def test_line_33_a_cancel_closes_the_question_of_a_parked_run(stage: Stage) -> None:
    async with serving(stage) as service:
        task = await service.create(**SHELL, shell_command="touch made")
        row = await service.tasks.start(task, by=BY)
        request = await service.parked(row.run_id)
        row = await service.tasks.cancel(task, row.run_id, by=BY, reason="not now")
        assert row.status == "cancelled"
        (closed,) = await service.journal.requests(row.run_id)
        assert (closed.status, closed.decision) == ("cancelled", "cancelled")
        with pytest.raises(Conflict):
            await service.answer(request, granted=True)
        types = await service.types(row.run_id)
        assert types.index("approval.resolved") < types.index("run.cancelled")
        again = await service.tasks.cancel(task, row.run_id, by=BY)
        assert (again.status, again.next_sequence) == ("cancelled", row.next_sequence)


@needs_git
async def test_a_deleted_task_leaves_its_branch_with_the_commits(
    service: Service, stage: Stage
) -> None:
    git(stage.workspace, "init", "-q", "-b", "main")
    git(stage.workspace, "commit", "-q", "--allow-empty", "-m", "first")
    commit = "git -c user.name=a -c user.email=a@b commit -q --allow-empty -m made; touch loose"
    row = await service.run(
        **SHELL,
        shell_command=commit,
        workspace_mode="worktree",
        working_directory=str(stage.workspace),
    )
    await service.tasks.delete(str(row.task_id))
    assert not os.path.exists(row.workspace_path)
    assert row.run_id not in git(stage.workspace, "worktree", "list")
    assert "made" in git(stage.workspace, "log", "--format=%s", f"batten/{row.run_id}")
