"""Append-only bytes: in memory while few, then in an unnamed file."""

import os
from typing import IO

from batten.contract.errors import JournalError, StoreFull

IN_MEMORY = 4 * 1024 * 1024


class Spool:
    """The file is private and unnamed, and vanishes with the process, even a killed one."""

    def __init__(self, in_memory: int = IN_MEMORY) -> None:
        self._in_memory = in_memory
        self._memory = bytearray()
        self._file: IO[bytes] | None = None
        self._size = 0

    @property
    def size(self) -> int:
        return self._size

    def write(self, data: bytes) -> int:
        """Append bytes; returns their offset. A failed write adds nothing."""
        offset = self._size
        if self._file is None and offset + len(data) <= self._in_memory:
            self._memory += data
        else:
            self._spill(data)
        self._size = offset + len(data)
        return offset

    def read(self, offset: int, size: int) -> bytes:
        if self._file is None:
            return bytes(self._memory[offset : offset + size])
        return os.pread(self._file.fileno(), size, offset)

    def close(self) -> None:
        self._memory = bytearray()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _spill(self, data: bytes) -> None:
        try:
            if self._file is None:
                from tempfile import TemporaryFile

                file = TemporaryFile(buffering=0)  # noqa: SIM115  # it lives as long as the spool
                _write_all(file.fileno(), self._memory, 0)
                self._file, self._memory = file, bytearray()
            _write_all(self._file.fileno(), data, self._size)
        except OSError as error:
            import errno

            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise StoreFull(f"no room left for a journal that is not kept: {error}") from error
            raise JournalError(f"a journal that is not kept cannot be written: {error}") from error


def _write_all(fd: int, data: bytes | bytearray, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        written = os.pwrite(fd, rest, offset)
        rest = rest[written:]
        offset += written
