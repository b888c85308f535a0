"""`GET /dashboard/overview`: numbers, recent runs and charts over a window of time."""

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

from batten.contract.envelope import timestamp
from batten.control.observer.link import RuntimeHealth
from batten.control.views.listing import OF_SCENARIO, read_records
from batten.journal.sqlite.database import Database
from batten.protocols.macp.llm import NANO, dollars
from batten.protocols.macp.metrics import unix_ms
from batten.protocols.macp.records import RunRecord

Window = Literal["1h", "6h", "24h", "7d", "30d"]
Bucket = Literal["minute", "hour", "day"]
_HOUR_MS = 3_600_000
_WINDOWS: dict[Window, tuple[int, Bucket]] = {
    "1h": (_HOUR_MS, "minute"),
    "6h": (6 * _HOUR_MS, "minute"),
    "24h": (24 * _HOUR_MS, "hour"),
    "7d": (7 * 24 * _HOUR_MS, "day"),
    "30d": (30 * 24 * _HOUR_MS, "day"),
}
_LABELS: dict[Bucket, tuple[int, str]] = {
    "minute": (16, ":00.000Z"),
    "hour": (13, ":00:00.000Z"),
    "day": (10, "T00:00:00.000Z"),
}
"""Characters of an instant that name its bucket, and the rest of the label."""
_CENT = NANO // 100
_TOP = 10
_RECENT = 10


class Query(Struct, frozen=True, kw_only=True):
    """Which runs; instants are those of events."""

    start: str
    end: str
    """Runs and events from the start on, before the end."""
    bucket: Bucket
    length_ms: int = 0
    """Of a window whose start moves with the time; 0 for a fixed start."""
    is_open: bool = True
    """Whether the end is now."""
    scenario_ref: str = ""
    environment: str = ""


class Kpis(Struct, frozen=True, kw_only=True, rename="camel"):
    total_runs: int
    active_runs: int
    completed_runs: int
    failed_runs: int
    cancelled_runs: int
    total_signals: int
    total_tokens: int
    total_cost_usd: float
    avg_duration_ms: int | None
    """None without a completed run."""


class RecentRun(Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    status: str
    runtime_kind: str
    source_ref: str | UnsetType = UNSET
    started_at: str | UnsetType = UNSET
    ended_at: str | UnsetType = UNSET
    created_at: str


class Chart(Struct, frozen=True, kw_only=True):
    """Only buckets with something in them appear."""

    labels: list[str]
    data: list[float]


class Charts(Struct, frozen=True, kw_only=True, rename="camel"):
    """All 13 series."""

    run_volume: Chart
    latency: Chart
    signal_volume: Chart
    error_classes: Chart
    throughput: Chart
    queue_depth: Chart
    latency_p50: Chart = field(name="latencyP50")
    latency_p95: Chart = field(name="latencyP95")
    latency_p99: Chart = field(name="latencyP99")
    cost: Chart
    success_rate: Chart
    decision_outcome: Chart
    per_scenario: Chart


class Numbers(Struct, frozen=True, kw_only=True, rename="camel"):
    """What the runs amount to."""

    kpis: Kpis
    recent_runs: list[RecentRun]
    charts: Charts


class Overview(Numbers, frozen=True, kw_only=True, rename="camel"):
    runtime_health: RuntimeHealth


def window_query(
    now_ms: int, window: Window, *, scenario_ref: str = "", environment: str = ""
) -> Query:
    """The time up to now."""
    length_ms, bucket = _WINDOWS[window]
    return Query(
        start=_instant(now_ms - length_ms),
        end=_instant(now_ms + 1),
        bucket=bucket,
        length_ms=length_ms,
        scenario_ref=scenario_ref,
        environment=environment,
    )


def range_query(
    now_ms: int,
    start_ms: int,
    end_ms: int | None,
    *,
    scenario_ref: str = "",
    environment: str = "",
) -> Query:
    """From one time to another, or to now."""
    last_ms = now_ms + 1 if end_ms is None else end_ms
    span = last_ms - start_ms
    return Query(
        start=_instant(start_ms),
        end=_instant(last_ms),
        bucket="minute" if span <= 6 * _HOUR_MS else "hour" if span <= 48 * _HOUR_MS else "day",
        is_open=end_ms is None,
        scenario_ref=scenario_ref,
        environment=environment,
    )


def _instant(unix_ms_: int) -> str:
    return timestamp(unix_ms_ * 1_000_000)


class Dated(Struct, frozen=True):
    """Numbers, and until when they hold if nothing happens."""

    numbers: Numbers
    until_ms: int | None


def read_numbers(db: Database, query: Query) -> Dated:
    """Add up the runs that fit."""
    reading = _Reading(db, query)
    signals = reading.marks("signal.emitted")
    kpis, by_creation = reading.created(int(sum(signals.data)))
    return Dated(
        Numbers(
            kpis=kpis,
            recent_runs=reading.recent(),
            charts=Charts(
                **by_creation,
                **reading.latencies(),
                signal_volume=signals,
                decision_outcome=reading.marks("decision.finalized"),
                throughput=reading.throughput(),
                error_classes=reading.top("coalesce(error_code, 'UNKNOWN')", "status = 'failed'"),
                per_scenario=reading.top("coalesce(scenario, 'unknown')", "1"),
            ),
        ),
        reading.until_ms(),
    )


class _Reading:
    """The statements of one overview, all inside one transaction."""

    def __init__(self, db: Database, query: Query) -> None:
        self._db = db
        self._query = query
        self._length, self._rest = _LABELS[query.bucket]
        parts: list[str] = []
        self._fit: list[Any] = []
        if query.environment:
            parts.append("environment = ?")
            self._fit.append(query.environment)
        if query.scenario_ref:
            parts.append(OF_SCENARIO)
            self._fit += [query.scenario_ref, query.scenario_ref.casefold()]
        self._fits = " AND ".join(("is_run", *parts))
        self._has_filter = bool(parts)
        self._span = (query.start, query.end)

    def _all(self, sql: str, bindings: Sequence[Any]) -> list[Any]:
        return self._db.execute(sql, bindings).fetchall()

    def _bucket(self, column: str) -> str:
        return f"substr({column}, 1, {self._length})"

    def _chart(self, rows: Sequence[tuple[str, float]]) -> Chart:
        return Chart(
            labels=[label + self._rest for label, _ in rows], data=[value for _, value in rows]
        )

    def created(self, total_signals: int) -> tuple[Kpis, dict[str, Chart]]:
        """Numbers and charts of the runs that were created in the window."""
        rows = self._all(
            f"SELECT {self._bucket('created_at')} AS bucket, count(*),"
            " sum(status = 'completed'), sum(status = 'failed'), sum(status = 'cancelled'),"
            " sum(status IN ('queued', 'starting', 'binding_session')),"
            " total(tokens), total(cost_nanos), total(duration_ms), count(duration_ms)"
            f" FROM runs_now WHERE {self._fits} AND created_at >= ? AND created_at < ?"
            " GROUP BY bucket ORDER BY bucket",
            (*self._fit, *self._span),
        )
        _, counts, completed, failed, cancelled, _, tokens, costs, lasted, timed = _columns(rows)
        ended = sum(completed) + sum(failed) + sum(cancelled)
        kpis = Kpis(
            total_runs=sum(counts),
            active_runs=sum(counts) - ended,
            completed_runs=sum(completed),
            failed_runs=sum(failed),
            cancelled_runs=sum(cancelled),
            total_signals=total_signals,
            total_tokens=int(sum(tokens)),
            total_cost_usd=_cents(int(sum(costs))) / 100,
            avg_duration_ms=round(sum(lasted) / sum(timed)) if sum(timed) else None,
        )
        charts = {
            "run_volume": self._chart([(row[0], row[1]) for row in rows]),
            "queue_depth": self._chart([(row[0], row[5]) for row in rows]),
            "cost": self._chart([(row[0], dollars(int(row[7]))) for row in rows]),
            "success_rate": self._chart([(row[0], _success(*row[2:5])) for row in rows]),
        }
        return kpis, charts

    def latencies(self) -> dict[str, Chart]:
        """Durations of completed runs that were created in the window, by their end."""
        rows = self._all(
            "WITH timed AS ("
            f"SELECT {self._bucket('ended_at')} AS bucket, duration_ms FROM runs_now"
            f" WHERE {self._fits} AND created_at >= ? AND created_at < ?"
            " AND duration_ms IS NOT NULL),"
            " placed AS (SELECT bucket, duration_ms, count(*) OVER by_bucket AS many,"
            " row_number() OVER (PARTITION BY bucket ORDER BY duration_ms) - 1 AS place"
            " FROM timed WINDOW by_bucket AS (PARTITION BY bucket))"
            f" SELECT bucket, many, total(duration_ms), {', '.join(map(_nearest, _SHARES))}"
            " FROM placed GROUP BY bucket ORDER BY bucket",
            (*self._fit, *self._span),
        )
        charts = {"latency": self._chart([(row[0], round(row[2] / row[1])) for row in rows])}
        for number, (name, share) in enumerate(_SHARES.items()):
            below, above = 3 + 2 * number, 4 + 2 * number
            charts[name] = self._chart(
                [(row[0], _between(row[below], row[above], share, row[1])) for row in rows]
            )
        return charts

    def throughput(self) -> Chart:
        rows = self._all(
            f"SELECT {self._bucket('ended_at')} AS bucket, sum(status = 'completed')"
            f" FROM runs_now WHERE {self._fits} AND ended_at >= ? AND ended_at < ?"
            " GROUP BY bucket ORDER BY bucket",
            (*self._fit, *self._span),
        )
        return self._chart(rows)

    def marks(self, type_: str) -> Chart:
        """Signals, or positive decisions less negative ones, by their time."""
        of = f" AND run_id IN (SELECT run_id FROM runs_now WHERE {self._fits})"
        rows = self._all(
            f"SELECT {self._bucket('ts')} AS bucket, sum(value) FROM marks_now"
            f" WHERE type = ? AND ts >= ? AND ts < ?{of if self._has_filter else ''}"
            " GROUP BY bucket ORDER BY bucket",
            (type_, *self._span, *self._fit),
        )
        return self._chart(rows)

    def top(self, name: str, condition: str) -> Chart:
        rows = self._all(
            f"SELECT {name} AS name, count(*) AS many FROM runs_now"
            f" WHERE {self._fits} AND {condition} AND created_at >= ? AND created_at < ?"
            " GROUP BY name ORDER BY many DESC, name LIMIT ?",
            (*self._fit, *self._span, _TOP),
        )
        return Chart(labels=[label for label, _ in rows], data=[count for _, count in rows])

    def recent(self) -> list[RecentRun]:
        """The newest runs, of whatever time."""
        where = f"{self._fits} AND NOT is_archived AND NOT is_sandbox"
        order = "created_at DESC, run_id DESC LIMIT ?"
        found = read_records(self._db, where, order, (*self._fit, _RECENT))
        return [_recent(record) for record in found]

    def until_ms(self) -> int | None:
        """When the first run or event leaves the window, or one of a later time enters it."""
        query = self._query
        found: list[int] = []
        if query.length_ms and (first := self._first(query.start)):
            found.append(unix_ms(first) + query.length_ms + 1)
        if query.is_open and (first := self._first(query.end)):
            found.append(unix_ms(first))
        return min(found, default=None)

    def _first(self, since: str) -> str:
        """The first instant at or after this one that the overview looks at."""
        places = (
            ("runs_now", "created_at", "is_run"),
            ("runs_now", "ended_at", "is_run"),
            ("marks_now", "ts", "type = 'signal.emitted'"),
            ("marks_now", "ts", "type = 'decision.finalized'"),
        )
        found = [
            self._all(
                f"SELECT {column} FROM {table} WHERE {condition} AND {column} >= ?"
                f" ORDER BY {column} LIMIT 1",
                (since,),
            )
            for table, column, condition in places
        ]
        return min((rows[0][0] for rows in found if rows), default="")


_SHARES = {"latency_p50": 0.5, "latency_p95": 0.95, "latency_p99": 0.99}


def _nearest(name: str) -> str:
    """SQL for the two durations of a bucket between which a percentile lies."""
    below = f"CAST({_SHARES[name]} * (many - 1) AS INTEGER)"
    return ", ".join(
        f"max(CASE WHEN place = {place} THEN duration_ms END)"
        for place in (below, f"min({below} + 1, many - 1)")
    )


def _between(below: int, above: int, share: float, many: int) -> int:
    """Interpolated between the two nearest values, rounded."""
    place = share * (many - 1)
    return round(below + (above - below) * (place - int(place)))


def _cents(nanos: int) -> int:
    """Rounded as a person does: half a cent is one."""
    return (2 * nanos + _CENT) // (2 * _CENT)


def _success(completed: int, failed: int, cancelled: int) -> float:
    over = completed + failed + cancelled
    return 100 * completed / over if over else 0


def _columns(rows: Sequence[tuple[Any, ...]]) -> Sequence[Sequence[Any]]:
    return list(zip(*rows, strict=True)) or [()] * 10


def _recent(record: RunRecord) -> RecentRun:
    return RecentRun(
        id=record.id,
        status=record.status,
        runtime_kind=record.runtime_kind,
        source_ref=record.source_ref or UNSET,
        started_at=record.started_at or UNSET,
        ended_at=record.ended_at or UNSET,
        created_at=record.created_at,
    )
