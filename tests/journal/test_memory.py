"""The memory journal keeps the journal's contract, and keeps little in memory."""

import tempfile
import threading
import tracemalloc
from pathlib import Path

import pytest

from batten.journal.contract import Journal, Stored
from batten.journal.memory import MemoryJournal, MemoryStore
from tests.journal.delayed import delayed
from tests.journal.given import FINISHED, started, text
from tests.journal.opened import OpenJournal
from tests.journal.suite import JournalSuite

MEGABYTE = 1024 * 1024


def _is_a_journal(journal: MemoryJournal) -> Journal:
    return journal  # checked by the type checkers


async def test_what_is_stored_is_spooled_to_a_file_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    journal = MemoryJournal()
    lease = await started(journal)
    tracemalloc.start()
    for number in range(300):
        facts = [text(f"{number} " + "x" * 10_000)] * 10
        await journal.append(lease.run_id, facts, fence=lease.fence)
    writer = await journal.body_writer()
    for _ in range(20):
        writer.write(b"y" * MEGABYTE)
    body = writer.close()
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2 * MEGABYTE
    assert peak < 12 * MEGABYTE
    assert list(tmp_path.iterdir()) == []
    assert await journal.verify() == []
    assert await journal.body(body.sha256) == b"y" * (20 * MEGABYTE)
    assert len(await journal.read(lease.run_id, limit=10_000)) == 3002
    journal.close()


async def test_a_thread_appends_and_reads_while_the_loop_stands_still() -> None:
    journal = MemoryJournal()
    lease = await started(journal)
    journal.append(lease.run_id, [text("on its way")], fence=lease.fence)
    told: list[Stored] = []

    def claim() -> None:
        told.extend(journal.append_now(lease.run_id, [FINISHED], fence=lease.fence))

    thread = threading.Thread(target=claim)
    thread.start()
    thread.join()  # the loop does not run meanwhile
    assert [one.sequence for one in told] == [3]
    assert journal.read_now(lease.run_id, after=2) == told
    run = journal.run_now(lease.run_id)
    assert run is not None
    assert run.outcome == "completed"
    journal.close()


class TestMemory(JournalSuite):
    @pytest.fixture
    def open_journal(self) -> OpenJournal:
        store = MemoryStore()
        return lambda: _is_a_journal(MemoryJournal(store))


class TestDelayedMemory(JournalSuite):
    """Nothing hangs and nothing is reordered where every read takes its time."""

    @pytest.fixture
    def open_journal(self) -> OpenJournal:
        store = MemoryStore()
        return lambda: delayed(MemoryJournal(store))
