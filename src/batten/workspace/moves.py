"""Tells moved files from new ones by inode.

The watch reports only that one name is gone and another exists. Equal inode numbers suggest one
file, but inodes are reused: a file counts as moved only if it is older than the last time its
inode was seen elsewhere. In doubt it is new.
"""

import os
import time
from contextlib import suppress

MOST_KNOWN = 100_000
"""Limit of remembered files; any beyond it count as new after a move."""
_COARSE_NS = 10_000_000
"""How far file times can lag behind the clock."""


class Moves:
    """The files of one tree, by inode. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, int]] = {}
        """Path, and the time it was last seen there."""

    def learn(self, directory: str) -> None:
        """Remember the entries of a directory whose inode is not known yet."""
        now = time.time_ns()
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if entry.inode() not in self._known:
                    self._remember(entry.inode(), entry.path, now)

    def is_moved(self, path: str) -> bool:
        """Whether the file at this path was at another path before; remembers its new path."""
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
