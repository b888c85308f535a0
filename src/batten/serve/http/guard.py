"""Keeps browsers from being used against the service: checks of `Host`, `Origin` and
`Sec-Fetch-Site`.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address, ip_address

from batten.serve.http.errors import HttpError
from batten.serve.http.request import Request
from batten.serve.http.table import Route

_MOST_KNOWN = 256
_AUTHORITY = re.compile(
    rb"(?:([A-Za-z0-9._~-]{1,255})|\[([0-9A-Fa-f:.]{2,45})\])(?::([0-9]{0,5}))?"
)
"""A name or an IPv4 address, or an IPv6 address in brackets; then a port, which may be empty."""
_LAST_PORT = 65535
_PORTS = {"http": 80, "https": 443}
"""Browsers leave them out of an `Origin`."""
TLS_ALONE = (b"strict-transport-security", b"max-age=31536000")
_OWN_SITES = frozenset((b"same-origin", b"none"))
"""Of `Sec-Fetch-Site`: a page of this server, or a person who typed the address."""


@lru_cache(maxsize=_MOST_KNOWN)
def read_authority(authority: bytes) -> tuple[str, int | None]:
    """The host in lower case, without brackets, and the port of `host:port`.

    Raises `ValueError` for anything else, such as credentials, a list, or the zone of an address.
    """
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        raise ValueError("it is no HOST or HOST:PORT")
    name, address, digits = found.groups()
    port = int(digits) if digits else None
    if port is not None and port > _LAST_PORT:
        raise ValueError(f"{port} is no port")
    if address is None:
        return name.decode().lower(), port
    try:
        return str(IPv6Address(address.decode())), port
    except AddressValueError as error:
        raise ValueError(str(error)) from error


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine, whoever asks."""
    host = host.removesuffix(".")
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


@lru_cache(maxsize=_MOST_KNOWN)
def wants_tls_alone(host: bytes) -> bool:
    """Whether browsers are told to come by TLS only. They would do so at all ports of the host: as
    `localhost` that is every program of this machine.
    """
    try:
        return not is_loopback(read_authority(host)[0])
    except ValueError:
        return False


def check_host(request: Request) -> None:
    """Make sure that `Host` is there and valid, as HTTP wants it (RFC 9112, 3.2).

    The host of an absolute target takes its place. HTTP/1.0 knows no `Host`.
    """
    headers, authority = request.headers, request.authority
    host = headers.get(b"host")
    if host is None:
        if request.version != "1.0":
            raise HttpError("invalid_request", "the Host header is missing")
    else:
        _check_authority("Host header", host)
    if authority is not None:
        _check_authority("host of the target", authority)
        headers[b"host"] = authority


def _check_authority(what: str, given: bytes) -> None:
    try:
        read_authority(given)
    except ValueError as error:
        text = given[:200].decode("latin-1")
        raise HttpError("invalid_request", f"the {what} is {text!r}: {error}") from error


class Guard:
    """Refuses requests that a web page of another site may have caused.

    A server on loopback also wants a `Host` that means this machine, or one of `own_names`: a page
    whose name was bound to 127.0.0.1 would pass the check of `Origin` otherwise. A request without
    `Host` comes from no browser: every one sends it, and scripts cannot take it away.
    """

    def __init__(self, *, is_local: bool, own_names: Iterable[str] = ()) -> None:
        self._is_local = is_local
        self._own_names = frozenset(name.lower() for name in own_names)
        self._known: set[tuple[bytes | None, bytes | None]] = set()
        """Pairs of Host and Origin that passed; bounded."""

    def check(self, headers: Mapping[bytes, bytes], *, is_shared: bool = False) -> None:
        """Raises `forbidden`. `Host` is valid, or missing.

        `is_shared`: pages of any site may cause this request.
        """
        host = headers.get(b"host")
        origin = None if is_shared else headers.get(b"origin")
        if (host, origin) in self._known:
            return
        self._check(host, origin)
        if len(self._known) < _MOST_KNOWN:
            self._known.add((host, origin))

    def check_site(self, headers: Mapping[bytes, bytes], route: Route) -> None:
        """Raises `forbidden` for what a page of another site loads as a picture, a script or a
        frame: that has no `Origin`.

        Such pages may read what is public, and have links to pages for people.
        """
        site = headers.get(b"sec-fetch-site")
        if site is None or site in _OWN_SITES:
            return
        if route.method == "GET" and (
            route.scope == "public" or (route.is_page and _is_navigation(headers))
        ):
            return
        raise HttpError(
            "forbidden",
            "a page of another site caused this request (Sec-Fetch-Site:"
            f" {site[:20].decode('latin-1')}); only pages of this server may",
        )

    def _check(self, host: bytes | None, origin: bytes | None) -> None:
        name, port = ("", None) if host is None else read_authority(host)
        if host and self._is_local and not is_loopback(name) and name not in self._own_names:
            raise HttpError(
                "forbidden",
                f"the Host header says {name!r}; this server answers to localhost only."
                " Behind a proxy, name it: --allow-host NAME",
            )
        if origin is None:
            return
        scheme, _, authority = origin.lower().partition(b"://")
        default = _PORTS.get(scheme.decode("latin-1"))
        try:
            asking, asking_port = read_authority(authority)
            is_own = (asking, asking_port or default) == (name, port or default)
        except ValueError:
            is_own = False
        if not is_own:
            raise HttpError(
                "forbidden",
                f"the Origin {origin.decode('latin-1')!r} is another site than {name!r}; only pages"
                " of this server may call it",
            )


def _is_navigation(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser shows the answer in a window of its own, and no page reads it."""
    mode, place = headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")
    return mode == b"navigate" and place == b"document"


def check_repeated(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Raise if a header that decides about the request stands there twice."""
    seen: set[bytes] = set()
    for name, _ in headers:
        if name in seen and name in _ONCE:
            raise HttpError("invalid_request", f"the header {name.decode()} is given twice")
        seen.add(name)


_ONCE = frozenset(
    (
        b"host",
        b"origin",
        b"authorization",
        b"x-api-key",
        b"content-length",
        b"content-type",
        b"last-event-id",
        b"x-request-id",
    )
)
