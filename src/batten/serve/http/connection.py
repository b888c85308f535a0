"""One client's connection: its requests one after another, each with its answer.

What a request means is the application's affair. Requests that a client sends without waiting for
answers are read only as far as one buffer goes. Nothing here waits for a client without a limit:
the listener closes connections that wait for a head, the application limits bodies, and the kernel
cuts off a client that does not read (`TCP_USER_TIMEOUT`).
"""

import asyncio
import fcntl
import secrets
import socket
import sys
import termios
from collections import deque
from collections.abc import Awaitable, Generator
from contextlib import suppress
from typing import Any, Protocol

import httptools

from batten.serve.http.limits import Limits
from batten.serve.http.request import BodyStalled, ClientGone, Request, Respond
from batten.serve.http.wire import ALONE, ALWAYS, UNSTORED, Header, head

_MOST_HEADERS = 100
_MOST_UNREAD = 1 << 18
"""Bytes of a body that wait for the application."""
_MOST_UNSENT = 1 << 16
"""Bytes of an answer that wait for the client."""
_MOST_DISCARDED = 64 << 20
_DISCARD_S = 5.0
_PAUSE_S = 0.25
"""A client that sends nothing for so long has sent what it was going to send."""
_GOODBYE_S = 1.0
"""For a client of TLS to say that it closes, too."""
_METHODS = b"DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT"


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

    def refusal(self, status: int, request_id: str) -> bytes:
        """The body that explains why a head was refused."""
        ...


class _Flushed:
    """Waits for a client once it is awaited, and may be left unawaited."""

    __slots__ = ("_connection",)

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection

    def __await__(self) -> Generator[Any, None, None]:
        return self._connection.flush().__await__()


class Connection(asyncio.Protocol):
    """Feeds the parser, whose callbacks build requests, and runs them in `run`."""

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.transport: asyncio.Transport
        self.peer: Any = None
        """The client's address and port; None on a Unix socket."""
        self.is_lost = False
        """The connection is gone: nobody reads an answer."""
        self.accepted: socket.socket | None = None
        """Its socket, until its task has begun."""
        self.is_made = False
        """It can be used: a handshake, if there is one, is over."""
        self._is_over = False
        """No request is read any more."""
        self._is_deaf = False
        """What arrives is dropped: it is no request, or comes after the last one."""
        self._has_left = False
        """The client has closed its side."""
        self.idle_since = 0.0
        """When it began to wait for the rest of a head; 0 while a request is in work."""
        self._loop = asyncio.get_running_loop()
        self._parser: httptools.HttpRequestParser
        self._requests: deque[Request] = deque()
        """Complete heads that were not given to the application yet."""
        self._working: Request | None = None
        self._arriving: Request | None = None
        """The request whose body is being read."""
        self._is_in_head = False
        self._target = b""
        self._headers: list[Header] = []
        self._head_size = self._head_read = 0
        """Of its parts so far, and of all that came after its first bytes."""
        self._most_head = owner.limits.max_header_bytes
        self._outside = 0
        """Bytes of a body that the parser takes for another protocol, still to come."""
        self._beside = 0
        """Bytes since the last one of a body: the heads of chunks, and trailers."""
        self._is_read = True
        self._refused = 0
        """The status for what is not HTTP; 0 if there was none, or a request came before it."""
        self._ignored = 0
        """Bytes dropped."""
        self._unmoved = (0, 0.0)
        """The bytes of answers in the buffer, and since when there are so many."""
        self._body_unmoved: tuple[Request | None, int, float] = (None, 0, 0.0)
        """The request whose body arrives, its bytes so far, and since when there are so many."""
        self._waiting: asyncio.Future[None] | None = None
        self._closed = self._loop.create_future()
        self._unsent: asyncio.Future[None] | None = None

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.is_made = True
        self._parser = self._new_parser()
        transport.set_write_buffer_limits(high=_MOST_UNSENT)
        self.peer = transport.get_extra_info("peername") or None
        self.idle_since = self._loop.time()

    def data_received(self, data: bytes) -> None:
        if self._is_deaf:
            self._ignored += len(data)
            if self._ignored >= _MOST_DISCARDED:
                self.transport.pause_reading()
            self._wake()
            return
        count, arriving = len(data), self._arriving
        size = 0 if arriving is None else arriving.size
        if self._is_in_head:
            self._head_read += count
        try:
            while data:
                data = self._feed(data)
            if self._is_in_head:
                # A header is measured when it is complete; this is for one without end.
                if self._head_read > 2 * self._most_head:
                    self._refuse(431)
            elif arriving is not None and arriving is self._arriving:
                self._beside = self._beside + count if arriving.size == size else 0
                if self._beside > self._most_head:
                    self._refuse(400)
        except httptools.HttpParserInvalidMethodError:
            self._refuse(405 if data[:1].isalpha() else 400)
        except httptools.HttpParserCallbackError as error:
            if not isinstance(error.__context__, _Refused):
                raise
            self._refuse(error.__context__.status)
        except httptools.HttpParserError:
            # The preface of HTTP/2 has a method of its own.
            self._refuse(505 if self._parser.get_method() == b"PRI" else 400)
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
            self._parser = self._new_parser()
            return data[upgrade.args[0] :]
        return b""

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # Strict in all but this: versions are judged when a head is complete.
        parser.set_dangerous_leniencies(lenient_version=True)
        return parser

    def eof_received(self) -> bool:
        """A client that has closed its side may still read the answer to what it asked."""
        self._is_over = self._has_left = True
        self._break_body()
        is_busy = self._working is not None or bool(self._requests)
        self._wake()
        for request in (self._working, *self._requests):
            if request is not None:
                request.disconnect()
        return is_busy and not self.owner.is_tls

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = self._is_over = True
        self._break_body()
        for request in (self._working, *self._requests):
            if request is not None:
                request.disconnect()
        self._wake()
        self.resume_writing()
        if not self._closed.done():
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
        self._head_size = self._head_read = 0
        if self._is_over:
            raise _Refused(400)
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
        if not version.startswith("1."):
            raise _Refused(400 if version == "0.9" else 505)  # 0.9: a line without a version
        if version != "1.0":
            version = "1.1"  # the highest that we speak of those with the same major number
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
        self._beside = 0
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
                self._explain()
            if self._is_deaf or self._requests or not (request is None or request.is_complete):
                await self._linger()
            await self._close()
        finally:
            self._is_over = True
            self.transport.abort()  # without effect on one that is closed
            # Each refers to this, which would wait for the collector of cycles.
            del self._parser
            self._working = self._arriving = None
            self._body_unmoved = (None, 0, 0.0)

    async def _next(self) -> Request | None:
        requests = self._requests
        if not requests:
            self.idle_since = self._loop.time()
            if not self._is_over:
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
        with suppress(TimeoutError, ClientGone, BodyStalled):
            async with asyncio.timeout(_DISCARD_S):
                while request.size < _MOST_DISCARDED:
                    async with asyncio.timeout(_PAUSE_S):
                        _, more = await request.piece()
                    if not more:
                        return

    def end(self) -> None:
        """Close it now, or after the request in work."""
        self._is_over = True
        if self._working is None and not self._requests:
            self.transport.close()
            self._wake()
        while len(self._requests) > (self._working is None):
            self._requests.pop()
        self.read_on()

    @property
    def is_ending(self) -> bool:
        """No request follows the present one."""
        return self._is_over and not self._requests

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
        self._is_over = self._is_deaf = True
        if self._arriving is not None:
            self._break_body()
        elif self._working is None and not self._requests:
            self._refused = status
        self._wake()

    def _explain(self) -> None:
        """Say what was wrong with a head."""
        request_id = f"req_{secrets.token_hex(12)}"
        body = self.owner.refusal(self._refused, request_id)
        more = b"content-length: %d\r\nconnection: close\r\n" % len(body)
        headers = [
            (b"x-request-id", request_id.encode()),
            (b"content-type", b"application/json"),
        ]
        if self._refused == 405:
            headers.append((b"allow", _METHODS))
        more += ALWAYS + UNSTORED + ALONE + self.owner.date
        self.transport.write(head(self._refused, headers, more) + body)

    async def _linger(self) -> None:
        """Close our side, and drop what the client still sends, up to a bound.

        If the connection were closed with bytes unread, the client could be told that it broke
        before it has read the answer.
        """
        self._is_over = self._is_deaf = True
        if not self._is_read:
            self.transport.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()
        with suppress(TimeoutError):
            async with asyncio.timeout(_DISCARD_S):
                while self._ignored < _MOST_DISCARDED and not (self.is_lost or self._has_left):
                    self._waiting = self._loop.create_future()
                    async with asyncio.timeout(_PAUSE_S):
                        await self._waiting

    async def _close(self) -> None:
        """Close it once the client has taken what was sent. A client of TLS is to say that it
        closes, too; one that has nothing left to read may never look at its connection again.
        """
        used = self.transport.get_extra_info("socket") if self.owner.is_tls else None
        self.transport.close()
        while not self._closed.done():
            await asyncio.wait((self._closed,), timeout=_GOODBYE_S if used else None)
            if used is not None and not _unsent(used.fileno()):
                return

    def give_up_body(self, now: float, most_s: float) -> None:
        """Refuse the request whose body arrives, if nothing of it came for so long."""
        arriving, (request, size, since) = self._arriving, self._body_unmoved
        if arriving is None:
            return
        if arriving is not request or arriving.size != size or arriving.unread:
            self._body_unmoved = (arriving, arriving.size, now)
        elif now - since > most_s:
            arriving.give_up()
            self._arriving = None
            self._is_deaf = True

    def is_stuck(self, now: float, most_s: float) -> bool:
        """Whether its client has taken nothing of an answer for so long. The kernel finds that out
        for TCP (`TCP_USER_TIMEOUT`), not for a Unix socket.
        """
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent != self._unmoved[0]:
            self._unmoved = (unsent, now)
        return now - self._unmoved[1] > most_s

    def _adjust_reading(self) -> None:
        """Read while there is room for what arrives."""
        if self.is_lost or self._is_deaf:
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

    @property
    def is_tls(self) -> bool:
        return self.owner.is_tls

    def read_on(self) -> None:
        """Read again if there is room by now."""
        if not self._is_read:
            self._adjust_reading()

    def flushed(self) -> Awaitable[None]:
        return _Flushed(self)

    async def flush(self) -> None:
        """Wait until the client has taken enough of the answer. Raises `ClientGone`."""
        if self._unsent is not None:
            await asyncio.shield(self._unsent)
        if self.is_lost or self.transport.is_closing():
            raise ClientGone

    @property
    def is_clogged(self) -> bool:
        """Whether the client takes less than it is sent."""
        return self._unsent is not None


def _unsent(descriptor: int) -> int:
    """Bytes that the kernel keeps until the client has them."""
    if descriptor < 0:
        return 0
    return int.from_bytes(fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
