"""OTLP as JSON: requests of the traces and metrics services, byte for byte the same each time.

Our own small encoder: the official SDK draws ids, batches in threads and costs more memory than the
rest of the process; the protocol's JSON form is a page.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from batten import __version__

Value = str | int | float | bool | list[str]
Attributes = Mapping[str, Value]

INTERNAL, CLIENT = 1, 3
OK, ERROR = 1, 2
_DELTA = 1
_encode = msgspec.json.Encoder().encode


class Span(Struct, frozen=True, kw_only=True):
    trace_id: str
    span_id: str
    parent_id: str = ""
    name: str
    kind: int = INTERNAL
    start_ns: int
    end_ns: int
    attributes: Attributes = {}
    events: tuple[tuple[str, int, Attributes], ...] = ()
    """Name, time and attributes of each."""
    error: str | None = None
    """Why it failed; None for a span that did not."""
    trace_state: str = ""


class Point(Struct, frozen=True, kw_only=True):
    """One measurement."""

    metric: str
    unit: str
    about: str
    bounds: tuple[float, ...] | None
    """Of a histogram; None for a counter."""
    value: float
    start_ns: int
    end_ns: int
    attributes: Attributes = {}


def nanoseconds(instant: str) -> int:
    """An envelope's time in nanoseconds of the epoch; 0 if it is not one."""
    try:
        moment = datetime.fromisoformat(instant)
    except ValueError:
        return 0
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000


def traces(spans: Sequence[Span], resource: Attributes) -> bytes:
    """An ExportTraceServiceRequest. `resource`: of the service; see `resource_of`."""
    return _encode(
        {
            "resourceSpans": [
                {
                    "resource": {"attributes": _pairs(resource)},
                    "scopeSpans": [{"scope": _scope(), "spans": [_span(one) for one in spans]}],
                }
            ]
        }
    )


def metrics(points: Sequence[Point], resource: Attributes) -> bytes:
    """An ExportMetricsServiceRequest. Each export counts for itself (delta temporality)."""
    by_name: dict[str, list[Point]] = {}
    for point in points:
        by_name.setdefault(point.metric, []).append(point)
    return _encode(
        {
            "resourceMetrics": [
                {
                    "resource": {"attributes": _pairs(resource)},
                    "scopeMetrics": [
                        {
                            "scope": _scope(),
                            "metrics": [_metric(name, some) for name, some in by_name.items()],
                        }
                    ],
                }
            ]
        }
    )


def joined(bodies: Iterable[bytes]) -> bytes:
    """Several requests of one kind as one."""
    parts: dict[str, list[msgspec.Raw]] = {}
    for body in bodies:
        for name, resources in msgspec.json.decode(body, type=dict[str, list[msgspec.Raw]]).items():
            parts.setdefault(name, []).extend(resources)
    return msgspec.json.encode(parts)


def _metric(name: str, points: Sequence[Point]) -> dict[str, Any]:
    first = points[0]
    made: dict[str, Any] = {"name": name, "unit": first.unit, "description": first.about}
    if first.bounds is None:
        made["sum"] = {
            "aggregationTemporality": _DELTA,
            "isMonotonic": True,
            "dataPoints": [{**_place(one), "asInt": str(int(one.value))} for one in points],
        }
    else:
        made["histogram"] = {
            "aggregationTemporality": _DELTA,
            "dataPoints": [_histogram(one, first.bounds) for one in points],
        }
    return made


def _histogram(point: Point, bounds: tuple[float, ...]) -> dict[str, Any]:
    counts = ["0"] * (len(bounds) + 1)
    counts[bisect_left(bounds, point.value)] = "1"
    return {
        **_place(point),
        "count": "1",
        "sum": point.value,
        "min": point.value,
        "max": point.value,
        "bucketCounts": counts,
        "explicitBounds": list(bounds),
    }


def _place(point: Point) -> dict[str, Any]:
    return {
        "attributes": _pairs(point.attributes),
        "startTimeUnixNano": str(point.start_ns),
        "timeUnixNano": str(point.end_ns),
    }


def _span(span: Span) -> dict[str, Any]:
    made: dict[str, Any] = {
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "name": span.name,
        "kind": span.kind,
        "startTimeUnixNano": str(span.start_ns),
        "endTimeUnixNano": str(max(span.start_ns, span.end_ns)),
        "attributes": _pairs(span.attributes),
        "status": {"code": OK} if span.error is None else {"code": ERROR, "message": span.error},
    }
    if span.parent_id:
        made["parentSpanId"] = span.parent_id
    if span.trace_state:
        made["traceState"] = span.trace_state
    if span.events:
        made["events"] = [
            {"name": name, "timeUnixNano": str(at), "attributes": _pairs(attributes)}
            for name, at, attributes in span.events
        ]
    return made


def _pairs(attributes: Attributes) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in attributes.items()]


def _value(value: Value) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_value(one) for one in value]}}
        case _:
            return {"stringValue": value}


def resource_of(service: str, more: Attributes) -> Attributes:
    """The attributes of a service. `more` may name another version of it."""
    return {"service.version": __version__, **more, "service.name": service}


def _scope() -> dict[str, str]:
    return {"name": "batten", "version": __version__}
