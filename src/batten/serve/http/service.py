"""The whole service: its surfaces, its workers, and the duties between them."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

from batten import __version__
from batten.control.reconciler import Reconciler
from batten.control.supervisor import Supervisor
from batten.control.tasks import Tasks
from batten.serve.http.app import App
from batten.serve.http.hecate.service import Service
from batten.serve.http.hecate.surface import hecate
from batten.serve.http.metrics import Metrics
from batten.serve.http.rows import rows
from batten.serve.http.system import System, with_system
from batten.wiring.opener import SessionOpener


@asynccontextmanager
async def service(
    opener: SessionOpener,
    worker: Sequence[str],
    callers: Sequence[str],
    environ: Mapping[str, str],
    workers: int,
) -> AsyncGenerator[App]:
    """The application, while its workers run. `worker` is the command that starts one, `callers`
    that of the process which executes what `batten -p` hands over.
    """
    tasks = Tasks(opener.journal, opener.home, opener.base)
    supervisor = Supervisor(worker, environ, workers, lambda: reconciler.look())
    printing = Supervisor(callers, environ, 1, lambda: reconciler.look())
    reconciler = Reconciler(tasks, supervisor.kill_worker)
    metrics = Metrics()
    metrics.gauge("batten_workers", "Worker processes.", lambda: len(supervisor.pids))
    metrics.counter_of(
        "batten_worker_restarts_total", "Workers that were replaced.", lambda: supervisor.restarts
    )

    async def check_store() -> str:
        await opener.journal.version()
        return ""

    async def check_workers() -> str:
        return "" if supervisor.pids or not workers else "no worker runs"

    system = System(
        version=__version__,
        metrics=metrics,
        checks={"store": check_store, "workers": check_workers},
    )
    try:
        async with asyncio.TaskGroup() as group:
            duties = [group.create_task(duty.run()) for duty in (supervisor, printing, reconciler)]
            try:
                yield App(
                    with_system([hecate(Service(tasks)), rows(opener.journal)], system),
                    metrics=metrics,
                )
            finally:
                for duty in duties:
                    duty.cancel()
    finally:
        opener.close()
