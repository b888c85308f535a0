"""What the rows of the control plane work with; views that the server keeps behind the journal."""

import asyncio
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from batten.contract.errors import BattenError
from batten.control.artifacts import Artifacts
from batten.control.patches import Patches
from batten.control.tasks import Tasks
from batten.journal.contract import Journal
from batten.serve.http.answers import Answers, CurrentVersion
from batten.serve.http.fanout import Fanout
from batten.serve.http.macp.observing import Observing
from batten.serve.http.plane_watch import PlaneWatch
from batten.serve.http.sinks.service import SinkService
from batten.settings.control_plane import ControlPlaneSettings

if TYPE_CHECKING:  # loaded with the first request
    from batten.control.described.cancelling import Cancelling
    from batten.control.described.creation import DescribedRuns
    from batten.control.described.runtimes import RuntimeClient
    from batten.control.views.views import Views

_FILE = "views.db"
_PAUSE_S = 1.0
_SWEEP_S = 60.0
_MIB = 1 << 20
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
        recorder: SinkService,
    ) -> None:
        self.settings = settings
        self.fanout = fanout
        self.tasks = tasks
        """Creates and cancels runs of agents."""
        self.artifacts = Artifacts(tasks, Patches(tasks))
        self.observer = observer
        """Follows sessions elsewhere; `observer.link` is the way to the runtime."""
        self.recorder = recorder
        """Keeps the audit log."""
        self.journal = journal
        self.watch = PlaneWatch(settings.runtime_kind)
        """Knows the runtime elsewhere, if there is one."""
        observer.link.timed = self.watch.timed
        self.watch.breaker = observer.link.breaker
        if settings.runtime_address:
            self.watch.link, self.watch.consumer = observer.link, observer
        self.answers = Answers(CurrentVersion(journal), 32 * _MIB)
        """Of runs and lists, encoded."""
        self._home = home
        self._views: Views | None = None
        self._described: DescribedRuns | None = None
        self._cancelling: Cancelling | None = None
        self.callback_hosts: tuple[str, ...] = ()
        """Hosts and ranges that callbacks may be at although they are not public."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._wanted = asyncio.Event()

    @property
    def views(self) -> "Views":
        if self._views is None or not self._views.are_there:
            from batten.control.views.store import ViewStore
            from batten.control.views.views import Views

            # Whoever still reads the removed file closes it by letting go of it.
            self._views = Views(self.journal, ViewStore.open(self._home))
        self._wanted.set()
        return self._views

    def turn(self, run_id: str) -> asyncio.Lock:
        """Held by whoever archives or deletes the run: of several at once one does it."""
        return self._turns.setdefault(run_id, asyncio.Lock())

    @property
    def described(self) -> "DescribedRuns":
        """Creates and clones described runs."""
        if self._described is None:
            from batten.control.described.creation import DescribedRuns

            self._described = DescribedRuns(self.tasks, self.settings)
        return self._described

    @property
    def cancelling(self) -> "Cancelling":
        if self._cancelling is None:
            from batten.control.described.cancelling import Cancelling

            self._cancelling = Cancelling(
                self.tasks, self.described, self.settings, self.callback_hosts
            )
        self._cancelling.runtime = self.runtime
        return self._cancelling

    @property
    def runtime(self) -> "RuntimeClient | None":
        """The runtime elsewhere, if the settings name one."""
        return self.observer.runtime

    @property
    def registries(self) -> str:
        """The file of the modes and policies of the runtime of this home."""
        from batten.control.coordination.registries import FILE

        return os.path.join(self._home, FILE)

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
                await views.catch_up()
                await views.board.forget_gone()
            except BattenError as error:
                _log.warning("views of runs are behind: %s", error)
            except Exception as error:  # reads do without; the service must go on
                _log.error("views of runs could not be kept up", exc_info=error)
            await asyncio.sleep(_PAUSE_S)

    def close(self) -> None:
        if self._views is not None:
            self._views.close()
