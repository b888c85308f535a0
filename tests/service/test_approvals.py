"""Approvals over REST: the first answer counts, and a parked run goes on or ends by it."""

import asyncio
from datetime import datetime
from typing import Any

import pytest

from tests.agent.stage import bash, call, end, say
from tests.service.serving import Json, Run, Service

TERMINAL = {"run.finished", "run.failed", "run.cancelled"}
ENDING = ["turn.completed", "cost.tick", "run.cancelled"]
"""Of a run whose call is not answered with an approval."""


def gated(service: Service, *commands: str) -> str:
    """A model that runs these commands, one in a turn."""
    turns = [[bash(command, f"c{number}")] for number, command in enumerate(commands)]
    return service.stage.scenario(*turns, [say("Done."), end()])


async def asked(service: Service, *commands: str) -> tuple[Run, Json]:
    """A run that waits for approval of its first command."""
    run = await service.started(gated(service, *commands or ("echo ran >> proof",)))
    return run, await run.approval()


def proof(service: Service) -> str:
    path = service.stage.workspace / "proof"
    return path.read_text() if path.exists() else ""


def instant(event: Json) -> datetime:
    return datetime.fromisoformat(event["occurred_at"])


def check_waits_count(events: list[Json]) -> None:
    """A run takes as long as it waits, too."""
    order = [event["type"] for event in events]
    starts, answered = (
        instant(events[order.index(type_)]) for type_ in ("run.started", "approval.resolved")
    )
    waited_ms = int((answered - starts).total_seconds() * 1000)
    assert events[-1]["data"]["duration_ms"] >= waited_ms - 1


async def types(run: Run) -> list[str]:
    return [event["type"] for event in await run.events()]


@pytest.mark.parametrize(
    "asked_for",
    [
        {"execution_kind": "shell", "shell_command": "echo ran >> proof"},
        {"execution_kind": "git", "git_command": "init proof"},
        {"execution_kind": "file", "file_path": "proof", "file_content": "ran"},
    ],
    ids=["shell", "git", "file"],
)
async def test_line_30_the_start_of_a_gated_command_answers_that_it_waits(
    service: Service, asked_for: Json
) -> None:
    fields: Json = {"workspace_mode": "in_place", "working_directory": str(service.stage.workspace)}
    task_id = (await service.post("/tasks", {**asked_for, **fields}))["id"]
    started: Json = await service.post(f"/tasks/{task_id}/start")
    assert started["status"] == "awaiting_approval"
    (approval,) = await service.get(f"/tasks/{task_id}/approvals?status=pending")
    run = Run(service, task_id, started["id"])
    await run.resolve(approval["id"], "reject")
    assert (await run.ended())["status"] == "cancelled"
    retried: Json = await service.post(f"{run.path}/retry")
    assert retried["status"] == "awaiting_approval"


@pytest.mark.parametrize("permits", [{"allow": ["Bash(echo *)"]}, {"deny": ["Bash"]}])
async def test_the_start_of_a_command_that_nobody_is_asked_about_does_not_wait(
    service: Service, permits: Json
) -> None:
    asked_for = {"execution_kind": "shell", "shell_command": "echo ran", **permits}
    task_id = (await service.post("/tasks", asked_for))["id"]
    started: Json = await service.post(f"/tasks/{task_id}/start")
    assert started["status"] == "queued"
    assert "last_error" not in started
    await Run(service, task_id, started["id"]).ended()


async def test_a_command_in_a_workspace_with_broken_settings_is_queued_and_its_run_says_why(
    service: Service,
) -> None:
    settings = service.stage.workspace / ".batten" / "settings.json"
    settings.parent.mkdir()
    settings.write_text("{")
    model = service.stage.scenario([say("never")])
    run = await service.started(model, execution_kind="shell", shell_command="true")
    ended = await run.ended()
    assert (ended["status"], ended["outcome"]) == ("failed", "config")
    assert "settings.json is not JSON" in ended["last_error"]


async def test_line_30_a_gated_command_waits_for_approval_and_then_runs(
    service: Service,
) -> None:
    run, approval = await asked(service, "echo first; echo second")

    assert (await run.now())["status"] == "awaiting_approval"
    task = await run.task()
    assert (task["status"], task["pending_approval_count"]) == ("awaiting_approval", 1)
    assert (approval["kind"], approval["status"]) == ("bash", "pending")
    assert approval["input"]["command"] == approval["summary"] == "echo first; echo second"
    answer = await run.resolve(approval["id"], " Approve ", note="go on")
    assert answer.status == 200
    resolved: Json = answer.json["data"]
    assert (resolved["status"], resolved["resolved_by"]) == ("approved", "operator")
    assert (resolved["resolution_note"], resolved["scope"]) == ("go on", "once")
    assert (await run.ended())["status"] == "completed"
    events = await run.events()
    order = [event["type"] for event in events]
    place = order.index("approval.resolved")
    assert order[place : place + 3] == ["approval.resolved", "run.queued", "run.started"]
    assert events[place + 1]["data"] == events[0]["data"]
    assert order.index("tool.shell.output_chunk") < order.index("tool.completed")
    assert events[place]["data"] == {
        "approval_id": approval["id"],
        "decision": "approved",
        "by": "operator",
        "comment": "go on",
        "scope": "once",
    }
    check_waits_count(events)
    # The pending call ran without another call of the model.
    assert order.count("turn.started") == 2


async def test_of_many_questions_of_a_run_the_one_that_waits_is_among_the_rows(
    service: Service,
) -> None:
    run, approval = await asked(service, "echo first", "echo second")
    await run.resolve(approval["id"], "approve")
    waits = await run.until("approval.requested", where=lambda e: "second" in e["data"]["summary"])
    rows = await service.request("GET", f"/batten/v1/requests?run_id={run.run_id}&limit=1")
    assert [row["request_id"] for row in rows.json["data"]] == [waits["data"]["approval_id"]]


async def test_line_31_a_second_answer_is_refused_and_names_the_first(
    service: Service,
) -> None:
    run, approval = await asked(service)

    answers = await asyncio.gather(
        *(run.resolve(approval["id"], word) for word in ("approve", "reject", "approve", "deny"))
    )

    winners = [answer.json["data"]["status"] for answer in answers if answer.status == 200]
    losers = [answer for answer in answers if answer.status != 200]
    assert (len(winners), len(losers)) == (1, 3)
    for loser in losers:
        assert (loser.status, loser.error["type"]) == (409, "conflict")
        assert loser.error["code"] == "already_resolved"
        assert (loser.error["status"], loser.error["resolved_by"]) == (winners[0], "operator")
        assert f"{winners[0]} by operator" in loser.error["message"]
    ended = await run.ended()
    assert ended["status"] == {"approved": "completed", "rejected": "cancelled"}[winners[0]]
    assert proof(service) == ("ran\n" if winners == ["approved"] else "")
    late = await run.resolve(approval["id"], "approve")
    assert late.status == 409
    seen = await types(run)
    assert seen.count("approval.resolved") == 1
    assert sum(type_ in TERMINAL for type_ in seen) == 1


async def test_line_32_a_rejection_cancels_run_and_task_and_runs_nothing(
    service: Service,
) -> None:
    run, approval = await asked(service)

    answer = await run.resolve(approval["id"], "DENIED", note="not here")

    assert answer.json["data"]["status"] == "rejected"
    # At once: no worker has to write the ending.
    ended, task = await run.now(), await run.task()
    assert (ended["status"], ended["last_error"]) == ("cancelled", "approval rejected")
    assert (task["status"], task["last_error"]) == ("cancelled", "approval rejected")
    assert proof(service) == ""
    events = await run.events()
    assert [event["type"] for event in events[-4:]] == ["approval.resolved", *ENDING]
    assert events[-4]["data"]["comment"] == "not here"
    assert events[-1]["data"]["by"] == "operator"
    assert (ended["turns"], events[-1]["data"]["turns"]) == (1, 1)
    check_waits_count(events)
    assert "tool.invoked" not in [event["type"] for event in events]


async def test_a_rejection_without_halt_is_told_to_the_agent_which_goes_on(
    service: Service,
) -> None:
    run, approval = await asked(service)

    await run.resolve(approval["id"], "reject", note="use git instead", halt=False)

    assert (await run.ended())["status"] == "completed"
    blocked = await run.until("policy.tool_blocked")
    assert "use git instead" in blocked["data"]["output"]
    assert proof(service) == ""


@pytest.mark.own_service
async def test_a_task_whose_run_was_rejected_is_listed_as_the_newest(service: Service) -> None:
    run, approval = await asked(service)
    later = await service.task(service.stage.scenario([say("done")], name="later"))
    assert [task["id"] for task in await service.get("/tasks")] == [later, run.task_id]
    await run.resolve(approval["id"], "reject")
    listed = await service.get("/tasks")
    assert [task["id"] for task in listed] == [run.task_id, later]
    times = [task["updated_at"] for task in listed]
    assert times == sorted(times, reverse=True)


async def test_line_33_cancelling_a_waiting_run_leaves_no_question_open(
    service: Service,
) -> None:
    run, approval = await asked(service)

    cancelled = await service.post(f"{run.path}/cancel", {"reason": "enough"})

    assert cancelled["status"] == "cancelled"
    assert (await run.task())["status"] == "cancelled"
    (closed,) = await service.get(f"{run.task_path}/approvals")
    assert (closed["status"], closed["resolved_by"]) == ("cancelled", "system")
    assert [event["type"] for event in (await run.events())[-5:]] == [
        "run.cancel_requested",
        "approval.resolved",
        *ENDING,
    ]
    late = await run.resolve(approval["id"], "approve")
    assert (late.status, late.error["status"]) == (409, "cancelled")
    again = await service.post(f"{run.path}/cancel")
    assert again == cancelled
    assert proof(service) == ""


@pytest.mark.own_service
async def test_an_answer_after_kills_and_restarts_lets_the_run_go_on(service: Service) -> None:
    run, approval = await asked(service)
    first = next(e for e in await run.events() if e["type"] == "run.started")
    await service.kill()
    await service.start()
    await service.kill()
    await service.start()

    assert (await run.now())["status"] == "awaiting_approval"
    assert (await run.approval()) == approval
    await run.resolve(approval["id"], "approve")

    assert (await run.ended())["status"] == "completed"
    assert proof(service) == "ran\n"
    workers = [e["data"]["worker_id"] for e in await run.events() if e["type"] == "run.started"]
    assert len(workers) == 2
    assert workers[1] != first["data"]["worker_id"]


async def test_an_approval_for_the_session_allows_the_same_command_again(
    service: Service,
) -> None:
    command = "echo ran >> proof"
    run, approval = await asked(service, command, command, "echo other >> proof")

    answer = await run.resolve(approval["id"], "approve", scope="session")

    assert answer.json["data"]["grant"] == "bash(echo ran >> proof)"
    # The same command runs; another one is asked about.
    await run.until("approval.requested", where=lambda e: e["data"]["tool_call_id"] == "c2")
    assert proof(service) == "ran\nran\n"
    second = await run.approval()
    assert second["summary"] == "echo other >> proof"
    session_id = (await run.now())["session_id"]
    asked_for = f"/audit?action=policy.changed&resourceId={session_id}"
    [changed] = (await service.request("GET", asked_for)).json["data"]
    assert (changed["actor"], changed["details"]["changed"]) == ("operator", ["rules"])
    await run.resolve(second["id"], "reject")
    again = Run(service, run.task_id, (await service.post(f"{run.task_path}/start"))["id"])
    pending = await again.until("approval.requested")
    assert pending["data"]["tool_call_id"] == "c2"
    assert proof(service) == "ran\n" * 4


@pytest.mark.own_service
async def test_an_approval_that_nobody_answers_in_time_cancels_the_run(
    service: Service,
) -> None:
    await service.stop()
    await service.start("--request-seconds", "1")

    run = await service.started(gated(service, "echo ran >> proof"))

    asking = (await run.until("approval.requested"))["data"]
    ended = await run.ended()
    assert (ended["status"], ended["last_error"]) == ("cancelled", "approval timed out")
    late_event, *ending = (await run.events())[-4:]
    assert late_event["type"] == "approval.timed_out"
    assert [event["type"] for event in ending] == ENDING
    assert late_event["data"]["after_seconds"] == 1
    late = await run.resolve(asking["approval_id"], "approve")
    assert (late.status, late.error["status"]) == (409, "timed_out")
    assert proof(service) == ""


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "decision"),
        ({"decision": "maybe"}, "decision"),
        ({"decision": True}, "decision"),
        ({"decision": "approve", "scope": "for ever"}, "scope"),
        ({"decision": "approve", "note": 7}, "note"),
    ],
)
async def test_an_answer_that_does_not_fit_is_refused_with_its_field(
    service: Service, body: Json, field: str
) -> None:
    run, approval = await asked(service)

    answer = await service.ask("POST", f"{run.task_path}/approvals/{approval['id']}/resolve", body)

    assert (answer.status, answer.error["type"]) == (400, "invalid_request")
    assert answer.error["field"] == field
    if body.get("decision") == "maybe":
        assert "expected one of approve, approved, reject, rejected" in answer.error["message"]
    assert (await run.approval())["status"] == "pending"


async def test_an_approval_of_another_task_is_not_found(service: Service) -> None:
    run, approval = await asked(service)
    other = await service.task(gated(service, "true"))
    elsewhere = f"/tasks/{other}/approvals/{approval['id']}"

    async def status(method: str, path: str, body: Any = None) -> tuple[int, str]:
        answer = await service.ask(method, path, body)
        return answer.status, answer.error["type"]

    approve = {"decision": "approve"}
    assert await status("GET", elsewhere) == (404, "not_found")
    assert await status("POST", f"{elsewhere}/resolve", approve) == (404, "not_found")
    assert await status("GET", f"{run.task_path}/approvals/req_x") == (404, "not_found")
    assert await status("GET", "/tasks/task_x/approvals") == (404, "not_found")
    assert await service.get(f"/tasks/{other}/approvals") == []
    assert (await run.approval())["status"] == "pending"


async def test_an_answer_to_something_else_than_is_asked_is_refused(service: Service) -> None:
    run, approval = await asked(service)

    answer = await run.resolve(approval["id"], "approve", digest="0" * 64)

    assert (answer.status, answer.error["code"]) == (409, "digest_differs")
    assert (await run.resolve(approval["id"], "approve", digest=approval["digest"])).status == 200


async def test_a_question_of_a_child_run_is_one_of_its_task_and_no_run_continues_a_child(
    service: Service,
) -> None:
    service.stage.scenario([bash("echo ran >> proof", "k")], [say("Done."), end()], name="child")
    turns = ([call("agent", "c", prompt="do it")], [say("Done."), end()])
    model = service.stage.scenario(*turns, name="parent", children={"do it": "child.json"})

    async def waiting() -> tuple[Run, Run, Json]:
        run = await service.started(model)
        started = await run.until("tool.started")
        child = Run(service, run.task_id, started["data"]["child_run_id"])
        return run, child, await child.approval()

    # A child is not parked: its worker ends it, and the answer waits for that.
    run, child, approval = await waiting()
    assert (await run.resolve(approval["id"], "reject")).status == 200
    assert (await child.now())["last_error"] == "approval rejected"
    # Nor does the agent that started it go on: the rejection ends the task.
    for ended in (await run.now(), await run.task()):
        assert (ended["status"], ended["last_error"]) == ("cancelled", "approval rejected")
    told = [event["type"] for event in await run.events()]
    assert told[-5:-3] == ["tool.failed", "turn.completed"]
    assert told[-1] == "run.cancelled"
    run, child, approval = await waiting()
    assert (await run.resolve(approval["id"], "reject", halt=False)).status == 200
    assert (await run.ended())["status"] == (await child.now())["status"] == "completed"
    run, child, approval = await waiting()
    assert (await run.task())["pending_approval_count"] == 1
    assert (await run.resolve(approval["id"], "approve")).status == 200
    assert (await run.ended())["status"] == "completed"
    assert (proof(service), (await run.task())["pending_approval_count"]) == ("ran\n", 0)
    wanted = {"retry": {}, "continue": {"prompt": "more"}, "retry-from-turn": {"turn": 1}}
    for what, body in wanted.items():
        refused = await service.ask("POST", f"{child.path}/{what}", body)
        assert (refused.status, refused.error["code"]) == (409, "child"), what
    assert len(await service.get(f"{run.task_path}/runs")) == 1
