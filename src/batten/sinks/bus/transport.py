"""Publishes events to NATS JetStream and waits for each acknowledgement.

`Nats-Msg-Id` is the id of the event: JetStream drops a repeat within the duplicate window of its
stream. The server may be away: a failed connection is forgotten, and the next message opens one.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from batten.contract.errors import ProviderError
from batten.sinks.bus.environment import DEFAULT_SOURCE, Credentials
from batten.sinks.contract import ATTEMPT_S, Attempt, Message

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

CLIENT_NAME = "maestro-event-bus"
_CONNECT_S = 5
_log = logging.getLogger("batten.sinks")


class Acknowledgement(Struct, frozen=True):
    """Where JetStream stored a message."""

    stream: str
    seq: int
    duplicate: bool | None = None


class _Sourced(Struct):
    source: str = DEFAULT_SOURCE


class BusTransport:
    """One connection, opened with the first message."""

    def __init__(self, credentials: Credentials, *, timeout_s: float = ATTEMPT_S) -> None:
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._client: Client | None = None
        self._opening = asyncio.Lock()

    async def send(self, message: Message) -> Attempt:
        from nats.errors import Error, MaxPayloadError

        try:
            async with asyncio.timeout(self._timeout_s):
                await self.publish(message)
        except MaxPayloadError:
            return Attempt(result="refused", problem="the server takes no message of this size")
        except TimeoutError:
            await self._forget()
            return Attempt(result="retry", problem=f"no answer within {self._timeout_s:g} s")
        except (Error, OSError, ProviderError) as error:
            await self._forget()
            return Attempt(result="retry", problem=self._said(error))
        return Attempt(result="delivered")

    async def publish(self, message: Message) -> Acknowledgement:
        """Publish one event and await the acknowledgement.

        Raises `nats.errors.Error` and `OSError`, and `ProviderError` for an answer that is none.
        """
        stream = await self.stream()
        headers = {
            "Nats-Msg-Id": message.message_id,
            "Content-Type": "application/json",
            "ce-specversion": "1.0",
            "ce-id": message.message_id,
            "ce-source": msgspec.json.decode(message.body, type=_Sourced).source,
            "ce-type": message.type,
            "ce-time": message.occurred_at,
        }
        with peer_faults():
            ack = await stream.publish(message.type, message.body, headers=headers)
            # Any subscriber of the subject can answer, too.
            return msgspec.convert(ack, Acknowledgement, from_attributes=True)

    async def stream(self) -> "JetStreamContext":
        """JetStream on the connection, which is opened if there is none."""
        from nats.js import JetStreamContext

        async with self._opening:
            if self._client is None or not self._client.is_connected:
                await self._forget()
                with peer_faults():
                    self._client = await _connect(self._credentials)
            return JetStreamContext(self._client, timeout=self._timeout_s)

    async def _forget(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await _close(client)

    async def aclose(self) -> None:
        """Send what is buffered, and close."""
        client, self._client = self._client, None
        if client is not None and client.is_connected:
            try:
                async with asyncio.timeout(1.0):
                    await client.drain()
            except Exception as error:  # the connection is given up in any case
                _log.debug("the event bus did not drain: %s", error)
        if client is not None:
            await _close(client)

    def _said(self, error: BaseException) -> str:
        """An error without the credentials."""
        text = str(error) or type(error).__name__
        for secret in (self._credentials.token, self._credentials.password):
            if secret:
                text = text.replace(secret, "<redacted>")
        return text[:500]


@contextmanager
def peer_faults() -> Generator[None]:
    """Raise `ProviderError` for a peer that does not answer as JetStream does: the client parses
    whatever it sends, and raises whatever that leads to.
    """
    from nats.errors import Error

    try:
        yield
    except (Error, OSError):
        raise
    except Exception as error:
        raise ProviderError(
            f"the server does not answer as JetStream does: {str(error)[:300]}", retriable=True
        ) from error


async def _connect(credentials: Credentials) -> "Client":
    from nats.aio.client import Client

    async def say(error: Exception) -> None:
        _log.debug("the event bus: %s", error)

    client = Client()
    try:
        await _open(client, credentials, say)
    except BaseException:
        await _close(client)
        raise
    return client


async def _open(
    client: "Client", credentials: Credentials, say: Callable[[Exception], Awaitable[None]]
) -> None:
    await client.connect(
        [one.strip() for one in credentials.url.split(",") if one.strip()],
        name=CLIENT_NAME,
        token=credentials.token or None,
        user=credentials.user or None,
        password=credentials.password or None,
        connect_timeout=_CONNECT_S,
        allow_reconnect=False,
        # Else one attempt to connect takes two minutes: the client tries a server sixty times.
        max_reconnect_attempts=1,
        reconnect_time_wait=0,
        error_cb=say,
    )


async def _close(client: "Client") -> None:
    try:
        async with asyncio.timeout(1.0):
            await client.close()
    except Exception as error:  # a connection that is broken cannot be closed better
        _log.debug("the event bus did not close: %s", error)
