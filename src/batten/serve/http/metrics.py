"""Counts for Prometheus, in its text format.

A small writer instead of a library: every series comes from the table or is given by name, so
their number is known before the first request.
"""

from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping

BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

Number = float | int
Labels = tuple[tuple[str, str], ...]


class RouteTimes:
    """Counts of one route."""

    __slots__ = ("buckets", "seconds", "statuses")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.buckets = [0] * (len(BUCKETS_S) + 1)
        self.seconds = 0.0

    def observe(self, status: int, duration_s: float) -> None:
        """Count an answered request."""
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.buckets[bisect_left(BUCKETS_S, duration_s)] += 1
        self.seconds += duration_s


class Metrics:
    """Series of one server."""

    def __init__(self) -> None:
        self._routes: dict[tuple[str, str], RouteTimes] = {}
        self._refreshes: list[Callable[[], Awaitable[None]]] = []
        self._read: dict[str, tuple[str, str, Callable[[], Number | Mapping[Labels, Number]]]] = {}

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

    def before(self, refresh: Callable[[], Awaitable[None]]) -> None:
        """Let `refresh` renew what values are read from, each time they are asked for."""
        self._refreshes.append(refresh)

    async def refresh(self) -> None:
        for refresh in self._refreshes:
            await refresh()

    def text(self) -> str:
        """Everything, in Prometheus' text format 0.0.4."""
        lines = [
            "# HELP batten_http_requests_total Requests answered, by route and status.",
            "# TYPE batten_http_requests_total counter",
        ]
        routes = [one for one in sorted(self._routes.items(), key=_key) if one[1].statuses]
        for (method, path), times in routes:
            for status, count in sorted(times.statuses.items()):
                labels = (("method", method), ("route", path), ("status", str(status)))
                lines.append(f"batten_http_requests_total{_labels(labels)} {count}")
        name = "batten_http_request_seconds"
        lines += [
            f"# HELP {name} Time to answer, streams to their end.",
            f"# TYPE {name} histogram",
        ]
        for (method, path), times in routes:
            base = (("method", method), ("route", path))
            below = 0
            for bound, inside in zip((*BUCKETS_S, "+Inf"), times.buckets, strict=True):
                below += inside
                lines.append(f"{name}_bucket{_labels((*base, ('le', str(bound))))} {below}")
            lines.append(f"{name}_sum{_labels(base)} {times.seconds:.6f}")
            lines.append(f"{name}_count{_labels(base)} {below}")
        for name, (kind, about, read) in sorted(self._read.items()):
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
            value = read()
            if isinstance(value, Mapping):
                lines += [f"{name}{_labels(labels)} {one}" for labels, one in value.items()]
            else:
                lines.append(f"{name} {value}")
        return "\n".join(lines) + "\n"


def _key(item: tuple[tuple[str, str], RouteTimes]) -> tuple[str, str]:
    return item[0]


def _labels(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
