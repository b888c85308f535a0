"""The whole service: its surfaces, its workers, and the duties between them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec import to_builtins
from msgspec.structs import replace

from batten import __version__
from batten.control.gathering import Gathering
from batten.control.observer.hosted import TOKEN_VARIABLE, HostedRuntime
from batten.control.reconciler import Reconciler, Sweeper
from batten.control.retention import Retention, RetentionPolicy
from batten.control.supervisor import Staff, Supervisor
from batten.control.tasks import Tasks
from batten.serve.http.app import App
from batten.serve.http.fanout import Fanout
from batten.serve.http.gauges import Gauges
from batten.serve.http.hecate.service import Service
from batten.serve.http.hecate.surface import hecate
from batten.serve.http.limits import Limits
from batten.serve.http.macp.plane import ControlPlane, Duty
from batten.serve.http.metrics import Metrics
from batten.serve.http.plane_gauges import PlaneCounts, PlaneGauges
from batten.serve.http.rows import rows
from batten.serve.http.sink_gauges import SinkGauges
from batten.serve.http.sinks.service import SinkService
from batten.serve.http.system import Check, System, with_system
from batten.serve.http.waits import Waits
from batten.sinks.process import SinkProcess
from batten.wiring.opener import SessionOpener


async def _tell_isolation(opener: SessionOpener, system: System) -> None:
    """Let `/healthz` tell what confines commands; until it was tried, what should."""
    from batten.control.isolation import expected_isolation, os_isolation

    expected = expected_isolation(opener.base, opener.home)
    system.sandbox = {"os_isolation": to_builtins(expected)}
    system.sandbox = {"os_isolation": to_builtins(await os_isolation(opener.base, opener.home))}


def _checks(opener: SessionOpener, supervisor: Supervisor, staff: Staff) -> dict[str, Check]:
    """What `/readyz` looks at."""

    async def store() -> str:
        await opener.journal.version()
        return ""

    async def workers() -> str:
        return "" if supervisor.pids or not staff.commands else "no worker runs"

    return {"store": store, "workers": workers}


def _beside(staff: Staff, runtime: tuple[str, ...], hosted: HostedRuntime) -> Supervisor:
    """Keeps the runtime's process, if there is one; `hosted` hears where it listens."""
    environ = {**staff.environ, TOKEN_VARIABLE: hosted.token}
    commands = (runtime,) if runtime else ()
    coordinating = replace(staff, commands=commands, environ=environ)
    return Supervisor(coordinating, hosted.lost, hosted.heard)


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
    process that tells others what happens. Callbacks to cancel may be at `callback_hosts`, although
    these are not public.
    """
    gathering = Gathering()
    tasks = Tasks(opener.journal, opener.home, opener.base, gathering)
    supervisor = Supervisor(staff, lambda: reconciler.look())
    forking = replace(staff, commands=(callers,), memory_mib=0)
    printing = Supervisor(forking, lambda: reconciler.look())
    hosted = HostedRuntime(is_wanted=bool(runtime))
    coordination = _beside(forking, runtime, hosted)
    reconciler = Reconciler(tasks, supervisor.kill_worker)
    retention = Retention(opener.home, tasks.seal_key, policy)
    fanout = Fanout()
    telling = SinkService(opener.journal, opener.home, tasks.redactor)
    plane = ControlPlane(opener, tasks, fanout, telling, hosted, callback_hosts)
    metrics = Metrics(is_plane=True)
    Gauges(opener.journal, supervisor, retention).add_to(metrics)
    sink_gauges = SinkGauges(opener.journal, opener.home)
    sink_gauges.add_to(metrics)
    counts = PlaneCounts(opener.journal)
    system = System(
        version=__version__,
        metrics=metrics,
        checks=_checks(opener, supervisor, staff),
        watch=plane.runs.watch,
        is_closed=plane.settings.is_closed,
    )
    try:
        await sinks.begin(opener.journal)
        async with asyncio.TaskGroup() as group:
            staffs = (supervisor, printing, coordination)
            own: tuple[Duty, ...] = (reconciler, Sweeper(tasks), retention, fanout, sinks)
            parts = (*staffs, *own, *plane.duties, counts)
            duties = [group.create_task(part.run()) for part in parts]
            duties.append(group.create_task(_tell_isolation(opener, system)))
            try:
                waits = Waits()
                served = Service(tasks, fanout, retention, lambda: len(supervisor.pids), waits)
                served.recorder = telling
                others = (rows(opener.journal), *plane.surfaces())
                surfaces = with_system([hecate(served), *others], system)
                app = App(surfaces, limits=limits, metrics=metrics, writing=gathering, waits=waits)
                PlaneGauges(counts, plane.runs.watch, app.streams, sink_gauges).add_to(metrics)
                yield app
            finally:
                for duty in duties:
                    duty.cancel()
    finally:
        await plane.close()
        opener.close()
