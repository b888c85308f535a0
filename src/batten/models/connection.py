"""One HTTP/1.1 connection to a model, and the response arriving on it.

Bytes are parsed as they arrive. A reader waits with a deadline; when it passes, the connection is
aborted, so no wait exceeds its timeout.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from math import inf
from typing import cast

import httptools

from batten.contract.errors import ProviderError
from batten.models.faults import broken, fault

MAX_HEAD = 64 * 1024
"""Limit of the status line and headers together."""
_MAX_WAITING = 1024 * 1024
"""How much of a response may be buffered before we stop reading the socket."""
_MAX_DISCARDED = 1024 * 1024


class Stale(Exception):
    """A reused connection turned out to be closed before any byte of the response."""


class Response:
    """A response: status and headers once it begins, then its body as it arrives."""

    def __init__(self, connection: "Connection", provider: str) -> None:
        self._connection = connection
        self._provider = provider
        self._parts: list[bytes] = []
        self._waiting = 0
        self._head_size = 0
        self._sized = False
        self._progress_at = 0.0
        self.status = 0
        self.reason = ""
        self.headers: dict[str, str] = {}
        self.keeps_alive = False
        self.begun = False
        """The headers are complete."""
        self.taken = 0
        """Bytes of the body received so far."""
        self.complete = False
        self.ending = False
        """Set by a reader that needs no more: only the end of the body is still to come."""

    def on_status(self, status: bytes) -> None:
        if not (self.complete or self.begun):
            self.reason += status.decode("latin-1")

    # A server may send more than it announced, which the parser takes for a second response: once
    # complete, everything further is ignored.
    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers of a chunked body are ignored.
        if self.complete or self.begun:
            return
        key = name.decode("latin-1").lower()
        text = value.decode("latin-1")
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        self.status = self._connection.status
        self.begun = self.status >= 200
        if self.begun:
            self._head_size = 0
        # The parser resets this once the body is complete.
        self.keeps_alive = self._connection.parser_keeps_alive
        self._sized = "content-length" in self.headers or "transfer-encoding" in self.headers

    def on_body(self, body: bytes) -> None:
        if self.complete:
            return
        self._parts.append(body)
        self._waiting += len(body)
        self.taken += len(body)
        self._head_size = 0
        if self._waiting > _MAX_WAITING:
            self._connection.hold(True)

    def on_message_complete(self) -> None:
        if self.begun:
            self.complete = True
        else:
            self.headers.clear()
            self.reason = ""

    def measure(self, size: int) -> None:
        """Count bytes outside the body: of an incomplete head, or between chunks."""
        self._head_size += size
        if self._head_size > MAX_HEAD:
            raise broken(self._provider, f"headers longer than {MAX_HEAD} bytes")

    def ended(self) -> None:
        """The connection closed: a valid end of the body only if no length was announced."""
        if self.complete:
            return
        if self.begun and not self._sized:
            self.complete = True
            return
        where = "in the middle of the answer" if self.begun else "before answering"
        raise fault(self._provider, "model_unreachable", f"the connection ended {where}")

    def mark_progress(self) -> None:
        """Restart the idle timeout; called by a reader when the body made progress."""
        self._progress_at = self._connection.time()

    async def chunks(self, idle_s: float, until: float = inf) -> AsyncIterator[bytes]:
        """The body as it arrives, as long as the reader marks progress within `idle_s`."""
        self.mark_progress()
        while True:
            silent_until = self._progress_at + idle_s
            # A server may also flood us without progress, so the deadline covers more than
            # waiting.
            deadline = min(silent_until, until)
            if silent_until <= until:
                message = f"sent nothing more for {idle_s:.3g} s"
            else:
                message = "did not come to an end in time"
            parts = self._parts
            if parts and (self.complete or self._connection.time() < deadline):
                self._parts = []
                self._waiting = 0
                self._connection.hold(False)
                yield b"".join(parts) if parts[1:] else parts[0]
            elif parts:
                raise fault(self._provider, "model_timeout", message)
            elif self.complete:
                return
            else:
                await self._connection.wait(deadline, message)

    async def read(self, limit: int, idle_s: float) -> bytes:
        """The body's first `limit` bytes."""
        body = bytearray()
        async for chunk in self.chunks(idle_s):
            body += chunk
            if len(body) >= limit:
                break
        return bytes(body[:limit])

    async def settle(self, patience_s: float) -> bool:
        """Discard the rest of the body; whether it ended within `patience_s`."""
        discarded = 0
        try:
            async for chunk in self.chunks(patience_s):
                discarded += len(chunk)
                if discarded > _MAX_DISCARDED:
                    return False
        except ProviderError:
            return False
        return True


class Connection(asyncio.Protocol):
    """Carries one request at a time. Bytes that arrive between requests close it."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(None)
        self._response: Response | None = None
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._deadline = inf
        self._fires_at = inf
        self._timer: asyncio.TimerHandle | None = None
        self._expired = False
        self._held = False
        self._lost = False
        self._used = False
        self._silent = True
        self.closed = self._loop.create_future()

    @property
    def status(self) -> int:
        return self._parser.get_status_code()

    @property
    def parser_keeps_alive(self) -> bool:
        return bool(self._parser.should_keep_alive())

    @property
    def reusable(self) -> bool:
        return (
            not self._lost
            and self._failure is None
            and self._response is not None
            and self._response.complete
            and self._response.keeps_alive
        )

    @property
    def begun(self) -> Response | None:
        """The response whose headers are complete, also if what follows them is broken."""
        return self._response if self._response is not None and self._response.begun else None

    @property
    def alive(self) -> bool:
        return not self._lost and self._transport is not None and not self._transport.is_closing()

    async def request(self, data: bytes, patience_s: float) -> Response:
        """Send a request and wait for the response headers. `Stale` if it may be sent again."""
        assert self._transport is not None
        kept, self._used = self._used, True
        self._silent = True
        response = self._response = Response(self, self._provider)
        self._parser = httptools.HttpResponseParser(response)
        self.hold(False)
        self._transport.write(data)
        until = self._loop.time() + patience_s
        message = f"did not begin to answer for {patience_s:.3g} s"
        while not response.begun:
            try:
                await self.wait(until, message)
            except ProviderError as error:
                if kept and self._silent and not self._expired:
                    raise Stale from error
                raise
        return response

    def time(self) -> float:
        return self._loop.time()

    async def wait(self, until: float, silence: str) -> None:
        """Wait until something happens. Raises on failure or when `until` passes."""
        if self._failure is None and not self._lost:
            self._waiter = self._loop.create_future()
            self._deadline = until
            if self._deadline < self._fires_at:
                self._arm()
            try:
                await self._waiter
            finally:
                self._waiter = None
                self._deadline = inf
        if self._expired:
            raise fault(self._provider, "model_timeout", silence)
        if self._failure is not None:
            raise self._failure
        if self._lost and self._response is not None:
            self._response.ended()

    def hold(self, held: bool) -> None:
        """Pause or resume reading the socket, to bound the buffer of a slow reader."""
        if held != self._held and self._transport is not None and not self._lost:
            self._held = held
            if held:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def abort(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._fires_at = inf
        if self._transport is not None:
            self._transport.abort()

    async def start_tls(self, context: ssl.SSLContext, server_hostname: str) -> None:
        """Start TLS inside a proxy's tunnel, with the model's server."""
        assert self._transport is not None
        transport = await self._loop.start_tls(
            self._transport, self, context, server_hostname=server_hostname
        )
        if transport is None:
            raise ConnectionResetError("the proxy closed the tunnel")
        self._transport = transport
        self._response = None
        self._used = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._silent = False
        response = self._response
        if response is None or response.complete:
            self.abort()
            return
        try:
            begun, taken = response.begun, response.taken
            if not begun:
                end = data.find(b"\r\n\r\n")
                response.measure(len(data) if end < 0 else end)
            self._parser.feed_data(data)
            if begun and response.taken == taken:
                response.measure(len(data))
        except ProviderError as error:
            self._fail(error)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(broken(self._provider, f"the answer is not HTTP ({error})"))
        self._wake()

    def eof_received(self) -> None:
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if exc is not None and not self._expired:
            reason = str(exc) or type(exc).__name__
            message = f"the connection broke ({reason})"
            self._failure = self._failure or fault(self._provider, "model_unreachable", message)
        if not self.closed.done():
            self.closed.set_result(None)
        self._wake()

    def _fail(self, failure: Exception) -> None:
        self._failure = failure
        self.abort()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires_at = self._deadline
        self._timer = self._loop.call_at(self._deadline, self._check)

    def _check(self) -> None:
        """Check the deadline. A timer moves only when it fires, so chunks cost no timer."""
        self._timer = None
        self._fires_at = inf
        if self._deadline == inf:
            return
        if self._deadline > self._loop.time():
            self._arm()
        else:
            self._expired = True
            self.abort()
            self._wake()
