"""How often a sender may send: a sliding minute."""

import time
from collections import deque
from collections.abc import Callable

from batten.coordination.rejection import Rejection

_WINDOW_S = 60.0
_MOST_SENDERS = 10_000


class Rates:
    """At most `starts` sessions and `messages` other messages a minute, for each sender."""

    def __init__(
        self, starts: int = 60, messages: int = 600, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """0 for no limit."""
        self._limits = {True: starts, False: messages}
        self._clock = clock
        self._seen: dict[tuple[str, bool], deque[float]] = {}

    def check(self, sender: str, *, starts: bool) -> None:
        """Count one message. Raises `RATE_LIMITED`."""
        limit = self._limits[starts]
        if not limit:
            return
        now = self._clock()
        seen = self._seen.get((sender, starts))
        if seen is None:
            if len(self._seen) >= _MOST_SENDERS:
                self._forget(now)
            seen = self._seen[sender, starts] = deque()
        while seen and now - seen[0] >= _WINDOW_S:
            seen.popleft()
        if len(seen) >= limit:
            what = "sessions" if starts else "messages"
            raise Rejection("RATE_LIMITED", f"{sender} may send {limit} {what} a minute")
        seen.append(now)

    def _forget(self, now: float) -> None:
        idle = [key for key, seen in self._seen.items() if not seen or now - seen[-1] > _WINDOW_S]
        for key in idle or list(self._seen)[:1]:
            del self._seen[key]
