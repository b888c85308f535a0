"""Deletes whole sessions: their rows in one transaction, their facts afterwards in short steps.

The keys of deleted runs stay in `removals` until their facts are gone, so that a deletion that was
interrupted is completed by the next one. Each function here runs inside a transaction.
"""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from batten.contract.errors import Conflict, NotFound
from batten.journal.deletable import why_kept
from batten.journal.removal import Extent, Removable
from batten.journal.sqlite.batch import Batch
from batten.journal.sqlite.reader import Reader
from batten.journal.sqlite.usage import KEEP_USAGE

_RUN_TABLES = ("requests", "artifacts", "ledger", "reservations")
_OF_SESSION = "SELECT key FROM runs WHERE session_id = ?"
_OF_RUN = (
    "WITH RECURSIVE tree (key, run_id) AS (SELECT key, run_id FROM runs WHERE run_id = ?"
    " UNION SELECT runs.key, runs.run_id FROM runs JOIN tree ON parent_run_id = tree.run_id)"
    " SELECT key FROM tree"
)


Fetch = Callable[[str, tuple[Any, ...]], list[Any]]
"""All rows of a statement."""

_USED_AT = {
    True: "SELECT max(updated_at, coalesce((SELECT max(ended_at) FROM runs"
    " WHERE runs.session_id = sessions.session_id), '')) FROM sessions WHERE session_id = ?",
    False: "SELECT coalesce(ended_at, created_at) FROM runs WHERE run_id = ?",
}
_ALL = (
    f"SELECT session_id AS name, 1, ({_USED_AT[True].replace('?', 'outer.session_id')}) AS used_at,"
    " workspace_path FROM sessions AS outer"
    " UNION ALL SELECT run_id, 0, coalesce(ended_at, created_at), workspace_path FROM runs"
    " WHERE session_id IS NULL AND parent_run_id IS NULL ORDER BY used_at DESC, name DESC"
)


class _Held(Struct, frozen=True):
    run_id: str
    kind: str
    ended_at: str | None
    worker_id: str
    lease_until: str
    lease_boot_ms: int


def removables(reader: Reader) -> list[Removable]:
    """All sessions, most recently used first."""
    found = reader.all(_ALL)
    return [Removable(name, bool(is_session), at, path) for name, is_session, at, path in found]


def extent(reader: Reader, one: Removable) -> Extent:
    """Measure a session by the lengths of all its facts."""
    keys, name = _keys(one.is_session), (one.name,)
    rows = reader.all(f"SELECT run_id, kind, prompt FROM runs WHERE key IN ({keys})", name)
    [(facts,)] = reader.all(
        f"SELECT coalesce(sum(length(body) + 64), 0) FROM events WHERE run IN ({keys})", name
    )
    [(bodies,)] = reader.all(
        "SELECT coalesce(sum(size), 0) FROM bodies WHERE sha256 IN (SELECT sha256 FROM artifacts"
        f" WHERE run_id IN (SELECT run_id FROM runs WHERE key IN ({keys})))",
        name,
    )
    prompts = [prompt for _, _, prompt in rows if prompt]
    runs = sum(kind != "session" for _, kind, _ in rows)
    return Extent(runs, facts + bodies, prompts[0] if prompts else "")


def _keys(is_session: bool) -> str:
    return _OF_SESSION if is_session else _OF_RUN


def obstacle(
    fetch: Fetch,
    name: str,
    *,
    is_session: bool,
    prune: bool,
    only_ended: bool = False,
    gone: frozenset[str] = frozenset(),
) -> Conflict | None:
    """Why a session cannot be deleted: a living process holds it, or a fork continues it.

    `only_ended` also spares unfinished runs, and `prune` pinned artifacts too. `gone` are sessions
    to take for deleted.
    """
    keys = _keys(is_session)
    runs = fetch(
        f"SELECT {', '.join(_Held.__struct_fields__)} FROM runs WHERE key IN ({keys})", (name,)
    )
    pinned: list[tuple[str]] = []
    if prune:
        pinned = fetch(
            "SELECT artifact_id FROM artifacts WHERE pinned = 1 AND deleted_at IS NULL"
            f" AND run_id IN (SELECT run_id FROM runs WHERE key IN ({keys})) LIMIT 1",
            (name,),
        )
    forks = fetch("SELECT session_id FROM sessions WHERE forked_from = ?", (name,))
    return why_kept(
        name,
        [_Held(*row) for row in runs],
        [artifact_id for (artifact_id,) in pinned],
        [fork for (fork,) in forks if fork not in gone],
        only_ended=prune or only_ended,
    )


def delete(
    batch: Batch,
    name: str,
    *,
    is_session: bool,
    prune: bool,
    used_at: str | None = None,
    only_ended: bool = False,
) -> list[str]:
    """Delete the rows of a session. Returns the digests of its bodies.

    Raises the `obstacle`, if there is one; an unfinished run is one if `only_ended` is set or
    `prune`. `prune` also refuses a session that was used after
    `used_at`, and keeps its usage for statistics.
    """
    batch.flush()
    db = batch.db
    runs = db.execute(
        f"SELECT key, run_id FROM runs WHERE key IN ({_keys(is_session)})", (name,)
    ).fetchall()
    if not runs:
        raise NotFound(f"there is no session {name}")
    problem = obstacle(
        lambda sql, bindings: db.execute(sql, bindings).fetchall(),
        name,
        is_session=is_session,
        prune=prune,
        only_ended=only_ended,
    )
    if problem is not None:
        raise problem
    if prune and used_at != db.execute(_USED_AT[is_session], (name,)).get:
        raise Conflict(f"{name} was used meanwhile", code="session_used")
    digests = _digests(batch, [run_id for _, run_id in runs])
    numbers, names = [(key,) for key, _ in runs], [(run_id,) for _, run_id in runs]
    if prune:
        db.executemany(KEEP_USAGE, numbers)
    for table in _RUN_TABLES:
        db.executemany(f"DELETE FROM {table} WHERE run_id = ?", names)
    db.executemany("DELETE FROM bases WHERE run = ?", numbers)
    db.execute("DELETE FROM sessions WHERE session_id = ?", (name,))
    db.executemany("INSERT INTO removals VALUES (?)", numbers)
    db.executemany("DELETE FROM runs WHERE key = ?", numbers)
    batch.forget([run_id for _, run_id in runs])
    return digests


def _digests(batch: Batch, run_ids: list[str]) -> list[str]:
    digests: set[str] = set()
    for run_id in run_ids:
        rows = batch.db.execute("SELECT sha256 FROM artifacts WHERE run_id = ?", (run_id,))
        digests.update(row[0] for row in rows.fetchall())
    return sorted(digests - {""})


def remove_facts(batch: Batch, most: int) -> bool:
    """Remove so many facts of deleted runs. False when none are left."""
    batch.flush()
    db = batch.db
    while (run := db.execute("SELECT min(run) FROM removals").get) is not None:
        if most <= 0:
            return True
        db.execute(
            "DELETE FROM events WHERE position IN"
            " (SELECT position FROM events WHERE run = ? ORDER BY sequence LIMIT ?)",
            (run, most),
        )
        removed = db.changes()
        if removed < most:
            db.execute("DELETE FROM removals WHERE run = ?", (run,))
        most -= max(1, removed)
    return False
