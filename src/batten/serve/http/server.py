"""Serves an application on TCP and a Unix socket until a signal ends it."""

import asyncio
import errno
import logging
import os
import resource
import signal
import socket
import ssl
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, suppress
from ipaddress import ip_address
from typing import NamedTuple

from msgspec import Struct

from batten.client.home_service import listening_at, make_home_token
from batten.contract.errors import CallerError
from batten.serve.http.access import LOCAL, Entrance, NetworkEntrance, Trust, local_entrance
from batten.serve.http.app import App
from batten.serve.http.guard import Guard
from batten.serve.http.keys import KeyRing, KeyStore
from batten.serve.http.limits import Limits
from batten.serve.http.listener import Listener, Tls
from batten.serve.http.request import Respond
from batten.serve.http.table import Principal
from batten.serve.local_socket import RETRY_S, LocalSocket, why_not_taken
from batten.tools.own_ports import own_port

_log = logging.getLogger("batten.http")
_LAST_S = 0.5
"""For what was cut to be closed."""
_SPARE_FILES = 256
"""Descriptors left for the journal, workers and logs; half of them all where there are few."""


class ServeOptions(Struct, frozen=True, kw_only=True):
    """Where to listen, and for whom."""

    home: str
    """API keys are below it."""
    host: str = "127.0.0.1"
    port: int = 8765
    """0 for a free one."""
    unix_socket: str = ""
    """A path for a second socket that only the owner can open; empty for none."""
    tls: Tls | None = None
    wants_keys: bool = True
    """Whether another address than loopback needs API keys; False if surfaces have their own."""
    api_keys: tuple[str, ...] = ()
    """Keys besides those of the home."""
    is_closed: bool = False
    """Whether loopback wants a key too, even while there is none."""
    allow_hosts: tuple[str, ...] = ()
    """Names besides localhost that a server on loopback answers to."""
    keyless: Principal | None = None
    """Who calls from anywhere without a key, where surfaces have their own and none is set; None
    for the user of this process, on loopback, as long as the home has no key.
    """
    is_open: bool = False
    """Whether every user of this machine is served where no key is wanted, not only ours."""
    wants_token: str = ""
    """Why even our user needs the token of the home where no key is wanted; empty for no reason."""


Opening = Callable[[], AbstractAsyncContextManager[App]]
"""Opens the application inside the event loop and closes it at the end."""


class Server:
    """A running server."""

    def __init__(self, app: App, listeners: list[Listener], url: str, local: "_Local") -> None:
        self._app = app
        self._listeners = listeners
        self._local = local
        self.url = url
        """Where it listens: `http://127.0.0.1:8765`."""

    async def stop(self, grace_s: float) -> None:
        """End streams, let requests finish for so long, and cut the others."""
        self._app.close()
        listeners = [*self._listeners, *self._local.stop()]
        for listener in listeners:
            listener.stop()
        if not await _closed(listeners, grace_s):
            _log.warning("%d requests were cut after %g s", self._app.abort(), grace_s)
            if not await _closed(listeners, _LAST_S):
                for listener in listeners:
                    listener.cut()


async def _closed(listeners: list[Listener], timeout_s: float) -> bool:
    try:
        async with asyncio.timeout(timeout_s):
            for listener in listeners:
                await listener.closed()
    except TimeoutError:
        return False
    return True


class _Local:
    """The socket for the owner of the home. If another server has it, this one takes it over
    when that one has ended.
    """

    def __init__(self, path: str) -> None:
        """Take it if it is free; empty for none. Raises `CallerError`."""
        self._socket = LocalSocket(path) if path else None
        self._bound: socket.socket | None = None
        self._listener: Listener | None = None
        self._retry: asyncio.TimerHandle | None = None
        if self._socket is None:
            return
        try:
            self._bound = self._socket.take()
        except OSError as error:
            raise _config(f"cannot serve on the socket {path}: {why_not_taken(error)}") from error
        if self._bound is None:
            _log.info("another server has the socket %s until it ends", path)

    def listen(self, listener: Callable[[socket.socket], Listener]) -> None:
        """Serve it, now or once it is free."""
        if self._socket is None:
            return
        try:
            bound = self._bound or self._socket.take()
        except OSError as error:
            _log.warning("the socket %s: %s", self._socket.path, why_not_taken(error))
            bound = None
        if bound is not None:
            self._listener = listener(bound)
            return
        loop = asyncio.get_running_loop()
        self._retry = loop.call_later(RETRY_S, self.listen, listener)

    def stop(self) -> list[Listener]:
        """Leave the socket to another server; the listener that is still to be stopped."""
        if self._retry is not None:
            self._retry.cancel()
        self.release()
        return [] if self._listener is None else [self._listener]

    def release(self) -> None:
        if self._bound is not None:
            self._bound.close()  # without effect on a listener, which took it over
        if self._socket is not None:
            self._socket.release()


def serve(
    opening: Opening,
    options: ServeOptions,
    before_stop: Callable[[], Awaitable[None]] | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code.

    `before_stop` runs after that signal, while everybody is still answered. Prints one line on
    stdout when it listens. A second signal ends the process at once, except for SIGTERM if there is
    a `before_stop`: supervisors repeat it. Raises `CallerError` with the code `config` if it cannot
    listen as told.
    """
    with ExitStack() as stack:
        asyncio.run(_serve(opening, options, _bind(options, stack), before_stop))
    return 0


async def _serve(
    opening: Opening,
    options: ServeOptions,
    bound: "_Bound",
    before_stop: Callable[[], Awaitable[None]] | None,
) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    at_once = (signal.SIGINT,) if before_stop is not None else (signal.SIGTERM, signal.SIGINT)

    def stop() -> None:
        stopping.set()
        for one in at_once:
            loop.remove_signal_handler(one)
            signal.signal(one, signal.SIG_DFL)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with opening() as app, app.running(), asyncio.TaskGroup() as group:
        server = _listen(app, options, bound, group)
        # A closed stdout is no reason to end.
        with suppress(OSError):
            sys.stdout.write(f"listening on {server.url}\n")
            sys.stdout.flush()
        await stopping.wait()
        if before_stop is not None:
            await before_stop()
        await server.stop(app.limits.grace_s)


@asynccontextmanager
async def open_server(app: App, options: ServeOptions) -> AsyncGenerator[Server]:
    """Serve inside a running loop, without signals."""
    with ExitStack() as stack:
        bound = _bind(options, stack)
        async with app.running(), asyncio.TaskGroup() as group:
            server = _listen(app, options, bound, group)
            try:
                yield server
            finally:
                await server.stop(app.limits.grace_s)


class _Bound(NamedTuple):
    """Sockets that do not listen yet, and who may come in by the first."""

    network: socket.socket
    entrance: NetworkEntrance
    local: _Local


def _listen(app: App, options: ServeOptions, bound: _Bound, group: asyncio.TaskGroup) -> Server:
    network = bound.network
    address = network.getsockname()
    # Accepted sockets inherit these. The kernel cuts off a peer that takes nothing of an answer
    # which waits in the buffers of the server.
    unread_ms = int(app.limits.unread_s * 1000)
    network.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, unread_ms)
    network.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    host = f"[{address[0]}]" if network.family == socket.AF_INET6 else address[0]
    url = f"{'https' if options.tls else 'http'}://{host}:{address[1]}"
    most = _most_connections(app.limits)

    def through(entrance: Entrance) -> Callable[[socket.socket], Respond]:
        return lambda connection: app.endpoint(entrance(connection))

    listener = Listener(network, through(bound.entrance), app.limits, most, group, options.tls)
    owners = through(local_entrance)
    bound.local.listen(lambda taken: Listener(taken, owners, app.limits, most, group))
    return Server(app, [listener], url, bound.local)


def _entrance(options: ServeOptions, network: socket.socket) -> NetworkEntrance:
    is_local = ip_address(network.getsockname()[0]).is_loopback
    keyless = options.keyless
    if keyless is None and is_local and not options.is_closed:
        keyless = LOCAL
    trust = Trust(
        token=make_home_token(options.home),
        keyless=keyless,
        has_keys=options.keyless is None,
        is_open=options.is_open,
        wants_token=options.wants_token,
        serves_others=options.keyless is not None and not is_local,
    )
    guard = Guard(is_local=is_local, own_names=options.allow_hosts)
    return NetworkEntrance(KeyRing(KeyStore(options.home), options.api_keys), guard, trust)


def _bind(options: ServeOptions, stack: ExitStack) -> _Bound:
    """The TCP socket, and the Unix socket if one is wanted."""
    if options.tls is not None:
        _check_tls(options.tls)
    network = _bind_tcp(options)
    stack.callback(network.close)
    host, port = network.getsockname()[:2]
    stack.enter_context(own_port(port))
    stack.enter_context(listening_at(options.home, host, port))
    entrance = _entrance(options, network)
    stack.callback(entrance.close)
    local = _Local(options.unix_socket)
    stack.callback(local.release)
    return _Bound(network, entrance, local)


def _bind_tcp(options: ServeOptions) -> socket.socket:
    host, port = options.host, options.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, OverflowError, UnicodeError) as error:
        raise _config(
            f"cannot serve on {host!r}: {error}; name an address of this machine"
        ) from error
    # `localhost` may mean both; tools try IPv4 at any rate.
    family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    is_local = ip_address(str(address[0]).partition("%")[0]).is_loopback
    if options.wants_keys and (options.is_closed or not is_local):
        _check_keys(options)
    bound = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise _config(_why_not_bound(error, host, port)) from error
    return bound


def _why_not_bound(error: OSError, host: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"port {port} of {host} is in use; choose another with --port, or 0 for a free one"
            )
        case errno.EACCES:
            return f"port {port} needs more rights; choose one above 1023 with --port"
        case errno.EADDRNOTAVAIL:
            return f"{host} is no address of this machine; choose another with --host"
        case _:
            return f"cannot serve on {host} port {port}: {error.strerror}"


def _check_keys(options: ServeOptions) -> None:
    """Another address than loopback is served with keys only, and loopback too if it is closed."""
    if options.api_keys:
        return
    store = KeyStore(options.home)
    if not any(key.is_valid() for key in store.all()):
        damaged = "".join(f"; {one}" for one in store.damaged())
        outside = " outside development (NODE_ENV)" if options.is_closed else ""
        raise _config(
            f"{options.host} is served with API keys only{outside}: anyone who reaches it could"
            " run commands here. Create one: batten keys create NAME --scope admin, or set"
            f" AUTH_API_KEYS{damaged}"
        )


def _check_tls(tls: Tls) -> None:
    for path in (tls.certificate, tls.key):
        if not os.path.isfile(path):
            raise _config(f"{path} is no file; TLS needs a certificate and its key in PEM format")
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Otherwise a key under a passphrase would ask for it on the terminal.
        context.load_cert_chain(tls.certificate, tls.key, lambda: "")
    except (OSError, ValueError) as error:
        raise _config(
            f"{tls.certificate} and {tls.key} are no certificate with its key: {error}"
        ) from error


def _most_connections(limits: Limits) -> int:
    """The limit of connections, within the files that this process may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = limits.max_connections + _SPARE_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return max(1, min(limits.max_connections, max(wanted // 2, wanted - _SPARE_FILES)))


def _config(message: str) -> CallerError:
    return CallerError(message, code="config")
