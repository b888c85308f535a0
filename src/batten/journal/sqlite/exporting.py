"""Writes a session as a bundle, from one snapshot of the store."""

import os
from array import array
from collections.abc import Iterator
from hashlib import sha256

import msgspec
from msgspec import Struct

from batten import __version__
from batten.contract.envelope import timestamp
from batten.contract.errors import NotFound, StoreDamaged
from batten.journal.bundles.checking import content_context, state_context
from batten.journal.bundles.container import ContainerWriter, Sink
from batten.journal.bundles.manifest import (
    EVENTS,
    FORMAT,
    MANIFEST,
    BundledBase,
    BundledBody,
    BundledRun,
    Manifest,
    Passphrase,
    body_member,
    sealed_member,
    state_member,
)
from batten.journal.bundles.transfer import SealedPart
from batten.journal.contract import SessionRow
from batten.journal.rows import Base
from batten.journal.sqlite.bodies import BodyFiles
from batten.journal.sqlite.database import Database
from batten.journal.sqlite.faults import faults_typed
from batten.journal.sqlite.reader import columns, make
from batten.journal.sqlite.schema import open_for_reading

_PAGE = 256
_CHUNK = 1 << 20
_PATIENCE_S = 10.0


def export_session(home: str, session_id: str, file: Sink, sealed: SealedPart | None) -> Manifest:
    with faults_typed(home):
        db = open_for_reading(os.path.join(home, "journal.db"), _PATIENCE_S)
    try:
        with faults_typed(home, db):
            db.execute("BEGIN")
            return _Export(db, BodyFiles(home), session_id, sealed).write(file)
    finally:
        db.close()


class _Artifact(Struct, frozen=True):
    sha256: str
    is_sealed: bool
    released: int
    context: str
    """The run that a sealed body is bound to."""


class _Export:
    def __init__(
        self, db: Database, files: BodyFiles, session_id: str, sealed: SealedPart | None
    ) -> None:
        self._db = db
        self._files = files
        self._session_id = session_id
        self._sealed = sealed
        self._passphrase = Passphrase.new() if sealed else None
        self._key = self._passphrase.key(sealed.passphrase) if self._passphrase and sealed else None
        self._runs = db.execute(
            "SELECT key, run_id FROM runs WHERE session_id = ? ORDER BY key", (session_id,)
        ).fetchall()
        self._artifacts = self._find_artifacts()

    def _find_artifacts(self) -> dict[str, _Artifact]:
        """The bodies of the session, by digest."""
        found: dict[str, _Artifact] = {}
        for _, run_id in self._runs:
            for digest, kind, released, metadata in self._db.execute(
                "SELECT sha256, kind, released, metadata FROM artifacts"
                " WHERE run_id = ? AND sha256 != '' ORDER BY artifact_id",
                (run_id,),
            ).fetchall():
                if released != 1:
                    context = str(msgspec.json.decode(metadata).get("run_id", ""))
                    found[digest] = _Artifact(digest, kind == "sealed", released, context)
        return dict(sorted(found.items()))

    def write(self, file: Sink) -> Manifest:
        positions = self._positions()
        manifest = self._manifest()
        writer = ContainerWriter(file)
        data = msgspec.json.encode(manifest)
        writer.add(MANIFEST, len(data), [data])
        writer.add(EVENTS, manifest.events_bytes, self._events(positions))
        for body in manifest.bodies:
            writer.add(body_member(body.sha256), body.size, self._body(body.sha256))
        for digest in manifest.sealed:
            content = self._resealed(self._artifacts[digest])
            writer.add(sealed_member(digest), len(content), [content])
        for number, run in enumerate(manifest.runs):
            if run.base is not None and run.base.has_state:
                content = self._state(number, run.run_id)
                writer.add(state_member(number), len(content), [content])
        writer.close()
        return manifest

    def _manifest(self) -> Manifest:
        session = self._db.execute(
            f"SELECT {columns(SessionRow)} FROM sessions WHERE session_id = ?", (self._session_id,)
        ).fetchone()
        if session is None:
            raise NotFound(f"there is no session {self._session_id}")
        bodies: list[BundledBody] = []
        sealed: list[str] = []
        left_out: list[str] = []
        for one in self._artifacts.values():
            if one.is_sealed and (self._sealed is None or one.released):
                left_out.append(one.sha256)
                continue
            bodies.append(BundledBody(sha256=one.sha256, size=self._size(one.sha256)))
            if one.is_sealed:
                sealed.append(one.sha256)
        return Manifest(
            format=FORMAT,
            program=__version__,
            exported_at=timestamp(),
            session=make(SessionRow, session),
            runs=[self._run(key) for key, _ in self._runs],
            bodies=bodies,
            sealed=sealed,
            left_out=left_out,
            passphrase=self._passphrase,
            events_bytes=sum(self._length(key) for key, _ in self._runs),
        )

    def _length(self, key: int) -> int:
        sql = "SELECT coalesce(sum(length(body) + 1), 0) FROM events WHERE run = ?"
        return int(self._db.execute(sql, (key,)).get)

    def _run(self, key: int) -> BundledRun:
        run_id, kind, task_id, created_at, first, following, head = self._db.execute(
            "SELECT run_id, kind, task_id, created_at, base_sequence, next_sequence, head"
            " FROM runs WHERE key = ?",
            (key,),
        ).fetchone()
        base = self._db.execute("SELECT chain, rows, state FROM bases WHERE run = ?", (key,))
        found = base.fetchone()
        return BundledRun(
            run_id=run_id,
            kind=kind,
            task_id=task_id,
            created_at=created_at,
            base_sequence=first,
            next_sequence=following,
            head=head.hex(),
            base=None
            if found is None
            else BundledBase(
                chain=found[0].hex(),
                rows=msgspec.json.decode(found[1], type=Base),
                has_state=bool(found[2]) and self._sealed is not None,
                lacks_state=found[2] is not None and not (found[2] and self._sealed is not None),
            ),
        )

    def _positions(self) -> "array[int]":
        """The places of all facts, so that pages can be read in the order of the store."""
        found: list[int] = []
        for key, _ in self._runs:
            rows = self._db.execute("SELECT position FROM events WHERE run = ?", (key,))
            found += [row[0] for row in rows.fetchall()]
        return array("Q", sorted(found))

    def _events(self, positions: "array[int]") -> Iterator[bytes]:
        for first in range(0, len(positions), _PAGE):
            page = positions[first : first + _PAGE]
            marks = ", ".join("?" * len(page))
            rows = self._db.execute(
                f"SELECT body FROM events WHERE position IN ({marks}) ORDER BY position",
                tuple(page),
            )
            yield b"".join(row[0] + b"\n" for row in rows.fetchall())

    def _inline(self, digest: str) -> bytes | None:
        row = self._db.execute("SELECT data FROM bodies WHERE sha256 = ?", (digest,)).fetchone()
        return None if row is None else row[0]

    def _size(self, digest: str) -> int:
        data = self._inline(digest)
        if data is not None:
            return len(data)
        try:
            return os.path.getsize(self._files.path(digest))
        except FileNotFoundError:
            raise StoreDamaged(f"the body {digest} is missing: `batten verify` says more") from None

    def _body(self, digest: str) -> Iterator[bytes]:
        """A stored body; raises if it is damaged, so that no bundle is made of it."""
        hashed = sha256()
        for chunk in self._chunks(digest):
            hashed.update(chunk)
            yield chunk
        if hashed.hexdigest() != digest:
            raise StoreDamaged(f"the body {digest} is damaged: `batten verify` says more")

    def _chunks(self, digest: str) -> Iterator[bytes]:
        data = self._inline(digest)
        if data is not None:
            yield data
            return
        with open(self._files.path(digest), "rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    def _resealed(self, one: _Artifact) -> bytes:
        """The content of a sealed body, encrypted with the bundle's key."""
        assert self._sealed is not None
        assert self._key is not None
        ours = self._db.execute("SELECT data FROM resealed WHERE sha256 = ?", (one.sha256,)).get
        sealed = b"".join(self._body(one.sha256)) if ours is None else ours
        content = self._sealed.home_key().unseal(sealed, one.context.encode())
        return self._key.seal(content, content_context(one.sha256))

    def _state(self, number: int, run_id: str) -> bytes:
        assert self._sealed is not None
        assert self._key is not None
        key = self._runs[number][0]
        state = self._db.execute("SELECT state FROM bases WHERE run = ?", (key,)).get
        content = self._sealed.home_key().unseal(state, run_id.encode())
        return self._key.seal(content, state_context(run_id))
