"""Backs up a home while others write: the database through SQLite, then the body files it names.

The copy is a home itself: a directory, or an archive of one. Bodies are never changed in place and
the caller keeps others from deleting them, so copying them after the database is consistent.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from typing import Protocol

import apsw

from batten.contract.errors import Conflict, NotFound, StoreDamaged
from batten.journal.bundles.container import ContainerWriter
from batten.journal.bundles.transfer import Backup
from batten.journal.durable import sync
from batten.journal.sqlite.bodies import BodyFiles
from batten.journal.sqlite.copying import copy_database, open_side_file
from batten.journal.sqlite.faults import faults_typed
from batten.journal.sqlite.schema import open_immutable

_CHUNK = 1 << 20
_PAUSE_S = 0.001
_ARCHIVES = (".tar.gz", ".tgz")
_BESIDE = ("trust.json", "coordination.json", "retention.json", "memory", "keys")
"""Files and folders of a home that belong to a backup, beside the journal and its bodies."""
_AUDIT = "audit.db"
_SINKS = "sinks.db"
_KEY = "seal.key"


class Place(Protocol):
    """Where the copy is written."""

    def folder(self) -> str:
        """A directory for the database, on the same disk."""
        ...

    def add(self, name: str, path: str) -> str:
        """Copy a file into the backup. Returns its digest."""
        ...

    def finish(self) -> None: ...

    def discard(self) -> None: ...


def back_up(home: str, target: str, *, with_key: bool) -> Backup:
    source = os.path.join(home, "journal.db")
    if not os.path.exists(source):
        raise NotFound(f"there is no journal at {source}")
    if os.path.lexists(target):
        raise Conflict(f"{target} exists: name a new file or directory")
    if not os.path.isdir(os.path.dirname(target)):
        raise NotFound(f"there is no directory {os.path.dirname(target)}: make it first")
    backup = Backup()
    with faults_typed(os.path.dirname(target)):
        place = _Archive(target) if target.endswith(_ARCHIVES) else _Directory(target)
        try:
            # Before the journal: what was told since is told again, but a cursor beyond the end of
            # the copy would skip what comes next.
            _add_beside(home, place, _SINKS)
            copy = os.path.join(place.folder(), "journal.db")
            copy_database(source, copy, pause_s=_PAUSE_S)
            backup.bytes += os.path.getsize(copy)
            digests = _named_bodies(copy)
            place.add("journal.db", copy)
            # After the journal, which tells how far the audit log goes at least.
            _add_beside(home, place, _AUDIT)
            _add_bodies(BodyFiles(home), digests, place, backup)
            for name, path in _beside(home, with_key=with_key):
                place.add(name, path)
            place.finish()
        except BaseException:
            place.discard()
            raise
    return backup


def _add_beside(home: str, place: Place, name: str) -> None:
    """Add a database beside the journal, if the home has it."""
    source, copy = os.path.join(home, name), os.path.join(place.folder(), name)
    if os.path.exists(source):
        try:
            copy_database(source, copy, opening=open_side_file)
        except (apsw.CorruptError, apsw.NotADBError) as error:
            raise StoreDamaged(f"{source} is damaged: {error}") from error
        place.add(name, copy)


def _named_bodies(copy: str) -> list[str]:
    """The digests of bodies that are files."""
    db = open_immutable(copy)
    try:
        rows = db.execute(
            "SELECT DISTINCT artifacts.sha256 FROM artifacts LEFT JOIN bodies USING (sha256)"
            " WHERE released = 0 AND artifacts.sha256 != '' AND data IS NULL"
        )
        return sorted(row[0] for row in rows.fetchall())
    finally:
        db.close()


def _add_bodies(files: BodyFiles, digests: list[str], place: Place, backup: Backup) -> None:
    for digest in digests:
        path = files.path(digest)
        try:
            size = os.path.getsize(path)
            found = place.add(os.path.relpath(path, files.home), path)
        except FileNotFoundError:
            backup.damaged.append(digest)
            continue
        if found != digest:
            backup.damaged.append(digest)
        backup.bodies += 1
        backup.bytes += size


def _beside(home: str, *, with_key: bool) -> Iterator[tuple[str, str]]:
    for name in (*_BESIDE, _KEY) if with_key else _BESIDE:
        path = os.path.join(home, name)
        if os.path.isdir(path):
            for entry in sorted(os.scandir(path), key=lambda entry: entry.name):
                if entry.is_file(follow_symlinks=False):
                    yield f"{name}/{entry.name}", entry.path
        elif os.path.isfile(path):
            yield name, path


def _read(path: str) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


class _Directory:
    """A new directory that is a home."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._aside = f"{target}.{os.getpid()}.partial"
        os.mkdir(self._aside, 0o700)

    def folder(self) -> str:
        return self._aside

    def add(self, name: str, path: str) -> str:
        target = os.path.join(self._aside, name)
        if path == target:
            return ""
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        hashed = sha256()
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(fd, "wb") as file:
            for chunk in _read(path):
                hashed.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(fd)
        return hashed.hexdigest()

    def finish(self) -> None:
        for folder, _, _ in os.walk(self._aside):
            sync(folder)
        os.rename(self._aside, self._target)
        sync(os.path.dirname(self._target))

    def discard(self) -> None:
        shutil.rmtree(self._aside, ignore_errors=True)


class _Archive:
    """A compressed archive; unpacked, it is a home."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._aside = f"{target}.{os.getpid()}.partial"
        self._folder = f"{target}.{os.getpid()}.folder"
        fd = os.open(self._aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = open(fd, "wb")  # noqa: SIM115 closed by `finish` or `discard`
        self._writer = ContainerWriter(self._file)
        os.mkdir(self._folder, 0o700)

    def folder(self) -> str:
        return self._folder

    def add(self, name: str, path: str) -> str:
        hashed = sha256()

        def chunks() -> Iterator[bytes]:
            for chunk in _read(path):
                hashed.update(chunk)
                yield chunk

        self._writer.add(name, os.path.getsize(path), chunks())
        return hashed.hexdigest()

    def finish(self) -> None:
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.rename(self._aside, self._target)
        sync(os.path.dirname(self._target))
        shutil.rmtree(self._folder, ignore_errors=True)

    def discard(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
        with suppress(FileNotFoundError):
            os.unlink(self._aside)
        with suppress(OSError):  # a full disk does not take what is still buffered
            self._file.close()
