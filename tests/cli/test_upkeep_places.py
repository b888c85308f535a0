"""Upkeep where a disk is full, cannot be written, or has no home yet."""

import asyncio
import subprocess
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest

from batten.journal.sqlite import SqliteJournal
from tests.agent.stage import bash, say
from tests.journal.sessions import ended_session
from tests.session.processes import BATTEN, environment

from .invoking import Shell
from .test_upkeep import elsewhere, verified


@pytest.fixture
def full_disk(tmp_path: Path) -> Generator[Path]:
    """A disk that has room for a small home, and a file `fill` to fill it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m,mode=700", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk: Path) -> None:
    with suppress(OSError), (disk / "fill").open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass


def test_a_full_disk_is_read_and_pruned(shell: Shell, full_disk: Path) -> None:
    home = full_disk / "home"

    async def made() -> list[str]:
        journal = SqliteJournal.open(home)
        ids = [await ended_session(journal, facts=500) for _ in range(6)]
        journal.close()
        return ids

    ids = asyncio.run(made())
    fill(full_disk)
    assert len(elsewhere(shell, home, "runs", "--json").frames()) == 6
    before = (home / "journal.db").stat().st_size
    said = elsewhere(shell, home, "prune", "--keep", "2")
    assert (said.code, said.err) == (0, "")
    assert (home / "journal.db").stat().st_size < before / 2
    fill(full_disk)
    assert elsewhere(shell, home, "delete", ids[-1], "--yes").code == 0
    assert [row["session_id"] for row in elsewhere(shell, home, "runs", "--json").frames()] == [
        ids[-2]
    ]
    assert verified(shell, home)
    assert (home / "ballast").exists()


def test_a_backup_that_finds_no_room_leaves_nothing(shell: Shell, full_disk: Path) -> None:
    shell.play([say("well")])
    fill(full_disk)
    for name in ("copy", "copy.tar.gz"):
        said = shell("backup", str(full_disk / name))
        assert said.code == 1
        assert "no room left" in said.err
    assert [path.name for path in full_disk.iterdir()] == ["fill"]


def test_a_home_that_cannot_be_written_is_backed_up(shell: Shell, tmp_path: Path) -> None:
    shell.play([say("well")])
    home = str(shell.stage.home)
    if subprocess.run(["mount", "--bind", home, home], check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", home], check=True)
        said = shell("backup", str(tmp_path / "copy"))
    finally:
        subprocess.run(["umount", "--lazy", home], check=True)
    assert said.code == 0, said.err
    assert verified(shell, tmp_path / "copy")


def test_pruning_where_nothing_ran_is_a_report_too(shell: Shell, tmp_path: Path) -> None:
    (report,) = elsewhere(shell, tmp_path / "new", "prune", "--keep", "1", "--json").frames()
    assert (report["removed"], report["after_bytes"]) == ([], 0)
    assert not (tmp_path / "new").exists()


def test_a_bundle_that_cannot_be_written_blames_its_place(shell: Shell, full_disk: Path) -> None:
    shell.play([bash("seq 20000")], [say("well")])
    fill(full_disk)
    said = shell("export", "last", "-o", str(full_disk / "b"))
    assert said.code == 1
    assert said.err == f"batten: {full_disk}/b cannot be written: No space left on device\n"
    assert [path.name for path in full_disk.iterdir()] == ["fill"]
    argv = [BATTEN, "export", "last", "-o", "-"]
    for place, reason in ((">/dev/full", "No space left on device"), ("| true", "Broken pipe")):
        told = subprocess.run(
            ["bash", "-c", f'"$@" {place}; exit ${{PIPESTATUS[0]}}', "-", *argv],
            env=environment(shell.stage), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert told.returncode == 1
        assert told.stderr == f"batten: standard output cannot be written: {reason}\n"
