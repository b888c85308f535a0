"""Reads of a journal from synchronous code, inside a running loop or without one."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")


def at_once(read: Coroutine[Any, Any, T]) -> T:
    """The result of a read, made on a loop of its own in another thread."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, read).result()
