"""Steps of a run, its state as a stream, pages of runs, and events of clients."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from batten.contract.ids import to_uuid
from batten.contract.tracing import span_of
from tests.agent.stage import bash, end, say
from tests.service.serving import Json, Run, Service
from tests.service.streaming import all_frames, reading


def talking(service: Service) -> str:
    return service.stage.scenario([say("Hello there."), end()], name="talking")


def gated(service: Service, *commands: str) -> str:
    turns = [[bash(command, f"c{number}")] for number, command in enumerate(commands)]
    return service.stage.scenario(*turns, [say("Done."), end()], name="gated")


async def ended(service: Service) -> Run:
    run = await service.started(talking(service))
    await run.ended()
    return run


async def approved(service: Service, *commands: str) -> Run:
    """A run that has executed these commands."""
    run = await service.started(gated(service, *commands))
    for number in range(len(commands)):
        await run.until("approval.requested", where=_is_about(f"c{number}"))
        [pending] = await service.get(f"{run.task_path}/approvals?status=pending")
        assert (await run.resolve(pending["id"], "approve")).status == 200
    await run.ended()
    return run


def _is_about(call_id: str) -> Callable[[Json], bool]:
    return lambda event: bool(event["data"]["tool_call_id"] == call_id)


async def test_steps_are_listed_in_pages_and_found_by_id(service: Service) -> None:
    run = await approved(service, "echo one", "echo two")

    steps = await service.get(f"{run.path}/steps")
    assert [step["index"] for step in steps] == list(range(1, len(steps) + 1))
    assert [step["kind"] for step in steps if step["kind"] != "approval"] == [
        *("model", "shell", "model", "shell", "model")
    ]
    paged: list[Any] = []
    cursor = ""
    while True:
        answer = (await service.ask("GET", f"{run.path}/steps?limit=2{cursor}")).json
        paged += answer["data"]
        if not answer.get("has_more"):
            break
        cursor = f"&cursor={answer['next_cursor']}"
    assert paged == steps
    for step in steps:
        assert await service.get(f"{run.path}/steps/{step['id']}") == step
    assert (await service.ask("GET", f"{run.path}/steps/step_nope")).status == 404
    wrong = await service.ask("GET", f"{run.path}/steps?cursor=step_nope")
    assert (wrong.status, wrong.error["type"]) == (400, "invalid_request")


async def test_conformance_42_every_awaiting_state_carries_its_pending_approval(
    service: Service,
) -> None:
    run = await service.started(gated(service, "echo one", "echo two"))
    states: list[Any] = []
    awaited = 0
    async with reading(service, f"{run.path}/stream") as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        async for frame in stream.frames():
            state = frame.json["data"]
            states.append((frame, state))
            pending = [one for one in state["approvals"] if one["status"] == "pending"]
            assert (state["run"]["status"] == "awaiting_approval") == bool(pending)
            needed = [item for item in state["activity"] if item.get("needs_action")]
            assert [item["approval_id"] for item in needed] == [one["id"] for one in pending]
            if pending and pending[0]["id"] not in {one for _, one in _seen(states[:-1])}:
                awaited += 1
                assert (await run.resolve(pending[0]["id"], "approve")).status == 200
    assert awaited == 2
    assert [frame.event for frame, _ in states] == ["snapshot"] * (len(states) - 1) + ["done"]
    last, done = states[-2][1], states[-1][1]
    assert last == done
    assert (done["terminal"], done["run"]["status"]) == (True, "completed")
    ids = [int(frame.id) for frame, _ in states]
    assert ids == sorted(ids)
    turns = [state["turn"]["turn_index"] for _, state in states if "turn" in state]
    assert turns == [1, 2, 3]


def _seen(states: list[Any]) -> list[tuple[int, str]]:
    return [
        (state["sequence"], one["id"])
        for _, state in states
        for one in state["approvals"]
        if one["status"] == "pending"
    ]


async def test_conformance_38_and_39_a_state_stream_resumes_and_writes_nothing(
    service: Service,
) -> None:
    run = await approved(service, "echo one")
    before = await run.events()
    whole = await all_frames(service, f"{run.path}/stream")
    assert [frame.event for frame in whole] == ["snapshot", "done"]
    last = before[-1]["sequence"]
    assert [int(frame.id) for frame in whole] == [last, last]
    resumed = await all_frames(service, f"{run.path}/stream?after_sequence=3")
    assert all(int(frame.id) > 3 for frame in resumed)
    assert resumed[-2:] == whole
    by_header = await all_frames(service, f"{run.path}/stream?after_sequence=0", last_event_id="3")
    assert by_header == resumed
    async with reading(service, f"{run.path}/stream", last_event_id=str(last)) as stream:
        assert stream.status == 204
    assert await run.events() == before


async def test_a_reader_that_knows_the_present_state_hears_only_of_changes(
    service: Service,
) -> None:
    run = await service.started(gated(service, "echo one"))
    approval = await run.approval()
    known = (await run.now())["last_sequence"]
    async with reading(service, f"{run.path}/stream?after_sequence={known}") as stream:
        frames = aiter(stream.frames())
        first = asyncio.ensure_future(anext(frames))
        assert (await run.resolve(approval["id"], "reject")).status == 200
        assert int((await first).id) > known
        rest = [frame async for frame in frames]
    assert rest[-1].json["data"]["run"]["last_error"] == "approval rejected"


async def test_conformance_40_an_event_of_a_client_is_listed_after_the_cursor(
    service: Service,
) -> None:
    run = await ended(service)
    last = (await run.now())["last_sequence"]
    asked = {"type": "external.ci.passed", "status": "ok", "note": "all green", "data": {"n": 1}}
    answer = await service.ask("POST", f"{run.path}/events", asked)
    assert answer.status == 200
    assert answer.json["object"] == "task_run_event"
    added = answer.json["data"]
    assert added["sequence"] == last + 1
    assert added["data"] == {"n": 1, "status": "ok", "note": "all green", "by": "operator"}
    assert await service.get(f"{run.path}/events?limit=9&after_sequence={last}") == [added]
    default = await service.ask("POST", f"{run.path}/events")
    assert default.json["data"]["type"] == "external.event"


@pytest.mark.parametrize(
    "type_",
    ["turn.completed", "run.finished", "external", "external.", "externals.x", "External.x"],
)
async def test_a_client_cannot_forge_an_event_of_the_service(service: Service, type_: str) -> None:
    run = await ended(service)
    before = await run.events()
    answer = await service.ask("POST", f"{run.path}/events", {"type": type_})
    assert (answer.status, answer.error["type"]) == (400, "invalid_request")
    assert await run.events() == before


async def test_runs_come_in_pages_with_their_numbers(service: Service) -> None:
    task_id = await service.task(talking(service))
    for _ in range(5):
        started = await service.post(f"/tasks/{task_id}/start")
        await Run(service, task_id, started["id"]).ended()
    first = (await service.ask("GET", f"/tasks/{task_id}/runs?limit=3")).json
    assert [run["number"] for run in first["data"]] == [5, 4, 3]
    assert first["has_more"]
    query = f"limit=3&cursor={first['next_cursor']}"
    second = (await service.ask("GET", f"/tasks/{task_id}/runs?{query}")).json
    assert [run["number"] for run in second["data"]] == [2, 1]
    assert "has_more" not in second
    assert (await service.ask("GET", f"/tasks/{task_id}/runs?cursor=run_x")).status == 400


async def test_start_and_resolve_tell_the_trace_of_the_run(service: Service) -> None:
    task_id = await service.task(gated(service, "echo one"))
    started = await service.ask("POST", f"/tasks/{task_id}/start")
    run = Run(service, task_id, started.json["data"]["id"])
    assert started.headers["x-trace-id"] == to_uuid(run.run_id).replace("-", "")
    assert len(started.headers["x-span-id"]) == 16
    approval = await run.approval()
    resolved = await run.resolve(approval["id"], "approve")
    assert resolved.headers["x-trace-id"] == started.headers["x-trace-id"]
    assert resolved.headers["x-span-id"] != started.headers["x-span-id"]
    told = resolved.json["data"]
    assert (told["trace_id"], told["span_id"]) == (
        resolved.headers["x-trace-id"],
        resolved.headers["x-span-id"],
    )


TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TAKEN = [
    {"traceparent": f"00-{TRACE}-{SPAN}-01", "X-Trace-Id": "f" * 32},
    {"X-Trace-Id": TRACE.upper(), "X-Span-Id": SPAN},
    {"X-Trace-Id": TRACE},
]


@pytest.mark.parametrize("headers", TAKEN, ids=["w3c", "both", "trace"])
async def test_a_run_belongs_to_the_trace_of_who_queued_it(
    service: Service, headers: dict[str, str]
) -> None:
    task_id = await service.task(service.stage.scenario([say("Hello."), end()], [say("More.")]))
    started = await service.ask("POST", f"/tasks/{task_id}/start", None, headers)
    run = Run(service, task_id, started.json["data"]["id"])
    await run.ended()
    assert started.headers["x-trace-id"] == TRACE
    [queued] = [event for event in await run.events() if event["type"] == "run.queued"]
    assert queued["data"]["traceparent"].startswith(f"00-{TRACE}-")
    if headers is not TAKEN[-1]:
        assert queued["data"]["traceparent"] == f"00-{TRACE}-{SPAN}-01"
    shown = await run.now()
    assert (shown["trace_id"], shown["root_span_id"]) == (TRACE, started.headers["x-span-id"])
    asked = {"prompt": "more"}
    again = await service.ask("POST", f"{run.path}/continue", asked)
    assert again.headers["x-trace-id"] == again.json["data"]["trace_id"] != TRACE
    task = await run.task()
    assert (task["root_trace_id"], task["latest_trace_id"]) == (TRACE, again.headers["x-trace-id"])


async def test_a_run_that_waited_for_an_answer_stays_in_its_trace(service: Service) -> None:
    task_id = await service.task(gated(service, "echo one"))
    started = await service.ask("POST", f"/tasks/{task_id}/start", None, TAKEN[0])
    run = Run(service, task_id, started.json["data"]["id"])
    approval = await run.approval()
    resolved = await run.resolve(approval["id"], "approve")
    ended = await run.ended()
    assert ended["trace_id"] == resolved.headers["x-trace-id"] == TRACE
    assert (await run.task())["root_trace_id"] == TRACE


async def test_a_state_has_the_approvals_as_they_are_listed(service: Service) -> None:
    run = await service.started(gated(service, "echo one"))
    approval = await run.approval()
    # The span is the one that the exporter sends.
    assert approval["span_id"] == span_of(run.run_id, "request", approval["id"])
    assert (await run.resolve(approval["id"], "approve")).status == 200
    await run.ended()
    *_, done = await all_frames(service, f"{run.path}/stream")
    assert done.json["data"]["approvals"] == await service.get(f"{run.task_path}/approvals")


async def test_a_run_keeps_the_state_of_its_trace(service: Service) -> None:
    task_id = await service.task(service.stage.scenario([say("Hello."), end()], [say("More.")]))
    parent, state = f"00-{TRACE}-{SPAN}-01", "vendor=t61rcWkgMzE,other=1"
    kept: list[str | None] = []
    path = f"/tasks/{task_id}/start"
    for headers in (
        {"traceparent": parent, "tracestate": state},
        {"traceparent": parent, "tracestate": "no state"},
        {"X-Trace-Id": TRACE, "tracestate": state},
    ):
        answer = await service.ask("POST", path, {"prompt": "more"}, headers)
        run = Run(service, task_id, answer.json["data"]["id"])
        await run.ended()
        [queued] = [event for event in await run.events() if event["type"] == "run.queued"]
        kept.append(queued["data"].get("identity", {}).get("tracestate"))
        path = f"{run.path}/continue"
    assert kept == [state, None, None]


@pytest.mark.parametrize(
    "headers",
    [
        {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
        {"traceparent": f"ff-{TRACE}-{SPAN}-01"},
        {"traceparent": f"00-{TRACE}-{SPAN}-01-more"},
        {"X-Trace-Id": "0" * 32},
        {"X-Trace-Id": "'; DROP TABLE runs", "X-Span-Id": SPAN},
        {"X-Span-Id": SPAN},
    ],
)
async def test_a_malformed_trace_counts_as_none(service: Service, headers: dict[str, str]) -> None:
    task_id = await service.task(service.stage.scenario([say("Hello."), end()]))
    started = await service.ask("POST", f"/tasks/{task_id}/start", None, headers)
    assert started.status == 200
    run_id = started.json["data"]["id"]
    assert started.headers["x-trace-id"] == to_uuid(run_id).replace("-", "")
    events = await Run(service, task_id, run_id).events()
    assert "traceparent" not in events[0]["data"]
