"""Reads of a local journal from code that cannot wait for them, inside a loop or without one."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def at_once(read: Coroutine[Any, Any, T]) -> T:
    """The result of a read that never suspends, as those of SQLite."""
    try:
        read.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    read.close()
    raise RuntimeError("the read suspended")
