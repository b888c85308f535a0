"""What readiness and metrics ask of the runtime, elsewhere or beside this service."""

import asyncio
import time
from typing import Literal, Protocol

from msgspec import Struct

from batten.control.observer.hosted import HostedRuntime
from batten.serve.http.metrics import Histogram

BreakerState = Literal["CLOSED", "OPEN", "HALF_OPEN"]
BREAKER_LEVELS: dict[BreakerState, int] = {"CLOSED": 0, "HALF_OPEN": 1, "OPEN": 2}
_FRESH_S = 1.0
"""How long an answer of the runtime counts: anybody may ask whether it is well."""


class RuntimeState(Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether a runtime answers."""

    ok: bool
    runtime_kind: str
    detail: str


class Health(Protocol):
    @property
    def ok(self) -> bool: ...

    @property
    def runtime_kind(self) -> str: ...

    @property
    def detail(self) -> str: ...


class Breaker(Protocol):
    """Counts calls to a runtime, and stops them while it keeps failing."""

    @property
    def state(self) -> BreakerState: ...

    @property
    def successes(self) -> int: ...

    @property
    def failures(self) -> int: ...


class Link(Protocol):
    """The way to a runtime."""

    @property
    def kind(self) -> str: ...

    @property
    def breaker(self) -> Breaker: ...

    async def health(self) -> Health:
        """Whether it answers in time; raises nothing for one that does not."""
        ...


class Consumer(Protocol):
    """Follows the streams of sessions of a runtime."""

    @property
    def active(self) -> int:
        """Streams that are followed now."""
        ...

    @property
    def broken(self) -> int:
        """Runs in work whose stream is not connected."""
        ...


class PlaneWatch:
    """Looks at the runtime elsewhere or beside this service; without any, all is well."""

    def __init__(self, kind: str) -> None:
        """`kind`: the kind of runtime that the settings name."""
        self.kind = kind
        self.link: Link | None = None
        """To the runtime elsewhere, if there is one."""
        self.hosted = HostedRuntime(is_wanted=False)
        """The one beside this service."""
        self.breaker: Breaker | None = None
        """Of the calls to any runtime, also to the one beside this service."""
        self.consumer: Consumer | None = None
        self._asking = asyncio.Lock()
        self._known: RuntimeState | None = None
        self._known_until = 0.0
        self.calls = Histogram((0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0))
        """Seconds of each call, by method and status."""

    def timed(self, method: str, ok: bool, seconds: float) -> None:
        """Count a call to the runtime. Methods are those of its protocol."""
        labels = (("method", method), ("status", "ok" if ok else "error"))
        self.calls.observe(labels, seconds)

    async def runtime(self) -> RuntimeState:
        """Whether the runtime answers, or did a moment ago."""
        link = self.link
        if link is None:
            return self._beside()
        async with self._asking:
            if self._known is None or time.monotonic() >= self._known_until:
                self._known = await _asked(link)
                self._known_until = time.monotonic() + _FRESH_S
            return self._known

    def _beside(self) -> RuntimeState:
        fault = self.hosted.fault
        if not self.hosted.is_wanted:
            return RuntimeState(ok=True, runtime_kind="none", detail=fault)
        return RuntimeState(
            ok=not fault, runtime_kind=self.kind, detail=fault or "beside this service"
        )

    @property
    def breaker_state(self) -> BreakerState:
        return "CLOSED" if self.link is None else self.link.breaker.state

    @property
    def broken_streams(self) -> int:
        return 0 if self.consumer is None else self.consumer.broken

    @property
    def active_streams(self) -> int:
        return 0 if self.consumer is None else self.consumer.active


async def _asked(link: Link) -> RuntimeState:
    told = await link.health()
    return RuntimeState(ok=told.ok, runtime_kind=told.runtime_kind, detail=told.detail)
