"""Many processes on one home: at once, killed, stopped, forked."""

import asyncio
import os
import random
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from batten.contract.errors import Conflict, JournalError, NotFound, StoreBusy
from batten.contract.ids import new_run_id
from batten.journal.sqlite import SqliteJournal
from batten.journal.sqlite.lock import FileLock
from batten.journal.workers import boot_ms, is_abandoned, is_gone, this_worker
from tests.journal.given import FAILED, started, text
from tests.journal.process import start

FAR = "9999-12-31T23:59:59.999Z"


@contextmanager
def opened(home: Path, *, patience_s: float = 10.0) -> Generator[SqliteJournal]:
    journal = SqliteJournal.open(home, patience_s=patience_s)
    try:
        yield journal
    finally:
        journal.close()


async def _create_and_write_at_once(home: Path, processes: int, count: int) -> None:
    writers = [start("write_many", home, str(count)) for _ in range(processes)]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    runs = [writer.communicate()[0].strip() for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * processes
    with opened(home) as journal:
        for run_id in runs:
            found = await journal.read(run_id, limit=count + 10)
            assert [item.sequence for item in found] == list(range(count + 3))
        assert await journal.verify() == []


async def test_eight_processes_create_the_journal_and_write_at_once(tmp_path: Path) -> None:
    await _create_and_write_at_once(tmp_path, 8, 20)


@pytest.mark.soak
async def test_fifty_processes_create_the_journal_and_write_at_once(tmp_path: Path) -> None:
    await _create_and_write_at_once(tmp_path, 50, 100)


def test_a_reader_of_a_journal_that_is_being_created_finds_none_or_a_whole_one(
    tmp_path: Path,
) -> None:
    """Tables and version are committed together, but read one after the other."""
    homes = [tmp_path / str(number) for number in range(100)]

    def create() -> None:
        for home in homes:
            home.mkdir()
            SqliteJournal.open(home).close()

    with ThreadPoolExecutor(1) as pool:
        creating = pool.submit(create)
        for home in homes:
            while True:
                try:
                    SqliteJournal.open(home, read_only=True).close()
                except NotFound:
                    if creating.done():
                        creating.result()
                        raise
                else:
                    break
        creating.result()


async def test_a_run_written_by_several_processes_has_no_holes(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        lease = await started(journal)
        writers = [
            start("write_shared", tmp_path, lease.run_id, str(lease.fence), "25") for _ in range(3)
        ]
        seen: list[int] = []
        async with asyncio.timeout(30):
            async for page in journal.follow(lease.run_id):
                seen += [item.sequence for item in page]
                await journal.append(lease.run_id, [text("mine")], fence=lease.fence)
                if all(writer.poll() == 0 for writer in writers):
                    break
        for writer in writers:
            writer.communicate()
        found = await journal.read(lease.run_id, limit=10_000)
        assert seen == list(range(len(seen)))
        assert [item.sequence for item in found] == list(range(len(found)))
        assert len(found) > 2 + 75
        assert await journal.verify() == []


@pytest.mark.parametrize("seed", range(4))
async def test_what_was_told_before_a_kill_is_there_byte_for_byte(
    tmp_path: Path, seed: int
) -> None:
    run_id = new_run_id()
    writer = start("write_forever", tmp_path, run_id)
    assert writer.stdout is not None
    told = [writer.stdout.readline() for _ in range(random.Random(seed).randint(1, 400))]
    writer.kill()
    told += writer.communicate()[0].splitlines(keepends=True)
    with opened(tmp_path) as journal:
        stored = {
            item.sequence: item.body.decode() for item in await journal.read(run_id, limit=10**6)
        }
        assert sorted(stored) == list(range(len(stored)))
        for line in told:
            sequence, _, body = line.partition(" ")
            if body.endswith("\n"):  # the last line may have been cut by the kill
                assert stored[int(sequence)] == body[:-1]
        assert await journal.verify() == []
        run = await journal.run(run_id)
        assert run is not None
        assert is_abandoned(run)


async def test_the_run_of_a_killed_worker_is_taken_over_at_once(tmp_path: Path) -> None:
    run_id = new_run_id()
    writer = start("write_forever", tmp_path, run_id)
    assert writer.stdout is not None
    writer.stdout.readline()
    with opened(tmp_path) as journal:
        with pytest.raises(Conflict):
            await journal.claim(run_id, this_worker())
        writer.kill()
        writer.communicate()
        lease = await journal.claim(run_id, this_worker())
        await journal.append(run_id, [FAILED], fence=lease.fence)


async def test_a_living_worker_keeps_its_run_though_the_clock_jumps(tmp_path: Path) -> None:
    run_id = new_run_id()
    writer = start("write_forever", tmp_path, run_id)
    assert writer.stdout is not None
    writer.stdout.readline()
    with opened(tmp_path) as journal:
        run = await journal.run(run_id)
        assert run is not None
        # To a clock that has jumped ahead, the lease ended long ago.
        late = msgspec.structs.replace(run, lease_until="2020-01-01T00:00:00.000Z")
        assert not is_abandoned(late)
        # By the clock since boot, which nobody sets, a lease does end.
        assert is_abandoned(msgspec.structs.replace(run, lease_until=FAR, lease_boot_ms=boot_ms()))
        writer.kill()
        writer.communicate()
        assert is_abandoned(msgspec.structs.replace(run, lease_until=FAR))


class Held(NamedTuple):
    worker_id: str
    lease_until: str = FAR
    lease_boot_ms: int = 0


def test_this_worker_lives_and_an_unknown_machines_worker_lives_until_its_lease_ends() -> None:
    assert this_worker() == this_worker()
    assert not is_gone(Held(this_worker()))
    assert not is_gone(Held("worker-elsewhere-1-1", lease_boot_ms=1))
    assert not is_gone(Held("somebody"))
    assert is_gone(Held("somebody", "2020-01-01T00:00:00.000Z"))


async def test_a_store_held_too_long_is_busy_and_works_again_afterwards(tmp_path: Path) -> None:
    with opened(tmp_path, patience_s=0.2) as journal:
        lease = await started(journal)
        holder = start("hold_lock", tmp_path)
        assert holder.stdout is not None
        holder.stdout.readline()
        for _ in range(2):
            with pytest.raises(StoreBusy):
                await journal.append(lease.run_id, [text("a")], fence=lease.fence)
        assert len(await journal.read(lease.run_id)) == 2, "readers do not wait for writers"
        with pytest.raises(StoreBusy):
            SqliteJournal.open(tmp_path, patience_s=0.1)
        holder.communicate("stop\n")
        async with asyncio.timeout(20):
            while True:
                try:
                    await journal.append(lease.run_id, [text("b")], fence=lease.fence)
                except StoreBusy:
                    continue
                break


def test_a_lock_nobody_waits_for_any_more_is_given_back(tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    first, second = FileLock(path), FileLock(path)
    first.acquire(1)
    with pytest.raises(StoreBusy):
        second.acquire(0.01)
    first.release()
    first.acquire(10)  # the one that gave up has let go, or this would be busy
    first.release()
    second.acquire(10)
    second.release()
    first.close()
    second.close()


def _use_in_a_fork(journal: SqliteJournal, run_id: str) -> int:
    """The exit code of a forked child: 7 when the journal refused to be used there."""
    child = os.fork()
    if child == 0:
        try:
            journal.close()
            journal.read_now(run_id)
        except JournalError:
            os._exit(7)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def test_a_journal_is_not_carried_over_a_fork(tmp_path: Path) -> None:
    with opened(tmp_path) as journal:
        lease = await started(journal)
        assert _use_in_a_fork(journal, lease.run_id) == 7
        await journal.append(lease.run_id, [text("still here")], fence=lease.fence)
        assert await journal.verify() == []
