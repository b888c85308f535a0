"""Metrics of the service beside those of its requests: queue, workers, store, retention."""

from collections.abc import Mapping

from batten.control.retention import Retention
from batten.control.statistics import Load, load_of
from batten.control.supervisor import Supervisor
from batten.journal.contract import Journal
from batten.serve.http.metrics import Labels, Metrics, Number


class Gauges:
    """Reads the queue once for each time that metrics are asked for."""

    def __init__(self, journal: Journal, supervisor: Supervisor, retention: Retention) -> None:
        self._journal = journal
        self._supervisor = supervisor
        self._retention = retention
        self._load: Load | None = None
        self._events = self._bytes = 0

    def add_to(self, metrics: Metrics) -> None:
        metrics.before(self._look)
        metrics.gauge("batten_workers", "Worker processes.", lambda: len(self._supervisor.pids))
        metrics.counter_of(
            "batten_worker_restarts_total",
            "Workers that were replaced.",
            lambda: self._supervisor.restarts,
        )
        metrics.gauge(
            "batten_queue_depth", "Runs that wait for a worker.", lambda: self._now.queued
        )
        metrics.gauge(
            "batten_queue_oldest_seconds",
            "Age of the oldest run that is queued.",
            lambda: self._now.oldest_queued_s,
        )
        metrics.gauge("batten_runs", "Unfinished runs, by status.", self._runs)
        metrics.gauge(
            "batten_runs_in_flight",
            "Runs that a worker executes.",
            lambda: sum(self._now.held.values()),
        )
        metrics.gauge(
            "batten_runs_parked",
            "Runs that wait for an answer, without a worker.",
            lambda: self._now.parked,
        )
        metrics.counter_of(
            "batten_retention_removed_total",
            "Runs and artifacts that retention has removed.",
            self._removed,
        )
        metrics.counter_of(
            "batten_events_total", "Events appended to this store, ever.", lambda: self._events
        )
        metrics.gauge("batten_journal_bytes", "Size of the journal's file.", lambda: self._bytes)

    @property
    def _now(self) -> Load:
        assert self._load is not None  # `refresh` comes before every read
        return self._load

    async def _look(self) -> None:
        self._load = await load_of(self._journal)
        self._events = await self._journal.position()
        self._bytes = await self._journal.file_bytes()

    def _runs(self) -> Mapping[Labels, Number]:
        return {(("status", name),): count for name, count in self._now.statuses.items()}

    def _removed(self) -> Mapping[Labels, Number]:
        return {(("subsystem", name),): count for name, count in self._retention.removed.items()}
