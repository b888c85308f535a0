"""Values that a server keeps in memory, so that it need not make them again."""

from collections.abc import Hashable
from typing import Generic, TypeVar

import msgspec

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_OVERHEAD = 512
_PER_BYTE = 2
"""Objects need more than their JSON."""


class Kept(Generic[Key, Value]):
    """Up to so many bytes; what was used longest ago goes first."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._values: dict[Key, tuple[Value, int]] = {}
        self.size = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Key) -> Value | None:
        found = self._values.pop(key, None)
        if found is None:
            return None
        self._values[key] = found
        return found[0]

    def keep(self, key: Key, value: Value, size: int) -> None:
        """Keep a value of so many bytes, in place of the one before; not if it alone is too large.

        `size` is that of the JSON, or of what it was made from.
        """
        self.drop(key)
        needed = _OVERHEAD + _PER_BYTE * size
        if needed > self._most:
            return
        self._values[key] = value, needed
        self.size += needed
        while self.size > self._most:
            self.drop(next(iter(self._values)))

    def drop(self, key: Key) -> None:
        found = self._values.pop(key, None)
        if found is not None:
            self.size -= found[1]


def size_of(value: object) -> int:
    """The size of a value's JSON."""
    return len(msgspec.json.encode(value))
