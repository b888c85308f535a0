"""The way to the runtime that the observer and the routes share: one client, one breaker."""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from msgspec import Struct

from batten.contract.errors import NotReady
from batten.control.observer.breaker import Breaker
from batten.control.observer.contract import (
    DEADLINE_EXCEEDED,
    NOT_FOUND,
    PERMISSION_DENIED,
    RuntimeClient,
    RuntimeFault,
    unavailable,
)

T = TypeVar("T")
Connect = Callable[[str], RuntimeClient]
"""A client of a runtime at an address. Raises `RuntimeFault` if what it needs is not installed."""
Timed = Callable[[str, bool, float], None]
"""Told of each call: its name, whether it succeeded, how many seconds it took."""
_NEUTRAL = frozenset({NOT_FOUND, PERMISSION_DENIED})


class RuntimeHealth(Struct, frozen=True, rename="camel", omit_defaults=True):
    ok: bool
    runtime_kind: str
    detail: str


class RuntimeLink:
    """Calls the runtime at the address that holds now; its client is made with the first call."""

    def __init__(
        self,
        address: Callable[[], str],
        connect: Connect,
        breaker: Breaker,
        kind: str,
        *,
        why_none: Callable[[], str] = lambda: "there is no runtime",
        probe_s: float = 2.0,
    ) -> None:
        """`address` is empty while there is no runtime, and `why_none` says why. One that does not
        answer a probe within `probe_s` counts as one that hangs.
        """
        self._address = address
        self._why_none = why_none
        self._connect = connect
        self._client: RuntimeClient | None = None
        self.breaker = breaker
        self.kind = kind
        self._probe_s = probe_s
        self.timed: Timed = lambda name, ok, seconds: None

    @property
    def address(self) -> str:
        return self._address()

    async def client(self) -> RuntimeClient:
        """For streams, which the breaker does not count. Raises `RuntimeFault`."""
        address = self.address
        if not address:
            raise unavailable(self._why_none())
        if self._client is None or self._client.address != address:
            before, self._client = self._client, self._connect(address)
            if before is not None:
                await before.close()
        return self._client

    async def call(self, name: str, ask: Callable[[RuntimeClient], Awaitable[T]]) -> T:
        """One call under the breaker. Raises `RuntimeFault`, and `BreakerOpen` while it is open."""
        client = await self.client()
        self.breaker.admit()
        began, ok = time.monotonic(), False
        try:
            answer = await ask(client)
            self.breaker.succeeded()
            ok = True
        except RuntimeFault as fault:
            if fault.grpc_code in _NEUTRAL:
                self.breaker.passed()
            else:
                self.breaker.failed()
            raise
        except BaseException:
            self.breaker.passed()
            raise
        finally:
            self.timed(name, ok, time.monotonic() - began)
        return answer

    async def probe(self, name: str, ask: Callable[[RuntimeClient], Awaitable[T]]) -> T:
        """Like `call`, for those who ask whether the runtime is there: it has little time."""

        async def ask_soon(client: RuntimeClient) -> T:
            try:
                async with asyncio.timeout(self._probe_s):
                    return await ask(client)
            except TimeoutError as error:
                detail = f"no answer from {client.address} within {self._probe_s:g} s"
                raise RuntimeFault(DEADLINE_EXCEEDED, detail) from error

        return await self.call(name, ask_soon)

    async def health(self) -> RuntimeHealth:
        """Whether the runtime answers in time; never raises for one that does not."""
        try:
            await self.probe("GetManifest", lambda client: client.manifest())
        except (RuntimeFault, NotReady) as error:
            return RuntimeHealth(False, self.kind, error.message)
        return RuntimeHealth(True, self.kind, f"connected to {self.address}")

    async def stream(
        self, open_: Callable[[RuntimeClient], AsyncGenerator[T, None]]
    ) -> AsyncGenerator[T, None]:
        """A stream of the runtime. Raises `RuntimeFault`."""
        async with aclosing(open_(await self.client())) as values:
            async for value in values:
                yield value

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
