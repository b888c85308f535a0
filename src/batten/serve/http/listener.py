"""Accepts connections on one socket, in this process and event loop."""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from email.utils import formatdate

import msgspec
from msgspec import Struct

from batten.serve.http.connection import Connection
from batten.serve.http.limits import Limits
from batten.serve.http.request import Respond

_log = logging.getLogger("batten.http")
_BACKLOG = 1024
_AT_ONCE = 64
"""Connections accepted before others get a turn."""
_RETRY_S = 0.5
"""After the process had no descriptor left."""
_SWEEP_S = 0.5
_HANDSHAKE_S = 10.0
_STALLED_S = 1.0
"""For the next bytes of a body, once the server stops."""
_REASONS = {
    400: ("invalid_request", "the request is not valid HTTP/1.1; see RFC 9112"),
    405: ("method_not_allowed", "the method of the request is unknown"),
    431: ("request_headers_too_large", "the request line and headers are too large or too many"),
    505: ("http_version_not_supported", "this server speaks HTTP/1.1; a proxy can speak others"),
}


class Tls(Struct, frozen=True):
    """Files in PEM format."""

    certificate: str
    key: str


class Listener:
    """Accepts connections from its creation until `stop`."""

    def __init__(
        self,
        listening: socket.socket,
        welcome: Callable[[socket.socket], Respond],
        limits: Limits,
        most: int,
        group: asyncio.TaskGroup,
        tls: Tls | None = None,
    ) -> None:
        """Takes over the socket, bound but not listening yet. `most` connections at once, each a
        task of `group`. `welcome` gives what answers an accepted connection; it never raises.
        """
        self.limits = limits
        self.is_tls = tls is not None
        self.date = b""
        self._welcome = welcome
        self._most = most
        self._group = group
        self._tls = None if tls is None else _context(tls)
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[asyncio.Task[None], Connection] = {}
        """One a connection, with those whose handshake is not over."""
        self._closed = self._loop.create_future()
        self._is_accepting = False
        self._retry: asyncio.TimerHandle | None = None
        self._socket = socket.socket(fileno=listening.detach())
        self._socket.setblocking(False)
        self._is_unix = self._socket.family == socket.AF_UNIX
        self._socket.listen(_BACKLOG)
        self._sweep()
        self._accept_from_now()

    def refusal(self, status: int, request_id: str) -> bytes:
        code, message = _REASONS[status]
        told = {"type": code, "message": message, "request_id": request_id}
        return msgspec.json.encode({"error": told})

    def stop(self) -> None:
        """Accept no more connections, and close each one after the request it works on. One whose
        body pauses is refused.
        """
        self._pause_accepting()
        if self._retry is not None:
            self._retry.cancel()
        self._socket.close()
        for task, connection in self._tasks.items():
            if connection.is_made:
                connection.end()
            else:
                task.cancel()
        self._note_end()

    def cut(self) -> None:
        """Close all connections at once, whatever they work on."""
        for task in self._tasks:
            task.cancel()

    async def closed(self) -> None:
        """Wait until the last connection is closed."""
        await asyncio.shield(self._closed)

    def _accept_from_now(self) -> None:
        self._retry = None
        if not self._is_accepting and self._socket.fileno() >= 0:
            self._is_accepting = True
            self._loop.add_reader(self._socket, self._accept)

    def _pause_accepting(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._socket)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            if len(self._tasks) >= self._most:
                self._pause_accepting()  # others wait in the backlog
                return
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                _log.warning("no connection can be accepted: %s", error.strerror)
                self._pause_accepting()
                self._retry = self._loop.call_later(_RETRY_S, self._accept_from_now)
                return
            accepted.setblocking(False)
            connection = Connection(self)
            connection.accepted = accepted
            respond = self._welcome(accepted)
            task = self._group.create_task(self._serve(accepted, connection, respond))
            self._tasks[task] = connection
            task.add_done_callback(self._forget)

    async def _serve(
        self, accepted: socket.socket, connection: Connection, respond: Respond
    ) -> None:
        connection.accepted = None
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=_HANDSHAKE_S if self._tls else None,
            )
            await connection.run(respond)
        except OSError as error:
            # A handshake that fails, or a client that is gone already. The traceback refers to the
            # buffers of the handshake, and these to it: they would wait for the collector.
            error.__traceback__ = None
        except Exception as error:  # a bug on one connection must not end the others
            _log.error("a connection failed", exc_info=error)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        never_begun = self._tasks.pop(task).accepted
        if never_begun is not None:
            never_begun.close()
        self._note_end()
        self._accept_from_now()

    def _note_end(self) -> None:
        if self._socket.fileno() < 0 and not self._tasks and not self._closed.done():
            self._closed.set_result(None)

    def _sweep(self) -> None:
        """Close connections that have waited too long for a head, a reader or, at the end, a body;
        tell the time.
        """
        if self._closed.done():
            return
        self.date = b"date: %b\r\n" % formatdate(usegmt=True).encode()
        timeout_s = self.limits.header_timeout_s
        now = self._loop.time()
        too_early = now - timeout_s
        is_stopping = self._socket.fileno() < 0
        for connection in self._tasks.values():
            if 0.0 < connection.idle_since < too_early:
                connection.end()
            if self._is_unix and connection.is_stuck(now, self.limits.unread_s):
                connection.transport.abort()
            if is_stopping:
                connection.give_up_body(now, _STALLED_S)
        self._loop.call_later(min(_SWEEP_S, timeout_s / 4), self._sweep)


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(tls.certificate, tls.key)
    return context
