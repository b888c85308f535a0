"""A damaged file of views: it is removed and made again, and no answer changes."""

import os
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest

from batten.contract.errors import StoreBusy, StoreDamaged
from batten.control.views.store import ViewStore
from batten.journal.sqlite.database import new_connection
from tests.control.views.test_views import answers, opened, stored_run
from tests.protocols.macp.making import finished, observed, said


def damage_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xff" * 8192)


def damage_pages(path: Path) -> None:
    with path.open("r+b") as file:
        for start in range(4096, path.stat().st_size, 4096):
            file.seek(start + 100)
            file.write(b"\xff" * 600)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def damage_states(path: Path) -> None:
    with closing(new_connection(str(path))) as db:
        db.execute("UPDATE kept SET body = x'7b'")


@pytest.mark.parametrize("damage", [damage_header, damage_pages, empty, damage_states])
async def test_a_damaged_file_is_removed_and_made_again(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    async with opened(tmp_path) as (journal, _, views):
        run_id = await stored_run(
            journal, observed(said("ann", "Signal", signal_type="x"), finished())
        )
        await views.catch_up()
        before = await answers(views, run_id)
    damage(tmp_path / "views.db")
    async with opened(tmp_path) as (_, _, views):
        with suppress(StoreBusy):  # of what is damaged only in its middle, the first to see it
            await answers(views, run_id)
    async with opened(tmp_path) as (_, _, views):
        assert await answers(views, run_id) == before


async def test_views_know_that_their_file_was_removed(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, _, views):
        seen = [views.are_there]
        (tmp_path / "views.db").unlink()
        seen.append(views.are_there)
        ViewStore.open(tmp_path).close()
        seen.append(views.are_there)
    assert seen == [True, False, False]


async def test_a_statement_that_sqlite_refuses_removes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as (_, store, views):
        with pytest.raises(StoreDamaged), store.file.faults():
            raise apsw.SQLError("Expression tree is too large (maximum depth 1000)")
        assert views.are_there
