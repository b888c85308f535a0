"""A private temporary directory, removed on exit, or by a later process if ours was killed.

A keeper empties its directory but cannot remove it: the parent is outside the sandbox.
"""

import asyncio
import fcntl
import os

from batten.contract.errors import CallerError

_PREFIX = "batten-"


class PrivateDirectory:
    """Holds a lock on the directory for as long as this process has it open."""

    def __init__(self, temporary: str) -> None:
        """`temporary` is the directory that `TMPDIR` names, if any."""
        self._base = _base(temporary)
        claim: int | None = None
        while claim is None:
            self.path = os.path.join(self._base, _PREFIX + os.urandom(8).hex())
            try:
                os.mkdir(self.path, 0o700)
            except OSError as error:
                raise CallerError(
                    f"no temporary directory can be made in {self._base} ({error.strerror}):"
                    " set TMPDIR to a directory that can be written",
                    code="no_temporary_directory",
                ) from error
            claim = _claim(self.path)
        self._claim = claim

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
    with os.scandir(base) as entries:
        mine = [e.path for e in entries if e.name.startswith(_PREFIX) and _is_private(e)]
    for path in mine:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rmdir(path)
        except OSError:
            # In use, or not empty.
            continue
        finally:
            os.close(descriptor)


def _is_private(entry: "os.DirEntry[str]") -> bool:
    try:
        if not entry.is_dir(follow_symlinks=False):
            return False
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False  # another process removed it
    return status.st_uid == os.geteuid() and status.st_mode & 0o077 == 0
