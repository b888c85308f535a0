"""Verifies the store: chains, counts, places, rows, bodies.

A damaged file is a finding, not a crash: every error of reading it becomes a `Damage`.
"""

from collections.abc import Iterator
from hashlib import file_digest, sha256

import apsw
import msgspec
from msgspec import Struct

from batten.contract.errors import BattenError, NotFound
from batten.contract.facts import TERMINAL
from batten.journal.appending import first_hash
from batten.journal.sqlite.bodies import BodyFiles
from batten.journal.sqlite.database import Database
from batten.journal.sqlite.doorbell import Doorbell
from batten.journal.sqlite.refolding import STEP_TYPES, Refolded, Run, orphans, sessions_touched
from batten.journal.upkeep import Damage

_PAGE = 1024
_ROWS = (
    "SELECT sequence, type, terminal, body, chain FROM events"
    " WHERE run = ? AND sequence > ? ORDER BY sequence LIMIT ?"
)
_RUNS = "SELECT key, run_id, task_id, session_id, base_sequence, next_sequence, head FROM runs"

_UNREADABLE = (
    apsw.Error,
    msgspec.MsgspecError,
    BattenError,
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
)


class _Place(Struct, gc=False):
    run_id: str
    sequence: int
    type: str


class _Owner(Struct):
    task_id: str | None = None
    session_id: str | None = None


_place = msgspec.json.Decoder(_Place)
_owner = msgspec.json.Decoder(_Owner)


def verify(db: Database, files: BodyFiles, bell: Doorbell, run_id: str | None) -> list[Damage]:
    """All damage of one run or of the whole store."""
    try:
        return list(_whole(db, files, bell) if run_id is None else _one(db, files, run_id))
    except _UNREADABLE as error:
        if isinstance(error, NotFound):
            raise
        return [Damage(run_id or "", None, f"the store cannot be read: {error}")]


def _whole(db: Database, files: BodyFiles, bell: Doorbell) -> Iterator[Damage]:
    try:
        for (message,) in db.execute("PRAGMA integrity_check(20)").fetchall():
            if message != "ok":
                yield Damage("", None, str(message))
        yield from _ends(db, bell)
        runs = db.execute(_RUNS + " ORDER BY key").fetchall()
    except _UNREADABLE as error:
        yield Damage("", None, f"the database cannot be read: {error}")
        return
    for key, run_id, *_ in runs:
        yield from _run(db, key, run_id)
    yield from _between(db)
    yield from _bodies(db, files, None)


def _one(db: Database, files: BodyFiles, run_id: str) -> Iterator[Damage]:
    key = db.execute("SELECT key FROM runs WHERE run_id = ?", (run_id,)).get
    if key is None:
        raise NotFound(f"there is no run {run_id}")
    yield from _run(db, key, run_id)
    yield from _bodies(db, files, run_id)


def _ends(db: Database, bell: Doorbell) -> Iterator[Damage]:
    # The bell is read first: a commit in between makes the store newer, never older.
    rung = bell.position()
    last = db.execute(
        "SELECT max(position, coalesce((SELECT max(position) FROM events), 0)) FROM floors"
    ).get
    if rung > last:
        yield Damage("", None, f"the store ends at position {last}, but {rung} was committed")
    lost = db.execute(
        "SELECT DISTINCT run FROM events WHERE run NOT IN"
        " (SELECT key FROM runs UNION ALL SELECT run FROM removals)"
    )
    for (key,) in lost.fetchall():
        yield Damage("", None, f"facts of run number {key} are stored, but not the run")


def _between(db: Database) -> Iterator[Damage]:
    """Check rows that belong to no run, or to several."""
    db.execute("BEGIN")
    try:
        for wrong in (*orphans(db), *sessions_touched(db)):
            yield Damage("", None, wrong)
    except _UNREADABLE as error:
        yield Damage("", None, f"the rows cannot be read: {error}")
    finally:
        db.execute("ROLLBACK")


def _run(db: Database, key: int, run_id: str) -> Iterator[Damage]:
    """Check one run in one snapshot, so that concurrent appends are not mistaken for damage."""
    db.execute("BEGIN")
    try:
        *place, next_sequence, head = db.execute(_RUNS + " WHERE key = ?", (key,)).get
        yield from _chain(db, Run(*place), next_sequence, head)
    except _UNREADABLE as error:
        yield Damage(str(run_id), None, f"cannot be read: {error}")
    finally:
        db.execute("ROLLBACK")


def _chain(db: Database, run: Run, next_sequence: int, head: bytes) -> Iterator[Damage]:
    run_id, expected = run.run_id, run.base
    chain = first_hash(run_id)
    if run.base:
        kept = db.execute("SELECT sequence, chain FROM bases WHERE run = ?", (run.key,)).fetchall()
        if not kept or kept[0][0] != run.base:
            yield Damage(run_id, run.base, "the base of the pruned run is missing")
            return
        chain = kept[0][1]
    refolded = Refolded(db, run)
    after = -1
    while rows := db.execute(_ROWS, (run.key, after, _PAGE)).fetchall():
        for sequence, type_, terminal, body, stored in rows:
            if sequence != expected:
                yield Damage(run_id, expected, f"missing: the next stored fact is {sequence}")
                return
            chain = sha256(chain + body).digest()
            if chain != stored:
                yield Damage(run_id, sequence, "the stored bytes are not what was written")
                return
            wrong = _misplaced(run, sequence, type_, terminal, body)
            if wrong:
                yield Damage(run_id, sequence, wrong)
            if not sequence or type_ in STEP_TYPES:
                refolded.take(sequence, body)
            expected += 1
        after = rows[-1][0]
    if expected != next_sequence:
        yield Damage(run_id, expected, f"the run ends here, but {next_sequence} facts were written")
    elif chain != head:
        yield Damage(run_id, expected - 1, "the end of the chain is not what was written")
    else:
        for wrong in refolded.differences():
            yield Damage(run_id, None, wrong)


def _misplaced(
    run: Run, sequence: int, type_: str, terminal: int | None, body: bytes
) -> str | None:
    """The columns that contradict the envelope; None if all agree."""
    try:
        place = _place.decode(body)
    except (msgspec.MsgspecError, ValueError) as error:
        return f"not an envelope: {error}"
    if (place.run_id, place.sequence, place.type) != (run.run_id, sequence, type_):
        return f"stored as {type_}, but it is {place.type} {place.sequence} of {place.run_id}"
    # Once is enough: the facts of a run all name the same task and session.
    if sequence == run.base and _owner.decode(body) != _Owner(
        run.task_id or None, run.session_id or None
    ):
        return "`task_id` or `session_id` of the run is not what its facts say"
    if (type_ in TERMINAL) != (terminal == 1):
        return "its mark as a terminal fact is wrong"
    return None


def _bodies(db: Database, files: BodyFiles, run_id: str | None) -> Iterator[Damage]:
    sql = "SELECT artifact_id, run_id, sha256 FROM artifacts WHERE released = 0 AND sha256 != ''"
    try:
        if run_id is None:
            named = db.execute(sql).fetchall()
        else:
            named = db.execute(sql + " AND run_id = ?", (run_id,)).fetchall()
    except _UNREADABLE as error:
        yield Damage(run_id or "", None, f"the artifacts cannot be read: {error}")
        return
    checked: dict[str, str | None] = {}
    for artifact_id, owner, digest in named:
        if digest not in checked:
            checked[digest] = _body(db, files, digest)
        wrong = checked[digest]
        if wrong is not None:
            yield Damage(owner, None, f"body of artifact {artifact_id}: {wrong}")


def _body(db: Database, files: BodyFiles, digest: str) -> str | None:
    """The damage of a stored body; None if it is intact."""
    try:
        row = db.execute("SELECT data FROM bodies WHERE sha256 = ?", (digest,)).fetchone()
        if row is not None and row[0] is not None:
            found = sha256(row[0]).hexdigest()
        else:
            with open(files.path(digest), "rb", buffering=0) as file:
                found = file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return "missing"
    except (*_UNREADABLE, OSError) as error:
        return f"cannot be read: {error}"
    return None if found == digest else "the stored bytes are not what was written"
