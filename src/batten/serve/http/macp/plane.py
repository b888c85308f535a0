"""The parts of the control plane, put together."""

from collections.abc import Coroutine
from typing import Any, Protocol

from batten.control.data_retention import DataRetention
from batten.control.described.overdue import Overdue
from batten.control.observer.hosted import HostedRuntime
from batten.control.tasks import Tasks
from batten.serve.http.control_plane import ControlPlaneEdge
from batten.serve.http.fanout import Fanout
from batten.serve.http.macp.observing import Observing
from batten.serve.http.macp.service import RunService
from batten.serve.http.macp.surface import macp
from batten.serve.http.sinks.service import SinkService
from batten.serve.http.sinks.surface import sinks
from batten.serve.http.table import Surface
from batten.settings.control_plane import read_control_plane
from batten.wiring.opener import SessionOpener


class Duty(Protocol):
    """Work that goes on as long as the service."""

    def run(self) -> Coroutine[Any, Any, None]: ...


class ControlPlane:
    """Its surfaces and its duties; `telling` records who did what and tells webhooks."""

    def __init__(
        self,
        opener: SessionOpener,
        tasks: Tasks,
        fanout: Fanout,
        telling: SinkService,
        hosted: HostedRuntime,
        callback_hosts: tuple[str, ...] = (),
    ) -> None:
        """Callbacks to cancel may be at `callback_hosts`, although these are private."""
        self.settings = read_control_plane(opener.base.environ)
        self._telling = telling
        self._observer = Observing(opener, self.settings, hosted)
        self.runs = RunService(
            opener.journal, opener.home, self.settings, tasks, fanout, self._observer, telling
        )
        self.runs.callback_hosts = callback_hosts
        self.runs.watch.hosted = hosted
        tasks.on_removed = self.runs.forget
        keeping = DataRetention(opener.home, self.settings, telling)
        overdue = Overdue(opener.journal, self.settings.session_poll_timeout_ms)
        self.duties: tuple[Duty, ...] = (telling, self.runs, self._observer, keeping, overdue)

    def surfaces(self) -> tuple[Surface, ...]:
        edge = ControlPlaneEdge(self.settings)
        return (*sinks(self._telling, edge), *macp(self.runs, edge))

    async def close(self) -> None:
        await self._observer.link.close()
        self.runs.close()
        self._telling.close()
