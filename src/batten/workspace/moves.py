"""Which file was where: what tells one that was moved from one that was made.

The watch itself says only that a name is gone and another is there. Inode numbers say that both
are one file, but they are used again: a file counts as moved only if it is older than the last
time that its number was seen elsewhere. In doubt it is new.
"""

import os
import time
from contextlib import suppress

MOST_KNOWN = 100_000
"""Files that are remembered; those beyond are new wherever they are moved to."""
_COARSE_NS = 10_000_000
"""How far the times that files are given may lag behind the clock."""


class Moves:
    """The files of one tree, by inode; used by one thread."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, int]] = {}
        """Path and when it was last seen there."""

    def learn(self, directory: str) -> None:
        """Remember what is in a directory, as far as nothing else is known of it."""
        now = time.time_ns()
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.inode() not in self._known:
                    self._remember(entry.inode(), entry.path, now)

    def is_moved(self, path: str) -> bool:
        """Whether what is at this path now was at another one before; and remember it here."""
        try:
            status = os.lstat(path)
        except OSError:
            return False
        before = self._known.get(status.st_ino)
        self._remember(status.st_ino, path, time.time_ns())
        if before is None or before[0] == path or os.path.lexists(before[0]):
            return False
        return status.st_mtime_ns < before[1] - _COARSE_NS

    def _remember(self, inode: int, path: str, at_ns: int) -> None:
        if inode in self._known or len(self._known) < MOST_KNOWN:
            self._known[inode] = (path, at_ns)
