"""A backup made while others write is a home, and everything in it is what was written."""

import os
import signal
import tarfile
from pathlib import Path

import pytest

from batten.contract.errors import Conflict, NotFound, StoreDamaged
from batten.journal.bundles.transfer import back_up
from batten.journal.sqlite import SqliteJournal
from batten.journal.sqlite.database import new_connection
from tests.journal.given import all_facts
from tests.journal.process import start
from tests.journal.sessions import ended_session

BODY = b"b" * 40_000


def unpack(target: Path) -> Path:
    if target.is_file():
        with tarfile.open(target) as archive:
            archive.extractall(target.with_name("unpacked"), filter="data")
        return target.with_name("unpacked")
    return target


@pytest.mark.parametrize("name", ["copy", "copy.tar.gz"])
async def test_a_backup_opens_as_a_home(tmp_path: Path, name: str) -> None:
    home, target = tmp_path / "home", tmp_path / name
    journal = SqliteJournal.open(home)
    await ended_session(journal, body=BODY)
    await ended_session(journal, body=b"small")
    facts = await all_facts(journal)
    (home / "seal.key").write_bytes(bytes(32))
    (home / "sinks.db").touch()
    beside = new_connection(str(home / "sinks.db"))
    beside.execute("CREATE TABLE cursors (position)")
    beside.close()
    (home / "memory").mkdir()
    (home / "memory" / "global.md").write_text("a note")
    (home / "coordination.json").write_text("{}")
    report = back_up(str(home), str(target), with_key=False)
    assert (report.bodies, report.damaged) == (1, [])
    await ended_session(journal)
    journal.close()
    copy = unpack(target)
    assert (target.stat().st_mode & 0o077, (copy / "seal.key").exists()) == (0, False)
    assert (copy / "memory" / "global.md").read_text() == "a note"
    assert (copy / "coordination.json").read_text() == "{}"
    assert (copy / "sinks.db").read_bytes() == (home / "sinks.db").read_bytes()
    journal = SqliteJournal.open(copy)
    assert await journal.verify() == []
    assert await all_facts(journal) == facts
    await ended_session(journal)
    assert await journal.verify() == []
    journal.close()
    assert sorted(path.name for path in tmp_path.iterdir() if "." in path.name) == (
        [name] if "." in name else []
    )


async def test_a_backup_beside_writing_processes_is_consistent(tmp_path: Path) -> None:
    home = tmp_path / "home"
    journal = SqliteJournal.open(home)
    for _ in range(3):
        await ended_session(journal, facts=2000)
    journal.close()
    writers = [start("fill", home, "1000000") for _ in range(2)]
    try:
        for number in range(3):
            for writer in writers:
                assert writer.stdout is not None
                assert writer.stdout.readline().startswith("chat_")
            target = tmp_path / f"copy-{number}"
            assert back_up(str(home), str(target), with_key=True).damaged == []
            copy = SqliteJournal.open(target, read_only=True)
            assert await copy.verify() == []
            assert len(await copy.sessions(limit=1000)) >= 3 + 2 * (number + 1)
            copy.close()
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    journal = SqliteJournal.open(home)
    assert await journal.verify() == []
    journal.close()


async def test_a_key_is_copied_only_on_request(tmp_path: Path) -> None:
    home = tmp_path / "home"
    SqliteJournal.open(home).close()
    (home / "seal.key").write_bytes(b"k" * 32)
    back_up(str(home), str(tmp_path / "with"), with_key=True)
    assert (tmp_path / "with" / "seal.key").read_bytes() == b"k" * 32


async def test_damaged_bodies_are_named_and_the_rest_is_copied(tmp_path: Path) -> None:
    home = tmp_path / "home"
    journal = SqliteJournal.open(home)
    for data in (b"1", b"2", b"3"):
        await ended_session(journal, body=data * 40_000)
    journal.close()
    first, second, third = sorted(
        path for path in (home / "artifacts").rglob("*") if path.is_file()
    )
    first.unlink()
    second.write_bytes(b"other")
    report = back_up(str(home), str(tmp_path / "copy"), with_key=False)
    assert report.damaged == [first.name, second.name]
    assert (tmp_path / "copy" / third.relative_to(home)).read_bytes() == third.read_bytes()


async def test_a_backup_replaces_nothing_and_needs_a_journal(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with pytest.raises(NotFound):
        back_up(str(home), str(tmp_path / "copy"), with_key=False)
    SqliteJournal.open(home).close()
    (tmp_path / "there").mkdir()
    with pytest.raises(Conflict, match="exists"):
        back_up(str(home), str(tmp_path / "there"), with_key=False)
    with pytest.raises(NotFound, match=f"no directory {tmp_path / 'nowhere'}"):
        back_up(str(home), str(tmp_path / "nowhere" / "copy"), with_key=False)


async def test_a_damaged_file_beside_the_journal_is_named(tmp_path: Path) -> None:
    SqliteJournal.open(tmp_path / "home").close()
    (tmp_path / "home" / "sinks.db").write_bytes(b"no database at all, but long enough" * 40)
    with pytest.raises(StoreDamaged, match=r"sinks\.db is damaged"):
        back_up(str(tmp_path / "home"), str(tmp_path / "copy"), with_key=False)


async def test_a_killed_backup_has_not_the_name_of_one(tmp_path: Path) -> None:
    home, target = tmp_path / "home", tmp_path / "copy"
    journal = SqliteJournal.open(home)
    await ended_session(journal, body=BODY)
    with start("back_up_until_bodies", home, target) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "_add_bodies\n"
        os.kill(process.pid, signal.SIGKILL)
    assert not target.exists()
    assert await journal.verify() == []
    back_up(str(home), str(target), with_key=False)
    journal.close()
