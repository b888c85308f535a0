"""Runs as the control plane shows them: record, state and canonical events of a real service."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec import to_builtins

from batten.contract.envelope import decode
from batten.contract.ids import to_uuid
from batten.journal.sqlite import SqliteJournal
from batten.protocols.macp.emitting import NormaliserState
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.normaliser import normalise
from batten.protocols.macp.projection import new_projection, project, state_of
from tests.agent.stage import end, say
from tests.control.coordination.given import open_runtime
from tests.control.views.sessions import DECISION, play
from tests.coordination.given import SESSION_ID
from tests.service.serving import PATIENCE_S, Run, Service, serving


@pytest.fixture(scope="module")
def flags() -> tuple[str, ...]:
    return ("--no-runtime",)


async def get(service: Service, path: str) -> Any:
    answer = await service.request("GET", path)
    assert answer.status == 200, answer.body
    return answer.json


async def refused(service: Service, path: str) -> tuple[int, str, str]:
    answer = await service.request("GET", path)
    body = answer.json
    assert body["statusCode"] == answer.status
    return answer.status, body["errorCode"], body["message"]


async def ended_run(service: Service) -> Run:
    run = await service.started(service.stage.scenario([say("Hello."), end()]))
    await run.ended()
    return run


async def events_of(home: Path, run_id: str) -> list[CanonicalEvent]:
    """What the facts of the journal amount to, folded here."""
    with closing(SqliteJournal.open(home)) as journal:
        facts = await journal.read(run_id, limit=10_000)
    state = NormaliserState()
    return [event for one in facts for event in normalise(state, decode(one.body))]


def kept(home: Path, run_id: str) -> dict[str, int]:
    """How many rows each table of views has for a run."""
    with closing(sqlite3.connect(home / "views.db")) as db:
        return {
            table: db.execute(
                f"SELECT count(*) FROM {table} WHERE run_id = ?", (run_id,)
            ).fetchone()[0]
            for table in ("kept", "events", "snapshots")
        }


async def check(service: Service, run_id: str) -> tuple[Any, Any, Any]:
    """Record, state and events are those of the journal; returns them."""
    events = await events_of(service.stage.home, run_id)
    path = f"/runs/{to_uuid(run_id)}"
    shown = await get(service, f"{path}/events?limit=10000")
    assert shown == to_builtins(events)
    assert [one["seq"] for one in shown] == [*range(1, len(events) + 1)]
    projection = new_projection()
    for event in events:
        project(projection, event)
    state = await get(service, f"{path}/state")
    assert state == to_builtins(state_of(projection))
    record = await get(service, path)
    assert record["id"] == to_uuid(run_id)
    assert record["lastEventSeq"] == len(events)
    assert (record["createdAt"], record["updatedAt"]) == (events[0].ts, events[-1].ts)
    return record, state, shown


@pytest.mark.own_service
async def test_an_agent_run_is_shown_as_the_journal_has_it(service: Service) -> None:
    run = await ended_run(service)
    assert not (service.stage.home / "views.db").exists()
    record, state, events = await check(service, run.run_id)
    assert (record["status"], record["runtimeKind"]) == ("completed", "agent")
    assert (record["metadata"]["eventCount"], record["errorCode"]) == (len(events), None)
    assert (state["run"]["runId"], state["run"]["status"]) == (record["id"], "completed")
    types = [event["type"] for event in events]
    assert (types[0], types[-1]) == ("run.created", "run.completed")
    assert "llm.call.completed" in types


async def test_a_session_of_the_runtime_is_shown_as_the_journal_has_it(service: Service) -> None:
    async with open_runtime(service.stage.home) as runtime:
        run_id = await play(runtime, DECISION)
    record, state, events = await check(service, run_id)
    assert (record["status"], record["runtimeKind"]) == ("completed", "embedded")
    assert record["runtimeSessionId"] == SESSION_ID
    assert record["metadata"]["finalOutcomePositive"] is False
    assert [one["participantId"] for one in state["participants"]] == ["lead", "ann", "ben"]
    assert "decision.finalized" in {event["type"] for event in events}


async def test_events_are_chosen_by_number_type_and_time(service: Service) -> None:
    run = await ended_run(service)
    path = f"/runs/{to_uuid(run.run_id)}/events"
    events = await get(service, path)
    assert await get(service, f"{path}?afterSeq=2&limit=1") == events[2:3]
    chosen = await get(service, f"{path}?type=run.created,%20run.completed&afterSeq=1")
    assert chosen == {"data": events[-1:], "total": 1, "limit": 200}
    page = await get(service, f"{path}?afterTs=2000-01-01&limit=2")
    assert page == {"data": events[:2], "total": len(events), "limit": 2, "nextCursor": 2}
    last = events[-1]["ts"]
    late = [event for event in events if event["ts"] >= last]
    assert (await get(service, f"{path}?afterTs={last}"))["data"] == late
    before = (await get(service, f"{path}?beforeTs={last}"))["data"]
    assert before == [event for event in events if event["ts"] < last]


async def test_what_is_wrong_is_told_in_the_shape_of_the_control_plane(service: Service) -> None:
    unknown = str(uuid4())
    for rest in ("", "/state", "/events"):
        told = await refused(service, f"/runs/{unknown}{rest}")
        assert told == (404, "RUN_NOT_FOUND", f"run {unknown} not found")
        told = await refused(service, f"/runs/run_1{rest}")
        assert told == (400, "VALIDATION_ERROR", "Validation failed (uuid is expected)")
    path = f"/runs/{unknown}/events"
    for query in ("afterTs=yesterday", "beforeTs=2026-13-01", "limit=0", "afterSeq=-1", "limit=x"):
        status, code, message = await refused(service, f"{path}?{query}")
        assert (status, code) == (400, "VALIDATION_ERROR")
        assert query.partition("=")[0] in message
    assert (await refused(service, "/runs/a/b/c"))[:2] == (404, "NOT_FOUND")
    task_id = await service.task(service.stage.scenario([say("Hello."), end()]))
    stream = to_uuid("run_" + task_id.partition("_")[2])
    assert (await refused(service, f"/runs/{stream}"))[:2] == (404, "RUN_NOT_FOUND")


@pytest.mark.own_service
async def test_views_are_kept_survive_a_restart_and_go_with_their_task(service: Service) -> None:
    home = service.stage.home
    run, other = await ended_run(service), await ended_run(service)
    before = await check(service, run.run_id)
    async with asyncio.timeout(PATIENCE_S):
        while min(kept(home, one.run_id)["kept"] for one in (run, other)) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert kept(home, run.run_id)["events"] == len(before[2])
    await service.kill()
    await service.start()
    # Deleted by a server that nobody has asked for a run yet.
    assert (await service.ask("DELETE", run.task_path)).status == 204
    assert not any(kept(home, run.run_id).values())
    assert (await refused(service, f"/runs/{to_uuid(run.run_id)}"))[1] == "RUN_NOT_FOUND"
    assert kept(home, other.run_id)["kept"] == 3
    await check(service, other.run_id)


def test_a_server_loads_no_views_before_it_is_asked() -> None:
    program = (
        "import sys, batten.serve.http.service\n"
        "print([name for name in sys.modules if name.startswith('batten.control.views')"
        " or name == 'batten.protocols.macp.events'])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert told.stdout == b"[]\n"


async def test_without_the_packages_of_the_runtime_agent_runs_are_shown(tmp_path: Path) -> None:
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "macp.py").write_text("raise ImportError('not installed')\n")
    environ = {"PYTHONPATH": str(hiding)}
    async with serving(tmp_path, "--no-runtime", environ=environ) as service:
        async with open_runtime(service.stage.home) as runtime:
            session = await play(runtime, DECISION)
        for _ in range(2):
            told = await refused(service, f"/runs/{to_uuid(session)}/state")
            assert told[:2] == (503, "RUNTIME_UNAVAILABLE")
            assert "install batten[runtime]" in told[2]
        run = await ended_run(service)
        await check(service, run.run_id)
