"""A temporary directory of our own, removed with us, and swept up later if we were killed.

A keeper empties its directory but may not remove it: its parent is outside the sandbox.
"""

import asyncio
import fcntl
import os

from batten.contract.errors import CallerError

_PREFIX = "batten-"


class PrivateDirectory:
    """Claimed by a lock for as long as this process has it open."""

    def __init__(self) -> None:
        self._base = _base()
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
        """Remove it with whatever is left inside, and others that nobody claims."""
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


def _base() -> str:
    """Where `TMPDIR` says, else where everybody has it; a directory that can be written, if any."""
    candidates = [os.environ.get("TMPDIR") or "/tmp", "/tmp", "/var/tmp"]
    usable = (base for base in candidates if os.path.isdir(base) and os.access(base, os.W_OK))
    return os.path.realpath(next(usable, candidates[0]))


def _claim(path: str) -> int | None:
    """The lock on a new directory; None if somebody swept it up before it was locked."""
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
            # In use, or not empty: not ours to judge.
            continue
        finally:
            os.close(descriptor)


def _is_private(entry: "os.DirEntry[str]") -> bool:
    try:
        if not entry.is_dir(follow_symlinks=False):
            return False
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False  # somebody else was faster
    return status.st_uid == os.geteuid() and status.st_mode & 0o077 == 0
