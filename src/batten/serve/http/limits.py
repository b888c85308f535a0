"""Limits of the service: how much, how long and how often; all of them are bounded."""

import time
from collections.abc import Callable

from msgspec import Struct

from batten.serve.http.errors import HttpError

MOST_WRONG_KEYS = 30
"""Of one address in a minute."""


class Limits(Struct, frozen=True, kw_only=True):
    """Every route has its own `max_body` and `timeout_s` beside these."""

    max_requests: int = 4000
    """Requests in work at once; further ones get 503 `overloaded`. Streams have their own limit."""
    max_streams: int = 10_000
    max_connections: int = 20_000
    """Further ones wait in the backlog of the socket. At most what the process may open."""
    max_header_bytes: int = 16_384
    """Of a request line with its headers, roughly; more are answered with 431."""
    header_timeout_s: float = 30.0
    """For the headers of a request, and for a connection that waits for its next one."""
    body_timeout_s: float = 30.0
    """For a whole body; then 408."""
    rate_per_minute: int = 0
    """Requests of one principal; 0 for no limit."""
    rate_burst: int = 0
    """Requests at once within that rate; 0 for as many as in a minute."""
    wrong_keys_per_minute: int = MOST_WRONG_KEYS
    """Of one address; 0 for no limit."""
    heartbeat_s: float = 15.0
    """Of a stream without events."""
    stall_s: float = 30.0
    """A reader of a stream that takes nothing for so long is cut off."""
    unread_s: float = 60.0
    """An answer that its client does not read is dropped with its connection after so long."""
    grace_s: float = 10.0
    """For open requests at shutdown."""


class RateLimit:
    """A bucket of tokens for each principal. There are as many principals as keys."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s = limits.rate_per_minute / 60
        self._burst = float(limits.rate_burst or limits.rate_per_minute)
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """Tokens left, and when they were counted."""

    def check(self, principal: str) -> None:
        """Take a token; raises `rate_limit_exceeded` with the time to wait if there is none."""
        if not self._per_s:
            return
        now = self._clock()
        left, counted_at = self._buckets.get(principal, (self._burst, now))
        left = min(self._burst, left + (now - counted_at) * self._per_s)
        if left < 1:
            wait_s = (1 - left) / self._per_s
            raise HttpError(
                "rate_limit_exceeded",
                f"{principal} may make {self._per_s * 60:.0f} requests a minute;"
                f" wait {wait_s:.1f} s",
                headers=(("retry-after", str(max(1, -int(-wait_s // 1)))),),
            )
        self._buckets[principal] = (left - 1, now)


_ROUNDING_S = 1e-6
"""More than a sum and a difference of times may be off."""


class Throttle:
    """So many requests of a client in a window of time. A client whose window is over is forgotten,
    and the oldest one if there are too many: memory is bounded, whoever calls.
    """

    def __init__(
        self,
        limit: int,
        window_s: float,
        *,
        most: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`limit` 0 for none; `most` clients are counted at once."""
        self._limit = limit
        self._window_s = window_s
        self._most = most
        self._clock = clock
        self._windows: dict[str, _Window] = {}
        """The oldest first."""
        self._said = (b"x-ratelimit-limit", b"%d" % limit)

    def __len__(self) -> int:
        return len(self._windows)

    def take(self, client: str) -> tuple[tuple[bytes, bytes], ...]:
        """Count a request; the headers that tell what is left. Raises `rate_limit_exceeded`."""
        if not self._limit:
            return ()
        now = self._clock()
        window = self._windows.get(client)
        if window is None or now >= window.ends_at:
            window = self._begin(client, now)
        wait_s = int(window.ends_at - now - _ROUNDING_S) + 1  # whole seconds, rounded up
        if not window.left:
            raise HttpError(
                "rate_limit_exceeded",
                f"Too Many Requests: {self._limit} in {self._window_s:g} s are allowed;"
                f" wait {wait_s} s",
                headers=(("retry-after", str(wait_s)),),
            )
        window.left = left = window.left - 1
        return (
            self._said,
            (b"x-ratelimit-remaining", b"%d" % left),
            (b"x-ratelimit-reset", b"%d" % wait_s),
        )

    def _begin(self, client: str, now: float) -> "_Window":
        windows = self._windows
        windows.pop(client, None)
        # All windows are equally long, so those that are over come first.
        while windows:
            oldest = next(iter(windows))
            if len(windows) < self._most and now < windows[oldest].ends_at:
                break
            del windows[oldest]
        windows[client] = made = _Window(self._limit, now + self._window_s)
        return made


class WrongKeys:
    """Limits how often an address may guess a key. The right one is taken at any time."""

    def __init__(self, per_minute: int = MOST_WRONG_KEYS) -> None:
        """0 for no limit."""
        self._throttle = Throttle(per_minute, 60.0)

    def count(self, address: str) -> None:
        """Count a wrong key. Raises `rate_limit_exceeded`."""
        self._throttle.take(_neighbours(address))


def _neighbours(address: str) -> str:
    """The addresses that one client can have: those of an IPv6 network, else this one."""
    from ipaddress import IPv6Address

    try:
        found = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    return str(found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64))


class _Window(Struct):
    left: int
    ends_at: float
