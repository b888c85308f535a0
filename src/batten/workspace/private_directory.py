"""Private temporary directories, removed on exit, or by a later process if ours was killed.

A keeper empties its directory but cannot remove it: the parent is outside the sandbox.
"""

import asyncio
import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager

from batten.contract.errors import CallerError

_PREFIX = "batten-"
_SCRATCH = "batten-scratch-"
_ID_BYTES = 8
_HEX = frozenset("0123456789abcdef")


class PrivateDirectory:
    """Holds a lock on the directory for as long as this process has it open."""

    def __init__(self, temporary: str) -> None:
        """`temporary` is the directory that `TMPDIR` names, if any."""
        self._base = _base(temporary)
        try:
            self.path, self._claim = _made(self._base, _PREFIX)
        except OSError as error:
            raise CallerError(
                f"no temporary directory can be made in {self._base} ({error.strerror}):"
                " set TMPDIR to a directory that can be written",
                code="no_temporary_directory",
            ) from error

    async def remove(self) -> None:
        """Remove the directory with its contents, and sweep up unlocked ones."""
        try:
            os.rmdir(self.path)
        except FileNotFoundError:
            pass
        except OSError:
            await asyncio.to_thread(_remove_whole, self.path)
        finally:
            os.close(self._claim)
            _sweep(self._base)


@contextmanager
def scratch_directory(temporary: str) -> Generator[str]:
    """A directory for files of our own, removed with its contents. If we are killed, the next user
    of a private directory removes it. May raise `OSError`.
    """
    path, claim = _made(_base(temporary), _SCRATCH)
    try:
        yield path
    finally:
        _remove_whole(path)
        os.close(claim)


def _made(base: str, prefix: str) -> tuple[str, int]:
    """A new directory, and the lock on it."""
    while True:
        path = os.path.join(base, prefix + os.urandom(_ID_BYTES).hex())
        os.mkdir(path, 0o700)
        claim = _claim(path)
        if claim is not None:
            return path, claim


def _remove_whole(path: str) -> None:
    from shutil import rmtree

    rmtree(path, ignore_errors=True)


def _base(temporary: str) -> str:
    """The named directory, else /tmp or /var/tmp: the first that is a writable directory."""
    candidates = [temporary or "/tmp", "/tmp", "/var/tmp"]
    usable = (base for base in candidates if os.path.isdir(base) and os.access(base, os.W_OK))
    return os.path.realpath(next(usable, candidates[0]))


def _claim(path: str) -> int | None:
    """The lock on a new directory; None if another process swept it before it was locked."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    if os.path.isdir(path):
        return descriptor
    os.close(descriptor)
    return None


def _sweep(base: str) -> None:
    """Remove what no process holds: whole if it was scratch, else if it is empty."""
    with os.scandir(base) as entries:
        ours = [entry for entry in entries if _is_ours(entry.name) and _is_private(entry)]
    for entry in ours:
        try:
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if entry.name.startswith(_SCRATCH):
                _remove_whole(entry.path)
            else:
                os.rmdir(entry.path)
        except OSError:
            # In use, or not empty.
            continue
        finally:
            os.close(descriptor)


def _is_ours(name: str) -> bool:
    """Not those of others that begin alike, which hold no lock."""
    prefix = _SCRATCH if name.startswith(_SCRATCH) else _PREFIX
    digits = name[len(prefix) :]
    return name.startswith(prefix) and len(digits) == 2 * _ID_BYTES and _HEX.issuperset(digits)


def _is_private(entry: "os.DirEntry[str]") -> bool:
    try:
        if not entry.is_dir(follow_symlinks=False):
            return False
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False  # another process removed it
    return status.st_uid == os.geteuid() and status.st_mode & 0o077 == 0
