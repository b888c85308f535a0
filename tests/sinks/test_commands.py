"""`batten sinks`: what it lists, replays and drops; and where receivers may be configured."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.control.supervisor import Staff
from batten.journal.sqlite import SqliteJournal
from batten.sinks.contract import Message
from batten.sinks.process import SinkProcess
from batten.sinks.store import Entry, SinkStore
from tests.agent.stage import Stage, end, say
from tests.journal.given import FINISHED, started
from tests.session.processes import batten
from tests.sinks.http_receiver import http_receiver


def message(number: int) -> Message:
    return Message(
        message_id=f"evt_{number}",
        run_id="run_1",
        type="run.failed",
        occurred_at="2026-01-01T00:00:00.000Z",
        body=b"{}",
    )


def stocked(stage: Stage) -> None:
    """A sink with two dead letters, a delivered message and one that waits."""
    SqliteJournal.open(stage.home).close()
    store = SinkStore.open(str(stage.home))
    store.add("webhook:ops", 0)
    lease = store.claim("webhook:ops")
    statuses = ("dead", "dead", "delivered", "pending")
    entries = [
        Entry(
            sink="webhook:ops",
            message=message(number),
            status=status,  # type: ignore[arg-type]
            attempts=number + 1,
            problem="it answered 500" if status == "dead" else "",
        )
        for number, status in enumerate(statuses)
    ]
    store.commit(lease, entries, delivered=1, problem="it answered 500", logs=True)
    store.release(lease)
    store.close()


def test_without_sinks_there_is_nothing_to_list(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    listed = batten(stage, "sinks", "list")
    assert (listed.returncode, listed.stdout) == (0, b"")
    assert b"nothing was told" in listed.stderr
    assert batten(stage, "sinks", "replay", "1").returncode == 66
    assert not (stage.home / "sinks.db").exists()


def test_messages_are_listed_replayed_and_dropped(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stocked(stage)
    listed = batten(stage, "sinks", "list").stdout.decode()
    assert "webhook:ops  1 delivered, 0 events behind, 1 waiting, 2 dead  not read now" in listed
    assert "it answered 500" in listed
    dead = batten(stage, "sinks", "dead", "--json").stdout.splitlines()
    assert [msgspec.json.decode(line)["message_id"] for line in dead] == ["evt_1", "evt_0"]
    assert len(batten(stage, "sinks", "log", "webhook:ops").stdout.splitlines()) == 6
    for unknown in ("99", "9" * 20, "9" * 5000):
        refused = batten(stage, "sinks", "drop", unknown)
        assert (refused.returncode, refused.stderr[:27]) == (66, b"batten: there is no message")
    assert batten(stage, "sinks", "drop", "1", "1").stdout == b"1 dropped\n"
    assert batten(stage, "sinks", "replay", "webhook:ops").stdout == b"1 to be told again\n"
    audited = batten(stage, "audit", "--json", "--resource", "webhook", "--id", "ops").stdout
    entries = [msgspec.json.decode(line) for line in audited.splitlines()]
    assert [(one["action"], one["details"]) for one in entries] == [
        ("webhook.replayed", {"messages": 1}),
        ("webhook.dropped", {"messages": 1}),
    ]
    assert batten(stage, "sinks", "dead").stdout == b""
    waits = batten(stage, "sinks", "drop", "2")
    assert waits.returncode == 1
    assert b"still waits" in waits.stderr
    assert batten(stage, "sinks", "drop", "99").returncode == 66
    assert batten(stage, "sinks", "drop", "nobody").returncode == 66
    assert batten(stage, "sinks", "dead", "nobody").returncode == 66
    assert batten(stage, "sinks", "list", "webhook:ops").returncode == 64
    assert batten(stage, "sinks", "replay").returncode == 64


def test_a_workspace_cannot_name_a_receiver(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    (stage.workspace / ".batten").mkdir()
    (stage.workspace / ".batten" / "settings.toml").write_text(
        '[sinks.webhooks.evil]\nurl = "https://evil.example/"\nsecret = "s"\n'
    )
    model = stage.scenario([say("Done."), end()])
    ended = batten(stage, "-p", "go", "--model", model, "--sandbox", "none", "--trust-workspace")
    assert ended.returncode == 0, ended.stderr
    assert b"sinks count in user and managed settings only" in ended.stderr
    assert not (stage.home / "sinks.db").exists()


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"webhooks": {"a": {"url": "x", "secret": "s"}}}, b"sinks.webhooks.a: URL must start"),
        ({"allow": ["10.0.0.0/8/8"]}, b"the settings of sinks: '10.0.0.0/8/8' is neither"),
        ({"otel": {"endpoint": "a:4318"}}, b"OpenTelemetry's endpoint a:4318/v1/traces: URL must"),
    ],
)
def test_wrong_settings_stop_a_service_and_are_told_after_a_run(
    tmp_path: Path, table: dict[str, Any], says: bytes
) -> None:
    stage = Stage(tmp_path)
    wrong = msgspec.json.encode({"sinks": table}).decode()
    served = batten(stage, "serve", "--port", "0", "--settings", wrong)
    assert served.returncode == 78
    assert says in served.stderr
    model = stage.scenario([say("Done."), end()])
    ended = batten(stage, "-p", "go", "--model", model, "--sandbox", "none", "--settings", wrong)
    assert ended.returncode == 0
    assert b"the sinks were not told: " + says in ended.stderr


async def test_the_process_of_sinks_runs_behind_everything_else(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage")
    journal = SqliteJournal.open(stage.home)
    lease = await started(journal)
    await journal.append(lease.run_id, [FINISHED], fence=lease.fence)
    journal.close()
    store = SinkStore.open(str(stage.home))
    store.add("otel", 0)
    store.close()
    async with http_receiver() as receiver:
        endpoint = receiver.url.removesuffix("/hook")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "batten", "sinks", "run"),
            *("--settings", msgspec.json.encode({"sinks": {"otel": {"endpoint": endpoint}}})),
            env=stage.environ,
        )
        try:
            await receiver.wait_for(1)
            assert os.sched_getscheduler(process.pid) == os.SCHED_IDLE
        finally:
            process.terminate()
            assert await process.wait() == 0


async def test_a_service_waits_only_a_moment_for_a_process_of_sinks_that_gets_no_core(
    tmp_path: Path,
) -> None:
    """Stopped, it gets as little done as in the idle class of a busy machine."""
    noted = tmp_path / "pid"
    os.mkfifo(noted)
    program = "import os, signal, sys; open(sys.argv[1], 'w').write(str(os.getpid()))"
    stops = f"{program}; os.kill(os.getpid(), signal.SIGSTOP)"
    staff = Staff(commands=((sys.executable, "-c", stops, str(noted)),), environ=dict(os.environ))
    beside = SinkProcess(staff, str(tmp_path), {}, {"otel": {"endpoint": "http://127.0.0.1:9"}})
    running = asyncio.ensure_future(beside.run())
    pid = await asyncio.to_thread(noted.read_text)
    running.cancel()
    async with asyncio.timeout(staff.grace_s - 1):
        await asyncio.wait([running])
    assert not Path(f"/proc/{pid}").exists()
