"""A worker process: several runs at once, for as long as whoever started it lives."""

import asyncio
import os
import signal
from contextlib import aclosing, suppress

from msgspec import UNSET
from msgspec.structs import replace

from batten.contract.envelope import decode_fact
from batten.contract.facts import RunQueued
from batten.contract.facts.approval import panel_of
from batten.contract.identity import TRACE_IDS, VARIABLES
from batten.contract.tracing import identity_in
from batten.control.permitted import check_reach
from batten.control.reach import check_addresses
from batten.control.specification import executed, resumed
from batten.control.supervisor import BEAT_S
from batten.control.tasks import Tasks
from batten.control.worker import Slots, Specify, Worker
from batten.journal.contract import Journal, RunRow, SessionRow
from batten.journal.workers import lease_seconds, this_worker
from batten.session.requests import granted_rules
from batten.wiring.opener import SessionOpener
from batten.wiring.spec import SessionSpec

_PARENT_GONE = 1
_TRACES = frozenset(variable for name in TRACE_IDS for variable in VARIABLES[name])


async def work(opener: SessionOpener, *, runs: int, parent_pipe: int | None = None) -> None:
    """Execute queued runs until SIGTERM or SIGINT, or until the parent's end of the pipe closes."""
    slots = Slots(runs, lease_seconds(opener.base.environ))
    specify = specifying(opener)
    worker = Worker(opener, specify, this_worker(), slots)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, worker.stop)
    if parent_pipe is not None:
        leave_with_parent(loop, parent_pipe)
        beat(loop)
    async with asyncio.TaskGroup() as group:
        holding = group.create_task(hold_panels(opener, specify, runs))
        await worker.run()
        holding.cancel()


async def hold_panels(opener: SessionOpener, specify: Specify, most: int) -> None:
    """Hold the panels of parked runs, until cancelled. Their code is loaded with the first one."""
    async with aclosing(opener.journal.follow_queue()) as wakes:
        async for _ in wakes:
            if any(panel_of(row.resolvers) for row in await opener.journal.pending_requests()):
                break
    from batten.control.coordination.hosting import panel_duty

    await panel_duty(opener, specify, most).run()


def specifying(opener: SessionOpener) -> Specify:
    """How a worker of this opener finds out what a queued run is to do, and makes its workspace."""
    tasks = Tasks(opener.journal, opener.home, opener.base)

    async def specify(row: RunRow, session: SessionRow) -> SessionSpec:
        task = await tasks.described(session)
        if task is None:
            return resumed(opener.base, row, session)
        check_reach(task, opener.base)
        base = await _for_caller(opener.base, opener.journal, row)
        await check_addresses(task, opener.base.environ)
        await tasks.workspaces.provide(opener.journal, task, row)
        grants = await granted_rules(opener.journal, session.session_id)
        return executed(base, task, row, session, grants)

    return specify


async def _for_caller(base: SessionSpec, journal: Journal, row: RunRow) -> SessionSpec:
    """The specification with who let the run go on: the client that answered it last, else the one
    that queued it. And with the span of the request that queued it, if it named one; the span that
    the service itself was started in is none of the run's.
    """
    by = ""
    environ = {name: value for name, value in base.environ.items() if name not in _TRACES}
    for stored in await journal.read(row.run_id, limit=2):
        fact = decode_fact(stored.body)
        if not isinstance(fact, RunQueued):
            continue
        by = fact.by or ""
        if fact.traceparent is not UNSET:
            environ["TRACEPARENT"] = fact.traceparent
            if state := identity_in(fact).get("tracestate"):
                environ["TRACESTATE"] = state
    for request in await journal.requests(row.run_id):
        by = request.by or by
    return replace(base, environ=environ, by=by)


def beat(loop: asyncio.AbstractEventLoop) -> None:
    """Tell the parent that the loop goes round, by a byte on standard output now and then."""
    with suppress(OSError):  # a parent that is gone ends us; one that does not read loses nothing
        os.write(1, b".")
    loop.call_later(BEAT_S, beat, loop)


def leave_with_parent(loop: asyncio.AbstractEventLoop, pipe: int) -> None:
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
