"""Tasks of every kind over HTTP, executed by the workers of a real service."""

import os
import signal
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.service.serving import Json, Run, Service, serving

WAITS = "awaiting_approval"


@pytest.fixture(scope="module")
def flags() -> tuple[str, ...]:
    """The service allows what no rule decides."""
    return ("--auto-allow", "--workers", "2", "--max-runs", "3")


async def started(service: Service, status: str = "queued", **fields: object) -> Run:
    task: Json = await service.post("/tasks", fields)
    run: Json = await service.post(f"/tasks/{task['id']}/start")
    assert run["status"] == status
    return Run(service, task["id"], run["id"])


async def test_line_29_a_run_is_queued_started_and_finished_in_a_workspace_of_its_own(
    service: Service,
) -> None:
    run = await started(service, execution_kind="shell", shell_command="pwd; echo x > made")
    ended = await run.ended()
    place = service.stage.home / "workspaces" / run.task_id / run.run_id
    assert (ended["status"], ended["kind"], ended["workspace_path"]) == (
        "completed",
        "shell",
        str(place),
    )
    assert "model" not in ended
    events = await run.events()
    assert [event["sequence"] for event in events] == list(range(len(events)))
    order = [event["type"] for event in events]
    assert order[0] == "run.queued"
    assert order.index("run.started") < order.index("tool.invoked") < order.index("run.finished")
    queued = events[0]["data"]
    assert (queued["model"], queued["provider"]) == (None, None)
    assert (queued["workspace_mode"], queued["workspace_path"]) == ("clone", str(place))
    assert (place / "made").read_text() == "x\n"


async def test_a_command_that_fails_fails_its_run(service: Service) -> None:
    run = await started(service, execution_kind="shell", shell_command="exit 7")
    ended = await run.ended()
    assert (ended["status"], ended["last_error"]) == (
        "failed",
        "shell_exec: exited with status 7",
    )
    failed = (await run.until("run.failed"))["data"]
    assert failed["code"] == "command_failed"


async def test_line_58_a_task_is_deleted_with_its_workspace(service: Service) -> None:
    run = await started(service, execution_kind="file", file_path="a/b", file_content="x")
    assert (await run.ended())["status"] == "completed"
    place = service.stage.home / "workspaces" / run.task_id
    assert (place / run.run_id / "a/b").read_text() == "x"
    answer = await service.ask("DELETE", run.task_path)
    assert (answer.status, answer.body) == (204, b"")
    for path in (run.task_path, run.path, f"{run.path}/events?limit=5"):
        assert (await service.ask("GET", path)).status == 404
    assert (await service.ask("DELETE", run.task_path)).status == 404
    assert not place.exists()


async def test_line_35_an_active_run_refuses_a_start_and_a_delete(service: Service) -> None:
    run = await started(service, execution_kind="shell", shell_command="sleep 600")
    await run.until("tool.shell.command")
    for method, path in (("POST", f"{run.task_path}/start"), ("DELETE", run.task_path)):
        assert (await service.ask(method, path)).status == 409
    stats: Json = await service.get("/system/stats")
    assert (stats["worker_count"], stats["running_runs"], stats["in_flight_jobs"]) == (2, 1, 1)
    assert (stats["queue_depth"], stats["awaiting_approval_runs"]) == (0, 0)
    await service.post(f"{run.path}/cancel", {"reason": "enough"})
    ended = await run.ended()
    assert (ended["status"], ended["last_error"]) == ("cancelled", "enough")
    again: Json = await service.post(f"{run.path}/cancel")
    assert again["last_sequence"] == (await run.now())["last_sequence"]
    assert (await service.ask("DELETE", run.task_path)).status == 204


async def test_what_cannot_be_started_says_why(service: Service, tmp_path: Path) -> None:
    task: Json = await service.post("/tasks", {"prompt": "go"})
    answer = await service.ask("POST", f"/tasks/{task['id']}/start")
    assert (answer.status, answer.error["type"]) == (422, "model_not_configured")
    assert await service.get(f"/tasks/{task['id']}/runs") == []
    there = {"workspace_mode": "in_place", "working_directory": str(tmp_path / "missing")}
    task = await service.post("/tasks", {"prompt": "go", **there})
    answer = await service.ask("POST", f"/tasks/{task['id']}/start")
    assert (answer.status, answer.error["type"]) == (400, "invalid_request")
    assert answer.error["code"] == "workspace_invalid"
    for wanted in ({"sandbox_network": True}, {"permission_mode": "dontAsk"}):
        answer = await service.ask("POST", "/tasks", {"prompt": "go", **wanted})
        assert (answer.status, answer.error["type"]) == (403, "forbidden"), wanted
    answer = await service.ask("POST", "/tasks", {"prompt": "x", "permission_mode": "disabled"})
    assert answer.status == 400
    answer = await service.ask("POST", "/tasks", {"execution_kind": "git", "git_command": "log '"})
    assert (answer.status, answer.error["type"]) == (400, "invalid_request")


async def test_no_more_runs_work_at_once_than_the_service_allows(service: Service) -> None:
    gate = service.stage.directory / "gate"
    os.mkfifo(gate)
    line = f"read go < {gate}"
    runs = [await started(service, execution_kind="shell", shell_command=line) for _ in range(5)]
    # Two workers share three runs: one has two of them.
    for run in runs[:3]:
        await run.until("tool.shell.command")
    stats: Json = await service.get("/system/stats")
    assert (stats["in_flight_jobs"], stats["queue_depth"]) == (3, 2)
    opened = os.open(gate, os.O_RDWR)
    os.write(opened, b"go\n" * 5)
    for run in runs:
        assert (await run.ended())["status"] == "completed"
    os.close(opened)


async def test_health_tells_what_confines_commands(service: Service) -> None:
    answer = await service.request("GET", "/healthz")  # the first answer tells it
    assert answer.json["status"] == "ok"
    assert answer.json["sandbox"]["os_isolation"]["kind"] == "none"
    assert "--sandbox none" in answer.json["sandbox"]["os_isolation"]["reason"]


async def test_line_30_a_gated_command_runs_once_it_is_approved(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        line = "echo one; read go < gate; echo two"
        line = f"mkfifo gate; {line}"
        run = await started(service, WAITS, execution_kind="shell", shell_command=line)
        approval = await run.approval()
        assert (approval["kind"], approval["status"]) == ("shell_exec", "pending")
        assert approval["input"]["command"] == approval["summary"] == line
        assert (await run.now())["status"] == "awaiting_approval"
        assert (await run.resolve(approval["id"], "approve")).status == 200
        # What it wrote is seen while it still runs.
        chunk = await run.until("tool.shell.output_chunk")
        assert chunk["data"]["data"] == "one\n"
        place = Path((await run.now())["workspace_path"])
        with open(place / "gate", "w") as gate:
            gate.write("go\n")
        assert (await run.ended())["status"] == "completed"
        assert (await run.resolve(approval["id"], "approve")).status == 409
        types = [event["type"] for event in await run.events()]
        assert types.count("tool.invoked") == 1


async def test_line_70_a_command_that_writes_more_than_is_kept_times_out(tmp_path: Path) -> None:
    environ = {"BATTEN_ARTIFACT_MIB": "0.1"}
    async with serving(tmp_path, "--auto-allow", environ=environ) as service:
        line = "head -c 200000 /dev/zero | tr '\\0' x"
        run = await started(service, execution_kind="shell", shell_command=line)
        assert (await run.ended())["status"] == "failed"
        events = {event["type"]: event["data"] for event in await run.events()}
        (kept,) = await service.get(f"{run.path}/artifacts")
    assert events["run.failed"]["code"] == "output_cap_exceeded"
    assert events["tool.timed_out"]["summary"] == "output cap exceeded"
    assert events["tool.shell.exited"]["truncated"] is True
    assert events["gap.artifact_capped"]["original_size_bytes"] == 200_000
    assert (kept["size_bytes"], kept["metadata"]["truncated"]) == (104_857, True)


async def test_line_32_a_rejected_command_is_cancelled_without_a_step(tmp_path: Path) -> None:
    async with serving(tmp_path) as service:
        run = await started(service, WAITS, execution_kind="git", git_command="init -q")
        approval = await run.approval()
        assert (await run.resolve(approval["id"], "reject", note="no")).status == 200
        ended = await run.ended()
        task = await run.task()
        for found in (ended, task):
            assert (found["status"], found["last_error"]) == ("cancelled", "approval rejected")
            assert found["step_count"] == 0


async def test_a_command_whose_worker_is_killed_is_not_run_again(service: Service) -> None:
    began = service.stage.directory / "began"
    line = f"echo $PPID >> {began}; sleep 600"
    run = await started(service, execution_kind="shell", shell_command=line)
    command = await run.until("tool.shell.command")
    owner = (await run.until("run.started"))["data"]["worker_id"]
    os.kill(int(owner.split("-")[-2]), signal.SIGKILL)
    failed = (await run.until("run.failed"))["data"]
    assert failed["code"] == "outcome_unknown"
    events = await run.events()
    types = [event["type"] for event in events]
    assert types.count("tool.invoked") == types.count("tool.failed") == 1
    gap = next(event for event in events if event["type"] == "gap.run_disconnected")
    assert gap["sequence"] > command["sequence"]


@pytest.mark.own_service
async def test_tasks_are_listed_by_status_page_by_page(service: Service) -> None:
    failed = [await started(service, execution_kind="shell", shell_command="false") for _ in "ab"]
    fine = [await started(service, execution_kind="shell", shell_command="true") for _ in "abc"]
    never: Json = await service.post("/tasks", {"execution_kind": "shell", "shell_command": "true"})
    for run in (*failed, *fine):
        await run.ended()

    async def listed(status: str) -> list[str]:
        found: list[str] = []
        cursor = ""
        while True:
            answer = await service.ask("GET", f"/tasks?status={status}&limit=2{cursor}")
            page: Json = answer.json
            assert {task["status"] for task in page["data"]} <= {status}
            found += [task["id"] for task in page["data"]]
            if not page.get("has_more"):
                return found
            assert quote(page["next_cursor"], safe="-._~:") == page["next_cursor"]
            cursor = f"&cursor={page['next_cursor']}"

    assert sorted(await listed("failed")) == sorted(run.task_id for run in failed)
    assert sorted(await listed("completed")) == sorted(run.task_id for run in fine)
    assert await listed("queued") == [never["id"]]
    assert await listed("running") == []


@pytest.mark.own_service
async def test_the_feed_of_a_type_or_a_task_has_all_of_it_and_nothing_else(
    service: Service,
) -> None:
    runs = [await started(service, execution_kind="shell", shell_command="true") for _ in "abc"]
    for run in runs:
        await run.ended()

    async def listed(query: str) -> list[Json]:
        found: list[Json] = []
        after = ""
        while True:
            page: Json = (await service.ask("GET", f"/events?limit=2&{query}{after}")).json
            found += page["data"]
            if "next_after_sequence" not in page:
                return found
            after = f"&after_sequence={page['next_after_sequence']}"

    finished = await listed("event_type=run.finished")
    assert {event["run_id"] for event in finished} == {run.run_id for run in runs}
    assert {event["type"] for event in finished} == {"run.finished"}
    whole = await listed(f"task_id={runs[1].task_id}")
    assert whole == await runs[1].events()
    assert await listed(f"run_id={runs[2].run_id}") == await runs[2].events()
    ended = await listed(f"run_id={runs[1].run_id}&event_type=tool.shell.exited,run.finished")
    assert [event["type"] for event in ended] == ["tool.shell.exited", "run.finished"]
    assert {event["run_id"] for event in ended} == {runs[1].run_id}
    assert await listed(f"run_id={runs[1].run_id}&task_id={runs[0].task_id}") == []
    both = await listed(f"task_id={runs[1].task_id}&event_type=run.queued,run.finished")
    assert both == [event for event in whole if event["type"] in ("run.queued", "run.finished")]
    assert await listed("event_type=gap.events_pruned") == []
