"""The audit log: derived from facts once, chained, filtered, verified, and never shortened."""

import asyncio
import resource
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest

from batten.contract import facts
from batten.contract.errors import CallerError
from batten.journal.sqlite import SqliteJournal
from batten.journal.sqlite.database import new_connection
from batten.serve.http.keys import KEYLESS, OUR_NAMES
from batten.sinks.audit.derive import LOCAL, SYSTEM
from batten.sinks.audit.log import AuditLog, AuditQuery, verify_audit
from batten.sinks.audit.noting import noted
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
        *("session.deleted", "session.exported", "run.started"),
    ]
    times = [one["createdAt"] for one in entries]
    assert times == sorted(times, reverse=True)
    between = batten(stage, "audit", "--json", "--after", times[2], "--before", times[0])
    assert between.stdout.splitlines() == listed[1:2]
    wrong = batten(stage, "audit", "--after", "yesterday")
    assert (wrong.returncode, b"--after" in wrong.stderr) == (64, True)
    verified = batten(stage, "verify")
    assert (verified.returncode, verified.stdout) == (0, b"everything stored is what was written\n")


_CREATE = "import sys; from batten.sinks.audit.log import AuditLog; AuditLog.open(sys.argv[1])"


@pytest.mark.parametrize("room", range(0, 60_001, 5_000))
def test_a_record_that_did_not_fit_on_the_disk_is_none_and_is_made_later(
    tmp_path: Path, room: int
) -> None:
    stage = Stage(tmp_path / "stage")
    home = stage.home
    subprocess.run(
        [sys.executable, "-c", _CREATE, str(home)],
        check=False,
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
    )
    assert AuditLog.exists(str(home))
    assert verify_audit(str(home)) == []
    listed = batten(stage, "audit", "--json")
    assert (listed.returncode, listed.stdout, listed.stderr) == (0, b"", b"")
    log = AuditLog.open(str(home))
    log.append(actor="ann", actor_type="key", action="made", resource="test")
    assert log.verify() == []
    log.close()


def test_what_happened_before_an_import_is_no_entry_and_the_import_is(tmp_path: Path) -> None:
    there, here = Stage(tmp_path / "there"), Stage(tmp_path / "here")
    model = there.scenario([say("Done."), end()], [say("Again."), end()])
    run = ("-p", "go", "--model", model, "--sandbox", "none")
    assert batten(there, *run).returncode == 0
    bundle = str(tmp_path / "b.tar.gz")
    assert batten(there, "export", "last", "-o", bundle).returncode == 0
    for _ in range(2):  # the second time it is there already
        imported = batten(here, "import", bundle)
        assert imported.returncode == 0, imported.stderr
    ended = batten(here, *run, "--resume", "last")
    assert ended.returncode == 0, ended.stderr
    listed = batten(here, "audit", "--json").stdout.splitlines()
    actions = [msgspec.json.decode(line)["action"] for line in reversed(listed)]
    assert actions == ["session.imported", "run.started"]
    verified = batten(here, "verify")
    assert verified.returncode == 0, verified.stdout


async def test_no_client_does_anything_under_the_name_of_the_program(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    assert SYSTEM <= OUR_NAMES
    assert LOCAL - {""} <= KEYLESS
    run = new_run()
    await journal.create(
        run,
        [
            facts.RunQueued("agent_loop", "m", "p", "/w", "in_place", None),
            facts.ArtifactCreated("art_1", "command_output", 1, "a log"),
            # By a key of an earlier version, which let it have this name.
            facts.ArtifactUpdated("art_1", "deleted_at", None, "2026-01-01", by="timeout"),
        ],
    )
    log = AuditLog.open(str(tmp_path))
    await log.catch_up(journal)
    [deleted], _ = log.find(AuditQuery(action="artifact.deleted"))
    log.close()
    assert (deleted.actor, deleted.resource_id) == ("timeout", "art_1")


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
    assert actions == ["session.exported", "run.started"]
    assert (stage.home / "audit.db").read_bytes() == stored


def test_a_policy_is_changed_by_what_changes_it_only(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage")
    said = [
        {"type": "hello", "protocol_version": "2026-04-02", "role": "controller"},
        {"type": "init", "thinking_level": "low"},
        {"type": "init", "thinking_level": "high", "approval_mode": "auto"},
        {"type": "shutdown"},
    ]
    lines = b"".join(msgspec.json.encode(one) + b"\n" for one in said)
    model = stage.scenario([say("Done."), end()])
    flags = ("--protocol", "maestro", "--model", model, "--sandbox", "none")
    ended = batten(stage, "headless", *flags, stdin=lines)
    assert ended.returncode == 0, ended.stderr
    listed = batten(stage, "audit", "--json").stdout.splitlines()
    entries = [msgspec.json.decode(line) for line in listed]
    changes = [(one["actor"], one["action"], one["details"]) for one in entries]
    assert changes == [("client", "policy.changed", {"changed": ["mode"], "mode": "dontAsk"})]


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


def removed(home: Path) -> None:
    for path in home.glob("audit.db*"):
        path.unlink()


def test_verify_says_that_the_audit_log_is_gone_or_another_one(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage")
    model = stage.scenario([say("Done."), end()])
    assert batten(stage, "-p", "go", "--model", model, "--sandbox", "none").returncode == 0
    assert batten(stage, "keys", "create", "first").returncode == 0
    early = (stage.home / "audit.db").read_bytes()
    assert batten(stage, "keys", "create", "second").returncode == 0
    assert batten(stage, "backup", str(tmp_path / "copy")).returncode == 0
    assert batten(stage, "verify").returncode == 0
    removed(stage.home)
    gone = batten(stage, "verify")
    assert (gone.returncode, gone.stdout) == (
        1,
        b"audit: the audit log is missing; it had 3 entries\n",
    )
    assert not AuditLog.exists(str(stage.home))
    (stage.home / "audit.db").write_bytes(early)
    assert batten(stage, "verify").stdout.startswith(b"audit at 3: the audit log is another one")
    removed(stage.home)
    for name in ("third", "fourth", "fifth"):  # a new log does not hide it
        assert batten(stage, "keys", "create", name).returncode == 0
    assert batten(stage, "verify").stdout.startswith(b"audit at 3: the audit log is another one")
    stage.home = tmp_path / "copy"
    assert batten(stage, "verify").returncode == 0
    assert len(batten(stage, "audit", "--json", "--action", "key.created").stdout.splitlines()) == 2


async def test_a_log_whose_old_entries_were_removed_is_the_same_one(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    await some_runs(journal)
    log = AuditLog.open(str(tmp_path))
    await log.catch_up(journal)
    assert log.remove_before("9999", 1000)
    assert verify_audit(str(tmp_path)) == []
    log.append(actor="ann", actor_type="local", action="key.created", resource="key")
    assert verify_audit(str(tmp_path)) == []
    assert log.remove_before("9999", 1000)
    log.close()
    assert verify_audit(str(tmp_path)) == []
    removed(tmp_path)
    assert [one.run_id for one in verify_audit(str(tmp_path))] == ["audit"]


_KILLED = """
import os, signal, sys
from batten.sinks.audit.log import AuditLog
from batten.sinks.audit.noting import noted
log = AuditLog.open(sys.argv[1])
with noted(log, actor="ann", actor_type="key", action="policy.registered", resource="policy"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


async def test_what_a_killed_process_was_about_to_do_is_recorded_once(
    journal: SqliteJournal, tmp_path: Path
) -> None:
    home = str(tmp_path)
    log = AuditLog.open(home)
    with noted(log, actor="ben", actor_type="key", action="mode.registered", resource="mode"):
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", _KILLED, home], check=False)
        with closing(AuditLog.open_overlaid(home)) as reading:
            await reading.catch_up(journal)
            assert reading.find(AuditQuery())[1] == 1
        for one in (log, log, AuditLog.open(home)):
            await one.catch_up(journal)  # it leaves what a living process does
        [lost], total = log.find(AuditQuery())
        assert (total, lost.actor, lost.action) == (1, "ann", "policy.registered")
        assert lost.details == {"answer": "none"}
    assert [one.actor for one in log.find(AuditQuery())[0]] == ["ann", "ben"]
    assert log.verify() == []


@pytest.mark.parametrize(
    ("error", "details"),
    [(CallerError("no", code="x"), None), (asyncio.CancelledError(), {"answer": "none"})],
)
def test_a_refusal_is_not_recorded_and_a_call_that_was_cut_off_is(
    tmp_path: Path, error: BaseException, details: object
) -> None:
    log = AuditLog.open(str(tmp_path))
    with (
        suppress(type(error)),
        noted(log, actor="ann", actor_type="key", action="a", resource="r"),
    ):
        raise error
    assert [one.details for one in log.find(AuditQuery())[0]] == ([details] if details else [])
