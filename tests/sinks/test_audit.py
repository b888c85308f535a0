"""The audit log: derived from facts once, chained, filtered, verified, and never shortened."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from batten.contract import facts
from batten.journal.sqlite import SqliteJournal
from batten.journal.sqlite.database import new_connection
from batten.sinks.audit.log import AuditLog, AuditQuery, verify_audit
from tests.agent.stage import Stage, end, say
from tests.journal.given import FINISHED, approval, approved, new_run
from tests.session.processes import batten


async def some_runs(journal: SqliteJournal, count: int = 2) -> list[str]:
    runs: list[str] = []
    for number in range(count):
        run = new_run()
        queued = facts.RunQueued("agent_loop", "m", "p", "/w", "in_place", None, by="ann")
        lease, _ = await journal.create(run, [queued, facts.RunStarted("w", "x")])
        assert lease is not None
        request = f"appr_{number}"
        await journal.append(
            run.run_id, [approval(request), approved(request, "bob"), FINISHED], fence=lease.fence
        )
        runs.append(run.run_id)
    return runs


async def test_facts_become_entries_once_however_many_processes_look(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    runs = await some_runs(journal, 200)
    logs = [AuditLog.open(str(tmp_path)) for _ in range(3)]
    await asyncio.gather(*(log.catch_up(journal) for log in logs))
    entries, total = logs[0].find(AuditQuery(action="run.started", limit=200))
    assert total == 200
    assert [one.resource_id for one in reversed(entries)] == runs
    assert {(one.actor, one.actor_type) for one in entries} == {("ann", "key")}
    answers, total = logs[1].find(AuditQuery(actor="bob", limit=1, offset=199))
    assert (total, answers[0].details) == (200, {"decision": "approved", "run_id": runs[0]})
    assert logs[2].verify() == []
    for log in logs:
        log.close()


async def test_entries_outlive_what_they_tell_of(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage")
    model = stage.scenario([say("Done."), end()])
    assert batten(stage, "-p", "go", "--model", model, "--sandbox", "none").returncode == 0
    exported = batten(stage, "export", "last", "-o", str(tmp_path / "b.tar.gz"))
    assert exported.returncode == 0, exported.stderr
    deleted = batten(stage, "delete", "last", "--yes")
    assert deleted.returncode == 0, deleted.stderr
    listed = batten(stage, "audit", "--json").stdout.splitlines()
    entries = [msgspec.json.decode(line) for line in listed]
    # The newest first, although the export was written before what the facts tell.
    assert [one["action"] for one in entries] == [
        *("session.deleted", "session.exported", "run.started", "policy.changed"),
    ]
    times = [one["createdAt"] for one in entries]
    assert times == sorted(times, reverse=True)
    between = batten(stage, "audit", "--json", "--after", times[2], "--before", times[0])
    assert between.stdout.splitlines() == listed[1:2]
    wrong = batten(stage, "audit", "--after", "yesterday")
    assert (wrong.returncode, b"--after" in wrong.stderr) == (64, True)
    verified = batten(stage, "verify")
    assert (verified.returncode, verified.stdout) == (0, b"everything stored is what was written\n")


def test_looking_at_the_audit_log_writes_none(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage")
    assert batten(stage, "audit").stdout == b""
    assert not stage.home.exists()
    model = stage.scenario([say("Done."), end()])
    assert batten(stage, "-p", "go", "--model", model, "--sandbox", "none").returncode == 0
    first = batten(stage, "audit", "--json").stdout
    assert b"run.started" in first
    assert not AuditLog.exists(str(stage.home))
    assert batten(stage, "export", "last", "-o", str(tmp_path / "b.tar.gz")).returncode == 0
    stored = (stage.home / "audit.db").read_bytes()
    shown = batten(stage, "audit", "--json").stdout.splitlines()
    actions = [msgspec.json.decode(line)["action"] for line in shown]
    assert actions == ["session.exported", "run.started", "policy.changed"]
    assert (stage.home / "audit.db").read_bytes() == stored


DAMAGE = {
    "a changed entry": "UPDATE entries SET body = replace(body, 'ann', 'eve') WHERE number = 2",
    "a changed column": "UPDATE entries SET actor = 'eve' WHERE number = 3",
    "a missing entry": "DELETE FROM entries WHERE number = 2",
    "a cut tail": "DELETE FROM entries WHERE number = (SELECT max(number) FROM entries)",
    "an entry too many": "INSERT INTO entries SELECT number + 1, at, actor, action, resource,"
    " resource_id, body, hash FROM entries ORDER BY number DESC LIMIT 1",
}


@pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE.keys())
async def test_verify_finds(journal: SqliteJournal, tmp_path: Path, statement: str) -> None:
    await some_runs(journal)
    log = AuditLog.open(str(tmp_path))
    await log.catch_up(journal)
    log.close()
    assert verify_audit(str(tmp_path)) == []
    db = new_connection(str(tmp_path / "audit.db"))
    db.execute(statement)
    db.close()
    [damage] = verify_audit(str(tmp_path))
    assert damage.run_id == "audit"
    stage = Stage(tmp_path / "stage", {"BATTEN_HOME": str(tmp_path)})
    stage.home = tmp_path
    verified = batten(stage, "verify")
    assert verified.returncode == 1
    assert b"audit" in verified.stdout
