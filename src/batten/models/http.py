"""A small HTTP/1.1 client for model calls: a request, a streamed response, one kept connection.

A failed call raises `ProviderError`, a mistake in the configuration `CallerError`.
"""

import asyncio
import logging
import time
from binascii import b2a_base64
from collections.abc import Mapping
from types import TracebackType

from msgspec import Struct

from batten.contract.errors import CallerError, ProviderError
from batten.models.address import Address, proxy_for
from batten.models.connection import Connection, Response, Stale
from batten.models.faults import fault

_log = logging.getLogger("batten.http")
_ID_HEADERS = ("request-id", "x-request-id", "cf-ray")
_SETTLE_S = 0.05
"""How long to wait for the end of a complete answer, to keep the connection."""


class Timeouts(Struct, frozen=True):
    connect_s: float = 15.0
    first_byte_s: float = 300.0
    """Until the response headers are complete: a model may think before it answers."""
    idle_s: float = 90.0
    """Between two events of the response; keep-alives do not count."""
    total_s: float = 1800.0
    """For the whole response, however active the server is."""


class HttpClient:
    """Talks to one provider. Keeps one idle connection per origin."""

    def __init__(
        self, provider: str, environ: Mapping[str, str], timeouts: Timeouts | None = None
    ) -> None:
        self.provider = provider
        self.timeouts = timeouts or Timeouts()
        self._environ = environ
        self._idle: dict[tuple[str, str, int], Connection] = {}

    def post(self, target: Address, headers: Mapping[str, str], body: bytes) -> "Exchange":
        return Exchange(self, target, headers, body)

    def get(self, target: Address, headers: Mapping[str, str]) -> "Exchange":
        return Exchange(self, target, headers, None)

    async def begin(
        self, target: Address, headers: Mapping[str, str], body: bytes | None
    ) -> tuple[Connection, Response]:
        """Send a request and wait for the response to begin."""
        proxy = proxy_for(target, self._environ)
        plain_proxy = proxy if target.scheme == "http" else None
        data = _head(target, headers, body, plain_proxy) + (body or b"")
        kept = self._idle.pop(target.origin, None)
        if kept is not None and kept.alive:
            try:
                return kept, await self._ask(kept, data)
            except Stale:
                pass
        connection = await self._open(target, proxy)
        return connection, await self._ask(connection, data)

    def keep(self, target: Address, connection: Connection) -> None:
        previous = self._idle.get(target.origin)
        if previous is not None:
            previous.abort()
        self._idle[target.origin] = connection

    async def aclose(self) -> None:
        connections = list(self._idle.values())
        self._idle.clear()
        for connection in connections:
            connection.abort()
        for connection in connections:
            await connection.closed

    async def _ask(self, connection: Connection, data: bytes) -> Response:
        try:
            return await connection.request(data, self.timeouts.first_byte_s)
        except BaseException:
            connection.abort()
            raise

    async def _open(self, target: Address, proxy: Address | None) -> Connection:
        place = proxy or target
        patience = self.timeouts.connect_s
        connection: Connection | None = None
        try:
            async with asyncio.timeout(patience):
                context = None
                if target.scheme == "https":
                    from batten.models.tls import client_context

                    context = await client_context(self._environ)
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self.provider),
                    place.host,
                    place.port,
                    ssl=None if proxy else context,
                    happy_eyeballs_delay=0.25,
                )
                if proxy and context:
                    await self._tunnel(connection, target, proxy)
                    await connection.start_tls(context, target.host)
                return connection
        except BaseException as error:
            if connection is not None:
                connection.abort()
            where = f"{place.host}:{place.port}"
            if isinstance(error, TimeoutError):
                message = f"no connection to {where} within {patience:.3g} s"
                raise fault(self.provider, "model_timeout", message) from error
            if isinstance(error, (OSError, UnicodeError)):
                message = f"no connection to {where} ({error})"
                raise fault(self.provider, "model_unreachable", message) from error
            raise

    async def _tunnel(self, connection: Connection, target: Address, proxy: Address) -> None:
        host = f"[{target.host}]" if ":" in target.host else target.host
        place = f"{host}:{target.port}"
        lines = [f"CONNECT {place} HTTP/1.1", f"host: {place}", *_proxy_lines(proxy), "", ""]
        answer = await connection.request(
            "\r\n".join(lines).encode("ascii"), self.timeouts.connect_s
        )
        if answer.status != 200:
            message = f"the proxy {proxy.host} answered {answer.status} to CONNECT {place}"
            raise fault(self.provider, "model_unreachable", message, status=answer.status)


class Exchange:
    """One request and its response. Leaving the block keeps or aborts the connection."""

    def __init__(
        self, client: HttpClient, target: Address, headers: Mapping[str, str], body: bytes | None
    ) -> None:
        self._client = client
        self._target = target
        self._headers = headers
        self._body = body
        self._connection: Connection | None = None
        self._response: Response | None = None
        self._begun_at = 0.0

    async def __aenter__(self) -> Response:
        self._begun_at = time.monotonic()
        try:
            self._connection, self._response = await self._client.begin(
                self._target, self._headers, self._body
            )
        except ProviderError as error:
            self._log("failed code=%s message=%s", error.code, error)
            raise
        status = self._response.status
        sent = len(self._body or b"")
        self._log("sent_bytes=%d status=%d id=%s", sent, status, _request_id(self._response))
        return self._response

    def _log(self, message: str, *fields: object) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            place = f"{self._target.scheme}://{self._target.authority}{self._target.path}"
            elapsed = (time.monotonic() - self._begun_at) * 1000
            _log.debug(f"%s after_ms=%d {message}", place.partition("?")[0], elapsed, *fields)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._connection is not None
        assert self._response is not None
        # A reader that stops at the last event closes its generator: that is a success too.
        well = kind is None or kind is GeneratorExit
        self._log("received_bytes=%d ended=%s", self._response.taken, "well" if well else error)
        try:
            if well and self._response.ending and not self._response.complete:
                await self._response.settle(_SETTLE_S)
        finally:
            if well and self._connection.reusable:
                self._client.keep(self._target, self._connection)
            else:
                self._connection.abort()


def _request_id(response: Response) -> str:
    """The name by which the provider's support finds a request."""
    return next(
        (response.headers[name] for name in _ID_HEADERS if name in response.headers), "none"
    )


def _head(
    target: Address, headers: Mapping[str, str], body: bytes | None, plain_proxy: Address | None
) -> bytes:
    path = target.path or "/"
    if plain_proxy:
        path = f"http://{target.authority}{path}"
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"host: {target.authority}"]
    if body is not None:
        lines += ["content-type: application/json", f"content-length: {len(body)}"]
    lines.append("accept-encoding: identity")
    if plain_proxy:
        lines += _proxy_lines(plain_proxy)
    for name, value in headers.items():
        if not (value.isascii() and value.isprintable()):
            raise CallerError(
                f"the value for the header {name} has characters a header cannot carry; "
                "check the key in the environment",
                code="config",
            )
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def _proxy_lines(proxy: Address) -> list[str]:
    if not proxy.user:
        return []
    from urllib.parse import unquote

    token = b2a_base64(unquote(proxy.user).encode(), newline=False).decode("ascii")
    return [f"proxy-authorization: Basic {token}"]
