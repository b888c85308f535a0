"""The file of the views. It holds nothing that the journal has not: a damaged one is removed."""

import logging
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress

import apsw
import msgspec

from batten.contract.errors import StoreBusy, StoreDamaged
from batten.journal.sqlite.database import Database, connection
from batten.journal.sqlite.faults import side_faults

FILE = "views.db"
REMEDY = "remove it, and it is made again from the journal"
_BUSY_MS = 10_000
_log = logging.getLogger("batten.views")


class ViewFile:
    """The file of a home as it is when this is made; it must exist."""

    def __init__(self, home: str | os.PathLike[str]) -> None:
        self.path = os.path.join(home, FILE)
        self._inode = os.stat(self.path).st_ino

    def connect(self, flags: int) -> Database:
        with self.faults():
            db = connection(self.path, flags)
            db.set_busy_timeout(_BUSY_MS)
            return db

    @property
    def is_there(self) -> bool:
        """False once it was removed, here or by somebody else."""
        try:
            return os.stat(self.path).st_ino == self._inode
        except FileNotFoundError:
            return False

    @contextmanager
    def faults(self) -> Generator[None]:
        """Type the errors of this block. `StoreBusy` if the file was damaged, and is now removed:
        whoever asks again opens a new one.
        """
        try:
            with side_faults(self.path, REMEDY):
                yield
        except StoreDamaged as error:
            if not _is_damage(error.__cause__):
                raise
            self._remove(str(error))
            raise StoreBusy(f"{FILE} was damaged, and is made again; ask again") from error
        except msgspec.DecodeError as error:
            self._remove(f"{self.path} is damaged: a state in it cannot be read: {error}")
            raise StoreBusy(f"{FILE} was damaged, and is made again; ask again") from error

    def _remove(self, why: str) -> None:
        if not self.is_there:
            return
        _log.warning("%s", why)
        for name in (self.path, f"{self.path}-wal", f"{self.path}-shm"):
            with suppress(FileNotFoundError):
                os.unlink(name)


def _is_damage(error: BaseException | None) -> bool:
    """Not a statement that SQLite does not take: that is no fault of the file."""
    if isinstance(error, apsw.SQLError):
        return "no such table" in str(error)
    return isinstance(error, apsw.CorruptError | apsw.NotADBError)
