"""Retention of the control plane: ended sessions, audit entries and deliveries beyond their age."""

import asyncio
import time
from pathlib import Path

import pytest

from batten.contract import facts
from batten.contract.envelope import timestamp
from batten.contract.errors import NotReady, StoreBusy
from batten.contract.ids import Minter
from batten.control.data_retention import DataRetention
from batten.journal.opening import removal_lock
from batten.journal.sqlite import SqliteJournal
from batten.journal.sqlite.database import new_connection
from batten.redact.redactor import Redactor
from batten.serve.http.sinks.service import SinkService
from batten.settings.control_plane import ControlPlaneSettings, read_control_plane
from batten.sinks.audit.log import AuditLog, AuditQuery, verify_audit
from batten.sinks.contract import Message
from batten.sinks.store import Entry, SinkStore
from tests.journal.given import FINISHED, new_run

ON = ControlPlaneSettings(data_retention_enabled=True, data_retention_batch_size=2)
DAY_S = 86_400


async def a_run(journal: SqliteJournal, *, has_ended: bool = True) -> str:
    run = new_run()
    queued = facts.RunQueued("agent_loop", "m", "p", "/w", "in_place", None, by="ann")
    lease, _ = await journal.create(run, [queued, facts.RunStarted("w", "x")])
    assert lease is not None
    if has_ended:
        await journal.append(run.run_id, [FINISHED], fence=lease.fence)
        await journal.release(lease)
    return run.run_id


class Told(SinkService):
    """Says when something was removed."""

    def __init__(self, journal: SqliteJournal, home: str) -> None:
        super().__init__(journal, home, Redactor())
        self.swept = asyncio.Event()

    def record_sweep(self, cutoff: str, removed: dict[str, int]) -> None:
        super().record_sweep(cutoff, removed)
        self.swept.set()


class Swept:
    """A home with a journal, and the retention of a service on it."""

    def __init__(self, home: Path, settings: ControlPlaneSettings = ON) -> None:
        self.home = str(home)
        self.journal = SqliteJournal.open(self.home)
        self.records = Told(self.journal, self.home)
        self.days_later = 0.0
        self.retention = DataRetention(self.home, settings, self.records, now=self.now, first_s=0.0)

    def now(self) -> float:
        return time.time() + self.days_later * DAY_S

    def close(self) -> None:
        self.records.close()
        self.journal.close()


@pytest.fixture
def swept(tmp_path: Path) -> Swept:
    return Swept(tmp_path)


async def test_runs_that_ended_long_ago_go_in_batches_and_others_stay(swept: Swept) -> None:
    old = [await a_run(swept.journal) for _ in range(5)]
    working = await a_run(swept.journal, has_ended=False)
    assert (await swept.retention.sweep())["runs"] == 0
    swept.days_later = 30.5
    assert (await swept.retention.sweep())["runs"] == 5
    for run_id in old:
        assert await swept.journal.run(run_id) is None
    assert await swept.journal.run(working) is not None
    assert (await swept.retention.sweep())["runs"] == 0
    swept.close()


async def test_what_goes_is_in_the_audit_log_before_it_goes(swept: Swept) -> None:
    run_id = await a_run(swept.journal)
    swept.days_later = 30.5
    removed = await swept.retention.sweep()
    # The entry of the run was as old as the run itself.
    assert removed == {"runs": 1, "audit": 1, "deliveries": 0}
    [entry], total = swept.records.audit.find(AuditQuery())
    assert (total, entry.actor, entry.actor_type) == (1, "retention", "system")
    assert entry.details["removed"] == removed
    assert run_id not in str(entry)
    swept.close()
    assert verify_audit(swept.home) == []


async def test_only_one_process_removes_at_a_time(swept: Swept) -> None:
    await a_run(swept.journal)
    swept.days_later = 30.5
    with removal_lock(swept.home), pytest.raises(StoreBusy):
        await swept.retention.sweep()
    assert (await swept.retention.sweep())["runs"] == 1
    swept.close()


async def test_retention_is_off_unless_it_is_turned_on(tmp_path: Path) -> None:
    swept = Swept(tmp_path, read_control_plane({}))
    run_id = await a_run(swept.journal)
    swept.days_later = 1000
    async with asyncio.timeout(20):
        await swept.retention.run()
    assert await swept.journal.run(run_id) is not None
    swept.close()


async def test_a_service_that_stops_leaves_the_rest_to_the_next_sweep(swept: Swept) -> None:
    for _ in range(3):
        await a_run(swept.journal)
    swept.days_later = 30.5
    retention = DataRetention(swept.home, ON, swept.records, now=swept.now, first_s=3600)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        duty = group.create_task(retention.run())
        await asyncio.sleep(0)
        duty.cancel()
    with pytest.raises(NotReady):
        await retention.sweep()
    assert (await swept.retention.sweep())["runs"] == 2
    swept.close()


async def test_the_schedule_begins_by_itself(swept: Swept) -> None:
    run_id = await a_run(swept.journal)
    swept.days_later = 30.5
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        duty = group.create_task(swept.retention.run())
        await swept.records.swept.wait()
        duty.cancel()
    assert await swept.journal.run(run_id) is None
    swept.close()


def test_the_chain_of_the_audit_log_is_verified_from_its_base(tmp_path: Path) -> None:
    home = str(tmp_path)
    log = AuditLog.open(home)
    for number in range(10):
        log.append(actor="ann", actor_type="key", action=f"a.{number}", resource="x")
    far = timestamp(int((time.time() + DAY_S) * 1e9))
    assert log.remove_before("2000-01-01T00:00:00.000Z", 4) == 0
    assert log.remove_before(far, 4) == 4
    assert log.remove_before(far, 4) == 4
    assert log.verify() == []
    found, total = log.find(AuditQuery())
    assert ([one.id for one in found], total) == (["10", "9"], 2)
    # A whole log may go; the next entry continues the chain.
    assert log.remove_before(far, 100) == 2
    assert log.verify() == []
    log.append(actor="bob", actor_type="key", action="b", resource="x")
    assert [one.id for one in log.find(AuditQuery())[0]] == ["11"]
    log.close()
    assert verify_audit(home) == []


def test_a_cut_beyond_the_base_is_damage(tmp_path: Path) -> None:
    home = str(tmp_path)
    log = AuditLog.open(home)
    for number in range(6):
        log.append(actor="ann", actor_type="key", action=f"a.{number}", resource="x")
    log.remove_before(timestamp(int((time.time() + DAY_S) * 1e9)), 2)
    log.close()
    db = new_connection(str(tmp_path / "audit.db"))
    db.execute("DELETE FROM entries WHERE number = 3")
    db.close()
    assert [one.sequence for one in verify_audit(home)] == [4]


def test_deliveries_go_by_age_and_those_that_wait_stay(tmp_path: Path) -> None:
    store = SinkStore.open(str(tmp_path))
    minter = Minter()

    def entry(sink: str, at: str, status: str) -> Entry:
        message = Message(
            message_id=minter.mint(), run_id="r", type="run.started", occurred_at=at, body=b"{}"
        )
        return Entry(sink=sink, message=message, status=status)  # type: ignore[arg-type]

    old, new = "2020-01-01T00:00:00.000Z", "2030-01-01T00:00:00.000Z"
    for sink in ("webhook:a", "bus"):
        store.add(sink, 0)
        lease = store.claim(sink)
        entries = [entry(sink, at, one) for at in (old, new) for one in ("dead", "delivered")]
        store.commit(lease, [*entries, entry(sink, old, "pending")], logs=True)
    assert store.remove_before("webhook:", "2025-01-01T00:00:00.000Z") == 2
    left = [(one.sink, one.message.occurred_at, one.status) for one in store.entries("webhook:a")]
    assert left == [
        ("webhook:a", old, "pending"),
        ("webhook:a", new, "delivered"),
        ("webhook:a", new, "dead"),
    ]
    assert len(store.entries("bus")) == 5
    store.close()
