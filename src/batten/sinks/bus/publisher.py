"""Publishing single events: for programs that embed Batten, and for the smoke test.

Runs do not use it: their events are read from the journal.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from batten.contract.envelope import timestamp
from batten.contract.errors import BattenError, CallerError, ProviderError
from batten.contract.identity import identity_of
from batten.contract.ids import Minter
from batten.sinks.bus.correlation import Correlation, correlation_of, merged
from batten.sinks.bus.envelope import Event, encoded, event
from batten.sinks.bus.environment import bus_status, credentials_of
from batten.sinks.bus.transport import Acknowledgement, BusTransport, peer_faults
from batten.sinks.contract import Message

_PATIENCE_S = 3.0


class Publisher:
    """Publishes events of the catalogue with the identity of an environment."""

    def __init__(
        self,
        environ: Mapping[str, str],
        cwd: str,
        *,
        url: str = "",
        source: str = "",
        timeout_s: float = _PATIENCE_S,
    ) -> None:
        """`url` suffices for `publish_strictly`, even where a flag turns the bus off."""
        self.status = bus_status(environ)
        self._identity = identity_of(environ)
        self._cwd = cwd
        self._url = url
        self._source = source or self.status.source
        self._credentials = credentials_of(environ, url)
        self._timeout_s = timeout_s
        self._transport: BusTransport | None = None
        self._minter = Minter()

    def event(
        self,
        event_type: str,
        data: Mapping[str, Any],
        *,
        correlation: Mapping[str, Any] | None = None,
        event_id: str = "",
        time: str = "",
    ) -> Event:
        """An event as it would be published. Its own correlation beats that of the environment."""
        context: Correlation = merged(correlation_of(self._identity, self._cwd), correlation or {})
        return event(
            event_type,
            data,
            context,
            event_id=event_id or f"evt_{self._minter.mint()}",
            time=time or timestamp(),
            source=self._source,
        )

    async def publish(self, made: Event) -> bool:
        """Publish if the bus is on. Never raises; whether the server has it."""
        if not self.status.publishes:
            return False
        try:
            await self.publish_strictly(made)
        except BattenError:
            return False
        return True

    async def publish_strictly(self, made: Event) -> Acknowledgement:
        """Publish, or raise why not."""
        from nats.errors import Error

        transport = self._ready()
        message = Message(
            message_id=made["id"],
            run_id="",
            type=made["type"],
            occurred_at=made["time"],
            body=encoded(made),
        )
        try:
            async with asyncio.timeout(self._timeout_s):
                return await transport.publish(message)
        except TimeoutError as error:
            raise ProviderError(
                f"the event bus did not acknowledge within {self._timeout_s:g} s", retriable=True
            ) from error
        except (Error, OSError) as error:
            said = str(error) or type(error).__name__
            raise ProviderError(f"the event bus failed: {said}", retriable=True) from error

    async def read_back(self, ack: Acknowledgement) -> bytes:
        """The message that an acknowledgement names, as the server stored it."""
        from nats.errors import Error

        try:
            async with asyncio.timeout(self._timeout_s):
                stream = await self._ready().stream()
                with peer_faults():
                    found = await stream.get_msg(ack.stream, ack.seq)
        except (Error, OSError, TimeoutError) as error:
            said = str(error) or type(error).__name__
            raise ProviderError(f"the event is not readable: {said}", retriable=True) from error
        return found.data or b""

    def _ready(self) -> BusTransport:
        if not self._url and not self.status.enabled:
            raise CallerError(
                f"Maestro event bus is not enabled: {self.status.reason}", code="config"
            )
        if not self._credentials.url:
            raise CallerError("Maestro event bus transport is unavailable", code="config")
        if self._transport is None:
            self._transport = BusTransport(self._credentials, timeout_s=self._timeout_s)
        return self._transport

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()
