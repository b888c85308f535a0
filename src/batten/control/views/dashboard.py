"""`GET /dashboard/overview`: numbers, recent runs and charts over a window of time."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypeVar

from msgspec import UNSET, Struct, UnsetType, field

from batten.contract.envelope import timestamp
from batten.contract.errors import CallerError
from batten.control.views.board import Board
from batten.control.views.folds import RunFold
from batten.protocols.macp.llm import dollars
from batten.protocols.macp.metrics import milliseconds, unix_ms
from batten.protocols.macp.records import RunRecord

T = TypeVar("T")
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
_WAITING = ("queued", "starting", "binding_session")
_TERMINAL = ("completed", "failed", "cancelled")
_TOP = 10
_RECENT = 10


class Query(Struct, frozen=True, kw_only=True):
    """Which runs; instants are those of events."""

    start: str
    end: str
    """Runs and events from the start on, before the end."""
    bucket: Bucket
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


class RuntimeHealth(Struct, frozen=True, kw_only=True, rename="camel"):
    ok: bool
    runtime_kind: str
    detail: str | UnsetType = UNSET


class Overview(Struct, frozen=True, kw_only=True, rename="camel"):
    kpis: Kpis
    recent_runs: list[RecentRun]
    runtime_health: RuntimeHealth
    charts: Charts


def read_query(
    now_ms: int,
    *,
    window: str = "",
    range_: str = "",
    start: str = "",
    end: str = "",
    scenario_ref: str = "",
    environment: str = "",
) -> Query:
    """Raises `CallerError` for a window or a time that is none."""
    named = window or range_ or "24h"
    length = next((span for name, span in _WINDOWS.items() if name == named), None)
    if length is None or (not window and named in ("1h", "6h") and range_):
        known = "24h, 7d, 30d" if range_ and not window else ", ".join(_WINDOWS)
        raise CallerError(f"window is {named!r}: it is one of {known}", code="VALIDATION_ERROR")
    if not start:
        first, bucket = now_ms - length[0], length[1]
        last = now_ms + 1
    else:
        first = _instant("from", start)
        last = _instant("to", end) if end else now_ms + 1
        span = last - first
        bucket = "minute" if span <= 6 * _HOUR_MS else "hour" if span <= 48 * _HOUR_MS else "day"
    return Query(
        start=timestamp(first * 1_000_000),
        end=timestamp(last * 1_000_000),
        bucket=bucket,
        scenario_ref=scenario_ref,
        environment=environment,
    )


def _instant(name: str, text: str) -> int:
    try:
        return unix_ms(text)
    except ValueError as error:
        raise CallerError(
            f"{name} is {text!r}: it is an ISO 8601 time", code="VALIDATION_ERROR"
        ) from error


def overview(board: Board, query: Query, health: RuntimeHealth) -> Overview:
    """Add up the runs of the board."""
    lines = [one for one in board.runs.values() if _fits(one.record, query)]
    created = [one for one in lines if query.start <= one.record.created_at < query.end]
    ended = [
        one
        for one in lines
        if one.record.ended_at is not None and query.start <= one.record.ended_at < query.end
    ]
    return Overview(
        kpis=_kpis(lines, created, query),
        recent_runs=_recent(lines),
        runtime_health=health,
        charts=_charts(lines, created, ended, query),
    )


def _fits(record: RunRecord, query: Query) -> bool:
    if query.environment and record.metadata.get("environment") != query.environment:
        return False
    if not query.scenario_ref or record.source_ref == query.scenario_ref:
        return True
    ref = record.metadata.get("scenarioRef")
    return isinstance(ref, str) and query.scenario_ref.lower() in ref.lower()


def _kpis(lines: Sequence[RunFold], created: Sequence[RunFold], query: Query) -> Kpis:
    statuses = [one.record.status for one in created]
    durations = _durations(created)
    return Kpis(
        total_runs=len(created),
        active_runs=sum(status not in _TERMINAL for status in statuses),
        completed_runs=statuses.count("completed"),
        failed_runs=statuses.count("failed"),
        cancelled_runs=statuses.count("cancelled"),
        total_signals=sum(count for _, count in _minutes(lines, query, lambda one: one.signals)),
        total_tokens=sum(one.metrics.total_tokens for one in created),
        total_cost_usd=round(dollars(sum(one.metrics.cost_nanos for one in created)), 2),
        avg_duration_ms=round(sum(durations) / len(durations)) if durations else None,
    )


def _duration(one: RunFold) -> int | None:
    record = one.record
    if record.status != "completed" or record.started_at is None or record.ended_at is None:
        return None
    return milliseconds(record.started_at, record.ended_at)


def _durations(lines: Iterable[RunFold]) -> list[int]:
    return [lasted for one in lines if (lasted := _duration(one)) is not None]


def _minutes(
    lines: Iterable[RunFold], query: Query, of: Callable[[RunFold], dict[str, int]]
) -> list[tuple[str, int]]:
    """Counts by minute, of the minutes that the window touches."""
    first, last = query.start[:16], query.end
    return [
        (minute, count)
        for one in lines
        for minute, count in of(one).items()
        if first <= minute < last
    ]


def _recent(lines: Iterable[RunFold]) -> list[RecentRun]:
    shown = [
        one.record
        for one in lines
        if one.record.archived_at is None and one.record.mode != "sandbox"
    ]
    shown.sort(key=lambda record: (record.created_at, record.id), reverse=True)
    return [
        RecentRun(
            id=record.id,
            status=record.status,
            runtime_kind=record.runtime_kind,
            source_ref=record.source_ref or UNSET,
            started_at=record.started_at or UNSET,
            ended_at=record.ended_at or UNSET,
            created_at=record.created_at,
        )
        for record in shown[:_RECENT]
    ]


def _charts(
    lines: Sequence[RunFold], created: Sequence[RunFold], ended: Sequence[RunFold], query: Query
) -> Charts:
    def by_creation(value: Callable[[list[RunFold]], float]) -> Chart:
        return _chart([(one.record.created_at, one) for one in created], query.bucket, value)

    def by_end(rows: Sequence[RunFold], value: Callable[[list[RunFold]], float]) -> Chart:
        return _chart([(one.record.ended_at or "", one) for one in rows], query.bucket, value)

    def by_minute(of: Callable[[RunFold], dict[str, int]]) -> Chart:
        return _chart(_minutes(lines, query, of), query.bucket, sum)

    timed = [one for one in created if _duration(one) is not None]
    return Charts(
        run_volume=by_creation(len),
        latency=by_end(timed, lambda rows: round(sum(_durations(rows)) / len(rows))),
        signal_volume=by_minute(lambda one: one.signals),
        error_classes=_top(
            one.record.error_code or "UNKNOWN" for one in created if one.record.status == "failed"
        ),
        throughput=by_end(ended, lambda rows: _count(rows, "completed")),
        queue_depth=by_creation(lambda rows: _count(rows, *_WAITING)),
        latency_p50=by_end(timed, lambda rows: percentile(_durations(rows), 0.5)),
        latency_p95=by_end(timed, lambda rows: percentile(_durations(rows), 0.95)),
        latency_p99=by_end(timed, lambda rows: percentile(_durations(rows), 0.99)),
        cost=by_creation(lambda rows: dollars(sum(one.metrics.cost_nanos for one in rows))),
        success_rate=by_creation(_success),
        decision_outcome=by_minute(lambda one: one.decisions),
        per_scenario=_top(one.record.source_ref or "unknown" for one in created),
    )


def _chart(
    rows: Iterable[tuple[str, T]], bucket: Bucket, value: Callable[[list[T]], float]
) -> Chart:
    length, rest = _LABELS[bucket]
    buckets: dict[str, list[T]] = {}
    for instant, row in rows:
        buckets.setdefault(instant[:length], []).append(row)
    labels = sorted(buckets)
    return Chart(
        labels=[label + rest for label in labels],
        data=[value(buckets[label]) for label in labels],
    )


def _count(rows: Iterable[RunFold], *statuses: str) -> int:
    return sum(one.record.status in statuses for one in rows)


def _success(rows: list[RunFold]) -> float:
    over = _count(rows, *_TERMINAL)
    return 100 * _count(rows, "completed") / over if over else 0


def _top(names: Iterable[str]) -> Chart:
    counts: dict[str, int] = {}
    for name in names:
        counts[name] = counts.get(name, 0) + 1
    top = sorted(counts, key=lambda name: (-counts[name], name))[:_TOP]
    return Chart(labels=top, data=[counts[name] for name in top])


def percentile(values: Sequence[int], share: float) -> int:
    """Interpolated between the two nearest values, rounded."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return round(ordered[below] + (ordered[above] - ordered[below]) * (place - below))
