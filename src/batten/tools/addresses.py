"""Addresses that tools may connect to: public ones, and those the user allows by name or range."""

from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from batten.contract.errors import CallerError

Address = IPv4Address | IPv6Address

_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_V4_COMPATIBLE = IPv6Network("::/96")


def is_public(address: Address) -> bool:
    """Whether an address is public; an embedded IPv4 address decides if there is one."""
    if isinstance(address, IPv6Address):
        inner = _wrapped(address)
        if inner is not None:
            return is_public(inner)
        if address.is_site_local:
            return False
    return address.is_global and not (
        address.is_multicast
        or address.is_reserved
        or address.is_unspecified
        or address.is_loopback
        or address.is_link_local
    )


def _wrapped(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address behind this one, if a translator or tunnel unwraps it."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in (*_NAT64, _V4_COMPATIBLE)):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


class Allowed:
    """Hosts and ranges that tools may connect to although they are not public."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._hosts: set[str] = set()
        self._networks: list[IPv4Network | IPv6Network] = []
        for entry in entries:
            self._add(entry.strip())

    def _add(self, entry: str) -> None:
        if not entry:
            return
        try:
            self._networks.append(ip_network(entry, strict=False))
        except ValueError:
            if "/" in entry or ":" in entry:
                raise CallerError(
                    f"{entry!r} is neither a host name nor a range such as 10.0.0.0/8",
                    code="config",
                ) from None
            self._hosts.add(entry.lower().rstrip("."))

    def permits(self, host: str, address: Address) -> bool:
        """Whether a connection to `host` may use `address`."""
        if is_public(address) or host.lower().rstrip(".") in self._hosts:
            return True
        inner = _wrapped(address) if isinstance(address, IPv6Address) else None
        return any(
            one.version == network.version and one in network
            for one in (address, inner)
            if one is not None
            for network in self._networks
        )


def parse_address(text: str) -> Address:
    """Parse an address as the resolver writes it; a scope (`fe80::1%eth0`) is kept."""
    return ip_address(text)
