"""Metrics of sinks: how far each is behind, what waits and what was given up."""

from collections.abc import Callable, Mapping

from batten.journal.contract import Journal
from batten.serve.http.metrics import Labels, Metrics, Number
from batten.sinks.store import SinkRow, SinkStore


class SinkGauges:
    """Reads the state of sinks once for each time that metrics are asked for."""

    def __init__(self, journal: Journal, home: str) -> None:
        self._journal = journal
        self._home = home
        self._rows: list[SinkRow] = []
        self._end = 0
        self.webhooks = {"delivered": 0, "failed": 0}
        """Messages of webhooks by what became of them, when metrics were last asked for."""

    def add_to(self, metrics: Metrics) -> None:
        metrics.before(self._look)
        metrics.gauge(
            "batten_sink_lag_events",
            "Events that a sink has not read yet.",
            self._each(lambda row: max(0, self._end - row.position)),
        )
        metrics.gauge(
            "batten_sink_pending",
            "Messages of a sink that wait for another try.",
            self._each(lambda row: row.pending),
        )
        metrics.gauge(
            "batten_sink_dead_letters",
            "Messages of a sink that were given up.",
            self._each(lambda row: row.dead),
        )
        metrics.gauge(
            "batten_sink_is_read",
            "1 while a process reads for the sink.",
            self._each(lambda row: int(row.is_read)),
        )
        metrics.counter_of(
            "batten_sink_delivered_total",
            "Messages that a sink took, ever.",
            self._each(lambda row: row.delivered),
        )

    def _each(self, value: Callable[[SinkRow], Number]) -> Callable[[], Mapping[Labels, Number]]:
        return lambda: {(("sink", row.name),): value(row) for row in self._rows}

    async def _look(self) -> None:
        if not SinkStore.exists(self._home):
            self._rows = []
            return
        self._end = await self._journal.position()
        store = SinkStore.open(self._home)
        try:
            self._rows = store.sinks()
            self.webhooks = store.totals("webhook")
        finally:
            store.close()
