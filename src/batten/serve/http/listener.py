"""One socket served by Granian in this process and event loop.

Granian's own embedded server cannot be stopped while streams are open and binds its own sockets, so
this module drives the worker below it: the one place that depends on Granian's insides, for the
versions that `pyproject.toml` allows. The application gets its requests as tasks of our loop.
"""

import asyncio
import importlib
import socket
from typing import Any

from msgspec import Struct

from batten.serve.http.app import Asgi
from batten.serve.http.limits import Limits

_BACKLOG = 1024


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
            try:
                await app(watcher.scope, watcher.proto.receive, watcher.proto.send)
            except asyncio.CancelledError:
                watcher.done()
                raise
            except BaseException as error:
                watcher.err(error)
            else:
                watcher.done()

        self._scheduler = futures._new_cbscheduler(loop, answer, impl_asyncio=True)
        serve = self._worker.serve_async_uds if is_unix else self._worker.serve_async
        serve(self._scheduler, loop, self._signal)

    def stop(self) -> None:
        """Accept no more connections, and close each one after the request it works on."""
        self._signal.set()

    async def closed(self) -> None:
        """Wait until the last connection is closed."""
        await asyncio.shield(self._closed)
