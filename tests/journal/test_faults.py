"""A full disk, a store that may not be written, errors nobody waited for."""

import asyncio
import os
import subprocess
from collections.abc import Generator
from pathlib import Path
from shutil import rmtree

import pytest

from batten.contract.errors import CallerError, JournalError, NotFound, StoreFull, StoreReadOnly
from batten.journal.sqlite import Quotas, SqliteJournal
from batten.journal.sqlite.ballast import BALLAST_BYTES
from batten.journal.sqlite.bodies import INLINE_BYTES
from tests.journal.given import FINISHED, artifact, started, text
from tests.journal.process import start


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _fill(home: Path, limit: int) -> list[list[str]]:
    writer = start("fill_disk", home, str(limit))
    lines = [line.split() for line in writer.communicate()[0].splitlines()]
    assert writer.returncode == 0
    return lines


async def test_on_a_full_disk_the_ending_still_fits(small_disk: Path) -> None:
    [full, ended] = _fill(small_disk, 0)
    code, run_id, count = full
    assert code == "store_full"
    assert ended == ["ended", str(int(count) + 2)]
    assert not (small_disk / "ballast").exists()
    journal = SqliteJournal.open(small_disk, read_only=True)
    run = await journal.run(run_id)
    assert run is not None
    assert (run.status, run.next_sequence) == ("failed", int(count) + 3)
    assert await journal.verify() == []
    journal.close()


async def test_a_file_size_limit_is_a_full_store(tmp_path: Path) -> None:
    [full, *_] = _fill(tmp_path, 1024 * 1024)
    assert full[0] == "store_full"
    journal = SqliteJournal.open(tmp_path)
    assert await journal.verify() == []
    run = await journal.run(full[1])
    assert run is not None
    assert run.next_sequence >= int(full[2]) + 2
    journal.close()


async def test_a_body_that_finds_no_room_is_a_full_store(small_disk: Path) -> None:
    journal = SqliteJournal.open(small_disk)
    writer = await journal.body_writer()
    with pytest.raises(StoreFull):
        writer.write(bytes(8 * 1024 * 1024))
    writer.discard()
    await started(journal)
    journal.close()


async def test_a_lost_append_is_told_to_the_next_one_and_nothing_follows_it(
    small_disk: Path,
) -> None:
    journal = SqliteJournal.open(small_disk)
    lease = await started(journal)
    (small_disk / "filler").write_bytes(bytes(_room(small_disk)))
    big, small = [text("x" * 100_000)], [text("small")]
    for _ in range(4):
        journal.append(lease.run_id, big, fence=lease.fence)  # nobody waits for these
    with pytest.raises(StoreFull):
        await journal.append(lease.run_id, small, fence=lease.fence)
    os.unlink(small_disk / "filler")
    await journal.append(lease.run_id, small, fence=lease.fence)
    assert len(await journal.read(lease.run_id)) < 7
    journal.close()


async def test_what_could_not_be_committed_reaches_no_follower(small_disk: Path) -> None:
    journal = SqliteJournal.open(small_disk)
    lease = await started(journal)
    pages = journal.follow(lease.run_id)
    seen = await anext(pages)
    (small_disk / "filler").write_bytes(bytes(_room(small_disk)))
    with pytest.raises(StoreFull):
        await journal.append(lease.run_id, [text("x" * 100_000)], fence=lease.fence)
    os.unlink(small_disk / "filler")
    await journal.append(lease.run_id, [text("small")], fence=lease.fence)
    async with asyncio.timeout(20):
        seen += await anext(pages)
    assert seen == await journal.read(lease.run_id)
    assert len(seen) == 3
    journal.close()


async def test_a_lost_append_is_told_by_close_if_by_nobody_else(small_disk: Path) -> None:
    journal = SqliteJournal.open(small_disk)
    lease = await started(journal)
    (small_disk / "filler").write_bytes(bytes(_room(small_disk)))
    for _ in range(4):
        journal.append(lease.run_id, [text("x" * 100_000)], fence=lease.fence)
    with pytest.raises(StoreFull):
        journal.close()


async def test_a_fact_that_was_refused_unheard_is_told_to_the_next_append(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path)
    lease = await started(journal)
    before = len(await journal.read(lease.run_id))
    journal.append(lease.run_id, [text("x" * 300_000)], fence=lease.fence)  # nobody waits for it
    with pytest.raises(JournalError, match="takes 300") as raised:
        await journal.append(lease.run_id, [text("after")], fence=lease.fence)
    assert isinstance(raised.value.__cause__, CallerError)
    await journal.append(lease.run_id, [text("known by now")], fence=lease.fence)
    assert len(await journal.read(lease.run_id)) == before + 1
    journal.close()


def _room(disk: Path) -> int:
    """All the room but for a little, which the first large append does not fit into."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize - 64 * 1024


def test_the_ballast_is_laid_and_can_be_given_up(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path)
    assert (tmp_path / "ballast").stat().st_size == BALLAST_BYTES
    assert journal.free_ballast()
    assert not journal.free_ballast()
    journal.close()
    SqliteJournal.open(tmp_path).close()
    assert (tmp_path / "ballast").exists()


def test_a_store_that_may_not_be_written_is_read_only(small_disk: Path) -> None:
    async def write() -> str:
        journal = SqliteJournal.open(small_disk)
        lease = await started(journal)
        journal.close()
        return lease.run_id

    run_id = asyncio.run(write())
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreReadOnly):
        SqliteJournal.open(small_disk)
    reading = SqliteJournal.open(small_disk, read_only=True)
    assert len(reading.read_now(run_id)) == 2
    assert asyncio.run(reading.verify()) == []
    reading.close()


async def test_a_journal_opened_for_reading_takes_no_facts(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path)
    lease = await started(journal)
    reading = SqliteJournal.open(tmp_path, read_only=True)
    with pytest.raises(StoreReadOnly):
        reading.append(lease.run_id, [FINISHED], fence=lease.fence)
    pages = reading.follow(lease.run_id, after=1)
    waiting = asyncio.ensure_future(anext(pages))
    sent = await journal.append(lease.run_id, [FINISHED], fence=lease.fence)
    async with asyncio.timeout(20):
        assert await waiting == sent
    reading.close()
    journal.close()


def test_reading_a_home_without_a_journal_finds_nothing_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        SqliteJournal.open(tmp_path / "nowhere", read_only=True)
    assert list(tmp_path.iterdir()) == []


async def test_a_journal_that_was_removed_takes_nothing_more(tmp_path: Path) -> None:
    home = tmp_path / "home"
    journal = SqliteJournal.open(home)
    lease = await started(journal)
    home.rename(tmp_path / "moved")
    await journal.append(lease.run_id, [text("kept")], fence=lease.fence)
    rmtree(tmp_path / "moved")
    with pytest.raises(JournalError, match="was removed"):
        await journal.append(lease.run_id, [text("lost")], fence=lease.fence)
    journal.close()


async def test_a_closed_journal_refuses_politely(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path)
    lease = await started(journal)
    last = journal.append(lease.run_id, [text("last")], fence=lease.fence)
    journal.close()
    journal.close()
    assert len(await last) == 1
    with pytest.raises(JournalError):
        journal.append(lease.run_id, [text("late")], fence=lease.fence)
    with pytest.raises(JournalError):
        await journal.read(lease.run_id)


async def test_a_quota_refuses_the_rest_of_a_body_and_says_how_much(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path, quotas=Quotas(artifact_bytes=50_000, task_bytes=80_000))
    writer = await journal.body_writer()
    for _ in range(6):
        writer.write(b"0123456789" * 1000)
    body = writer.close()
    assert (body.size, writer.refused_bytes) == (50_000, 10_000)
    lease = await started(journal, task_id="task_1")
    await journal.append(
        lease.run_id, [artifact(digest=body.sha256)], fence=lease.fence, bodies=[body]
    )
    second = await journal.body_writer(task_id="task_1")
    second.write(bytes(50_000))
    assert (second.close().size, second.refused_bytes) == (30_000, 20_000)
    assert (await journal.body_writer(task_id="task_2")).refused_bytes == 0
    journal.close()


async def test_what_is_small_is_kept_though_the_task_has_used_all_its_room(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path, quotas=Quotas(task_bytes=40_000))
    body = journal.inline(bytes(40_000))
    lease = await started(journal, task_id="task_1")
    await journal.append(
        lease.run_id, [artifact(digest=body.sha256)], fence=lease.fence, bodies=[body]
    )
    small = await journal.body_writer(task_id="task_1")
    small.write(b"a few words")
    assert (small.close().data, small.refused_bytes) == (b"a few words", 0)
    large = await journal.body_writer(task_id="task_1")
    for _ in range(3):
        large.write(bytes(10_000))
    assert (large.close().size, large.refused_bytes) == (INLINE_BYTES, 30_000 - INLINE_BYTES)
    journal.close()


async def test_bodies_are_freed_when_no_run_needs_them_any_more(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path)
    first, second = await started(journal), await started(journal)
    shared, own, small = (journal.inline(data * 20_000) for data in (b"s", b"o", b""))
    await journal.append(
        first.run_id,
        [artifact("a", shared.sha256), artifact("b", own.sha256), artifact("c", small.sha256)],
        fence=first.fence,
        bodies=[shared, own, small],
    )
    await journal.append(
        second.run_id, [artifact("d", shared.sha256)], fence=second.fence, bodies=[shared]
    )
    assert await journal.collect_bodies(grace_s=0) == 0
    await journal.prune(first.run_id, before=5, reason="age")
    assert await journal.collect_bodies(grace_s=3600) == 0, "a young body may be on its way"
    assert await journal.collect_bodies(grace_s=0) == 2
    assert await journal.body(shared.sha256) == b"s" * 20_000
    for gone in (own, small):
        with pytest.raises(NotFound):
            await journal.body(gone.sha256)
    assert await journal.verify() == []
    assert [row.artifact_id for row in await journal.artifacts(first.run_id)] == ["a", "b", "c"]
    journal.close()
