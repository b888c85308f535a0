"""Runs of the kinds `shell`, `git` and `file`: one call each, held to the rules of an agent's."""

import asyncio

import pytest

from batten.contract.errors import CallerError, Conflict
from batten.contract.facts import (
    ApprovalRequested,
    RunCancelled,
    RunFailed,
    RunQueued,
    ToolFailed,
    ToolInvoked,
    ToolShellExited,
)
from batten.control.pool import specifying
from batten.control.worker import Worker
from batten.journal.workers import this_worker
from tests.agent.stage import Stage
from tests.runner.given import git, needs_git

from .service import BY, Service, serving

SHELL = {"execution_kind": "shell"}


async def test_a_shell_run_is_one_call_without_a_model(service: Service) -> None:
    row = await service.run(**SHELL, shell_command="echo out; echo err >&2")
    assert (row.status, row.model, row.provider, row.turns) == ("completed", None, None, 0)
    types = await service.types(row.run_id)
    assert [one for one in types if not one.startswith(("policy.", "artifact.", "workspace."))] == [
        "run.queued",
        "run.started",
        "tool.invoked",
        "tool.started",
        "tool.shell.command",
        "tool.shell.output_chunk",
        "tool.shell.output_chunk",
        "tool.shell.exited",
        "tool.completed",
        "run.finished",
    ]
    queued = await service.fact(row.run_id, RunQueued)
    assert (queued.kind, queued.model, queued.provider) == ("shell", None, None)
    invoked = await service.fact(row.run_id, ToolInvoked)
    assert (invoked.tool_name, invoked.kind, invoked.turn_index) == ("shell_exec", "shell", 0)
    (step,) = await service.steps(row.run_id)
    assert (step.kind, step.status, step.exit_code) == ("shell", "completed", 0)
    assert step.input == {"command": "echo out; echo err >&2"}
    (artifact,) = await service.journal.artifacts(row.run_id, kind="command_output")
    assert artifact.tool_call_id == invoked.tool_call_id


async def test_a_command_that_fails_fails_its_run_with_a_stable_code(service: Service) -> None:
    row = await service.run(**SHELL, shell_command="exit 3")
    failed = await service.fact(row.run_id, RunFailed)
    assert (row.status, failed.code, failed.retriable) == ("failed", "command_failed", False)
    assert failed.message == "shell_exec: exited with status 3"
    assert (await service.fact(row.run_id, ToolShellExited)).exit_code == 3


async def test_line_43_a_command_out_of_time_ends_as_timed_out(service: Service) -> None:
    row = await service.run(**SHELL, shell_command="echo begun; sleep 600", timeout_ms=300)
    types = await service.types(row.run_id)
    order = ["invoked", "started", "shell.command", "shell.output_chunk", "shell.exited"]
    places = [types.index(f"tool.{name}") for name in [*order, "timed_out"]]
    assert places == sorted(places)
    failed = await service.fact(row.run_id, RunFailed)
    assert (failed.code, failed.message) == (
        "command_timed_out",
        "shell_exec: timed out after 0.3 s",
    )


async def test_line_30_a_gated_command_waits_without_a_worker_and_runs_once(stage: Stage) -> None:
    async with serving(stage) as service:
        task = await service.create(**SHELL, shell_command="echo once >> made")
        row = await service.tasks.start(task, by="ann")
        request = await service.parked(row.run_id)
        asked = await service.fact(row.run_id, ApprovalRequested)
        assert (asked.kind, asked.summary) == ("shell_exec", "echo once >> made")
        assert asked.policy_reason == "shell_exec needs approval"
        assert await service.steps(row.run_id) == []
        await service.answer(request, granted=True)
        row = await service.ended(row.run_id)
        assert row.status == "completed"
        with pytest.raises(Conflict):
            await service.answer(request, granted=True)
        with pytest.raises(Conflict, match="is completed: retry it"):
            await service.tasks.resume(task, row.run_id, by="ann")
        assert (await service.file(row.run_id, "made")).read_text() == "once\n"
        assert (await service.types(row.run_id)).count("tool.invoked") == 1


async def test_line_32_a_rejected_command_is_cancelled_without_a_step(stage: Stage) -> None:
    async with serving(stage) as service:
        task = await service.create(**SHELL, shell_command="touch made")
        row = await service.tasks.start(task, by="ann")
        await service.answer(await service.pending(row.run_id), granted=False)
        row = await service.ended(row.run_id)
        cancelled = await service.fact(row.run_id, RunCancelled)
        assert (row.status, cancelled.reason, cancelled.by) == (
            "cancelled",
            "approval rejected",
            "operator",
        )
        assert await service.steps(row.run_id) == []
        assert "tool.invoked" not in await service.types(row.run_id)


async def test_a_rule_about_bash_holds_for_the_command_of_a_task(stage: Stage) -> None:
    async with serving(stage, "--auto-allow", "--deny", "Bash(touch *)") as service:
        row = await service.run(**SHELL, shell_command="echo a && touch made")
        failed = await service.fact(row.run_id, RunFailed)
        assert (failed.code, failed.outcome) == ("permission_denied", "denied")
        assert "tool.invoked" not in await service.types(row.run_id)
        (step,) = await service.steps(row.run_id)
        assert (step.result, step.phase) == ("denied", "policy")


@needs_git
@pytest.mark.parametrize("command", ["log --format=%s -n1", "git log --format=%s -n1"])
async def test_a_git_command_needs_no_word_git(
    service: Service, stage: Stage, command: str
) -> None:
    git(stage.workspace, "init", "-q")
    git(stage.workspace, "commit", "-q", "--allow-empty", "-m", "the first")
    row = await service.run(
        execution_kind="git", git_command=command, working_directory=str(stage.workspace)
    )
    assert row.status == "completed"
    invoked = await service.fact(row.run_id, ToolInvoked)
    assert invoked.tool_name == "git_exec"
    (step,) = await service.steps(row.run_id)
    assert step.kind == "git"
    (artifact,) = await service.journal.artifacts(row.run_id, kind="command_output")
    assert await service.journal.body(artifact.sha256) == b"the first\n"


@needs_git
async def test_a_git_command_is_no_shell_line(service: Service) -> None:
    row = await service.run(execution_kind="git", git_command="init -q . ; touch made $(touch m)")
    assert row.status == "failed"
    assert (await service.fact(row.run_id, ToolShellExited)).exit_code == 129
    assert list((await service.file(row.run_id, ".")).iterdir()) == []


async def test_a_file_is_written_and_added_to_as_patches(service: Service, stage: Stage) -> None:
    there = {"working_directory": str(stage.workspace), "workspace_mode": "in_place"}
    written = {"execution_kind": "file", "file_path": "notes/a.txt", **there}
    row = await service.run(**written, file_content="one\n")
    assert row.status == "completed"
    row = await service.run(**written, file_content="two\n", file_operation="append")
    assert (stage.workspace / "notes/a.txt").read_text() == "one\ntwo\n"
    (patch,) = await service.journal.artifacts(row.run_id, kind="patch")
    assert (patch.status, patch.metadata["stats"]["additions"]) == ("applied", 1)
    invoked = await service.fact(row.run_id, ToolInvoked)
    assert (invoked.tool_name, invoked.kind) == ("file_write", "file_write")
    (step,) = await service.steps(row.run_id)
    assert step.kind == "file"


async def test_a_long_file_is_written_whole(service: Service, stage: Stage) -> None:
    content = "0123456789abcde\n" * 65_000
    row = await service.run(execution_kind="file", file_path="a", file_content=content)
    assert row.status == "completed"
    assert (await service.file(row.run_id, "a")).read_text() == content


async def test_nothing_is_added_to_a_file_that_is_no_text(service: Service, stage: Stage) -> None:
    (stage.workspace / "a").write_bytes(b"\xff\xfe")
    row = await service.run(
        execution_kind="file",
        file_path="a",
        file_content="x",
        file_operation="append",
        working_directory=str(stage.workspace),
        workspace_mode="in_place",
    )
    assert (await service.fact(row.run_id, RunFailed)).code == "not_text"
    assert (await service.fact(row.run_id, ToolFailed)).error_kind == "not_text"
    assert (stage.workspace / "a").read_bytes() == b"\xff\xfe"


async def test_a_failed_command_is_resumed_in_its_workspace_and_never_continued(
    service: Service,
) -> None:
    row = await service.run(**SHELL, shell_command="echo x >> made; test $(wc -l < made) = 2")
    assert row.status == "failed"
    task = str(row.task_id)
    with pytest.raises(CallerError, match="only an agent's run"):
        await service.tasks.go_on(task, row.run_id, "more", by=BY)
    with pytest.raises(CallerError, match="of the kind shell and has no turns"):
        await service.tasks.retry_from_turn(task, row.run_id, 1, by=BY)
    again = await service.tasks.resume(task, row.run_id, by=BY)
    again = await service.ended(again.run_id)
    assert (again.status, again.prior_run_id) == ("completed", row.run_id)
    assert again.workspace_path == row.workspace_path
    assert "user.message" not in await service.types(again.run_id)


async def test_the_question_about_a_long_file_is_answered_like_any_other(stage: Stage) -> None:
    content = "0123456789abcde\n" * 65_000
    async with serving(stage) as service:
        task = await service.create(execution_kind="file", file_path="a", file_content=content)
        row = await service.tasks.start(task, by=BY)
        request = await service.parked(row.run_id)
        assert (request.summary, request.request_class) == ("a", "approval")
        await service.answer(request, granted=True)
        assert (await service.ended(row.run_id)).status == "completed"
        assert (await service.file(row.run_id, "a")).read_text() == content


async def test_line_53_two_workers_never_execute_one_run_twice(stage: Stage) -> None:
    async with serving(stage, "--auto-allow") as service:
        other = Worker(service.opener, specifying(service.opener), this_worker())
        async with asyncio.TaskGroup() as group:
            group.create_task(other.run())
            tasks = [
                await service.create(**SHELL, shell_command="echo x >> made") for _ in range(12)
            ]
            rows = [await service.tasks.start(task, by=BY) for task in tasks]
            for row in rows:
                assert (await service.ended(row.run_id)).status == "completed"
                assert (await service.types(row.run_id)).count("run.started") == 1
                assert (await service.file(row.run_id, "made")).read_text() == "x\n"
            other.stop()


async def test_line_55_a_command_that_a_stopping_worker_cuts_short_is_not_run_again(
    stage: Stage,
) -> None:
    async with serving(stage, "--auto-allow") as service:
        task = await service.create(**SHELL, shell_command="echo x >> made; sleep 600")
        row = await service.tasks.start(task, by=BY)
        await service.reached(row.run_id, "tool.shell.output_chunk", "tool.shell.command")
        service.worker.stop()
        service.worker.stop()
        await service.reached(row.run_id, "tool.cancelled")
        waiting = await service.create(**SHELL, shell_command="true")
        later = await service.tasks.start(waiting, by=BY)
        await service.until(row.run_id, "queued")
        assert (await service.row(later.run_id)).worker_id == ""
        other = Worker(service.opener, specifying(service.opener), this_worker())
        async with asyncio.TaskGroup() as group:
            group.create_task(other.run())
            row = await service.ended(row.run_id)
            assert (await service.fact(row.run_id, RunFailed)).code == "command_interrupted"
            assert (await service.types(row.run_id)).count("tool.invoked") == 1
            assert (await service.ended(later.run_id)).status == "completed"
            other.stop()
