"""Counts for Prometheus, in its text format.

A small writer instead of a library: every series comes from the table or is given by name, so
their number is known before the first request.
"""

import asyncio
import re
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

_PLANE_BUCKETS_S = frozenset((0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0))
"""Those that the control plane's histogram of requests has."""

_FRESH_S = 0.1

Number = float | int
Labels = tuple[tuple[str, str], ...]


class _Times:
    __slots__ = ("buckets", "count", "seconds")

    def __init__(self, buckets: int) -> None:
        self.buckets = [0] * (buckets + 1)
        self.count = 0
        self.seconds = 0.0


class RouteTimes:
    """Counts of one route, by status."""

    __slots__ = ("statuses",)

    def __init__(self) -> None:
        self.statuses: dict[int, _Times] = {}

    def observe(self, status: int, duration_s: float) -> None:
        """Count an answered request."""
        times = self.statuses.get(status)
        if times is None:
            times = self.statuses[status] = _Times(len(BUCKETS_S))
        times.count += 1
        times.buckets[bisect_left(BUCKETS_S, duration_s)] += 1
        times.seconds += duration_s


class Histogram:
    """How often a value was at most each bound, by labels. Who observes bounds their number."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self._series: dict[Labels, _Times] = {}

    def observe(self, labels: Labels, value: float) -> None:
        times = self._series.get(labels)
        if times is None:
            times = self._series[labels] = _Times(len(self.bounds))
        times.count += 1
        times.buckets[bisect_left(self.bounds, value)] += 1
        times.seconds += value

    def lines(self, name: str) -> list[str]:
        found: list[str] = []
        for labels, times in self._series.items():
            found += _histogram(name, labels, self.bounds, times.buckets, times.seconds)
        return found


class Metrics:
    """Series of one server."""

    def __init__(self, *, is_plane: bool = False) -> None:
        """`is_plane`: requests are told under the names of the control plane too."""
        self._is_plane = is_plane
        self._routes: dict[tuple[str, str], RouteTimes] = {}
        self._refreshing = asyncio.Lock()
        self._fresh_until = 0.0
        self._refreshes: list[Callable[[], Awaitable[None]]] = []
        self._read: dict[str, tuple[str, str, Callable[[], Number | Mapping[Labels, Number]]]] = {}
        self._histograms: dict[str, tuple[str, Histogram]] = {}

    def route(self, method: str, path: str) -> RouteTimes:
        """The counts of a route, by its path in the table."""
        return self._routes.setdefault((method, path), RouteTimes())

    def gauge(
        self, name: str, about: str, read: Callable[[], Number | Mapping[Labels, Number]]
    ) -> None:
        """Add a value that is read when metrics are asked for."""
        self._read[name] = ("gauge", about, read)

    def counter_of(
        self, name: str, about: str, read: Callable[[], Number | Mapping[Labels, Number]]
    ) -> None:
        """Add a count that somebody else keeps; it never falls. Names end in `_total`."""
        self._read[name] = ("counter", about, read)

    def histogram(self, name: str, about: str, histogram: Histogram) -> None:
        """Add a histogram that somebody else fills."""
        self._histograms[name] = (about, histogram)

    def before(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Let `refresh` renew what values are read from, each time they are asked for."""
        self._refreshes.append(refresh)

    async def refresh(self) -> None:
        """Renew what values are read from. Anybody may ask, so it is done ten times a second at
        most, and once for all who ask together.
        """
        async with self._refreshing:
            now = time.monotonic()
            if now < self._fresh_until:
                return
            for refresh in self._refreshes:
                await refresh()
            self._fresh_until = time.monotonic() + _FRESH_S

    def text(self) -> str:
        """Everything, in Prometheus' text format 0.0.4."""
        lines = self._requests()
        if self._is_plane:
            lines += self._plane_requests()
        for name, (kind, about, read) in sorted(self._read.items()):
            lines += _head(name, kind, about)
            value = read()
            if isinstance(value, Mapping):
                lines += [f"{name}{_labels(labels)} {one}" for labels, one in value.items()]
            else:
                lines.append(f"{name} {value}")
        for name, (about, histogram) in sorted(self._histograms.items()):
            lines += _head(name, "histogram", about)
            lines += histogram.lines(name)
        return "\n".join(lines) + "\n"

    def _used(self) -> list[tuple[str, str, RouteTimes]]:
        routes = sorted(self._routes.items(), key=_key)
        return [(method, path, times) for (method, path), times in routes if times.statuses]

    def _requests(self) -> list[str]:
        name = "batten_http_requests_total"
        lines = _head(name, "counter", "Requests answered, by route and status.")
        for method, path, times in self._used():
            for status, one in sorted(times.statuses.items()):
                labels = (("method", method), ("route", path), ("status", str(status)))
                lines.append(f"{name}{_labels(labels)} {one.count}")
        name = "batten_http_request_seconds"
        lines += _head(name, "histogram", "Time to answer, streams to their end.")
        for method, path, times in self._used():
            base = (("method", method), ("route", path))
            every = times.statuses.values()
            buckets = [sum(some) for some in zip(*(one.buckets for one in every), strict=True)]
            seconds = sum(one.seconds for one in every)
            lines += _histogram(name, base, BUCKETS_S, buckets, seconds)
        return lines

    def _plane_requests(self) -> list[str]:
        """The same requests under the names of the control plane."""
        counts = _head("http_requests_total", "counter", "Requests answered.")
        name = "http_request_duration_seconds"
        durations = _head(name, "histogram", "Time to answer, streams to their end.")
        for method, path, times in self._used():
            shown = _NAME.sub(":id", path)
            for status, one in sorted(times.statuses.items()):
                labels = (("method", method), ("path", shown), ("status_code", str(status)))
                counts.append(f"http_requests_total{_labels(labels)} {one.count}")
                durations += _histogram(
                    name, labels, BUCKETS_S, one.buckets, one.seconds, _PLANE_BUCKETS_S
                )
        return counts + durations


_NAME = re.compile(r"\{[^}]*\}")


def _head(name: str, kind: str, about: str) -> list[str]:
    return [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]


def _histogram(
    name: str,
    labels: Labels,
    bounds: Sequence[float],
    buckets: Sequence[int],
    seconds: float,
    only: Container[float] | None = None,
) -> list[str]:
    """The lines of one series; `only` some of its bounds."""
    lines: list[str] = []
    below = 0
    for bound, inside in zip(bounds, buckets, strict=False):
        below += inside
        if only is None or bound in only:
            lines.append(f"{name}_bucket{_labels((*labels, ('le', str(bound))))} {below}")
    total = sum(buckets)
    lines.append(f"{name}_bucket{_labels((*labels, ('le', '+Inf')))} {total}")
    lines.append(f"{name}_sum{_labels(labels)} {seconds:.6f}")
    lines.append(f"{name}_count{_labels(labels)} {total}")
    return lines


def _key(item: tuple[tuple[str, str], RouteTimes]) -> tuple[str, str]:
    return item[0]


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
