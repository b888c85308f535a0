"""One client's connection: its requests one after another, each with its answer.

What a request means is the application's affair. Requests that a client sends without waiting for
answers are read only as far as one buffer goes. Nothing here waits for a client without a limit:
the listener closes connections that wait for a head, the application limits bodies, and the kernel
cuts off a client that does not read (`TCP_USER_TIMEOUT`).
"""

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any, Protocol

import httptools

from batten.serve.http.limits import Limits
from batten.serve.http.request import ClientGone, Request, Respond
from batten.serve.http.wire import Header, head

_VERSIONS = ("1.1", "1.0")
_MOST_HEADERS = 100
_MOST_UNREAD = 1 << 18
"""Bytes of a body that wait for the application."""
_MOST_UNSENT = 1 << 16
"""Bytes of an answer that wait for the client."""
_MOST_DISCARDED = 64 << 20
_MOST_IGNORED = 1 << 20
_DISCARD_S = 5.0
_PAUSE_S = 0.25
"""A client that sends nothing for so long has sent what it was going to send."""


class _Refused(Exception):
    """The head of a request is refused; carries the status."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class Owner(Protocol):
    """What a connection needs of its listener."""

    limits: Limits
    date: bytes
    """The header line of this second."""
    is_tls: bool

    def refusal(self, status: int) -> bytes:
        """The body that explains why a head was refused."""
        ...


class Connection(asyncio.Protocol):
    """Feeds the parser, whose callbacks build requests, and runs them in `run`."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.transport: asyncio.Transport
        self.peer: Any = None
        """The client's address and port; None on a Unix socket."""
        self.is_lost = False
        """The client is gone, or has closed its side: nobody may read an answer."""
        self.is_ending = False
        """No request follows the present one."""
        self.idle_since = 0.0
        """When it began to wait for the rest of a head; 0 while a request is in work."""
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._requests: deque[Request] = deque()
        """Complete heads that were not given to the application yet."""
        self._working: Request | None = None
        self._arriving: Request | None = None
        """The request whose body is being read."""
        self._is_in_head = False
        self._target = b""
        self._headers: list[Header] = []
        self._head_size = 0
        self._most_head = owner.limits.max_header_bytes
        self._outside = 0
        """Bytes of a body that the parser takes for another protocol, still to come."""
        self._is_read = True
        self._refused = 0
        """The status for what is not HTTP; 0 if there was none, or a request came before it."""
        self._ignored = 0
        """Bytes read and dropped since."""
        self._waiting: asyncio.Future[None] | None = None
        self._closed = self._loop.create_future()
        self._unsent: asyncio.Future[None] | None = None

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=_MOST_UNSENT)
        self.peer = transport.get_extra_info("peername") or None
        self.idle_since = self._loop.time()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            self._ignored += len(data)
            self._wake()
            return
        if self._is_in_head:
            self._head_size += len(data)
        try:
            while data:
                data = self._feed(data)
            if self._is_in_head and self._head_size > self._most_head:
                self._refuse(431)
        except httptools.HttpParserInvalidMethodError:
            self._refuse(405 if data[:1].isalpha() else 400)
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _Refused):
                raise
            self._refuse(error.__context__.status)
        except httptools.HttpParserError:
            self._refuse(400)
        self._adjust_reading()

    def _feed(self, data: bytes) -> bytes:
        """Read bytes; returns those that are still to be read."""
        if self._outside:
            body, rest = data[: self._outside], data[self._outside :]
            self._outside -= len(body)
            self.on_body(body)
            if not self._outside:
                self.on_message_complete()
            return rest
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # We speak no other protocol, and answer in this one.
            self._parser = httptools.HttpRequestParser(self)
            return data[upgrade.args[0] :]
        return b""

    def eof_received(self) -> bool:
        """A client that has closed its side may still read the answer to what it asked."""
        self.is_ending = True
        self._break_body()
        is_busy = self._working is not None or bool(self._requests)
        self._wake()
        for request in (self._working, *self._requests):
            if request is not None:
                request.disconnect()
        return is_busy and not self.owner.is_tls

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = self.is_ending = True
        self._break_body()
        for request in (self._working, *self._requests):
            if request is not None:
                request.disconnect()
        self._wake()
        self.resume_writing()
        self._closed.set_result(None)

    def pause_writing(self) -> None:
        self._unsent = self._loop.create_future()

    def resume_writing(self) -> None:
        unsent, self._unsent = self._unsent, None
        if unsent is not None and not unsent.done():
            unsent.set_result(None)

    # The parser

    def on_message_begin(self) -> None:
        self._is_in_head = True
        self._target = b""
        self._headers = []
        self._head_size = 0
        if self._working is None:
            self.idle_since = self._loop.time()

    def on_url(self, url: bytes) -> None:
        self._target += url
        self._measure_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head:
            return  # a trailer
        self._headers.append((name.lower(), value.rstrip(b" \t")))
        self._measure_head(len(name) + len(value))

    def _measure_head(self, more: int) -> None:
        self._head_size += more
        if self._head_size > self._most_head or len(self._headers) > _MOST_HEADERS:
            raise _Refused(431)

    def on_headers_complete(self) -> None:
        parser = self._parser
        self._is_in_head = False
        version = parser.get_http_version()
        if version not in _VERSIONS:
            raise _Refused(400)
        try:
            request = Request(
                self,
                parser.get_method().decode("ascii"),
                self._target,
                self._headers,
                version=version,
                is_kept=parser.should_keep_alive(),
            )
        except ValueError as error:
            raise _Refused(400) from error
        if parser.should_upgrade():
            if any(name == b"transfer-encoding" for name, _ in self._headers):
                raise _Refused(400)
            self._outside = request.length
        self._arriving = request
        self._requests.append(request)
        self._wake()

    def on_body(self, body: bytes) -> None:
        assert self._arriving is not None
        self._arriving.take(body)

    def on_message_complete(self) -> None:
        assert self._arriving is not None
        if self._outside:
            return
        self._arriving.complete()
        self._arriving = None

    # Requests

    async def run(self, respond: Respond) -> None:
        """Answer requests until the client leaves or an answer is the last one."""
        try:
            while (request := await self._next()) is not None:
                await respond(request)
                if not request.is_answered:
                    self.transport.abort()
                    break
                if not request.is_complete:
                    await self._discard(request)
                if not request.is_kept or self.is_ending or not request.is_complete:
                    break
                self._working = None
                self.read_on()
            if self._refused:
                await self._explain()
            self.transport.close()
            await self._closed
        finally:
            self.is_ending = True
            self.transport.abort()  # without effect on one that is closed

    async def _next(self) -> Request | None:
        requests = self._requests
        if not requests:
            self.idle_since = self._loop.time()
            if not self.is_ending:
                self._waiting = self._loop.create_future()
                await self._waiting
            if not requests:
                return None
        self.idle_since = 0.0
        self._working = requests.popleft()
        self.read_on()
        return self._working

    async def _discard(self, request: Request) -> None:
        """Read what is still coming of a body, up to a bound, and keep none of it.

        If the connection were closed while its client sends, most clients would report a broken
        connection in place of the answer.
        """
        if request.waits_to_send:
            return
        with suppress(TimeoutError, ClientGone):
            async with asyncio.timeout(_DISCARD_S):
                while request.size < _MOST_DISCARDED:
                    async with asyncio.timeout(_PAUSE_S):
                        _, more = await request.piece()
                    if not more:
                        return

    def end(self) -> None:
        """Close it now, or after the request in work."""
        self.is_ending = True
        if self._working is None and not self._requests:
            self.transport.close()
            self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _break_body(self) -> None:
        if self._arriving is not None:
            self._arriving.break_off()
            self._arriving = None

    def _refuse(self, status: int) -> None:
        """Take no further request. What is not HTTP is answered, unless a request came before."""
        self.is_ending = True
        if self._arriving is not None:
            self._break_body()
        elif self._working is None and not self._requests:
            self._refused = status
        if not self._refused:
            self._is_read = False
            self.transport.pause_reading()
        self._wake()

    async def _explain(self) -> None:
        """Say what was wrong with a head, and read what its client still sends, up to a bound."""
        body = self.owner.refusal(self._refused)
        more = b"content-length: %d\r\nconnection: close\r\n" % len(body)
        headers = ((b"content-type", b"application/json"),)
        self.transport.write(head(self._refused, headers, more + self.owner.date) + body)
        with suppress(TimeoutError):
            async with asyncio.timeout(_DISCARD_S):
                while self._ignored < _MOST_IGNORED and not self.is_lost:
                    self._waiting = self._loop.create_future()
                    async with asyncio.timeout(_PAUSE_S):
                        await self._waiting

    def _adjust_reading(self) -> None:
        """Read while there is room for what arrives."""
        if self.is_lost or self._refused or (self.is_ending and not self._is_read):
            return
        arriving = self._arriving
        wanted = len(self._requests) < (2 if self._working is None else 1)
        wanted = wanted and (arriving is None or arriving.unread < _MOST_UNREAD)
        if wanted != self._is_read:
            self._is_read = wanted
            if wanted:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()

    # For requests

    @property
    def date(self) -> bytes:
        return self.owner.date

    def read_on(self) -> None:
        """Read again if there is room by now."""
        if not self._is_read:
            self._adjust_reading()

    async def flushed(self) -> None:
        """Wait until the client has taken enough of the answer. Raises `ClientGone`."""
        if self._unsent is not None:
            await asyncio.shield(self._unsent)
        if self.is_lost:
            raise ClientGone

    @property
    def is_clogged(self) -> bool:
        """Whether the client takes less than it is sent."""
        return self._unsent is not None
