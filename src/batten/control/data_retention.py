"""Removes what is older than the control plane keeps: sessions with their runs, and records.

Off unless settings turn it on. A session goes when all its runs have ended and it was last used
before the cutoff: a run that a later one continues stays with it. One process of a home removes at
a time; another leaves its turn out.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from batten.contract.envelope import timestamp
from batten.contract.errors import BattenError, NotReady, StoreBusy
from batten.journal.opening import open_for_removal, removal_lock
from batten.journal.removal import Extent, Removable, RemovalLimits
from batten.settings.control_plane import ControlPlaneSettings

FIRST_S = 10.0
"""How long after the start the first sweep is."""
_DAY_S = 86_400
_log = logging.getLogger("batten.retention")


class Records(Protocol):
    """What is kept besides runs: who did what, and what receivers were sent."""

    async def catch_up(self) -> None:
        """Record what runs tell, before they go."""
        ...

    async def remove_before(self, cutoff: str, batch: int) -> dict[str, int]:
        """Remove records from before this time, `batch` at once; how many of each kind."""
        ...

    def record_sweep(self, cutoff: str, removed: dict[str, int]) -> None:
        """Record that something was removed."""
        ...


class DataRetention:
    """Sweeps by schedule."""

    def __init__(
        self,
        home: str,
        settings: ControlPlaneSettings,
        records: Records,
        *,
        now: Callable[[], float] = time.time,
        first_s: float = FIRST_S,
    ) -> None:
        self._home = home
        self._settings = settings
        self._records = records
        self._now = now
        self._first_s = first_s
        self._stopping = threading.Event()

    async def run(self) -> None:
        """Until cancelled."""
        if not self._settings.data_retention_enabled:
            return
        wait_s = self._first_s
        try:
            while True:
                await asyncio.sleep(wait_s)
                wait_s = max(1, self._settings.data_retention_interval_hours) * 3600.0
                await self._try_to_sweep()
        finally:
            self._stopping.set()

    async def _try_to_sweep(self) -> None:
        try:
            await self.sweep()
        except StoreBusy as error:
            _log.info("nothing is removed now: %s", error)
        except BattenError as error:
            _log.warning("old data could not be removed: %s", error)
        except Exception as error:  # the service must go on
            _log.error("old data could not be removed", exc_info=error)

    async def sweep(self) -> dict[str, int]:
        """Remove now; how many of each kind went. Raises `StoreBusy` while others remove."""
        cutoff = timestamp(int((self._now() - self._ttl_s) * 1e9))
        with removal_lock(self._home):
            await self._records.catch_up()
            runs = await asyncio.to_thread(lambda: asyncio.run(self._remove_runs(cutoff)))
            removed = {"runs": runs, **await self._records.remove_before(cutoff, self._batch)}
        if any(removed.values()):
            self._records.record_sweep(cutoff, removed)
            _log.info("old data was removed", extra={"fields": {"removed": removed}})
        return removed

    @property
    def _ttl_s(self) -> int:
        return max(1, self._settings.data_retention_ttl_days) * _DAY_S

    @property
    def _batch(self) -> int:
        return max(1, self._settings.data_retention_batch_size)

    async def _remove_runs(self, cutoff: str) -> int:
        """Batch by batch, so that a large backlog is never planned at once."""
        sizes: list[int] = []

        def removed(_: Removable, size: Extent) -> None:
            sizes.append(size.runs)
            if self._stopping.is_set():
                raise NotReady("the service stops; the next sweep goes on")

        spared: frozenset[str] = frozenset()
        with open_for_removal(self._home) as journal:
            while True:
                limits = RemovalLimits(used_before=cutoff, most=self._batch, but=spared)
                result = await journal.remove_sessions(limits, removed)
                spared |= {one.name for one, _ in result.spared}
                if len(result.removed) + len(result.spared) < self._batch:
                    return sum(sizes)
