"""One socket served by Granian in this process and event loop.

Granian's own embedded server cannot be stopped while streams are open and binds its own sockets, so
this module drives the worker below it: the one place that depends on Granian's insides, for the
versions that `pyproject.toml` allows. The application gets its requests as tasks of our loop.
"""

import asyncio
import fcntl
import importlib
import os
import socket
import struct
import termios
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from msgspec import Struct

from batten.serve.http.app import Asgi
from batten.serve.http.limits import Limits

_BACKLOG = 1024
_LOOK_S = 0.1
"""How often to look for connections that do nothing, once no more are accepted."""


class Tls(Struct, frozen=True):
    """Files in PEM format."""

    certificate: str
    key: str


class Listener:
    """Accepts connections from its creation until `stop`."""

    def __init__(
        self, listening: socket.socket, app: Asgi, limits: Limits, most: int, tls: Tls | None = None
    ) -> None:
        """Takes over the socket, bound but not listening yet. `most` connections at once."""
        # The stubs lack what the embedded server uses.
        native: Any = importlib.import_module("granian._granian")
        futures: Any = importlib.import_module("granian._futures")
        settings: Any = importlib.import_module("granian.http")
        loop = asyncio.get_running_loop()
        self._closed = loop.create_future()
        self._signal = native.WorkerSignal()
        self._signal.add_cb(lambda: loop.call_soon_threadsafe(self._closed.set_result, None))
        self._working = 0
        self._place = _place(listening)
        is_unix = listening.family == socket.AF_UNIX
        self._worker = native.ASGIWorker(
            1,
            (None, native.SocketHolder(listening.detach(), is_unix, _BACKLOG)),
            None,
            1,
            1,
            1,
            30,
            most,
            "1",
            settings.HTTP1Settings(
                header_read_timeout=int(limits.header_timeout_s * 1000),
                max_buffer_size=max(8192, limits.max_header_bytes),
            ),
            None,
            False,
            None,
            tls is not None,
            tls and tls.certificate,
            tls and tls.key,
            None,
            "tls1.2",
            None,
            [],
            False,
            (None, None),
        )

        async def answer(watcher: Any) -> None:
            self._working += 1
            try:
                await app(watcher.scope, watcher.proto.receive, watcher.proto.send)
            except asyncio.CancelledError:
                watcher.done()
                raise
            except BaseException as error:
                watcher.err(error)
            else:
                watcher.done()
            finally:
                self._working -= 1

        self._scheduler = futures._new_cbscheduler(loop, answer, impl_asyncio=True)
        serve = self._worker.serve_async_uds if is_unix else self._worker.serve_async
        serve(self._scheduler, loop, self._signal)

    def stop(self) -> None:
        """Accept no more connections, and close each one after the request it works on."""
        self._signal.set()

    async def closed(self) -> None:
        """Wait until the last connection is closed.

        One that has sent a part of a request's head would not be closed before the time limit of
        heads. It is shut down while no request is in work.
        """
        quiet: set[str] = set()
        while not self._closed.done():
            await asyncio.wait([self._closed], timeout=_LOOK_S)
            is_idle = not self._working and not self._closed.done()
            quiet = self._shut_quiet(quiet) if is_idle else set()

    def _shut_quiet(self, before: set[str]) -> set[str]:
        """Shut down connections that had nothing left to send before and have nothing now. Those
        of now.

        An answer that is not yet in the buffer of the kernel keeps that buffer filled.
        """
        quiet: set[str] = set()
        for name, connection in _sockets():
            with connection, suppress(OSError):
                is_listening = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                is_ours = not is_listening and _place(connection) == self._place
                if is_ours and not _unsent(connection):
                    quiet.add(name)
                    if name in before:
                        connection.shutdown(socket.SHUT_RDWR)
        return quiet


def _sockets() -> Iterator[tuple[str, socket.socket]]:
    """Copies of the sockets of this process, each with a name that no later one has."""
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{number}")
            if name.startswith("socket:"):
                yield name, socket.socket(fileno=os.dup(int(number)))


def _place(bound: socket.socket) -> Any:
    """Where a socket is bound: a path, or a port on whichever address."""
    name: Any = bound.getsockname()
    return name if bound.family == socket.AF_UNIX else name[1]


def _unsent(connection: socket.socket) -> int:
    """Bytes that the peer has not taken yet."""
    found = fcntl.ioctl(connection, termios.TIOCOUTQ, b"\0\0\0\0")
    count: int = struct.unpack("i", found)[0]
    return count
