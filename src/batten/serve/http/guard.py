"""Keeps browsers from being used against the service: checks of `Host` and `Origin`."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from batten.serve.http.errors import HttpError

_MOST_KNOWN = 256
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
"""Browsers leave them out of an `Origin`."""


def host_name(authority: str) -> str:
    """The host of `host:port` in lower case; brackets of IPv6 addresses are removed."""
    authority = authority.strip().lower()
    if authority.startswith("["):
        return authority[1:].partition("]")[0]
    return authority.partition(":")[0]


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


class Guard:
    """Refuses requests that a web page of another site may have caused.

    A server on loopback also wants a `Host` that means this machine, or one of `own_names`: a page
    whose name was bound to 127.0.0.1 would pass the check of `Origin` otherwise.
    """

    def __init__(self, *, is_local: bool, own_names: Iterable[str] = ()) -> None:
        self._is_local = is_local
        self._own_names = frozenset(name.lower() for name in own_names)
        self._known: set[tuple[bytes, bytes | None]] = set()
        """Pairs of Host and Origin that passed; bounded."""

    def check(self, headers: Mapping[bytes, bytes], *, is_shared: bool = False) -> None:
        """Raises `forbidden` or, for a request without `Host`, `invalid_request`.

        `is_shared`: pages of any site may cause this request.
        """
        host = headers.get(b"host", b"")
        origin = None if is_shared else headers.get(b"origin")
        if (host, origin) in self._known:
            return
        self._check(host.decode("latin-1"), None if origin is None else origin.decode("latin-1"))
        if len(self._known) < _MOST_KNOWN:
            self._known.add((host, origin))

    def _check(self, host: str, origin: str | None) -> None:
        name = host_name(host)
        if not name:
            raise HttpError("invalid_request", "the Host header is missing")
        if self._is_local and not is_loopback(name) and name not in self._own_names:
            raise HttpError(
                "forbidden",
                f"the Host header says {name!r}; this server answers to localhost only."
                " Behind a proxy, name it: --allow-host NAME",
            )
        if origin is None:
            return
        scheme, _, authority = origin.lower().partition("://")
        port = _DEFAULT_PORTS.get(scheme, "")
        if not authority or authority != host.strip().lower().removesuffix(port):
            raise HttpError(
                "forbidden",
                f"the Origin {origin!r} is another site than {host!r}; only pages of this"
                " server may call it",
            )


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
