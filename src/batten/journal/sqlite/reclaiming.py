"""Returns space to the disk in short steps, beside processes that write.

Between two steps other processes get the lock for as long as a step took.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

from batten.contract.errors import StoreFull
from batten.journal.removal import StoreSize
from batten.journal.sqlite.batch import Batch
from batten.journal.sqlite.bodies import BodyFiles
from batten.journal.sqlite.reader import Reader
from batten.journal.sqlite.removing import remove_facts


class Step(Protocol):
    """Does at most so much of a task; whether more is left."""

    def __call__(self, batch: Batch, most: int) -> bool: ...


Write = Callable[[Callable[[Batch], int]], Awaitable[int]]
"""Runs work in a transaction of its own."""

_STEP_S = 0.02
"""How long a step should hold the lock."""
_SMALLEST_STEP, _LARGEST_STEP = 16, 8192
_PAGE = 500
_ON_ITS_WAY_S = 60.0
"""A body file this young may belong to a fact that is not committed yet."""
_NEEDED = "SELECT 1 FROM artifacts WHERE artifacts.sha256 = ?1 AND released = 0"
_KNOWN = f"SELECT EXISTS (SELECT 1 FROM bodies WHERE sha256 = ?1) OR EXISTS ({_NEEDED})"


def size_of(reader: Reader) -> StoreSize:
    [(pages, free, page)] = reader.all(
        "SELECT page_count, freelist_count, page_size"
        " FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    )
    [(bodies,)] = reader.all("SELECT coalesce(sum(size), 0) FROM bodies WHERE data IS NULL")
    return StoreSize((pages - free) * page, bodies)


async def in_steps(write: Write, step: Step) -> None:
    """Repeat a step until it returns False, with a size that keeps its time near `_STEP_S`.

    A step that finds no room on the disk is made again, smaller.
    """
    most, largest, is_left = 256, _LARGEST_STEP, True
    while is_left:
        began = time.monotonic()
        try:
            is_left = bool(await write(partial(step, most=most)))
        except StoreFull:
            if most == _SMALLEST_STEP:
                raise
            most = largest = max(_SMALLEST_STEP, most // 4)
            continue
        spent = time.monotonic() - began
        if spent > 2 * _STEP_S:
            most = max(_SMALLEST_STEP, most // 2)
        elif spent < _STEP_S / 2:
            most = min(largest, most * 2)
        if is_left:
            await asyncio.sleep(min(spent, 1.0))


async def finish_removals(write: Write) -> None:
    """Remove the facts of all deleted runs."""
    await in_steps(write, remove_facts)


async def shrink(write: Write) -> None:
    """Return the free pages of the database to the disk."""
    await in_steps(write, _vacuum)


def _vacuum(batch: Batch, most: int) -> bool:
    batch.flush()
    free = int(batch.db.execute("PRAGMA freelist_count").get)
    if free:
        batch.db.execute(f"PRAGMA incremental_vacuum({most})").fetchall()
    return free > most


async def drop_bodies(write: Write, files: BodyFiles, digests: list[str]) -> int:
    """Delete these bodies unless an artifact needs them. Returns how many are too young."""
    young = 0
    for first in range(0, len(digests), _PAGE):
        some = digests[first : first + _PAGE]
        young += await write(partial(_drop, files=files, digests=some))
    return young


def _drop(batch: Batch, files: BodyFiles, digests: list[str]) -> int:
    batch.flush()
    limit, young = time.time() - _ON_ITS_WAY_S, 0
    for digest in digests:
        if batch.db.execute(_NEEDED, (digest,)).get is not None:
            continue
        if not _unlinked(files.path(digest), limit):
            young += 1
            continue
        batch.db.execute("DELETE FROM bodies WHERE sha256 = ?", (digest,))
        batch.db.execute("DELETE FROM resealed WHERE sha256 = ?", (digest,))
    return young


def _unlinked(path: str, limit: float) -> bool:
    """Remove a file that was not written after `limit`; whether it is gone."""
    try:
        if os.stat(path).st_mtime > limit:
            return False
        os.unlink(path)
    except FileNotFoundError:
        pass  # it was small, or its writer gave up meanwhile
    return True


async def collect(write: Write, reader: Reader, files: BodyFiles, grace_s: float) -> int:
    """Delete every body older than `grace_s` that no artifact needs. Returns how many.

    Finding them reads only; each step checks again what it deletes.
    """
    limit, freed, last = time.time() - grace_s, 0, ""
    sql = (
        "SELECT sha256 FROM bodies WHERE sha256 > ? AND added_at <= ? AND NOT EXISTS (SELECT 1 FROM"
        " artifacts WHERE artifacts.sha256 = bodies.sha256 AND released = 0)"
        " ORDER BY sha256 LIMIT ?"
    )
    while found := [row[0] for row in reader.all(sql, (last, int(limit), _PAGE))]:
        freed += await write(partial(_collect_rows, digests=found, limit=limit))
        last = found[-1]
    await write(_collect_resealed)
    names = [name for name in files.names() if not _is_known(reader, name)]
    for first in range(0, len(names), _PAGE):
        some = names[first : first + _PAGE]
        await write(partial(_collect_files, files=files, digests=some, limit=limit))
    for path in files.left_over():
        _unlinked(path, limit)
    return freed


def _is_known(reader: Reader, digest: str) -> bool:
    return bool(reader.all(_KNOWN, (digest,))[0][0])


def _collect_rows(batch: Batch, digests: list[str], limit: float) -> int:
    batch.flush()
    freed = 0
    for digest in digests:
        batch.db.execute(
            f"DELETE FROM bodies WHERE sha256 = ?1 AND added_at <= ?2 AND NOT EXISTS ({_NEEDED})",
            (digest, int(limit)),
        )
        freed += batch.db.changes()
    return freed


def _collect_resealed(batch: Batch) -> int:
    batch.flush()
    batch.db.execute(
        "DELETE FROM resealed WHERE sha256 NOT IN (SELECT sha256 FROM artifacts)"
        " AND sha256 NOT IN (SELECT sha256 FROM bodies)"
    )
    return batch.db.changes()


def _collect_files(batch: Batch, files: BodyFiles, digests: list[str], limit: float) -> int:
    batch.flush()
    for digest in digests:
        if not batch.db.execute(_KNOWN, (digest,)).get:
            _unlinked(files.path(digest), limit)
    return 0
