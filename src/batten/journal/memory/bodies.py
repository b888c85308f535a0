"""Streams a body into a memory journal."""

from collections.abc import Iterator
from hashlib import sha256

from batten.journal.contract import Body
from batten.journal.memory.spool import Spool
from batten.journal.memory.store import MemoryStore

_IN_MEMORY = 64 * 1024
_CHUNK = 1024 * 1024


class SpoolWriter:
    """One body, in its own spool while it grows, since several grow at once. See `BodyWriter`."""

    def __init__(self, store: MemoryStore, limit: int) -> None:
        self._store = store
        self._limit = limit
        self._spool = Spool(_IN_MEMORY)
        self._hash = sha256()
        self._refused = 0

    @property
    def refused_bytes(self) -> int:
        return self._refused

    def write(self, data: bytes) -> None:
        kept = data[: max(0, self._limit - self._spool.size)]
        self._refused += len(data) - len(kept)
        self._hash.update(kept)
        self._spool.write(kept)

    def close(self) -> Body:
        digest, size = self._hash.hexdigest(), self._spool.size
        with self._store.mutex:
            self._store.keep_spooled(digest, self._chunks(size))
        self._spool.close()
        return Body(digest, size, None)

    def discard(self) -> None:
        self._spool.close()

    def _chunks(self, size: int) -> Iterator[bytes]:
        for offset in range(0, size, _CHUNK):
            yield self._spool.read(offset, min(_CHUNK, size - offset))
