"""Bodies of artifacts: small ones in the database, large ones in files named by digest.

A file is written under a temporary name, made durable, then renamed: a body with its final
name is whole. Equal bodies are one file. `reclaiming` decides which bodies are still needed.
"""

import os
from collections.abc import Callable
from hashlib import sha256

from msgspec import Struct

from batten.contract.errors import NotFound, StoreDamaged
from batten.journal.contract import Body
from batten.journal.sqlite.faults import faults_typed

INLINE_BYTES = 16 * 1024
_CHUNK = 1024 * 1024


class Quotas(Struct, frozen=True):
    """Limits of stored bytes. Bytes above them are refused, counted and reported."""

    artifact_bytes: int = 2 * 1024**3
    task_bytes: int = 8 * 1024**3
    """Of all bodies of a task. The first 16 KiB of each body are always kept."""


class BodyFiles:
    """The directory of large bodies."""

    def __init__(self, home: str) -> None:
        self.home = home
        self.directory = os.path.join(home, "artifacts")

    def path(self, digest: str) -> str:
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise NotFound(f"{digest!r} is not a SHA-256 in hex: there is no such body")
        return os.path.join(self.directory, digest[:2], digest)

    def write(self, data: bytes) -> Body:
        writer = FileWriter(self, limit=len(data))
        writer.write(data)
        return writer.close()

    def read(self, digest: str, offset: int, limit: int | None) -> bytes:
        try:
            with faults_typed(self.home), open(self.path(digest), "rb") as file:
                file.seek(offset)
                data = file.read(-1 if limit is None else limit)
                whole = offset == 0 and not file.read(1)
        except Exception as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise NotFound(f"there is no body {digest}") from error
            raise
        if whole and sha256(data).hexdigest() != digest:
            raise StoreDamaged(f"the body {digest} is not what was written")
        return data

    def names(self) -> list[str]:
        """The digests of all files here."""
        found: list[str] = []
        for folder in _listed(self.directory):
            if len(folder) == 2:
                found += [
                    name
                    for name in _listed(os.path.join(self.directory, folder))
                    if len(name) == 64
                ]
        return found

    def left_over(self) -> list[str]:
        """Paths of temporary files, including those being written."""
        return [
            os.path.join(self.directory, name)
            for name in _listed(self.directory)
            if name.startswith(".writing-")
        ]


class FileWriter:
    """Streams one body: in memory while it is small, then into a file. See `BodyWriter`."""

    def __init__(
        self, files: BodyFiles, *, limit: int, room: Callable[[], int] | None = None
    ) -> None:
        """`room` returns the rest of the task's quota. It is called for large bodies only: it takes
        longer than writing a small one.
        """
        self._files = files
        self._limit = limit
        self._room = room
        self._buffer = bytearray()
        self._hash = sha256()
        self._size = 0
        self._refused = 0
        self._fd: int | None = None
        self._path = ""

    @property
    def refused_bytes(self) -> int:
        return self._refused

    def write(self, data: bytes) -> None:
        if self._room is not None and self._size + len(data) > INLINE_BYTES:
            self._limit = min(self._limit, max(self._room(), INLINE_BYTES))
            self._room = None
        kept = data[: max(0, self._limit - self._size)]
        self._refused += len(data) - len(kept)
        self._size += len(kept)
        self._hash.update(kept)
        self._buffer += kept
        if len(self._buffer) >= (INLINE_BYTES if self._fd is None else _CHUNK):
            self._spill()

    def _spill(self) -> None:
        with faults_typed(self._files.home):
            if self._fd is None:
                os.makedirs(self._files.directory, mode=0o700, exist_ok=True)
                name = f".writing-{os.getpid()}-{os.urandom(8).hex()}"
                self._path = os.path.join(self._files.directory, name)
                self._fd = os.open(
                    self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
                )
            rest = memoryview(self._buffer)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        self._buffer = bytearray()

    def close(self) -> Body:
        digest = self._hash.hexdigest()
        if self._fd is None:
            return Body(digest, self._size, bytes(self._buffer))
        try:
            self._spill()
            with faults_typed(self._files.home):
                os.fsync(self._fd)
                self._name(self._files.path(digest))
        finally:
            self.discard()
        return Body(digest, self._size, None)

    def _name(self, path: str) -> None:
        """Rename the file to its digest, durably. An equal body may exist already."""
        from batten.journal.durable import sync  # few runs have a body for a file

        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            sync(os.path.dirname(folder))
        os.replace(self._path, path)
        self._path = ""
        sync(folder)

    def discard(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        if self._path:
            os.unlink(self._path)
            self._path = ""


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
