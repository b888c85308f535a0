"""Stores a checked bundle: its bodies first, then all facts and rows in one transaction.

Until that transaction commits nothing of the session can be seen. Bodies of an import that was
interrupted are collected like any other that no artifact needs.
"""

import os
import time
from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec
from msgspec import Struct

from batten.contract.envelope import timestamp
from batten.contract.errors import BadBundle, Conflict, StoreFull
from batten.journal.appending import RunState
from batten.journal.bundles.checking import Checked, Event, Opener, read_facts, walk
from batten.journal.bundles.manifest import BundledRun, Manifest
from batten.journal.bundles.transfer import Presence, Source
from batten.journal.contract import ArtifactRow, LedgerRow, RequestRow, SessionRow
from batten.journal.sqlite.batch import INSERT_BODY, INSERT_EVENT, Batch, insert_run
from batten.journal.sqlite.bodies import FileWriter
from batten.journal.sqlite.reader import TABLE_OF, Reader, columns, values_of
from batten.journal.sqlite.refolding import LEFT_OUT
from batten.journal.sqlite.store import SqliteJournal
from batten.redact.seal import SealKey

_PAGE = 512
_PENDING_BYTES = 1 << 20
_ROOM = 1.2
"""Indexes and the log take some room beside the content."""
_LONGEST_S = 3600.0


def presence(reader: Reader, manifest: Manifest) -> Presence:
    session_id = manifest.session.session_id
    found = {
        run_id: (key, following, head)
        for key, run_id, following, head in reader.all(
            "SELECT key, run_id, next_sequence, head FROM runs WHERE session_id = ?", (session_id,)
        )
    }
    if not found:
        return "absent"
    is_longer = len(found) > len(manifest.runs)
    for run in manifest.runs:
        key, following, head = found.get(run.run_id, (0, 0, b""))
        if following > run.next_sequence:
            is_longer = True
            chain = reader.all(
                "SELECT chain FROM events WHERE run = ? AND sequence = ?",
                (key, run.next_sequence - 1),
            )
            head = chain[0][0] if chain else b""
        if following < run.next_sequence or head.hex() != run.head:
            raise Conflict(
                f"session {session_id} is here already, but {run.run_id} has other facts or fewer:"
                f" `batten delete {session_id}` removes the one here",
                code="session_exists",
            )
    return "longer" if is_longer else "same"


def import_session(journal: SqliteJournal, source: Source, key: SealKey | None) -> None:
    _check_room(journal.home, source.manifest)
    storing = _Storing(journal, source, key)
    walk(source.path, source.limit, storing)
    storing.flush()
    journal.work_now(lambda batch: _insert(batch, source, storing.states), _LONGEST_S)


def _check_room(home: str, manifest: Manifest) -> None:
    needed = int(_ROOM * (manifest.events_bytes + sum(body.size for body in manifest.bodies)))
    room = os.statvfs(home)
    if room.f_bavail * room.f_frsize < needed:
        raise StoreFull(f"the bundle takes {needed} bytes, which the disk of {home} has not left")


class _Storing:
    """Stores bodies, and what was sealed, in transactions of their own."""

    def __init__(self, journal: SqliteJournal, source: Source, key: SealKey | None) -> None:
        self._journal = journal
        self._key = key
        self._opener = Opener(source.passphrase)
        self._contexts = {
            row.sha256: str(row.metadata.get("run_id", "")).encode()
            for row in source.checked.changes.artifacts.values()
        }
        self._bodies: list[tuple[str, int, int, bytes | None]] = []
        self._sealed: list[tuple[str, bytes]] = []
        self._bytes = 0
        self.states: dict[str, bytes] = {}
        """The sealed conversations of pruned runs."""

    def begin(self, manifest: Manifest) -> None:
        self._opener.begin(manifest)

    def events(self, events: Iterator[Event]) -> None:
        """They are stored last; `walk` skips them."""

    def body(self, digest: str, chunks: Iterable[bytes]) -> None:
        writer = FileWriter(self._journal.files, limit=1 << 62)
        try:
            for chunk in chunks:
                writer.write(chunk)
            body = writer.close()
        finally:
            writer.discard()
        if body.sha256 != digest:
            raise BadBundle(f"the body {digest} changed while it was imported")
        self._bodies.append((digest, body.size, int(time.time()), body.data))
        self._add(len(body.data or b""))

    def sealed(self, digest: str, data: bytes) -> None:
        content = self._opener.content(digest, data)
        if content is not None and self._key is not None:
            self._sealed.append((digest, self._key.seal(content, self._contexts[digest])))
            self._add(len(content))

    def state(self, run: BundledRun, data: bytes) -> None:
        content = self._opener.state(run, data)
        if content is not None and self._key is not None:
            self.states[run.run_id] = self._key.seal(content, run.run_id.encode())

    def _add(self, size: int) -> None:
        self._bytes += size
        if self._bytes >= _PENDING_BYTES or len(self._bodies) >= _PAGE:
            self.flush()

    def flush(self) -> None:
        bodies, sealed = self._bodies, self._sealed

        def insert(batch: Batch) -> None:
            batch.flush()
            batch.db.executemany(INSERT_BODY, bodies)
            batch.db.executemany("INSERT OR REPLACE INTO resealed VALUES (?, ?)", sealed)

        self._journal.work_now(insert)
        self._bodies, self._sealed, self._bytes = [], [], 0


def _insert(batch: Batch, source: Source, states: dict[str, bytes]) -> None:
    """Make the session visible. The savepoint undoes a part that fails, and only that."""
    batch.flush()
    _check_ids(batch, source.checked)
    db, position, key = batch.db, batch.next_position, batch.next_key
    db.execute("SAVEPOINT import")
    try:
        _insert_rows(batch, source.checked, states, key)
        for page in _pages(read_facts(source.path, source.limit)):
            rows = [
                (
                    position + number,
                    key + event.run,
                    event.sequence,
                    event.envelope.type,
                    1 if event.is_terminal else None,
                    event.body,
                    event.chain,
                )
                for number, event in enumerate(page)
            ]
            db.executemany(INSERT_EVENT, rows)
            position += len(rows)
    except BaseException:
        db.execute("ROLLBACK TO import; RELEASE import")
        raise
    db.execute("RELEASE import")
    batch.next_position, batch.next_key = position, key + len(source.manifest.runs)


def _pages(events: Iterator[Event]) -> Iterator[list[Event]]:
    while page := list(islice(events, _PAGE)):
        yield page


def _check_ids(batch: Batch, checked: Checked) -> None:
    names = {
        ("runs", "run_id"): [run.run_id for run in checked.manifest.runs],
        ("sessions", "session_id"): list(checked.changes.sessions),
        ("requests", "request_id"): list(checked.changes.requests),
        ("artifacts", "artifact_id"): list(checked.changes.artifacts),
    }
    for (table, column), ids in names.items():
        for name in ids:
            if batch.db.execute(f"SELECT 1 FROM {table} WHERE {column} = ?", (name,)).get:
                raise Conflict(
                    f"the bundle's {name} is in use here by another session; nothing was imported",
                    code="id_exists",
                )


def _insert_rows(batch: Batch, checked: Checked, states: dict[str, bytes], first: int) -> None:
    db, manifest, now = batch.db, checked.manifest, timestamp()
    for number, run in enumerate(manifest.runs):
        state = RunState(
            key=first + number,
            run_id=run.run_id,
            task_id=run.task_id,
            session_id=manifest.session.session_id,
            next_sequence=run.next_sequence,
            head=bytes.fromhex(run.head),
            base_sequence=run.base_sequence,
            fence=0,
            worker_id="",
            lease_until=now,
            lease_boot_ms=0,
            fold=checked.folds[number],
        )
        insert_run(db, state)
        if run.base is not None:
            # Empty where it was left out: `SealKey.unseal` refuses that, so no resume is altered.
            lacks = run.base.has_state or run.base.lacks_state
            sealed = states.get(run.run_id, b"" if lacks else None)
            chain, rows = bytes.fromhex(run.base.chain), msgspec.json.encode(run.base.rows)
            values = (first + number, run.base_sequence, chain, rows, sealed)
            db.execute("INSERT INTO bases VALUES (?, ?, ?, ?, ?)", values)
    changes = checked.changes
    _insert_all(batch, SessionRow, changes.sessions.values())
    _insert_all(batch, RequestRow, changes.requests.values())
    _insert_all(batch, ArtifactRow, changes.artifacts.values())
    _insert_all(batch, LedgerRow, changes.ledger)
    release = "UPDATE artifacts SET released = ? WHERE artifact_id = ?"
    left_out = set(manifest.left_out)
    for artifact_id, row in changes.artifacts.items():
        if artifact_id in checked.released:
            db.execute(release, (1, artifact_id))
        elif row.sha256 in left_out:
            db.execute(release, (LEFT_OUT, artifact_id))


def _insert_all(batch: Batch, type_: type[Struct], rows: Iterable[Struct]) -> None:
    marks = ", ".join("?" * len(type_.__struct_fields__))
    sql = f"INSERT INTO {TABLE_OF[type_]} ({columns(type_)}) VALUES ({marks})"
    batch.db.executemany(sql, [values_of(row) for row in rows])
