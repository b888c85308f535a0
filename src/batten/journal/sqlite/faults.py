"""Maps errors of SQLite and of the files beside it to the journal's typed errors."""

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager

import apsw

from batten.contract import errors
from batten.journal.sqlite.database import Database

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FAULTS = (apsw.Error, OSError, UnicodeDecodeError)
"""What an operation of the store raises."""
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


def typed(error: BaseException, home: str, system_errno: int = 0) -> errors.BattenError:
    """The typed error for any exception of a store operation."""
    match error:
        case errors.BattenError():
            return error
        case apsw.FullError():
            return errors.StoreFull(f"no room left for the journal in {home}")
        case apsw.ReadOnlyError() | apsw.PermissionsError():
            return _read_only(home, str(error))
        case apsw.BusyError() | apsw.LockedError() | apsw.ProtocolError():
            return errors.StoreBusy(f"other processes held the journal in {home} for too long")
        case apsw.CorruptError() | apsw.NotADBError() | apsw.FormatError() | UnicodeDecodeError():
            return errors.StoreDamaged(f"the journal in {home} is damaged: {error}")
        case apsw.IOError() | apsw.CantOpenError():
            return _of_system(system_errno, home, str(error))
        case OSError():
            return _of_system(error.errno or 0, home, str(error))
        case TypeError() | ValueError() | OverflowError():
            return errors.CallerError(f"a fact has a value that cannot be stored: {error}")
        case _:
            return errors.JournalError(
                f"the journal in {home} failed: {type(error).__name__}: {error}"
            )


def _of_system(number: int, home: str, message: str) -> errors.JournalError:
    if number in _FULL or (number not in _READ_ONLY and _has_no_room(home)):
        return errors.StoreFull(f"no room left for the journal in {home}")
    if number in _READ_ONLY or not os.access(home, os.W_OK):
        return _read_only(home, message)
    return errors.JournalError(f"the journal in {home} failed: {message}")


def _read_only(home: str, message: str) -> errors.StoreReadOnly:
    why = f"the journal in {home} may not be written: {message}"
    return errors.StoreReadOnly(f"{why}; BATTEN_HOME names another folder for it")


def _has_no_room(home: str) -> bool:
    """SQLite does not report every cause: growing its shared memory fails as plain I/O."""
    try:
        return os.statvfs(home).f_bavail < 16
    except OSError:
        return False


@contextmanager
def faults_typed(home: str, db: Database | None = None) -> Generator[None]:
    """Turn the store's errors raised in this block into typed ones."""
    try:
        yield
    except FAULTS as error:
        raise typed(error, home, db.system_errno if db else 0) from error


@contextmanager
def side_faults(path: str, remedy: str = "") -> Generator[None]:
    """Turn errors of a file beside the journal into typed ones; `remedy` is for a damaged one."""
    try:
        yield
    except apsw.BusyError as error:
        raise errors.StoreBusy(f"other processes held {path} for too long") from error
    except apsw.FullError as error:
        raise errors.StoreFull(f"there is no room for {path}") from error
    except (apsw.ReadOnlyError, apsw.CantOpenError, apsw.IOError) as error:
        raise errors.StoreReadOnly(f"{path} cannot be written: {error}") from error
    except (apsw.CorruptError, apsw.NotADBError, apsw.SQLError) as error:
        raise errors.StoreDamaged(f"{path} is damaged: {error}{remedy and '; '}{remedy}") from error
