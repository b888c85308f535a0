"""HTTP for tools: public addresses only, few redirects, a deadline and a size limit.

Refusals and failures are typed errors; any HTTP status is an answer.
"""

import asyncio
import math
import os
import time
import zlib
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

from msgspec import Struct

from batten.contract.errors import CallerError, ProviderError, Refused
from batten.models.connection import Connection, Response, Stale

if TYPE_CHECKING:
    import ssl

MAX_REDIRECTS = 5
REDIRECTS = (301, 302, 303, 307, 308)
_OURS = frozenset(
    ("host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer")
)
"""Headers of the connection itself: a tool that sets them could smuggle a second request."""
_FOLLOWING = frozenset(("accept", "accept-encoding", "accept-language", "user-agent"))
"""Headers that follow a redirect to another host."""

_NEXT_S = 0.25
"""How long an address may take before the next one of a name is tried beside it."""
_CHARSETS = {
    "ascii": "ascii",
    "us-ascii": "ascii",
    "latin-1": "latin-1",
    "latin1": "latin-1",
    "iso-8859-1": "latin-1",
    "windows-1252": "cp1252",
    "cp1252": "cp1252",
}
"""Charsets other than UTF-8. Python supports many more, some slow enough to stall a run."""


class Answer(Struct, frozen=True):
    """The response after redirects."""

    url: str
    status: int
    reason: str
    headers: dict[str, str]
    """Names in lower case; values of a repeated header are joined by commas."""
    body: bytes
    truncated: bool
    """The body exceeds the limit, or its encoding is broken."""
    duration_ms: int

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")

    def text(self) -> str:
        """The body as text, in its declared charset if that is a common one."""
        _, _, charset = self.content_type.lower().partition("charset=")
        charset = charset.partition(";")[0].strip(" \"'")
        if charset.startswith("utf-16") and self.body[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return self.body.decode("utf-16", "replace")
        return self.body.decode(_CHARSETS.get(charset, "utf-8"), "replace")


class Outbound:
    """Sends HTTP requests for tools. `allow` names hosts or ranges that need not be public."""

    def __init__(self, allow: Iterable[str] = (), *, keep_s: float | None = None) -> None:
        """`keep_s`: how long an unused connection is kept for the next request, until `aclose`.
        Without it every request has a connection of its own.
        """
        from batten.tools.addresses import Allowed

        self._allowed = Allowed(allow)
        self._tls: ssl.SSLContext | None = None
        self._keep_s = keep_s
        self._kept: dict[_Place, tuple[Connection, float]] = {}
        """Unused connections, and since when."""

    async def aclose(self) -> None:
        """Close kept connections."""
        while self._kept:
            _, (connection, _) = self._kept.popitem()
            connection.abort()
            await connection.closed

    async def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        deadline_s: float = 30.0,
        max_bytes: int = 256 * 1024,
        follow: bool = True,
        wants_body: bool = True,
        check_redirect: Callable[[str], None] | None = None,
        before_sending: Callable[[], Awaitable[object]] | None = None,
    ) -> Answer:
        """Send a request and follow redirects, unless they are to be answers. The deadline covers
        all of it.

        `check_redirect` raises `Refused` for an address that must not be followed. Headers and a
        body are sent to no other host than the first. `before_sending` is awaited once, when a
        permitted server is connected and before the first byte of the request. Without
        `wants_body` the answer is its status and headers, whatever becomes of the rest.
        """
        sent = _checked_headers(headers or {})
        began = time.monotonic()
        try:
            async with asyncio.timeout(deadline_s):
                given = (method, url, sent, body, max_bytes if wants_body else None, began)
                return await self._follow(
                    *given, follow=follow, check=check_redirect, before_sending=before_sending
                )
        except TimeoutError:
            raise ProviderError(
                f"Request timed out after {deadline_s:g}s", code="timeout", retriable=True
            ) from None

    async def check(self, url: str, *, within_s: float) -> None:
        """Raises `Refused` if the URL's host has no address that tools may reach.

        Does nothing for a URL that cannot be requested, or a host that cannot be found in time:
        `send` reports those.
        """
        from batten.tools.guard import permitted_addresses

        try:
            parts = check_url(url)
            host = (parts.hostname or "").encode("idna").decode("ascii")
            port = parts.port or (443 if parts.scheme == "https" else 80)
            async with asyncio.timeout(within_s):
                await permitted_addresses(self._allowed, host, port)
        except (CallerError, ProviderError, TimeoutError, UnicodeError):
            return

    async def _follow(
        self,
        method: str,
        url: str,
        headers: dict[str, str],
        body: bytes,
        max_bytes: int | None,
        began: float,
        *,
        follow: bool,
        check: Callable[[str], None] | None,
        before_sending: Callable[[], Awaitable[object]] | None,
    ) -> Answer:
        for _ in range(MAX_REDIRECTS + 1):
            request = _request(method, url, headers, body)
            answer = await self._exchange(request, max_bytes, began, before_sending)
            before_sending = None
            target = answer.headers.get("location", "")
            if not follow or answer.status not in REDIRECTS or not target:
                return answer
            before, url = check_url(url), _joined(url, target)
            after = check_url(url)
            if check is not None:
                check(url)
            if answer.status == 303 or (answer.status in (301, 302) and method == "POST"):
                method, body = ("HEAD" if method == "HEAD" else "GET"), b""
            if (before.scheme, before.netloc) != (after.scheme, after.netloc):
                if body:
                    raise Refused(
                        f"the body of a {method} request does not follow a redirect to {url}",
                        code="redirect_refused",
                    )
                headers = {k: v for k, v in headers.items() if k.lower() in _FOLLOWING}
        raise Refused(
            f"more than {MAX_REDIRECTS} redirects, the last to {url}", code="too_many_redirects"
        )

    async def _exchange(
        self,
        request: "_Request",
        max_bytes: int | None,
        began: float,
        before_sending: Callable[[], Awaitable[object]] | None,
    ) -> Answer:
        place = request.place
        connection = self._kept_connection(place) or await self._connect(place)
        is_done = False
        try:
            if before_sending is not None:
                await before_sending()
            try:
                response = await connection.request(request.data, math.inf)
            except Stale:  # a kept connection was closed meanwhile
                connection = await self._connect(place)
                response = await connection.request(request.data, math.inf)
            content, truncated = b"", False
            if request.has_answer and max_bytes is not None:
                encoding = response.headers.get("content-encoding", "")
                content, truncated = await _read(response.chunks(math.inf), encoding, max_bytes)
            is_done = connection.reusable
        except ProviderError as error:
            begun = connection.begun
            if begun is not None and max_bytes is None:
                return _answer(request, begun, b"", began)
            if error.code == "unreachable":
                raise
            why = str(error).removeprefix(f"{place.host}: ")
            raise ProviderError(
                f"{place.host} broke off: {why}", code="unreachable", retriable=True
            ) from error
        finally:
            if is_done and self._keep_s is not None:
                self._kept[place] = (connection, time.monotonic())
            else:
                connection.abort()
        return _answer(request, response, content, began, truncated=truncated)

    def _kept_connection(self, place: "_Place") -> "Connection | None":
        connection, since = self._kept.pop(place, (None, 0.0))
        if connection is None:
            return None
        if connection.alive and time.monotonic() - since < (self._keep_s or 0.0):
            return connection
        connection.abort()
        return None

    async def _connect(self, place: "_Place") -> "Connection":
        """To the first permitted address that answers. One that does not holds up the next for a
        moment only.
        """
        from batten.tools.guard import permitted_addresses

        if place.scheme == "https" and self._tls is None:
            # Reading the certificates takes tens of milliseconds.
            self._tls = await asyncio.to_thread(_tls_context)
        addresses = await permitted_addresses(self._allowed, place.host, place.port)
        opened: list[Connection] = []
        failures: list[OSError | ValueError] = []
        ended = asyncio.Event()

        async def attempt(address: object) -> None:
            try:
                opened.append(await self._open(place, str(address)))
            except (OSError, ValueError) as error:
                failures.append(error)
            ended.set()

        try:
            async with asyncio.TaskGroup() as group:
                tasks: list[asyncio.Task[None]] = []
                while not opened and len(failures) < len(addresses):
                    if len(tasks) < len(addresses):
                        tasks.append(group.create_task(attempt(addresses[len(tasks)])))
                    ended.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(
                            _NEXT_S if len(tasks) < len(addresses) else None
                        ):
                            await ended.wait()
                for task in tasks:
                    task.cancel()
        except BaseException:
            for connection in opened:
                connection.abort()
            raise
        for connection in opened[1:]:
            connection.abort()
        if not opened:
            raise ProviderError(
                f"could not connect to {place.host}:{place.port}: {_reason(failures[-1])}",
                code="unreachable",
                retriable=True,
            ) from failures[-1]
        return opened[0]

    async def _open(self, place: "_Place", address: str) -> "Connection":
        is_secure = place.scheme == "https"
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(place.host),
            address,
            place.port,
            ssl=self._tls if is_secure else None,
            server_hostname=place.host if is_secure else None,
        )
        connection.hold(True)  # a server may answer before it is asked
        return connection


class _Place(NamedTuple):
    """Where a connection leads."""

    scheme: str
    host: str
    port: int


class _Request(NamedTuple):
    url: str
    place: _Place
    data: bytes
    has_answer: bool
    """Whether the answer may have a body."""


def _answer(
    request: _Request, response: Response, body: bytes, began: float, *, truncated: bool = False
) -> Answer:
    return Answer(
        url=request.url,
        status=response.status,
        reason=response.reason,
        headers=response.headers,
        body=body,
        truncated=truncated,
        duration_ms=int((time.monotonic() - began) * 1000),
    )


def check_url(url: str) -> SplitResult:
    """Parse a URL; `CallerError` if tools may not request it."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError as error:
        raise CallerError(f"not a URL: {error}", code="invalid_url") from None
    if parts.scheme not in ("http", "https"):
        raise CallerError("URL must start with http:// or https://", code="invalid_url")
    if not host:
        raise CallerError("the URL names no host", code="invalid_url")
    if "@" in parts.netloc:
        raise CallerError("a URL must not hold credentials; send a header", code="invalid_url")
    return parts


def _joined(url: str, target: str) -> str:
    """The address of a redirect; `Refused` if it is none."""
    try:
        return urljoin(url, target)
    except ValueError as error:
        raise Refused(f"the redirect is no URL: {error}", code="redirect_refused") from None


def _checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if name.lower() in _OURS:
            raise CallerError(f"the header {name} is set by the client", code="invalid_header")
        if any(character in name + value for character in "\r\n\0"):
            raise CallerError(f"the header {name} holds a line break", code="invalid_header")
    return dict(headers)


def _request(method: str, url: str, headers: dict[str, str], body: bytes) -> _Request:
    from batten import __version__

    parts = check_url(url)
    try:
        host = (parts.hostname or "").encode("idna").decode("ascii")
    except UnicodeError:
        raise CallerError(f"{parts.hostname!r} is not a host name", code="invalid_url") from None
    bracketed = f"[{host}]" if ":" in host else host
    overridden = {name.lower() for name in headers}
    default = {
        "Host": bracketed + (f":{parts.port}" if parts.port else ""),
        "User-Agent": f"batten/{__version__}",
        "Accept": "*/*",
        "Accept-Encoding": "gzip, deflate",
    }
    if body or method in ("POST", "PUT", "PATCH"):
        default["Content-Length"] = str(len(body))
    fields = {k: v for k, v in default.items() if k.lower() not in overridden} | headers
    target = _ascii(parts.path or "/") + (f"?{_ascii(parts.query)}" if parts.query else "")
    lines = [f"{name}: {value}" for name, value in fields.items()]
    head = "\r\n".join([f"{_ascii(method)} {target} HTTP/1.1", *lines, "", ""])
    return _Request(
        url,
        _Place(parts.scheme, host, parts.port or (443 if parts.scheme == "https" else 80)),
        head.encode() + body,
        has_answer=method != "HEAD",
    )


def _ascii(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="%/:=&?~#+!$,;'@()*[]-._")


async def _read(stream: AsyncIterable[bytes], encoding: str, limit: int) -> tuple[bytes, bool]:
    """The decoded body up to the limit, and whether there was more."""
    inflate = None
    if encoding.strip().lower() in ("gzip", "x-gzip", "deflate"):
        inflate = zlib.decompressobj(zlib.MAX_WBITS | 32)
    body = bytearray()
    async for chunk in stream:
        if inflate is None:
            body += chunk
        else:
            try:
                # Bounded output: a small body can inflate to gigabytes.
                body += inflate.decompress(chunk, limit + 1 - len(body))
            except zlib.error:
                return bytes(body), True
        if len(body) > limit:
            return bytes(body[:limit]), True
    return bytes(body), False


def _reason(error: OSError | ValueError) -> str:
    """Why there is no connection, without the address, which a name may have many of."""
    import ssl

    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error})"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _tls_context() -> "ssl.SSLContext":
    import ssl

    import certifi

    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context
