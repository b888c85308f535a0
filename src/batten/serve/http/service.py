"""The whole service: its surfaces, its workers, and the duties between them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import to_builtins
from msgspec.structs import replace

from batten import __version__
from batten.control.gathering import Gathering
from batten.control.reconciler import Reconciler, Sweeper
from batten.control.retention import Retention, RetentionPolicy
from batten.control.supervisor import Staff, Supervisor
from batten.control.tasks import Tasks
from batten.serve.http.app import App
from batten.serve.http.control_plane import ControlPlaneEdge
from batten.serve.http.fanout import Fanout
from batten.serve.http.gauges import Gauges
from batten.serve.http.hecate.service import Service
from batten.serve.http.hecate.surface import hecate
from batten.serve.http.limits import Limits
from batten.serve.http.macp.service import RunService
from batten.serve.http.macp.surface import macp
from batten.serve.http.metrics import Metrics
from batten.serve.http.rows import rows
from batten.serve.http.sink_gauges import SinkGauges
from batten.serve.http.sinks.service import SinkService
from batten.serve.http.sinks.surface import sinks as sinks_surfaces
from batten.serve.http.system import System, with_system
from batten.settings.control_plane import read_control_plane
from batten.sinks.process import SinkProcess
from batten.wiring.opener import SessionOpener


async def _tell_isolation(opener: SessionOpener, system: System) -> None:
    """Let `/healthz` tell what confines commands, once that is known."""
    from batten.control.isolation import os_isolation

    system.sandbox = {"os_isolation": to_builtins(await os_isolation(opener.base, opener.home))}


@asynccontextmanager
async def service(
    opener: SessionOpener,
    staff: Staff,
    callers: tuple[str, ...],
    sinks: SinkProcess,
    policy: RetentionPolicy,
    limits: Limits | None = None,
    runtime: tuple[str, ...] = (),
    callback_hosts: tuple[str, ...] = (),
) -> AsyncGenerator[App]:
    """The application, while its workers run. `callers` is the command that starts the process for
    what `batten -p` hands over, `runtime` that of the coordination runtime; `sinks` keeps the
    process that tells others what happens. `callback_hosts` need not be public.
    """
    gathering = Gathering()
    tasks = Tasks(opener.journal, opener.home, opener.base, gathering)
    supervisor = Supervisor(staff, lambda: reconciler.look())
    forking = replace(staff, commands=(callers,), memory_mib=0)
    printing = Supervisor(forking, lambda: reconciler.look())
    coordinating = replace(forking, commands=(runtime,) if runtime else ())
    coordination = Supervisor(coordinating, lambda: None)
    reconciler = Reconciler(tasks, supervisor.kill_worker)
    retention = Retention(opener.home, tasks.seal_key, policy)
    fanout = Fanout()
    telling = SinkService(opener.journal, opener.home)
    plane = read_control_plane(opener.base.environ)
    observing = RunService(opener.journal, opener.home, plane, tasks, fanout, telling)
    observing.callback_hosts = callback_hosts
    observing.has_runtime = lambda: bool(coordination.pids)
    tasks.on_removed = observing.forget
    metrics = Metrics(is_plane=True)
    Gauges(opener.journal, supervisor, retention).add_to(metrics)
    SinkGauges(opener.journal, opener.home).add_to(metrics)

    async def check_store() -> str:
        await opener.journal.version()
        return ""

    async def check_workers() -> str:
        return "" if supervisor.pids or not staff.commands else "no worker runs"

    system = System(
        version=__version__,
        metrics=metrics,
        checks={"store": check_store, "workers": check_workers},
        watch=observing.watch,
        is_closed=plane.is_closed,
    )
    try:
        async with asyncio.TaskGroup() as group:
            staffs = (supervisor, printing, coordination)
            parts = (*staffs, reconciler, Sweeper(tasks), retention, fanout, sinks, telling)
            duties = [group.create_task(part.run()) for part in (*parts, observing)]
            duties.append(group.create_task(_tell_isolation(opener, system)))
            try:
                served = Service(tasks, fanout, retention, lambda: len(supervisor.pids))
                served.recorder = telling
                edge = ControlPlaneEdge(plane)
                plane_surfaces = (*sinks_surfaces(telling, edge), *macp(observing, edge))
                others = (rows(opener.journal), *plane_surfaces)
                surfaces = with_system([hecate(served), *others], system)
                yield App(surfaces, limits=limits, metrics=metrics, writing=gathering)
            finally:
                for duty in duties:
                    duty.cancel()
    finally:
        observing.close()
        telling.close()
        opener.close()
