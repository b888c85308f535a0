"""Work that is carried out once it has begun, also when whoever waited for it has gone."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from msgspec import Struct

from batten.contract.errors import NotReady

ENDED = "Headless runtime has ended"

Found = TypeVar("Found")


class _Fault(Struct, frozen=True):
    """What went wrong, for who asked: it is no reason to end anything else."""

    error: Exception


class ShieldedTask(Generic[Found]):
    def __init__(self, task: "asyncio.Task[Found | _Fault]") -> None:
        self._task = task

    def on_end(self, call: Callable[[], object]) -> None:
        self._task.add_done_callback(lambda _: call())

    async def result(self) -> Found:
        """What came of it; what went wrong is raised."""
        try:
            found = await asyncio.shield(self._task)
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if self._task.cancelled() and waiting is not None and not waiting.cancelling():
                raise NotReady(ENDED) from None
            raise
        if isinstance(found, _Fault):
            raise found.error
        return found


class ShieldedTasks:
    """Each is a task of the group, and speaks to people as whoever made this does."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._context = copy_context()

    def begin(self, work: Coroutine[Any, Any, Found]) -> ShieldedTask[Found]:
        carrying = _caught(work)
        try:
            return ShieldedTask(self._group.create_task(carrying, context=self._context.copy()))
        except RuntimeError:  # the group ends
            carrying.close()
            work.close()
            raise NotReady(ENDED) from None


async def _caught(work: Coroutine[Any, Any, Found]) -> "Found | _Fault":
    try:
        return await work
    except Exception as error:
        return _Fault(error)
