"""Remainder: reads of synchronous renderer code, until renderers are given whole envelopes."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def at_once(read: Coroutine[Any, Any, T]) -> T:
    """The result of a read that never waits, as those of SQLite and memory."""
    try:
        read.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    read.close()
    raise RuntimeError("this store cannot be read from synchronous code")
