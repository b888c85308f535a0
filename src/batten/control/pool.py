"""A worker process: several runs at once, for as long as whoever started it lives."""

import asyncio
import os
import signal

from batten.control.specification import of_task, resumed
from batten.control.tasks import Tasks
from batten.control.worker import Slots, Worker
from batten.journal.contract import RunRow, SessionRow
from batten.journal.workers import lease_seconds, this_worker
from batten.session.requests import granted_rules
from batten.wiring.opener import SessionOpener
from batten.wiring.spec import SessionSpec

_PARENT_GONE = 1


async def work(opener: SessionOpener, *, runs: int, parent_pipe: int | None = None) -> None:
    """Execute queued runs until SIGTERM or SIGINT, or until the parent's end of the pipe closes."""
    tasks = Tasks(opener.journal, opener.home, opener.base)

    async def specify(row: RunRow, session: SessionRow) -> SessionSpec:
        task = await tasks.described(session)
        if task is None:
            return resumed(opener.base, row, session)
        grants = await granted_rules(opener.journal, session.session_id)
        return resumed(of_task(opener.base, task, grants), row, session)

    slots = Slots(runs, lease_seconds(opener.base.environ))
    worker = Worker(opener, specify, this_worker(), slots)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    if parent_pipe is not None:
        _leave_with_parent(loop, parent_pipe)
    await worker.run()


def _leave_with_parent(loop: asyncio.AbstractEventLoop, pipe: int) -> None:
    """End this process at once when the other end of the pipe is closed; also if the loop hangs."""
    die_with_parent()

    def readable() -> None:
        if not os.read(pipe, 4096):
            os._exit(_PARENT_GONE)

    os.set_blocking(pipe, False)
    loop.add_reader(pipe, readable)


def die_with_parent() -> None:
    """Let the kernel kill this process with the thread that started it, where it can."""
    import ctypes
    import sys

    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
