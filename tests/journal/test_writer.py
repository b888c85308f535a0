"""Who writes: the thread, or whoever waits where that is allowed and nothing stands in the way."""

import asyncio
import os
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from batten.contract.errors import Conflict, JournalError, StoreBusy
from batten.journal.followers import Followers, Wakeup
from batten.journal.receipt import Receipts
from batten.journal.sqlite import SqliteJournal
from batten.journal.sqlite.ballast import Ballast
from batten.journal.sqlite.batch import Batch
from batten.journal.sqlite.bell_watch import BellWatches
from batten.journal.sqlite.doorbell import BellListener, Doorbell
from batten.journal.sqlite.lock import FileLock
from batten.journal.sqlite.schema import connect, prepare
from batten.journal.sqlite.writer import Writer
from tests.journal.given import FINISHED, started, text

PATIENCE_S = 30.0


@contextmanager
def writing(home: Path, *, may_write: bool) -> Generator[Writer]:
    path = str(home / "journal.db")
    db = connect(path, patience_s=1, writing=True)
    prepare(db)
    lock, bell = FileLock(path + ".lock"), Doorbell(path + ".bell", writing=True)
    followers = Followers()
    watches = BellWatches(bell, followers)

    def ring(position: int) -> list[Wakeup]:
        return []

    parts = (db, str(home), lock, bell, followers, watches, ring, Ballast(str(home)))
    writer = Writer(*parts, 1.0, lambda: may_write)
    try:
        yield writer
    finally:
        writer.stop()
        db.close()
        lock.close()
        bell.close()


def writing_thread(batch: Batch) -> int:
    return threading.get_ident()


async def test_who_waits_writes_where_it_may_and_else_the_thread_does(tmp_path: Path) -> None:
    with writing(tmp_path, may_write=True) as writer:
        assert await writer.submit(writing_thread) == threading.get_ident()
    with writing(tmp_path, may_write=False) as writer:
        assert await writer.submit(writing_thread) != threading.get_ident()


async def test_who_waits_takes_along_what_came_before_it(tmp_path: Path) -> None:
    with writing(tmp_path, may_write=True) as writer:
        order: list[int] = []

        def note(number: int, batch: Batch) -> None:
            order.append(number)

        earlier = [writer.submit(partial(note, number)) for number in range(3)]
        await writer.submit(partial(note, 3))
        assert order == [0, 1, 2, 3]
        await earlier[0]


async def test_a_loop_is_not_held_up_by_what_another_process_does(tmp_path: Path) -> None:
    with writing(tmp_path, may_write=True) as writer:
        other = FileLock(str(tmp_path / "journal.db.lock"))
        other.acquire(1)
        asked = asyncio.ensure_future(_awaited(writer))
        await asyncio.sleep(0)  # the loop goes on, though nothing can be written
        assert not asked.done()
        other.release()
        assert await asked != threading.get_ident()
        other.close()


async def test_who_asks_to_write_writes_unless_another_process_does(tmp_path: Path) -> None:
    with writing(tmp_path, may_write=False) as writer:
        receipt = writer.submit(writing_thread)
        assert Receipts([receipt]).write_here()
        assert await receipt == threading.get_ident()
        other = FileLock(str(tmp_path / "journal.db.lock"))
        other.acquire(1)
        receipt = writer.submit(writing_thread)
        assert not Receipts([receipt]).write_here()
        other.release()
        assert await receipt != threading.get_ident()
        other.close()


async def test_a_slow_disk_is_left_to_the_thread(tmp_path: Path) -> None:
    with writing(tmp_path, may_write=False) as writer:
        here: list[bool] = []
        for _ in range(20):
            receipt = writer.submit(lambda batch: time.sleep(0.005))
            here.append(Receipts([receipt]).write_here())
            await receipt
    assert here[0]
    assert not all(here)


async def test_a_thread_that_waits_does_not_write(tmp_path: Path) -> None:
    with writing(tmp_path, may_write=True) as writer:
        receipt = writer.submit(writing_thread)
        assert await asyncio.to_thread(receipt.wait, 10) != threading.get_ident()


async def test_who_writes_all_the_time_leaves_the_others_a_turn(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path, own_process=True)
    lease = await started(journal)
    begun = asyncio.Event()

    async def write() -> None:
        while True:
            await journal.append(lease.run_id, [text("a")], fence=lease.fence)
            begun.set()

    writing = asyncio.create_task(write())
    await begun.wait()
    writing.cancel()
    await asyncio.wait([writing])
    assert writing.cancelled()
    assert await journal.verify() == []
    journal.close()


async def test_what_cannot_be_written_is_told_to_who_tried(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path, own_process=True)
    lease = await started(journal)
    await journal.append(lease.run_id, [FINISHED], fence=lease.fence)
    late = await asyncio.gather(
        *(journal.append(lease.run_id, [text("late")], fence=lease.fence) for _ in range(2)),
        return_exceptions=True,
    )
    assert [type(error) for error in late] == [Conflict, Conflict]
    assert await journal.verify() == []
    journal.close()


async def _awaited(writer: Writer) -> int:
    ident: int = await writer.submit(writing_thread)
    return ident


async def test_a_thread_that_could_not_start_is_started_for_the_next_fact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(tmp_path, may_write=False) as writer:
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", _no_room)
            with pytest.raises(JournalError, match="can't start new thread"):
                writer.submit(writing_thread)
        async with asyncio.timeout(PATIENCE_S):
            assert await writer.submit(writing_thread) != threading.get_ident()


def test_a_lock_that_could_not_be_waited_for_is_free_once_it_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "lock")
    with closing(FileLock(path)) as mine, closing(FileLock(path)) as other:
        other.acquire(PATIENCE_S)
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", _no_room)
            with pytest.raises(StoreBusy, match="can't start new thread"):
                mine.acquire(PATIENCE_S)
        other.release()
        assert mine.try_acquire()


async def test_a_bell_is_left_although_no_thread_can_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Doorbell(str(tmp_path / "bell"), writing=True)) as bell:
        before = len(os.listdir("/proc/self/fd"))
        listener = BellListener(bell, asyncio.get_running_loop(), lambda: True)
        listener.listen()
        monkeypatch.setattr(threading.Thread, "start", _no_room)
        listener.close()
        assert len(os.listdir("/proc/self/fd")) == before


def _no_room(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")
