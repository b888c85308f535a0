"""What the rows of the control plane work with; views that the server keeps behind the journal."""

import asyncio
import logging
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from batten.contract.errors import BattenError
from batten.control.tasks import Tasks
from batten.journal.contract import Journal
from batten.serve.http.answers import Answers
from batten.settings.control_plane import ControlPlaneSettings

if TYPE_CHECKING:  # loaded with the first request
    from batten.control.views.dashboard import RuntimeProbe
    from batten.control.views.views import Views

_FILE = "views.db"
_PAUSE_S = 1.0
_SWEEP_S = 60.0
_MIB = 1 << 20
_log = logging.getLogger("batten.views")


class RunService:
    """Opens its file with the first request that needs it."""

    def __init__(
        self, journal: Journal, home: str, settings: ControlPlaneSettings, tasks: Tasks
    ) -> None:
        self.settings = settings
        self.tasks = tasks
        """Creates and cancels runs of agents."""
        self.runtime: RuntimeProbe | None = None
        """Tells how the runtime is; None where there is none."""
        self.journal = journal
        self.answers = Answers(journal, 32 * _MIB)
        """Of runs and lists, encoded."""
        self._home = home
        self._views: Views | None = None
        self._wanted = asyncio.Event()

    @property
    def views(self) -> "Views":
        if self._views is None:
            from batten.control.views.store import ViewStore
            from batten.control.views.views import Views

            self._views = Views(self.journal, ViewStore.open(self._home), self._home)
        self._wanted.set()
        return self._views

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
