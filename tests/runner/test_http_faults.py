"""What becomes of a runner whose session hangs, dies, or cannot be stored, and of its children."""

import asyncio
import os
import signal
import sqlite3
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec
import pytest

from batten.contract.facts import SessionClosed
from batten.contract.ids import SessionId, session_stream
from batten.runner.session_file import journal_id
from batten.session.history import envelopes_of
from tests.agent.stage import Stage, bash, end, say
from tests.runner.remote import PATIENCE_S, WELL_KNOWN, RunnerProcess
from tests.runner.test_http import HERE, NAMED, connected, first, heard, prompted, start

DONE = [say("Done."), end()]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def working(stage: Stage) -> tuple[RunnerProcess, int]:
    """A runner whose session runs a command, and the process of that session."""
    runner = start(stage, model=stage.scenario([bash("sleep 600", "c1")], DONE, DONE))
    connection = connected(runner, approvalMode="auto")["connection_id"]
    message = {"type": "prompt", "content": "go"}
    assert runner.post(f"{HERE}/messages", message, connection_id=connection).status == 200
    heard(runner, f"{HERE}/events?cursor=0", "tool_start")
    (process,) = runner.session_processes()
    return runner, process


def gone(process: int) -> None:
    """Wait until a process that is not our child has ended."""

    async def wait() -> None:
        try:
            descriptor = os.pidfd_open(process)
        except ProcessLookupError:
            return
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(descriptor, ended.set)
        async with asyncio.timeout(PATIENCE_S):
            await ended.wait()
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)

    asyncio.run(wait())


def flooded(runner: RunnerProcess, process: int) -> set[int]:
    """Wake a session that hangs after a flood of messages; the statuses of their answers."""
    told = {"utilityOperations": ["file_read"]}
    by = connected(runner, sessionId=NAMED, role="controller", takeControl=True, capabilities=told)[
        "connection_id"
    ]
    read = {"type": "utility_file_read", "read_id": "r", "path": "x" * 900_000}
    with ThreadPoolExecutor(16) as pool:
        sent = [
            pool.submit(runner.post, f"{HERE}/messages", read, connection_id=by) for _ in range(16)
        ]
        wait(sent, return_when=FIRST_COMPLETED)
        os.kill(process, signal.SIGCONT)
        return {one.result().status for one in sent}


def test_a_session_that_hangs_delays_nobody_else(stage: Stage) -> None:
    runner, process = working(stage)
    try:
        os.kill(process, signal.SIGSTOP)
        assert runner.ask("GET", f"{WELL_KNOWN}/identity").json["ready"]
        assert runner.ask("GET", HERE).json["state"]["is_responding"]
        viewer = connected(runner, sessionId=NAMED, role="viewer")["connection_id"]
        assert runner.post(f"{HERE}/subscribe", {"connectionId": viewer}).status == 200
        assert runner.post(f"{HERE}/heartbeat", {"connectionId": viewer}).status == 200
        assert first(runner, f"{HERE}/events?cursor=0")["message"]["type"] == "ready"
        assert flooded(runner, process) == {403, 503}
    finally:
        assert runner.end() == 0
    gone(process)


def test_connections_to_a_session_that_hangs_close_and_expire_all_the_same(stage: Stage) -> None:
    idle = {"MAESTRO_HEADLESS_CONNECTION_IDLE_MS": "200"}
    runner = start(stage, env=idle)
    try:
        told = {"utilityOperations": ["command_exec"]}
        holder = connected(runner, capabilities=told)["connection_id"]
        sleeping = {"type": "utility_command_start", "command_id": "u", "command": "sleep 600"}
        assert runner.post(f"{HERE}/messages", sleeping, connection_id=holder).status == 200
        (process,) = runner.session_processes()
        os.kill(process, signal.SIGSTOP)
        viewer = connected(runner, sessionId=NAMED, role="viewer")["connection_id"]
        subscribed = runner.post(f"{HERE}/subscribe", {"connectionId": viewer}).json
        left = {"subscriptionId": subscribed["subscription_id"]}
        assert runner.post(f"{HERE}/unsubscribe", left).status == 200
        other = connected(runner, sessionId=NAMED, role="viewer")["connection_id"]
        assert runner.post(f"{HERE}/disconnect", {"connectionId": other}).status == 200
        state = {"controller_connection_id": holder}
        while state["controller_connection_id"] is not None:  # until its lease has expired
            state = runner.ask("GET", HERE).json["state"]
        assert state["connections"] == []
        connected(runner, sessionId=NAMED)
        os.kill(process, signal.SIGCONT)
    finally:
        assert runner.end() == 0
    gone(process)


def test_a_repeated_signal_does_not_cut_the_drain_short(stage: Stage) -> None:
    runner, process = working(stage)
    os.kill(process, signal.SIGSTOP)
    runner.process.send_signal(signal.SIGTERM)
    while not runner.ask("GET", f"{WELL_KNOWN}/identity").json["draining"]:
        pass  # until the drain has begun
    runner.process.send_signal(signal.SIGTERM)
    assert runner.ask("GET", HERE).status == 200
    os.kill(process, signal.SIGCONT)
    assert runner.end() == 0
    (place,) = (stage.workspace / ".maestro/runner-snapshots").iterdir()
    assert msgspec.json.decode(place.read_bytes())["runtime"]["flush_status"] == "completed"


@pytest.mark.soak
def test_a_session_that_hangs_for_good_can_be_shut_down_and_opened_again(stage: Stage) -> None:
    runner, process = working(stage)
    try:
        os.kill(process, signal.SIGSTOP)
        by = connected(runner, sessionId=NAMED, takeControl=True)["connection_id"]
        answer = runner.post(f"{HERE}/messages", {"type": "shutdown"}, connection_id=by)
        assert (answer.status, answer.json["error_type"]) == (503, "runtime_not_ready")
        assert "was killed" in answer.json["error"]
        gone(process)
        assert runner.ask("GET", HERE).status == 404
        connected(runner, sessionId=NAMED)
    finally:
        assert runner.end() == 0


@pytest.mark.soak
def test_a_session_that_hangs_for_good_makes_an_interrupted_drain(stage: Stage) -> None:
    runner, process = working(stage)
    os.kill(process, signal.SIGSTOP)
    answer = runner.post(f"{WELL_KNOWN}/drain")
    assert (answer.status, answer.json["status"]) == (503, "interrupted")
    manifest = answer.json["manifest"]
    assert manifest["runtime"]["flush_status"] == "failed"
    assert manifest["work_continuity"]["active_tool_count"] == 1
    gone(process)
    runner.end()


def test_a_session_whose_process_dies_is_told_and_opened_again(stage: Stage) -> None:
    runner, process = working(stage)
    try:
        os.kill(process, signal.SIGKILL)
        said = heard(runner, f"{HERE}/events?cursor=0", "error")
        assert said[-1]["message"]["fatal"] is True
        cursor = said[-1]["cursor"]
        by = {"connection_id": "conn_any"}
        answer = runner.post(f"{HERE}/messages", {"type": "interrupt"}, **by)
        assert (answer.status, answer.json["error_type"]) == (503, "runtime_not_ready")
        assert runner.ask("GET", HERE).status == 200
        connected(runner, sessionId=NAMED)
        # The run goes on: the call that was running has an unknown outcome, and is not repeated.
        rest = heard(runner, f"{HERE}/events?cursor={cursor + 1}", "response_end")
        ended = [one["message"] for one in rest if one.get("message", {}).get("type") == "tool_end"]
        assert [one["success"] for one in ended] == [False]
    finally:
        assert runner.end() == 0


def test_a_drain_of_a_session_whose_process_died_tells_what_it_worked_on(stage: Stage) -> None:
    runner, process = working(stage)
    try:
        os.kill(process, signal.SIGKILL)
        said = heard(runner, f"{HERE}/events?cursor=0", "error")
        answer = runner.post(f"{WELL_KNOWN}/drain")
        assert (answer.status, answer.json["status"]) == (503, "interrupted")
        manifest = answer.json["manifest"]
        assert manifest["runtime"]["cursor"] == said[-1]["cursor"]
        assert manifest["work_continuity"]["active_tool_count"] == 1
        assert [one["call_id"] for one in manifest["snapshot"]["state"]["active_tools"]] == ["c1"]
    finally:
        assert runner.end() == 1


def test_a_runner_that_is_killed_takes_its_session_along_and_another_goes_on(
    stage: Stage,
) -> None:
    runner, process = working(stage)
    runner.end(signal.SIGKILL)
    gone(process)
    runner = start(stage, model=stage.scenario([bash("sleep 600", "c1")], DONE, DONE))
    try:
        told = connected(runner)
        snapshot = told["snapshot"]
        if "last_response_duration_ms" not in snapshot["state"]:  # the run still goes on
            heard(runner, f"{HERE}/events?cursor={snapshot['cursor']}", "response_end")
        prompted(runner, told["connection_id"], "more")
    finally:
        assert runner.end() == 0


def test_an_end_that_the_journal_cannot_take_is_no_clean_drain(stage: Stage) -> None:
    runner, process = working(stage)
    store = sqlite3.connect(stage.home / "journal.db", isolation_level=None)
    store.execute("BEGIN IMMEDIATE")  # nobody else can write
    try:
        answer = runner.post(f"{WELL_KNOWN}/drain")
        assert (answer.status, answer.json["status"]) == (503, "interrupted")
        manifest = answer.json["manifest"]
        assert manifest["runtime"]["flush_status"] == "failed"
        assert manifest["runtime"]["error"]
        assert manifest["platform_evidence"]["status"] == "interrupted"
    finally:
        store.execute("ROLLBACK")
        store.close()
        runner.end()
    gone(process)


def test_why_a_session_was_closed_is_recorded(stage: Stage) -> None:
    runner = start(stage, env={"MAESTRO_HEADLESS_RUNTIME_IDLE_MS": "100"})
    connected(runner)
    (process,) = runner.session_processes()
    gone(process)  # nobody reads: it is idle
    assert runner.post(f"{WELL_KNOWN}/drain", {"reason": "ttl_expired"}).status == 200
    assert runner.end() == 0

    async def closings() -> list[str]:
        journal = stage.journal()
        stream = session_stream(SessionId(journal_id(NAMED)))
        found = [one async for one in envelopes_of(journal, stream)]
        journal.close()
        return [one.data.reason for one in found if isinstance(one.data, SessionClosed)]

    assert asyncio.run(closings()) == ["idle_timeout", "ttl_expired"]
