"""The whole service: its surfaces, its workers, and the duties between them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import to_builtins

from batten import __version__
from batten.control.reconciler import Reconciler, Sweeper
from batten.control.retention import Retention, RetentionPolicy
from batten.control.supervisor import Staff, Supervisor
from batten.control.tasks import Tasks
from batten.serve.http.app import App
from batten.serve.http.fanout import Fanout
from batten.serve.http.hecate.service import Service
from batten.serve.http.hecate.surface import hecate
from batten.serve.http.limits import Limits
from batten.serve.http.metrics import Metrics
from batten.serve.http.system import System, with_system
from batten.wiring.opener import SessionOpener


async def _tell_isolation(opener: SessionOpener, system: System) -> None:
    """Let `/healthz` tell what confines commands, once that is known."""
    from batten.control.isolation import os_isolation

    system.sandbox = {"os_isolation": to_builtins(await os_isolation(opener.base, opener.home))}


@asynccontextmanager
async def service(
    opener: SessionOpener, staff: Staff, policy: RetentionPolicy, limits: Limits | None = None
) -> AsyncGenerator[App]:
    """The application, while its workers run."""
    tasks = Tasks(opener.journal, opener.home, opener.base)
    supervisor = Supervisor(staff, lambda: reconciler.look())
    reconciler = Reconciler(tasks, supervisor.kill_worker)
    retention = Retention(opener.home, tasks.seal_key, policy)
    fanout = Fanout()
    metrics = Metrics()
    metrics.gauge("batten_workers", "Worker processes.", lambda: len(supervisor.pids))
    metrics.counter_of(
        "batten_worker_restarts_total", "Workers that were replaced.", lambda: supervisor.restarts
    )

    async def check_store() -> str:
        await opener.journal.version()
        return ""

    async def check_workers() -> str:
        return "" if supervisor.pids or not staff.count else "no worker runs"

    system = System(
        version=__version__,
        metrics=metrics,
        checks={"store": check_store, "workers": check_workers},
    )
    try:
        async with asyncio.TaskGroup() as group:
            parts = (supervisor, reconciler, Sweeper(tasks), retention, fanout)
            duties = [group.create_task(part.run()) for part in parts]
            duties.append(group.create_task(_tell_isolation(opener, system)))
            try:
                surface = hecate(Service(tasks, fanout, retention, lambda: len(supervisor.pids)))
                surfaces = with_system([surface], system)
                yield App(surfaces, limits=limits, metrics=metrics)
            finally:
                for duty in duties:
                    duty.cancel()
    finally:
        opener.close()
