"""One request on a connection, and the way of its answer."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any, Protocol

from batten.serve.http.wire import (
    ALONE,
    ALWAYS,
    CONTINUE,
    LAST_CHUNK,
    UNSTORED,
    Header,
    chunk,
    has_body,
    head,
    read_target,
)

_COPIED = 1 << 14
"""Answers up to this size are sent together with their heads, in one packet."""
_WHOLE = 1 << 18
"""Those up to this size are sent at once."""
_CLOSE = b"connection: close\r\n"
_CHUNKED = b"transfer-encoding: chunked\r\n"


class ClientGone(Exception):
    """The client left before its request was complete or answered; nobody reads an answer."""


class BodyStalled(Exception):
    """The server stops, and the client has paused in the middle of a body."""


class _Sent:
    """Awaited at once: the bytes were taken."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


SENT = _Sent()
"""Returned for bytes that the client takes at once, so that there is nothing to wait for."""


class Way(Protocol):
    """What a request needs of its connection."""

    transport: asyncio.Transport
    peer: Any
    is_lost: bool

    @property
    def is_tls(self) -> bool: ...

    @property
    def is_ending(self) -> bool:
        """No request follows the present one."""
        ...

    @property
    def date(self) -> bytes:
        """The header line of this second."""
        ...

    @property
    def is_clogged(self) -> bool: ...

    def read_on(self) -> None: ...

    def flushed(self) -> Awaitable[None]:
        """Waits until the client takes more, if it is awaited. Raises `ClientGone`."""
        ...


class Request:
    """Made when its head is complete. It is answered with `answer`, or with `begin`, any number of
    `write` and `finish`. What these return is `SENT` or waits for the client.
    """

    __slots__ = (
        *("_is_broken", "_is_chunked", "_is_gone", "_is_stalled", "_is_taken", "_left", "_pieces"),
        *("_waiting", "_way", "authority"),
        *("headers", "is_answered", "is_begun", "is_complete", "is_kept", "length", "method"),
        *("path", "query", "raw_path", "repeated", "size", "unread", "version", "waits_to_send"),
    )

    def __init__(
        self,
        way: Way,
        method: str,
        target: bytes,
        headers: list[Header],
        *,
        version: str,
        is_kept: bool,
    ) -> None:
        """Raises `ValueError` for a head that cannot be answered."""
        self.method = method
        self.path, self.raw_path, self.query, self.authority = read_target(target)
        self.version = version
        self.headers = named = dict(headers)
        """Lower-case names; of a repeated header, the last value."""
        self.repeated: Sequence[Header] = () if len(named) == len(headers) else headers
        """All headers, if one of them is repeated."""
        self.is_kept = is_kept and version == "1.1"
        """Whether another request may follow on the connection."""
        self.is_complete = False
        """The whole body has arrived."""
        self.is_begun = False
        """The head of the answer is sent, so that no other answer can be."""
        self.is_answered = False
        self.size = 0
        """Bytes of the body that have arrived."""
        self.unread = 0
        """Those that the application has not taken."""
        self._way = way
        self._pieces: list[bytes] = []
        self._is_taken = self._is_broken = self._is_gone = self._is_stalled = False
        self._waiting: asyncio.Future[None] | None = None
        self._is_chunked = False
        self._left: int | None = None
        """Bytes of the answer that are still to be sent; None if nobody knows."""
        length = named.get(b"content-length")
        self.length = 0 if length is None else int(length)
        """Bytes of the body that its head promises; 0 if it comes in chunks."""
        self.waits_to_send = version == "1.1" and (
            named.get(b"expect", b"").lower() == b"100-continue"
        )
        """The client sends its body only when it is told to."""
        if named.get(b"transfer-encoding", b"chunked").lower() != b"chunked":
            raise ValueError("the only transfer coding is chunked")
        if [name for name, _ in self.repeated].count(b"transfer-encoding") > 1:
            raise ValueError("a body is coded once")

    @property
    def client(self) -> str:
        """The client's address; empty on a Unix socket."""
        peer = self._way.peer
        return str(peer[0]) if peer else ""

    @property
    def is_tls(self) -> bool:
        return self._way.is_tls

    # The connection tells what arrives.

    def take(self, piece: bytes) -> None:
        self.size += len(piece)
        self.unread += len(piece)
        self._pieces.append(piece)
        self._wake()

    def complete(self) -> None:
        self.is_complete = True
        self._wake()

    def break_off(self) -> None:
        """Nothing more of the body can be read."""
        self._is_broken = True
        self.is_kept = False
        self._wake()

    def give_up(self) -> None:
        """The rest of the body is waited for no longer."""
        self._is_stalled = True
        self.break_off()

    def disconnect(self) -> None:
        """The client is gone, or sends nothing more."""
        self._is_gone = True
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def _wait(self) -> None:
        self._waiting = asyncio.get_running_loop().create_future()
        await self._waiting

    # The application reads and answers.

    async def piece(self) -> tuple[bytes, bool]:
        """The next piece of the body, and whether others follow.

        Raises `ClientGone`, and `BodyStalled` once the body is given up.
        """
        while not (self._pieces or (self.is_complete and not self._is_taken)):
            if self._is_stalled:
                raise BodyStalled
            if self._is_gone or self._is_broken:
                raise ClientGone
            if self.waits_to_send:
                self.waits_to_send = False
                if not self.is_begun:
                    self._way.transport.write(CONTINUE)
            await self._wait()
        pieces, self._pieces = self._pieces, []
        self.unread = 0
        self._is_taken = self.is_complete
        self.waits_to_send = False
        self._way.read_on()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces), not self.is_complete

    async def left(self) -> None:
        """Wait until the client leaves."""
        while not self._is_gone:
            await self._wait()

    def answer(self, status: int, headers: Sequence[Header], body: bytes) -> Awaitable[None]:
        """Send a whole answer."""
        if not has_body(status):
            sent = self._head(status, headers, b"")
        else:
            sent = self._head(status, headers, b"content-length: %d\r\n" % len(body))
            if self.method != "HEAD":
                if len(body) > _WHOLE:
                    return self._send_pieces(sent, body)
                if len(body) > _COPIED:
                    self._send(sent)
                    sent = body
                else:
                    sent += body
        self.is_answered = True
        return self._send(sent)

    async def _send_pieces(self, begin: bytes, body: bytes) -> None:
        """Send a large answer at the pace of its client: a transport copies what is left of one
        write each time that the client takes some of it.
        """
        await self._send(begin)
        for start in range(0, len(body), _WHOLE):
            await self._send(body[start : start + _WHOLE])
        self.is_answered = True

    def begin(
        self, status: int, headers: Sequence[Header], length: int | None = None
    ) -> Awaitable[None]:
        """Send the head of an answer whose body, of a known length or not, follows in pieces."""
        self._left = length
        if length is not None:
            more = b"content-length: %d\r\n" % length
        elif self.version == "1.1":
            self._is_chunked = True
            more = _CHUNKED
        else:
            self.is_kept = False
            more = b""
        return self._send(self._head(status, headers, more))

    def write(self, body: bytes) -> Awaitable[None]:
        """Send a piece of the body. Raises `ValueError` if more bytes come than were announced."""
        if self._left is not None:
            self._left -= len(body)
            if self._left < 0:
                raise ValueError("the answer is longer than its head says")
        return self._send(chunk(body) if self._is_chunked and body else body)

    def finish(self, body: bytes = b"") -> Awaitable[None]:
        """Send the last piece. Raises `ValueError` if there were fewer bytes than announced."""
        if self.method != "HEAD":
            if self._left is not None and self._left != len(body):
                raise ValueError("the answer is not as long as its head says")
            if self._is_chunked:
                body = chunk(body) + LAST_CHUNK if body else LAST_CHUNK
        self.is_answered = True
        return self._send(body)

    def _head(self, status: int, headers: Sequence[Header], more: bytes) -> bytes:
        """The head of the answer, with what becomes of the connection."""
        way = self._way
        is_closing, unstored, alone = False, UNSTORED, ALONE
        for name, value in headers:
            if name == b"cache-control":
                unstored = b""
            elif name == b"content-security-policy":
                alone = b""
            elif name == b"connection" and value == b"close":
                is_closing = True
        if is_closing:
            self.is_kept = False
        elif not self.is_kept or way.is_ending or self._is_held:
            self.is_kept = False
            headers = [header for header in headers if header[0] != b"connection"]
            more += _CLOSE
        made = head(status, headers, b"%b%b%b%b%b" % (more, ALWAYS, unstored, alone, way.date))
        self.is_begun = True
        return made

    @property
    def _is_held(self) -> bool:
        """Whether the client holds its body back, and sends it or not once it has an answer."""
        return self.waits_to_send and not self.is_complete

    def _send(self, data: bytes) -> Awaitable[None]:
        way = self._way
        # A transport tells only later that a write has failed.
        if way.is_lost or way.transport.is_closing():
            return way.flushed()
        if data:
            way.transport.write(data)
        return way.flushed() if way.is_clogged else SENT


Respond = Callable[[Request], Awaitable[None]]
"""An application: answers a request."""
