"""Parses the addresses of models, and finds the proxy for one.

Written by hand because importing `urllib.parse` takes longer than everything here.
"""

from collections.abc import Mapping

from msgspec import Struct

from batten.contract.errors import CallerError

_PORTS = {"http": 80, "https": 443}
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Address(Struct, frozen=True):
    scheme: str
    host: str
    port: int
    path: str = ""
    """With its query; starts with a slash or is empty."""
    user: str = ""
    """`name:password`, percent-encoded; only proxies use it."""

    @property
    def origin(self) -> tuple[str, str, int]:
        return (self.scheme, self.host, self.port)

    @property
    def authority(self) -> str:
        """The `Host` header: omits the default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def parse_address(text: str, *, what: str = "address") -> Address:
    """Parse `http(s)://[user@]host[:port][/path]`; `what` names it in the error."""
    scheme, separator, rest = text.strip().partition("://")
    scheme = scheme.lower()
    authority, slash, path = rest.partition("/")
    user, _, place = authority.rpartition("@")
    host, port = _split_port(place)
    number = _PORTS.get(scheme, 0) if port == "" else int(port) if _is_port(port) else 0
    if not (separator and scheme in _PORTS and host and number) or not _is_plain(text):
        raise CallerError(
            f"the {what} {text!r} is not http://host[:port][/path] or https://…", code="config"
        )
    return Address(scheme, host.lower(), number, slash + path, user)


def _split_port(place: str) -> tuple[str, str]:
    if place.startswith("["):
        host, _, rest = place[1:].partition("]")
        return host, rest.removeprefix(":")
    host, _, port = place.partition(":")
    return host, port


def _is_port(text: str) -> bool:
    return text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65536


def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text.strip()


def proxy_for(target: Address, environ: Mapping[str, str]) -> Address | None:
    """The proxy that the environment sets for `target`, if any. Loopback never uses one."""
    if target.host in _LOOPBACK or target.host.startswith("127."):
        return None
    for name in (f"{target.scheme}_proxy", "all_proxy"):
        value = environ.get(name.upper()) or environ.get(name)
        if value:
            if _exempt(target, environ.get("NO_PROXY") or environ.get("no_proxy") or ""):
                return None
            proxy = parse_address(
                value if "://" in value else f"http://{value}", what=f"proxy in {name.upper()}"
            )
            if proxy.scheme != "http":
                raise CallerError(
                    f"the proxy in {name.upper()} must be reached by http://, not {proxy.scheme}://",
                    code="config",
                )
            return proxy
    return None


def _exempt(target: Address, no_proxy: str) -> bool:
    for raw in no_proxy.split(","):
        entry = raw.strip().lower()
        if not entry:
            continue
        if entry == "*":
            return True
        if "/" in entry:
            if _in_network(target.host, entry):
                return True
            continue
        host, port = _split_port(entry)
        if port and port != str(target.port):
            continue
        suffix = host.removeprefix("*").removeprefix(".")
        if target.host == suffix or target.host.endswith(f".{suffix}"):
            return True
    return False


def _in_network(host: str, network: str) -> bool:
    import ipaddress

    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
