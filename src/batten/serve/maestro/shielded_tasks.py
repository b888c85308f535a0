"""Tasks shielded from their caller's cancellation."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from msgspec import Struct

from batten.contract.errors import NotReady

ENDED = "Headless runtime has ended"

Found = TypeVar("Found")


class _Fault(Struct, frozen=True):
    """An error for the caller: raised in the task, it would end the whole group."""

    error: Exception


class ShieldedTask(Generic[Found]):
    def __init__(self, task: "asyncio.Task[Found | _Fault]") -> None:
        self._task = task

    def on_end(self, call: Callable[[], object]) -> None:
        self._task.add_done_callback(lambda _: call())

    async def result(self) -> Found:
        """Wait for the result; raises the task's error, or `NotReady` if the task was cancelled."""
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
    """Starts tasks of a group, in the context of this object's creator."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self._group = group
        self._context = copy_context()

    def begin(self, work: Coroutine[Any, Any, Found]) -> ShieldedTask[Found]:
        carrying = _caught(work)
        try:
            task = self._group.create_task(carrying, context=self._context.copy())
        except RuntimeError:  # the group is shutting down
            carrying.close()
            work.close()
            raise NotReady(ENDED) from None
        task.add_done_callback(lambda _: work.close())  # it may never have begun
        return ShieldedTask(task)


async def _caught(work: Coroutine[Any, Any, Found]) -> "Found | _Fault":
    try:
        return await work
    except Exception as error:
        return _Fault(error)
