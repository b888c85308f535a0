"""What the rows of the control plane work with; views that the server keeps behind the journal."""

import asyncio
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from batten.contract.errors import BattenError
from batten.control.artifacts import Artifacts
from batten.control.patches import Patches
from batten.control.tasks import Tasks
from batten.journal.contract import Journal
from batten.serve.http.fanout import Fanout
from batten.serve.http.macp.observing import Observing
from batten.serve.http.plane_watch import PlaneWatch
from batten.settings.control_plane import ControlPlaneSettings

if TYPE_CHECKING:  # loaded with the first request
    from batten.control.described.creation import DescribedRuns
    from batten.control.views.store import ViewStore
    from batten.control.views.views import Views
    from batten.serve.http.sinks.service import SinkService

_FILE = "views.db"
_PAUSE_S = 1.0
_SWEEP_S = 60.0
_log = logging.getLogger("batten.views")


class RunService:
    """Opens its file with the first request that needs it."""

    def __init__(
        self,
        journal: Journal,
        home: str,
        settings: ControlPlaneSettings,
        tasks: Tasks,
        fanout: Fanout,
        observer: Observing,
    ) -> None:
        self.settings = settings
        self.fanout = fanout
        self.tasks = tasks
        """Creates and cancels runs of agents."""
        self.artifacts = Artifacts(tasks, Patches(tasks))
        self.observer = observer
        """Follows sessions elsewhere; `observer.link` is the way to the runtime."""
        self.recorder: SinkService | None = None
        """Keeps the audit log."""
        self.journal = journal
        self.watch = PlaneWatch(settings.runtime_kind)
        """Knows the runtime elsewhere, if there is one."""
        observer.link.timed = self.watch.timed
        self.watch.breaker = observer.link.breaker
        if settings.runtime_address:
            self.watch.link, self.watch.consumer = observer.link, observer
        self._home = home
        self._store: ViewStore | None = None
        self._views: Views | None = None
        self._described: DescribedRuns | None = None
        self._wanted = asyncio.Event()

    @property
    def views(self) -> "Views":
        if self._views is None:
            from batten.control.views.store import ViewStore
            from batten.control.views.views import Views

            self._store = ViewStore.open(self._home)
            self._views = Views(self.journal, self._store)
        self._wanted.set()
        return self._views

    @property
    def described(self) -> "DescribedRuns":
        if self._described is None:
            from batten.control.described.creation import DescribedRuns

            self._described = DescribedRuns(self.tasks, self.settings)
        return self._described

    @property
    def _has_views(self) -> bool:
        return self._views is not None or os.path.exists(os.path.join(self._home, _FILE))

    def forget(self, run_ids: list[str]) -> None:
        """Drop the views of runs that were deleted; the next sweep drops those of child runs."""
        if not self._has_views:
            return
        try:
            self.views.forget(run_ids)
        except BattenError as error:
            _log.warning("views of deleted runs stay until the next sweep: %s", error)

    async def run(self) -> None:
        """Until cancelled: keep the views behind the journal, so that reads stay cheap."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SWEEP_S):
                    await self._wanted.wait()
            if not self._has_views:
                continue
            try:
                views = self.views
                self._wanted.clear()
                await views.forget_gone()
                await views.catch_up()
            except BattenError as error:
                _log.warning("views of runs are behind: %s", error)
            except Exception as error:  # reads do without; the service must go on
                _log.error("views of runs could not be kept up", exc_info=error)
            await asyncio.sleep(_PAUSE_S)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
