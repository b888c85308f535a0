"""The names in a watched tree, so that a file put in the place of another is not a new one."""

import os
from contextlib import suppress

MOST_KNOWN = 100_000
"""Limit of remembered names; any beyond it count as new when a file is put there."""


class KnownNames:
    """Names by directory. Not thread-safe."""

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}
        self._count = 0

    def learn(self, directory: str) -> None:
        """Remember the entries of a directory."""
        with suppress(OSError):
            for name in os.listdir(directory):
                self._add(directory, name)

    def was_there(self, path: str) -> bool:
        """Whether there was something at this path before; remembers what is there now."""
        directory, name = os.path.split(path)
        was_there = name in self._names.get(directory, ())
        if not os.path.lexists(path):
            self._forget(directory, name)
        elif not was_there:
            self._add(directory, name)
        return was_there

    def _add(self, directory: str, name: str) -> None:
        names = self._names.setdefault(directory, set())
        if name not in names and self._count < MOST_KNOWN:
            names.add(name)
            self._count += 1

    def _forget(self, directory: str, name: str) -> None:
        """Forget a name, and everything below it."""
        gone = [(directory, name)]
        for above, one in gone:
            names = self._names.get(above, set())
            if one in names:
                names.remove(one)
                self._count -= 1
            path = os.path.join(above, one)
            gone += [(path, inner) for inner in self._names.get(path, ())]
        for above, one in gone:
            self._names.pop(os.path.join(above, one), None)
